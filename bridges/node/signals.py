"""Notifies tasks of changes, without losing a notification between the check and the wait."""

from __future__ import annotations

import asyncio


class Signal:
    """Counts notifications; a task waits until the count differs from the one it saw before its check."""

    def __init__(self) -> None:
        self.count = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Something has changed. Call it in the event loop."""
        self.count += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seen: int, timeout: float) -> None:
        """Return after a notification later than `seen`, or after `timeout` seconds."""
        if self.count != seen:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=timeout)
        finally:
            self._waiters.discard(waiter)
