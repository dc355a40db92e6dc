"""Reports when a publisher waits for long: what its messages wait for, named after five seconds.

One timer for a publisher with messages on their way, none for a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

NOTICE_S = 5.0
"""A message that is not processed by then waits for somebody who is absent, stopped or slow."""
AGAIN_S = 60.0
"""Between two notices about the same message."""


class StallNotice:
    """Looks every five seconds whether the oldest message is still the same.

    Args:
        oldest: returns the number of the oldest message without an outcome; None = there is none.
        notify: called with that number, and the seconds it was seen to wait.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, oldest: Callable[[], int | None], notify: Callable[[int, float], None]
    ) -> None:
        self.is_leaving = False
        self._loop = loop
        self._oldest = oldest
        self._notify = notify
        self._timer: asyncio.TimerHandle | None = None
        self._seen: int | None = None
        self._seen_at = 0.0
        self._reported_at: float | None = None

    def work(self) -> None:
        """There are messages on their way; for each of them."""
        if self._timer is None:
            self._look()

    def leave(self) -> None:
        """The application leaves the publisher and waits for its messages: it hears why, also if it did before."""
        self.is_leaving = True
        self.stop()
        self._seen = None
        self._look()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        number = self._oldest()
        if number is None:
            return
        now = self._loop.time()
        if number != self._seen:
            self._seen, self._seen_at, self._reported_at = number, now, None
        elif self._reported_at is None or now - self._reported_at >= AGAIN_S:
            self._reported_at = now
            self._notify(number, now - self._seen_at)
        self._timer = self._loop.call_later(NOTICE_S, self._look)
