"""A message on its way, as the application holds it.

Who awaits it has a future of its own, so that being cancelled costs nobody else the outcome, and the outcome wakes it
in the next round of the event loop: what it sends then goes out in one write with the settlement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from oncewire.client.errors import ClientError
from oncewire.client.outcomes import Outcome
from oncewire.client.own_loop import require_loop


class Sending:
    """A message on its way. ``await sending`` gives its Outcome, whatever it is.

    Attributes:
        number: how many messages this publisher took before it since its journal was made.
        was_awaited: whether the application awaited the outcome; if not, `flush()` reports a bad one.
    """

    __slots__ = ("_error", "_future", "_loop", "_outcome", "_waiters", "number", "was_awaited")

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        self.was_awaited = False
        self._loop = loop
        self._outcome: Outcome | None = None
        self._error: ClientError | None = None
        self._future: asyncio.Future[Outcome] | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    def __await__(self) -> Generator[object, None, Outcome]:
        require_loop(self._loop)
        self.was_awaited = True
        if not self._is_over:
            waiter: asyncio.Future[None] = self._loop.create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            try:
                yield from waiter.__await__()
            finally:
                self._waiters.remove(waiter)
        return self._result()

    @property
    def future(self) -> asyncio.Future[Outcome]:
        """Where the outcome comes, for callbacks; the same one for all who ask, so leave it uncancelled."""
        if self._future is None:
            self._future = self._loop.create_future()
            self._pass_on()
        return self._future

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, None while there is none.

        Raises:
            ClientError: the publisher ended before there was one.
        """
        if not self._is_over:
            return None
        self.was_awaited = True
        return self._result()

    @property
    def _is_over(self) -> bool:
        return self._outcome is not None or self._error is not None

    def _result(self) -> Outcome:
        if self._error is not None:
            raise self._error
        assert self._outcome is not None
        return self._outcome

    def _end(self, outcome: Outcome | None, error: ClientError | None = None) -> None:
        """Called by the publisher, once: the outcome, or why there is none."""
        self._outcome, self._error = outcome, error
        if self._future is not None:
            self._pass_on()
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def _pass_on(self) -> None:
        future = self._future
        if future is None or future.done():
            return
        if self._outcome is not None:
            future.set_result(self._outcome)
        elif self._error is not None:
            future.set_exception(self._error)
            future.exception()  # whoever does not wait for it needs no warning
