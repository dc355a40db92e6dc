"""One turn of the event loop: everything it produced for a socket goes out in one write."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Output(Protocol):
    """Something with bytes to write at the end of the turn."""

    def flush(self) -> None:
        """Write what there is; raises nothing, for others wait behind it (K-3b)."""
        ...


class Turn:
    """Collects the outputs that have something to write."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._dirty: list[Output] = []

    def mark_dirty(self, output: Output) -> None:
        """Have `output.flush()` called at the end of this turn. An output marks itself once until it is flushed."""
        if not self._dirty:
            self._loop.call_soon(self._flush)
        self._dirty.append(output)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for output in dirty:
            output.flush()
