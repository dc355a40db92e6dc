"""Subscriptions that write what they receive into the journal of a store."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from oncewire.client.connecting import connect
from oncewire.client.connection import Client
from oncewire.client.delivery import Delivery
from oncewire.client.errors import ClientError, LinkStolen, ProcessFailed, StoreError
from oncewire.client.events import ClientEvent, LinkInterrupted
from oncewire.client.failover import LinkEnd, end_of
from oncewire.client.login import TokenSource
from oncewire.client.outcomes import rejected
from oncewire.client.subscriber import Subscriber
from oncewire.client.transactions.crash_points import CrashPoint, reach
from oncewire.client.transactions.inputs import InputJournal
from oncewire.client.transactions.opening import StoreThread
from oncewire.client.transactions.running import until_first_ends
from oncewire.client.transactions.sequence_header import HeaderError, read_header
from oncewire.wire import WireError

MALFORMED = "oncewire:malformed-message"
"""Error condition of a message that is rejected because it, or its sequence header, cannot be read."""
AT_ONCE = 256
"""Deliveries recorded by one commit: as many as a subscriber lets come ahead."""
MAX_BACKLOG = 10_000
"""Recorded messages that wait to be processed. Beyond it deliveries wait in the network, and publishers with them."""


@dataclass(frozen=True, slots=True)
class Network:
    """How the routers are reached.

    Attributes:
        routers: addresses as for ``connect()``.
        ssl_context: for ``amqps``.
        on_event: called with what happens to connections and links.
        token: as for ``connect()``.
    """

    routers: str | Sequence[str]
    ssl_context: ssl.SSLContext | None = None
    on_event: Callable[[ClientEvent], None] | None = None
    token: TokenSource | None = None

    def client(self, container_id: str, on_event: Callable[[ClientEvent], None]) -> Client:
        """Make a client that is not connected yet."""
        return connect(
            self.routers, container_id=container_id, ssl_context=self.ssl_context, token=self.token, on_event=on_event
        )


class Receiving:
    """The subscriptions of one store, until they fail.

    Args:
        network: where they are.
        name: of the store; it is the container-id.
        inputs: its journal.
        thread: where the store is used.
        backlog: how many recorded messages were not processed.

    Attributes:
        client: what it receives with, under the store's name.
    """

    def __init__(
        self, network: Network, name: str, inputs: InputJournal, thread: StoreThread, backlog: Callable[[], int]
    ) -> None:
        self.client = network.client(name, self._on_event)
        self._network = network
        self._inputs = inputs
        self._thread = thread
        self._backlog = backlog
        self._subscribers: list[Subscriber] = []
        self._being_recorded = 0
        self._has_room = asyncio.Event()
        self._changed = asyncio.Event()
        # Set when another process attaches a link of ours: a later owner of the store, or a consumer of the same name.
        self._was_stolen = asyncio.Event()

    async def open(self, topics: Sequence[str], timeout_s: int | None, *, is_kept: bool = True) -> None:
        """Connect and subscribe. What is published from now on is received.

        Args:
            topics: topics or patterns.
            timeout_s: how long the network keeps the subscriptions without this process.
            is_kept: whether another process may go on with them.

        Raises:
            ClientError: no router can be reached, or it refuses.
        """
        self.client.keeps_links = is_kept
        _ = await self.client.start()
        for topic in topics:
            self._subscribers.append(
                await self.client.subscriber(topic, name=topic, journal=self._inputs, timeout=timeout_s, stores=True)
            )

    async def run(self) -> None:
        """Receive until something fails.

        Raises:
            StoreFenced: a later owner has opened the store.
            ClientError: a link, the client or the store failed.
        """
        async with self.explained():
            await until_first_ends(*map(self._receive, self._subscribers), self._watch_fence())

    @asynccontextmanager
    async def explained(self) -> AsyncIterator[None]:
        """What fails in this block on a link of the store fails with the reason that the store knows.

        Raises:
            StoreFenced: a later owner has opened the store.
            ClientError: as the block.
        """
        try:
            yield
        except LinkStolen:
            await self._thread.call(self._inputs.check_fence)
            raise
        except (StoreError, ProcessFailed):
            raise
        except ClientError as error:
            raise self._inputs.failure or error from error

    async def _watch_fence(self) -> None:
        """Look at once whether it is a later owner that takes our links, not only with the next commit (ST-1, CO-5)."""
        while True:
            await self._was_stolen.wait()
            self._was_stolen.clear()
            await self._thread.call(self._inputs.check_fence)

    async def _receive(self, subscriber: Subscriber) -> None:
        while True:
            await self.until_room()
            deliveries = await subscriber.receive_many(AT_ONCE)
            reach(CrashPoint.RECEIVED)
            with self.recording():
                usable = [delivery for delivery in deliveries if await self._is_usable(subscriber, delivery)]
                if usable:
                    await self._record(subscriber, usable)
                    self._changed.set()

    async def _is_usable(self, subscriber: Subscriber, delivery: Delivery) -> bool:
        try:
            _ = read_header(delivery.message.annotations)
        except (HeaderError, WireError) as error:
            await subscriber.finish([delivery], rejected(MALFORMED, str(error)))
            return False
        return True

    async def _record(self, subscriber: Subscriber, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._inputs.arrive(subscriber.name, delivery.tag, delivery.payload)
        await subscriber.finish(deliveries)
        tags = [delivery.tag for delivery in deliveries]
        left = self._inputs.left_over(subscriber.name, tags)
        if left:
            await self._thread.call(lambda: self._inputs.append(subscriber.name, left))

    @property
    def has_more(self) -> bool:
        """Whether messages have come that are not recorded."""
        return self._being_recorded > 0 or any(subscriber.waiting for subscriber in self._subscribers)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """What is taken in this block is recorded at its end."""
        self._being_recorded += 1
        try:
            yield
        finally:
            self._being_recorded -= 1

    async def until_room(self) -> None:
        """Wait while much is recorded that was not processed."""
        while self._backlog() >= MAX_BACKLOG:
            self._has_room.clear()
            await self._has_room.wait()

    async def changed(self) -> None:
        """Wait until messages were recorded since the last call."""
        await self._changed.wait()
        self._changed.clear()

    def made_room(self) -> None:
        """Messages were processed: more may come."""
        self._has_room.set()

    def wake(self) -> None:
        """Let ``changed`` return."""
        self._changed.set()

    async def close(self, *, unsubscribe: bool = False) -> None:
        """Leave; the network keeps the subscriptions unless they are to end."""
        try:
            if unsubscribe:
                self.client.keeps_links = False  # whatever comes in between
                for subscriber in self._subscribers:
                    await subscriber.unsubscribe()
        finally:
            await self.client.abandon()

    def _on_event(self, event: ClientEvent) -> None:
        if isinstance(event, LinkInterrupted) and end_of(event.condition) is LinkEnd.STOLEN:
            self._was_stolen.set()
        if self._network.on_event is not None:
            self._network.on_event(event)
