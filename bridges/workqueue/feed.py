"""From a topic into a queue: each message becomes exactly one item (W-19)."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from bridges.store.client_journals import FeedJournal
from bridges.store.crash_points import CrashPoint, passed
from bridges.store.subscribed_link import SubscribedLink
from bridges.store.topic_link import TAKES_OVER, Tenure, logger
from bridges.workqueue.errors import QueueError
from bridges.workqueue.items import DEFAULT_PRIORITY, NewItem
from bridges.workqueue.queue import Queue
from bridges.workqueue.rules_core import check_payload, check_priority
from oncewire.client import Client, Delivery, Subscriber
from oncewire.client.login import TokenSource
from oncewire.client.outcomes import rejected
from oncewire.store.owners import Owner
from oncewire.store.rules_core import check_topic
from oncewire.wire import DecodeError
from oncewire.wire.json_values import body_octets

BATCH = 256
"""Messages of one transaction, at most: as many as a subscriber prefetches."""
REJECTED = "oncewire:not-an-item"
"""Error condition of a message that cannot be an item."""


class Feed(SubscribedLink):
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
        drops_copies: one item of a message though its publisher sends it again, as stock clients do (D-3).
        tenure: how this process comes to run the feed.

    Raises:
        InvalidRequest: topic or priority cannot be used.

    Attributes:
        subscribed: set when the network has confirmed the subscription: what is published from now on becomes items.
    """

    link = "feed"
    prefetch = BATCH

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
        drops_copies: bool = False,
        tenure: Tenure = TAKES_OVER,
    ) -> None:
        check_topic(topic)
        check_priority(priority)
        name = f"feed of {queue.name!r} from {topic!r}"
        super().__init__(queue.store, name, routers, ssl_context, token, hostname, tenure)
        self._queue = queue
        self.subscribe_to(topic, timeout, drops_copies=drops_copies)
        self._priority = priority
        self._max_payload_bytes = 0

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
            self.done += len(items)

    def _payload(self, delivery: Delivery) -> bytes:
        """Return the body: bytes as they are, a string as UTF-8, any other value as JSON.

        Raises:
            DecodeError: the message is no AMQP message.
            PayloadTooLarge: its body can be no item of this queue.
        """
        payload = body_octets(delivery.body)
        check_payload(payload, self._max_payload_bytes)
        return payload
