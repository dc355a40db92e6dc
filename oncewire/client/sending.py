"""A message on its way, as the application holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from oncewire.client.outcomes import Outcome
from oncewire.client.own_loop import require_loop


class Sending:
    """A message on its way. ``await sending`` gives its Outcome, whatever it is.

    Attributes:
        number: how many messages this publisher took before it since its journal was made.
        future: where the outcome comes; for the publisher.
        was_awaited: whether the application awaited the outcome; if not, `flush()` reports a bad one.
    """

    __slots__ = ("future", "number", "was_awaited")

    def __init__(self, number: int) -> None:
        self.number = number
        self.future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.was_awaited = False

    def __await__(self) -> Generator[object, None, Outcome]:
        require_loop(self.future.get_loop())
        self.was_awaited = True
        return asyncio.shield(self.future).__await__()

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, None while there is none.

        Raises:
            ClientError: the publisher ended before there was one.
        """
        if not self.future.done():
            return None
        self.was_awaited = True
        return self.future.result()
