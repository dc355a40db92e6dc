"""What feeds and journals have in common: one subscription, and its end for good."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from bridges.store.client_journals import FeedJournal
from bridges.store.topic_link import TopicLink
from oncewire.client import Client, Subscriber
from oncewire.store.owners import ENDED, take_over


class SubscribedLink(TopicLink):
    """Takes the messages of a topic or pattern into the store.

    Attributes:
        link: name of the subscription; the container-id distinguishes those of one kind.
        prefetch: messages of one transaction at most, and that may come ahead.
        subscribed: set when the network has confirmed the subscription: what is published from now on is stored.
    """

    link: ClassVar[str]
    prefetch: ClassVar[int]
    subscribed: asyncio.Event
    _topic: str
    _timeout: int | None
    _drops_copies: bool

    def subscribe_to(self, topic: str, timeout: int | None, *, drops_copies: bool) -> None:
        """Say what `run` subscribes to.

        Args:
            topic: a topic or a pattern.
            timeout: for how long the network keeps that while nobody runs it.
            drops_copies: store a message once though its publisher sends it again (D-3).
        """
        self._topic, self._timeout, self._drops_copies = topic, timeout, drops_copies
        self.subscribed = asyncio.Event()

    async def unsubscribe(self) -> None:
        """End the subscription for good, in place of `run`: publishers of the topic wait for it no longer.

        What the network has not delivered by then is not stored; what is stored stays. Whoever runs it, or stands by,
        ends with TakenOver.

        Raises:
            EdgeError: the store cannot be used.
            ClientError: the network did not end it; do it again.
        """
        owner = await self._store.transact(lambda do: take_over(do, self._name))
        async with self._client(owner) as client:
            subscriber = await self._subscribe(client, FeedJournal(self._store, owner))
            await subscriber.unsubscribe()
        await self._store.transact(lambda do: owner.give_back(do, ENDED))

    async def _subscribe(self, client: Client, journal: FeedJournal) -> Subscriber:
        return await client.subscriber(
            self._topic,
            name=self.link,
            journal=journal,
            prefetch=self.prefetch,
            timeout=self._timeout,
            stores=True,
            deduplicate=self._drops_copies,
        )
