"""Turns of the event loop: what one produced for a socket goes out in one write, and none takes long."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

TURN_S = 0.005
"""For one client at a time: a tenth of what is noticed, and a thousandth of the fence deadline (K-3)."""


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


def work_for_a_turn(step: Callable[[], bool], clock: Callable[[], float]) -> bool:
    """Do step after step until one says that nothing is left, or the turn is over.

    Args:
        step: a small piece of work; tells whether more is left.
        clock: monotonic, in seconds.

    Returns:
        Whether more is left.
    """
    ends_at = clock() + TURN_S
    while step():
        if clock() >= ends_at:
            return True
    return False


class Unfinished(Protocol):
    """Somebody whose work did not end with its turn."""

    def go_on(self) -> bool:
        """Take another turn; whether more is left."""
        ...


class Backlog:
    """Who has work left. One of them has a turn in each round of the event loop, and all have as many."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Unfinished, None] = OrderedDict()

    def append(self, unfinished: Unfinished) -> None:
        """Give it turns until nothing is left."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._give_a_turn)
        self._waiting[unfinished] = None

    def _give_a_turn(self) -> None:
        unfinished = next(iter(self._waiting))
        is_left = False
        try:
            is_left = unfinished.go_on()
        finally:
            del self._waiting[unfinished]
            if is_left:
                self._waiting[unfinished] = None
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._give_a_turn)
