"""Waits that a cancellation does not break off, for what must have ended before something else is released.

Half a commit is none, and a task that still runs uses what is closed behind it. What is waited for here is short, or
made short by `hurry`; the cancellation counts when it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


async def wait_out(*works: asyncio.Future[Any], hurry: Callable[[], object] | None = None) -> bool:
    """Wait until all have ended, whatever they raise; return whether this was cancelled meanwhile.

    Args:
        works: futures or tasks.
        hurry: called at each cancellation.
    """
    cancelled = False
    while waiting := [work for work in works if not work.done()]:
        try:
            await asyncio.wait(waiting)
        except asyncio.CancelledError:
            cancelled = True
            if hurry is not None:
                hurry()
    return cancelled


async def ended(*works: asyncio.Future[Any], hurry: Callable[[], object] | None = None) -> None:
    """Do the same; a cancellation is raised when all have ended."""
    if await wait_out(*works, hurry=hurry):
        raise asyncio.CancelledError


async def in_thread(
    pool: ThreadPoolExecutor | None, work: Callable[[], Result], undo: Callable[[Result], object] | None = None
) -> Result:
    """Run it in a thread and return its result; when this is cancelled, behind its end.

    Args:
        pool: where; None = the loop's own.
        work: blocks.
        undo: gives back what nobody gets, because this was cancelled.
    """
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(pool, work)
    if not await wait_out(running):
        return running.result()
    if running.exception() is None and undo is not None:
        found = running.result()
        await wait_out(loop.run_in_executor(pool, lambda: undo(found)))
    raise asyncio.CancelledError
