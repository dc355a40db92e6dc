"""Runs a coroutine that is cancelled at chosen ones of its awaits, and again at each of them in turn."""

from __future__ import annotations

import asyncio
import itertools
import types
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator
from functools import partial
from pathlib import Path
from typing import Any

LONG_S = 60.0
"""Nothing that was cancelled takes so long to end."""


class Interruption:
    """Cancels one call when it waits for the so-manieth time.

    Args:
        at: which waits, counted from 1.

    Attributes:
        at: as given.
        waits: how often the call has waited.
        cancelled_at: when it was cancelled last, by the loop's clock; None = not yet.
    """

    def __init__(self, at: Collection[int]) -> None:
        self.at = at
        self.waits = 0
        self.cancelled_at: float | None = None

    @property
    def was_complete(self) -> bool:
        """Whether the call waited often enough to be cancelled each time."""
        return self.waits >= max(self.at)

    async def call(self, work: Awaitable[Any], enough: asyncio.Event | None = None) -> None:
        """Run it to its end, cancelled on the way. What it raises is its own affair.

        Args:
            work: the call.
            enough: of a call that does not end by itself: when this is set it is cancelled in any case.

        Raises:
            AssertionError: it does not end.
        """
        task = asyncio.ensure_future(self._counted(_as_coroutine(work)))
        if enough is not None:
            waiting = asyncio.ensure_future(enough.wait())
            await asyncio.wait([task, waiting], timeout=LONG_S, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            task.cancel()
        await asyncio.wait([task], timeout=LONG_S)
        assert task.done(), f"cancelled at wait {sorted(self.at)}, it does not end: {task.get_stack()}"
        if not task.cancelled():
            task.exception()

    @types.coroutine
    def _counted(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = partial(work.send, None)
        while True:
            try:
                waits_for = step()
            except StopIteration as end:
                return end.value
            self.waits += 1
            if self.waits in self.at:
                task = asyncio.current_task()
                assert task is not None
                self.cancelled_at = task.get_loop().time()
                task.get_loop().call_soon(task.cancel)
            try:
                found = yield waits_for
                step = partial(work.send, found)
            except BaseException as error:  # noqa: BLE001  (the coroutine's own affair)
                step = partial(work.throw, error)


async def _as_coroutine(work: Awaitable[Any]) -> Any:
    return await work


def open_files() -> int:
    """How many files this process has open."""
    return len([*Path("/proc/self/fd").iterdir()])


def interrupted_everywhere(run: Callable[[Interruption], None]) -> None:
    """Call `run` with an interruption at each wait, and at each pair of waits, until the call has no further one."""
    for first in itertools.count(1):
        once = Interruption([first])
        run(once)
        if not once.was_complete:
            return
        for second in itertools.count(first + 1):
            twice = Interruption([first, second])
            run(twice)
            if not twice.was_complete:
                break
