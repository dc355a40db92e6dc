"""Publishers for programs without an event loop: see `oncewire.client.sync`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oncewire import client as asynchronous
from oncewire.client.loop_thread import LoopThread
from oncewire.client.outcomes import Outcome
from oncewire.client.sync_link import SyncLink

if TYPE_CHECKING:
    import sqlite3

    from oncewire.client.bodies import Body
    from oncewire.wire import Properties


class Sending:
    """A message on its way. ``result()`` waits for its outcome.

    Attributes:
        number: how many messages this publisher took before it since its journal was made.
        asynchronous: what it stands for in the event loop.
    """

    def __init__(self, thread: LoopThread, sending: asynchronous.Sending) -> None:
        self._thread = thread
        self.asynchronous = sending
        self.number = sending.number

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, None while there is none. Errors as `result`."""
        return self.asynchronous.outcome

    def result(self, timeout: float | None = None) -> Outcome:
        """Wait for the outcome, whatever it is.

        Raises:
            TimeoutError: there is none after `timeout` seconds; nothing is lost.
            ClientError: the publisher ended before there was one.
        """

        async def wait() -> Outcome:
            async with asyncio.timeout(timeout):
                return await self.asynchronous

        return self._thread.call(wait)


class StillOwed(asynchronous.StillOwed):
    """``send(timeout=)``: no outcome yet, and the message stays in flight; ``pending.result()`` waits on.

    Attributes:
        pending: the message.
    """

    def __init__(self, error: asynchronous.StillOwed, pending: Sending) -> None:
        super().__init__(error.subscriptions, error.count, error.why, error.sending)
        self.fix = self.fix.replace("`await error.sending`", "`error.pending.result()`")
        self.pending = pending


class Publisher(SyncLink):
    """Sends messages to one topic. Made by ``Client.publisher()``; see ``oncewire.client.Publisher``.

    Attributes:
        topic: where its messages go.
        name: of the link.
        statistics: counts since it was opened.
        recovered: messages that the journal held when it was opened, in order; they are sent again by themselves.
    """

    def __init__(self, thread: LoopThread, publisher: asynchronous.Publisher) -> None:
        super().__init__(thread, publisher)
        self._publisher = publisher
        self.recovered = tuple(map(self._sending, publisher.recovered))

    def _sending(self, sending: asynchronous.Sending) -> Sending:
        return Sending(self._thread, sending)

    def send(
        self,
        body: Body,
        *,
        timeout: float | None = None,
        properties: Properties | None = None,
        application_properties: dict[str, object] | None = None,
    ) -> Outcome:
        """Send a message and wait until every subscription has processed it.

        Raises:
            NotAccepted: it ended otherwise; the outcome is in the error.
            StillOwed: the time is over; the message stays in flight.
            WindowFull: the time is over and the message was not even taken.
            UsageError: the message cannot be encoded, or is too large.
            ClientError: the publisher failed or was closed.
        """
        try:
            return self._thread.call(
                lambda: self._publisher.send(
                    body, timeout=timeout, properties=properties, application_properties=application_properties
                )
            )
        except asynchronous.StillOwed as error:
            raise self._still_owed(error) from None

    def _still_owed(self, error: asynchronous.StillOwed) -> StillOwed:
        assert isinstance(error.sending, asynchronous.Sending)
        return StillOwed(error, self._sending(error.sending))

    def submit(
        self,
        body: Body,
        *,
        properties: Properties | None = None,
        application_properties: dict[str, object] | None = None,
    ) -> Sending:
        """Take a message; returns as soon as the window has room for it. Errors as `send`."""
        return self._sending(
            self._thread.call(
                lambda: self._publisher.submit(
                    body, properties=properties, application_properties=application_properties
                )
            )
        )

    def submit_many(
        self, bodies: Sequence[Body], *, effect: Callable[[sqlite3.Connection], object] | None = None
    ) -> list[Sending]:
        """Take several messages, with a change of the application's own tables, in one transaction of the journal."""
        return list(map(self._sending, self._thread.call(lambda: self._publisher.submit_many(bodies, effect=effect))))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every message taken so far has its outcome. Raises NotAccepted, TimeoutError, ClientError."""
        self._thread.call(lambda: self._publisher.flush(timeout))

    def owed(self, sending: Sending) -> StillOwed:
        """Ask the router why a message has no outcome yet; the answer is what `send(timeout=)` would raise."""
        return StillOwed(self._thread.call(lambda: self._publisher._owed(sending.asynchronous)), sending)

    @property
    def unfinished(self) -> int:
        """Messages without an outcome."""
        return self._publisher.unfinished

    @property
    def oldest(self) -> Sending | None:
        """The first message without an outcome; later ones wait for it."""
        oldest = self._publisher.oldest
        return None if oldest is None else self._sending(oldest)

    @property
    def unanswered(self) -> list[Sending]:
        """The messages without an outcome, in order."""
        return [self._sending(sending) for sending in self._publisher._unanswered]

    @property
    def next_number(self) -> int:
        """How many messages were taken since the journal was made."""
        return self._publisher.next_number

    def close(self, timeout: float | None = None) -> None:
        """Wait for all outcomes (`flush`), then end the publisher's session with the network. Errors as `flush`."""
        self._thread.call(lambda: self._publisher.close(timeout))

    def suspend(self) -> None:
        """Leave without waiting: the network keeps the session, unsettled messages stay in the journal."""
        self._thread.call(self._publisher.suspend)


class CodecPublisher(Publisher):
    """A publisher that was opened with ``codec=``: it sends what the codec encodes."""

    if TYPE_CHECKING:  # as of a publisher, with other bodies

        def send(
            self,
            body: object,
            *,
            timeout: float | None = None,
            properties: Properties | None = None,
            application_properties: dict[str, object] | None = None,
        ) -> Outcome:
            """See `Publisher`."""
            ...

        def submit(
            self,
            body: object,
            *,
            properties: Properties | None = None,
            application_properties: dict[str, object] | None = None,
        ) -> Sending:
            """See `Publisher`."""
            ...

        def submit_many(
            self, bodies: Sequence[object], *, effect: Callable[[sqlite3.Connection], object] | None = None
        ) -> list[Sending]:
            """See `Publisher`."""
            ...


class SettledPublisher(SyncLink):
    """Sends messages to one topic, each at most once. Made by ``Client.settled_publisher()``.

    Attributes:
        topic, name, statistics: as of a `Publisher`.
    """

    def __init__(self, thread: LoopThread, publisher: asynchronous.SettledPublisher) -> None:
        super().__init__(thread, publisher)
        self._publisher = publisher

    def send(
        self,
        body: Body,
        *,
        timeout: float | None = None,
        properties: Properties | None = None,
        application_properties: dict[str, object] | None = None,
    ) -> None:
        """Write a message to the connection. Raises TimeoutError, UsageError, ClientError: it was not written."""
        self._thread.call(
            lambda: self._publisher.send(
                body, timeout=timeout, properties=properties, application_properties=application_properties
            )
        )

    def close(self) -> None:
        """End the link, behind everything that was written."""
        self._thread.call(self._publisher.close)

    def suspend(self) -> None:
        """Leave without waiting for the router."""
        self._thread.call(self._publisher.suspend)
