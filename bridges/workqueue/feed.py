"""From a topic into a queue: each message becomes exactly one item (W-19)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from bridges.workqueue.crash_points import CrashPoint, passed
from bridges.workqueue.errors import QueueError
from bridges.workqueue.items import DEFAULT_PRIORITY, NewItem
from bridges.workqueue.queue import Queue
from bridges.workqueue.rules_core import check_payload, check_priority, check_topic
from bridges.workqueue.topic_journal import ENDED, FeedJournal, Owner, take_over
from bridges.workqueue.topic_link import TopicLink, logger
from oncewire.client import Client, Delivery, Subscriber
from oncewire.client.login import TokenSource
from oncewire.client.outcomes import rejected
from oncewire.wire import DecodeError, body_octets

BATCH = 256
"""Messages of one transaction, at most: as many as a subscriber prefetches."""
LINK = "feed"
"""Name of the subscription; the container-id distinguishes feeds."""
REJECTED = "oncewire:not-an-item"
"""Error condition of a message that cannot be an item."""


class Feed(TopicLink):
    """Subscribes to a topic and pushes the body of each message into a queue.

    The subscription belongs to the pair of topic and queue: it stays when this process ends, and whoever runs the
    same feed on the same store continues where it was. One process at a time: the one that began last (W-23); the
    others stand by (W-26).

    Args:
        queue: where the items go; made if there is none.
        topic: a topic, or a pattern (`*` one token, `#` the rest).
        routers: URLs, tried in turn.
        ssl_context: for URLs that ask for TLS; None = Python's default.
        token: as at ``connect()``; None = log in with what the URLs have.
        hostname: as at ``connect()``: the virtual host of the topic.
        timeout: seconds the network keeps the subscription while no process runs the feed, and publishers of the topic
            wait for it; None = the longest the network allows.
        priority: of the items.

    Raises:
        InvalidRequest: topic or priority cannot be used.

    Attributes:
        subscribed: set when the network has confirmed the subscription: what is published from now on becomes items.
    """

    def __init__(
        self,
        queue: Queue,
        topic: str,
        routers: str | Sequence[str],
        *,
        ssl_context: ssl.SSLContext | None = None,
        token: TokenSource | None = None,
        hostname: str | None = None,
        timeout: int | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> None:
        check_topic(topic)
        check_priority(priority)
        super().__init__(queue.store, f"feed of {queue.name!r} from {topic!r}", routers, ssl_context, token, hostname)
        self._queue = queue
        self._topic = topic
        self._timeout = timeout
        self._priority = priority
        self._max_payload_bytes = 0
        self.subscribed = asyncio.Event()

    async def unsubscribe(self) -> None:
        """End the subscription for good, in place of `run`: publishers of the topic wait for it no longer.

        What the network has not delivered by then does not become items; what was pushed stays. Whoever runs the
        feed, or stands by, ends with TakenOver.

        Raises:
            QueueError: the store cannot be used.
            ClientError: the network did not end it; do it again.
        """
        owner = await self._store.transact(lambda do: take_over(do, self._name))
        async with self._client(owner) as client:
            subscriber = await self._subscribe(client, FeedJournal(self._store, owner))
            await subscriber.unsubscribe()
        await self._store.transact(lambda do: owner.give_back(do, ENDED))

    async def _subscribe(self, client: Client, journal: FeedJournal) -> Subscriber:
        return await client.subscriber(self._topic, name=LINK, journal=journal, prefetch=BATCH, timeout=self._timeout)

    async def _serve(self, client: Client, owner: Owner) -> None:
        self._max_payload_bytes = (await self._queue.configure()).max_payload_bytes
        journal = FeedJournal(self._store, owner)
        subscriber = await self._subscribe(client, journal)
        self.subscribed.set()
        while True:
            deliveries = await subscriber.receive_many(BATCH)
            passed(CrashPoint.FEED_RECEIVED)
            await self._push(subscriber, journal, deliveries)

    async def _push(self, subscriber: Subscriber, journal: FeedJournal, deliveries: Sequence[Delivery]) -> None:
        """W-19: items and acceptance are one transaction; the network is notified when it is durable."""
        good: list[Delivery] = []
        items: list[NewItem] = []
        for delivery in deliveries:
            try:
                items.append(NewItem(self._payload(delivery), priority=self._priority))
                good.append(delivery)
            except (DecodeError, QueueError) as error:  # W-20: it would not become one later
                logger.error("%s: a message from %s was rejected: %s", self._name, delivery.publisher, error)
                await subscriber.finish([delivery], rejected(REJECTED, str(error)))
        if items:
            name = self._queue.name
            await subscriber.finish(good, effect=lambda: journal.add(lambda do: do.push(name, items)))

    def _payload(self, delivery: Delivery) -> bytes:
        """Return the body: bytes as they are, a string as UTF-8, any other value as JSON.

        Raises:
            DecodeError: the message is no AMQP message.
            PayloadTooLarge: its body can be no item of this queue.
        """
        payload = body_octets(delivery.body)
        check_payload(payload, self._max_payload_bytes)
        return payload
