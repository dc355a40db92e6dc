"""Waiting for what another process does: on the condition, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

WAIT_S = 180.0
"""Far more than any of these take on a busy machine: the longest, a mutant, takes 7 s on one that is free."""
POLL_S = 0.05


def wait_until(condition: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
    """Return as soon as the condition holds.

    Raises:
        AssertionError: it does not within this time; `what` says what was waited for.
    """
    ends_at = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends_at, what
        time.sleep(POLL_S)


async def eventually(
    condition: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str = "what was waited for"
) -> None:
    """The same for coroutines; the condition may have to be awaited itself."""
    ends_at = time.monotonic() + WAIT_S
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        assert time.monotonic() < ends_at, f"never happened: {what}"
        await asyncio.sleep(0.01)
