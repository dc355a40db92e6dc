"""From topics into a journal: what is stored is accepted, in one transaction (J-16, J-25, J-27, J-28)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

from bridges.journal import log
from bridges.journal.messages import MAX_MESSAGE_BYTES, new_message
from bridges.journal.model import ROW_BYTES, JournalSettings, JournalState, NewMessage, WhenFull
from bridges.store.client_journals import FeedJournal
from bridges.store.crash_points import CrashPoint, passed
from bridges.store.subscribed_link import SubscribedLink
from bridges.store.topic_link import TAKES_OVER, Tenure, logger
from oncewire.client import Client, Delivery, Subscriber
from oncewire.client.login import TokenSource
from oncewire.client.outcomes import rejected
from oncewire.store.errors import EdgeError, InvalidRequest, PayloadTooLarge, SubscriptionEnded
from oncewire.store.open_store import OpenStore, until_set
from oncewire.store.owners import Owner
from oncewire.store.rules_core import check_topic
from oncewire.store.store import Transaction

BATCH = 2048
"""Messages of one transaction at most; as many may come ahead, so that the next ones arrive while these are written."""
TIMEOUT_S = 24 * 3600
"""How long the network keeps the subscription while no process of the edge runs; publishers wait for it meanwhile."""
LOOK_S = 5.0
"""How often a journal is looked at that is idle, or full, though nothing is announced: it may have been deleted."""
REJECTED = "oncewire:not-stored"
"""Error condition of a message that the journal can never store."""


class JournalSubscription(SubscribedLink):
    """Subscribes a journal to a topic or pattern, and appends what comes.

    The subscription belongs to journal and topic: it stays when this process ends, and whoever runs it on the same
    store goes on. One process at a time runs it; others stand by (J-28).

    Args:
        store: with the journal.
        name: of the journal, which is there.
        topic: a topic, or a pattern (`*` one token, `#` the rest).
        routers: URLs, tried in turn.
        ssl_context: for URLs that ask for TLS; None = Python's default.
        token: as at ``connect()``; None = log in with what the URLs have.
        hostname: as at ``connect()``: the virtual host of the topic.
        timeout: seconds the network keeps the subscription while no process runs it, and publishers of the topic wait.
        drops_copies: store a message once though its publisher sends it again, as stock clients do (D-3).
        tenure: how this process comes to run it.
        edge: the name of this process, which operators see beside the journal; empty = none.

    Raises:
        InvalidRequest: the topic cannot be used.

    Attributes:
        subscribed: set when the network has confirmed the subscription: what is published from now on is stored.
        is_full: the journal is full and refuses: publishers wait (J-25).
    """

    link = "journal"
    prefetch = BATCH

    def __init__(
        self,
        store: OpenStore[Any],
        name: str,
        topic: str,
        routers: str | Sequence[str],
        *,
        ssl_context: ssl.SSLContext | None = None,
        token: TokenSource | None = None,
        hostname: str | None = None,
        timeout: int | None = TIMEOUT_S,
        drops_copies: bool = False,
        tenure: Tenure = TAKES_OVER,
        edge: str = "",
    ) -> None:
        check_topic(topic)
        super().__init__(store, f"journal {name!r} from {topic!r}", routers, ssl_context, token, hostname, tenure)
        self._journal = name
        self._edge = edge
        self.subscribe_to(topic, timeout, drops_copies=drops_copies)
        self.is_full = False

    async def _serve(self, client: Client, owner: Owner) -> None:
        await self._store.transact(lambda do: self._begin_serving(do, owner))
        journal = FeedJournal(self._store, owner)
        subscriber = await self._subscribe(client, journal)
        self.subscribed.set()
        with self._store.waiting(log.notice_of(self._journal)) as changed:
            try:
                while True:
                    await self._step(subscriber, journal, changed)
            except SubscriptionEnded:
                await subscriber.unsubscribe()
                raise

    def _begin_serving(self, do: Transaction, owner: Owner) -> None:
        owner.check(do)
        log.state(do, self._journal)
        if self._edge:
            log.note_owner(do, self._journal, self._edge)

    async def _step(self, subscriber: Subscriber, journal: FeedJournal, changed: asyncio.Event) -> None:
        try:
            deliveries = await subscriber.receive_many(BATCH, timeout=LOOK_S)
        except TimeoutError:
            await self._state()
            return
        passed(CrashPoint.FEED_RECEIVED)
        await self._append(subscriber, journal, deliveries, changed)

    async def _append(
        self, subscriber: Subscriber, journal: FeedJournal, deliveries: Sequence[Delivery], changed: asyncio.Event
    ) -> None:
        """J-16: messages and acceptance are one transaction; the network is notified when it is durable."""
        changed.clear()
        found = await self._state()
        good, messages = await self._without_bad(subscriber, deliveries, found.settings)
        done = 0
        while done < len(good):
            count = await self._fitting(messages[done:], changed, found if not done else None)
            some = messages[done : done + count]
            await subscriber.finish(
                good[done : done + count],
                effect=lambda some=some: journal.add(lambda do: log.append(do, self._journal, some, self._topic)),  # type: ignore[misc]
            )
            done += count
            self.done += count

    async def _without_bad(
        self, subscriber: Subscriber, deliveries: Sequence[Delivery], settings: JournalSettings
    ) -> tuple[Sequence[Delivery], Sequence[NewMessage]]:
        """Reject what the journal can never store; returns the others, and what is stored of them."""
        most = min(MAX_MESSAGE_BYTES, settings.max_bytes - ROW_BYTES)
        if settings.compact_by is None and max(len(each.payload) for each in deliveries) <= most:
            return deliveries, [NewMessage(each.payload, each.message_format) for each in deliveries]
        good: list[Delivery] = []
        messages: list[NewMessage] = []
        for delivery in deliveries:
            try:
                messages.append(self._checked(delivery, settings))
                good.append(delivery)
            except (InvalidRequest, PayloadTooLarge) as error:
                logger.error("%s: a message from %s was rejected: %s", self._name, delivery.publisher, error)
                await subscriber.finish([delivery], rejected(REJECTED, str(error)))
        return good, messages

    async def _state(self) -> JournalState:
        """J-27: a journal that was deleted ends its subscription.

        Raises:
            SubscriptionEnded: it was.
        """
        found = await self._store.transact(lambda do: log.find(do, self._journal))
        if found is None:
            raise SubscriptionEnded(f"{self._name} ends here", "the journal was deleted", "make it, and run this again")
        return found

    @staticmethod
    def _checked(delivery: Delivery, settings: JournalSettings) -> NewMessage:
        message = new_message(delivery.payload, delivery.message_format, settings.compact_by)
        size = len(message.payload) + ROW_BYTES
        if size > settings.max_bytes:
            why = f"it takes {size} bytes, and the journal has {settings.max_bytes}"
            raise PayloadTooLarge("the message was not stored", why, "raise the journal's max_bytes")
        return message

    async def _fitting(
        self, messages: Sequence[NewMessage], changed: asyncio.Event, found: JournalState | None = None
    ) -> int:
        """J-25: how many of the messages have room; where the first has none, wait until it has.

        `found`: where the journal stood after `changed` was cleared; None = it is to be looked at.
        """
        while True:
            if found is None:
                changed.clear()
                found = await self._state()
            settings = found.settings
            room = settings.max_bytes - (found.kept_bytes if settings.when_full is WhenFull.REFUSE else 0)
            found = None
            sizes = [len(message.payload) + ROW_BYTES for message in messages]
            count = len(sizes) if sum(sizes) <= room else sum(total <= room for total in accumulate(sizes))
            if self.is_full is (count > 0):
                self.is_full = not count
                logger.warning(
                    "%s: the journal is %s", self._name, "no longer full" if count else "full, so publishers wait"
                )
            if count:
                return count
            with suppress(EdgeError):
                await self._store.listen()
            await until_set(changed, LOOK_S)
