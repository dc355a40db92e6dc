"""The client for programs without an event loop: the same methods, which wait. Start with ``connect()``.

Each client has an event loop in a thread of its own, where the client of ``oncewire.client`` runs; what is here passes
calls on. Any thread may use a client and its links. Callbacks (`on_event`, `token`, `effect`) run in that thread: they
must be short, and cannot call the client.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from oncewire import client as asynchronous
from oncewire.client.defaults import (
    CONNECT_S,
    IDLE_TIME_OUT_S,
    MAX_FRAME_SIZE,
    MAX_MESSAGE_SIZE,
    PREFETCH,
    SUBSCRIPTION_TIMEOUT_S,
    WINDOW,
    WINDOW_BYTES,
)
from oncewire.client.errors import ClientClosed
from oncewire.client.loop_thread import LoopThread
from oncewire.client.outcomes import ACCEPTED, Outcome
from oncewire.client.sync_delivery import Delivery, block_of
from oncewire.client.sync_link import SyncLink
from oncewire.client.sync_publisher import CodecPublisher, Publisher, Sending, SettledPublisher, StillOwed

if TYPE_CHECKING:
    import sqlite3
    import ssl

    from oncewire.client.codec import Codec, CodecSource
    from oncewire.client.events import ClientEvent, ClientStatistics
    from oncewire.client.journals import JournalSource
    from oncewire.client.links import OpenLink
    from oncewire.client.login import TokenSource
    from oncewire.client.publisher_terms import PublisherTerms
    from oncewire.client.source_terms import Start

__all__ = ["Client", "Delivery", "Publisher", "Sending", "SettledPublisher", "StillOwed", "Subscriber", "connect"]


def connect(
    urls: str | Sequence[str],
    *,
    container_id: str | None = None,
    journal: JournalSource | None = None,
    ssl_context: ssl.SSLContext | None = None,
    timeout: float = CONNECT_S,
    idle_time_out: float = IDLE_TIME_OUT_S,
    max_frame_size: int = MAX_FRAME_SIZE,
    max_message_size: int = MAX_MESSAGE_SIZE,
    allow_plain: bool = False,
    token: TokenSource | None = None,
    hostname: str | None = None,
    on_event: Callable[[ClientEvent], None] | None = None,
) -> Client:
    """Create a client. It connects when it is entered with ``with``, or by ``start()``.

    Arguments and errors are those of ``oncewire.client.connect``.
    """
    return Client(
        asynchronous.connect(
            urls,
            container_id=container_id,
            journal=journal,
            ssl_context=ssl_context,
            timeout=timeout,
            idle_time_out=idle_time_out,
            max_frame_size=max_frame_size,
            max_message_size=max_message_size,
            allow_plain=allow_plain,
            token=token,
            hostname=hostname,
            on_event=on_event,
        )
    )


class Client:
    """What ``connect()`` makes; see ``oncewire.client.Client``.

    Attributes:
        statistics: what happened so far.
    """

    def __init__(self, client: asynchronous.Client) -> None:
        self._client = client
        self._thread = LoopThread()
        self.statistics: ClientStatistics = client.statistics

    @property
    def container_id(self) -> str:
        """The identity in use, once it is connected."""
        return self._client.container_id

    @property
    def links(self) -> list[OpenLink]:
        """Its open publishers and subscribers, as the client of its event loop has them: read their `statistics`."""
        return self._client.links

    def start(self) -> Self:
        """Connect. Errors as of the client that this waits for."""
        self._thread.start()
        try:
            _ = self._thread.call(self._client.start)
        except BaseException:
            self._thread.stop()
            raise
        return self

    def close(self) -> None:
        """Close all links (publishers wait for their outcomes), then the connection; then the thread ends."""
        self._end(self._client.close)

    def abandon(self) -> None:
        """Suspend all links, close the connection, and end the thread."""
        self._end(self._client.abandon)

    def _end(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._thread.is_running:
            return
        try:
            self._thread.call(work)
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        (self.close if kind is None else self.abandon)()

    @overload
    def publisher(self, topic: str, **terms: Unpack[PublisherTerms]) -> Publisher: ...
    @overload
    def publisher(
        self, topic: str, *, codec: CodecSource | None, **terms: Unpack[PublisherTerms]
    ) -> CodecPublisher: ...
    def publisher(
        self,
        topic: str,
        *,
        name: str | None = None,
        journal: JournalSource | None = None,
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
        resend_in_doubt: bool = False,
        exactly_once: bool = True,
        require: int | None = None,
        require_processed: int | None = None,
        timeout: int | None = None,
        codec: CodecSource | None = None,
    ) -> Any:
        """Open a publisher; returns when a router has granted it. Use it with ``with``, or close it."""
        opening = self._client.publisher(
            topic,
            name=name,
            journal=journal,
            window=window,
            window_bytes=window_bytes,
            resend_in_doubt=resend_in_doubt,
            exactly_once=exactly_once,
            require=require,
            require_processed=require_processed,
            timeout=timeout,
            codec=codec,
        )
        return CodecPublisher(self._thread, self._thread.call(lambda: opening))

    def settled_publisher(self, topic: str, *, name: str | None = None) -> SettledPublisher:
        """Open a publisher whose messages are sent at most once."""
        opening = self._client.settled_publisher(topic, name=name)
        return SettledPublisher(self._thread, self._thread.call(lambda: opening))

    def subscriber(
        self,
        topic: str,
        *,
        name: str | None = None,
        journal: JournalSource | None = None,
        prefetch: int = PREFETCH,
        exactly_once: bool = True,
        settled: bool = False,
        timeout: int | None = SUBSCRIPTION_TIMEOUT_S,
        selector: str | None = None,
        share: str | None = None,
        by_group: bool = False,
        deduplicate: bool = False,
        stores: bool = False,
        codec: CodecSource | None = None,
    ) -> Subscriber:
        """Subscribe; returns when every message sent from then on is owed to it. Use it with ``with``, or close it."""
        opening = self._client.subscriber(
            topic,
            name=name,
            journal=journal,
            prefetch=prefetch,
            exactly_once=exactly_once,
            settled=settled,
            timeout=timeout,
            selector=selector,
            share=share,
            by_group=by_group,
            deduplicate=deduplicate,
            stores=stores,
            codec=codec,
        )
        return Subscriber(self._thread, self._thread.call(lambda: opening))

    def journal(
        self,
        source: str,
        *,
        start: Start = "first",
        name: str | None = None,
        journal: JournalSource | None = None,
        prefetch: int = PREFETCH,
        settled: bool = False,
        codec: CodecSource | None = None,
    ) -> Subscriber:
        """Read what an edge keeps of topics, in order. Use it with ``with``, or close it."""
        opening = self._client.journal(
            source, start=start, name=name, journal=journal, prefetch=prefetch, settled=settled, codec=codec
        )
        return Subscriber(self._thread, self._thread.call(lambda: opening))


class Subscriber(SyncLink):
    """Receives the messages of a topic or pattern. Made by ``Client.subscriber()``; see ``oncewire.client.Subscriber``.

    ``for delivery in subscriber`` gives deliveries in order, until it is closed; each must be finished.

    Attributes:
        topic, name, statistics: as of a `Publisher`.
    """

    def __init__(self, thread: LoopThread, subscriber: asynchronous.Subscriber) -> None:
        super().__init__(thread, subscriber)
        self._subscriber = subscriber

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        try:
            return Delivery(self._thread, self._thread.call(self._subscriber.receive))
        except ClientClosed:
            raise StopIteration from None

    def receive(self, timeout: float | None = None) -> Delivery:
        """The next delivery. Raises TimeoutError: none came in `timeout` seconds; ClientError."""
        return Delivery(self._thread, self._thread.call(lambda: self._subscriber.receive(timeout)))

    def receive_many(self, limit: int, timeout: float | None = None) -> list[Delivery]:
        """All deliveries that are there, at least one, at most `limit`. Errors as `receive`."""
        taken = self._thread.call(lambda: self._subscriber.receive_many(limit, timeout))
        return [Delivery(self._thread, each) for each in taken]

    @property
    def waiting(self) -> int:
        """Deliveries that are here and not yet taken by the application."""
        return self._subscriber.waiting

    @property
    def codec(self) -> Codec | None:
        """What reads bodies; None: `value` is the body."""
        return self._subscriber.codec

    @property
    def incarnation(self) -> int:
        """The subscription's incarnation, as last reported by a router; 0 = not yet. See `NewIncarnation`."""
        return self._subscriber.incarnation

    @property
    def granted_timeout(self) -> int | None:
        """Seconds the network keeps the subscription while it is not attached, as last stated; None = not yet."""
        return self._subscriber.granted_timeout

    def finish(
        self, deliveries: Sequence[Delivery], outcome: Outcome = ACCEPTED, *, effect: Callable[[], object] | None = None
    ) -> None:
        """Record the outcome of deliveries, then notify the network. Returns when it is recorded.

        Raises:
            UsageError: one of them was finished before, or an effect without a durable journal; none is finished then.
            ClientError: it could not be recorded.
        """
        taken = [each.asynchronous for each in deliveries]
        self._thread.call(lambda: self._subscriber.finish(taken, outcome, effect=effect))

    def transaction(self, *deliveries: Delivery) -> AbstractContextManager[sqlite3.Connection]:
        """Process deliveries and accept them in one transaction of the journal.

        See ``oncewire.client.Subscriber``. The block runs in the caller's thread; nothing else uses the connection
        meanwhile, and no link of this journal can be closed in it.
        """
        return block_of(self._thread, self._subscriber.transaction(*(each.asynchronous for each in deliveries)))

    def suspend(self) -> None:
        """Detach; the network keeps the subscription (for its `timeout`) and everything it is owed."""
        self._thread.call(self._subscriber.suspend)

    def close(self) -> None:
        """Suspend a subscription with a name, end one without: no process could open it again."""
        self._thread.call(self._subscriber.close)

    def unsubscribe(self) -> None:
        """End the subscription for good. Returns when the network has deleted it. Raises ClientError: it was not."""
        self._thread.call(self._subscriber.unsubscribe)
