"""Publishes what a store has decided, in its order for each topic, until every subscription has accepted it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from oncewire.client.connection import Client
from oncewire.client.errors import NotAccepted
from oncewire.client.outcomes import Outcome, OutcomeKind
from oncewire.client.publisher import Publisher
from oncewire.client.sending import Sending
from oncewire.client.transactions.crash_points import CrashPoint, reach
from oncewire.client.transactions.inputs import InputJournal
from oncewire.client.transactions.output_maps import PUBLISHED_AGAIN
from oncewire.client.transactions.store import Store
from oncewire.client.transactions.store_schema import Intent

logger = logging.getLogger("oncewire.client")

BACKLOG = 5000
"""Unconfirmed messages beyond which no transaction begins: half of what the store allows (MAX_UNCONFIRMED)."""


class Outputs:
    """What one owner of a store publishes, as the same publishers as all owners before it (ST-7).

    Args:
        client: connected, under the store's name.
        store: open.
        journal: of the store's links.
    """

    def __init__(self, client: Client, store: Store[Any], journal: InputJournal) -> None:
        self._client = client
        self._store = store
        self._journal = journal
        self._queues: dict[str, asyncio.Queue[Intent]] = {}
        self._publishers: list[Publisher] = []
        self._group: asyncio.TaskGroup | None = None
        self._unconfirmed = 0
        self._changed = asyncio.Event()

    def add(self, intents: Sequence[Intent]) -> None:
        """Publish these, which are committed."""
        assert self._group is not None
        self._unconfirmed += len(intents)
        for intent in intents:
            queue = self._queues.get(intent.topic)
            if queue is None:
                queue = self._queues[intent.topic] = asyncio.Queue()
                _ = self._group.create_task(self._publish(intent.topic, queue))
            queue.put_nowait(intent)

    async def on_their_way(self) -> None:
        """Wait until what was added and credit allows is sent: the next transaction would hold up its commit (P-1).

        Raises:
            JournalError: it cannot be sent.
        """
        await asyncio.sleep(0)  # the publishers take it
        for publisher in self._publishers:
            await publisher.recorded()
        await asyncio.sleep(0)  # the client writes it
        reach(CrashPoint.PUBLISHED_IN_PART)

    async def until_at_most(self, count: int, stop: asyncio.Event | None = None) -> None:
        """Wait until no more messages than this are unconfirmed, or `stop` is set and ``wake`` was called."""
        while self._unconfirmed > count and not (stop is not None and stop.is_set()):
            self._changed.clear()
            await self._changed.wait()

    def wake(self) -> None:
        """Let ``until_at_most`` look at its `stop`."""
        self._changed.set()

    async def run(self, begin: Sequence[Intent]) -> None:
        """Publish until something fails.

        Raises:
            ClientError: a publisher, the client or the store failed.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            self.add(begin)
            await asyncio.get_running_loop().create_future()

    async def _publish(self, topic: str, queue: asyncio.Queue[Intent]) -> None:
        publisher = await self._client.publisher(
            topic, name=self._store.maps.link(topic), journal=self._journal, resend_in_doubt=True
        )
        recovered = {sending.number: sending for sending in publisher.recovered}
        self._publishers.append(publisher)
        sent: asyncio.Queue[tuple[Intent, Sending]] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            _ = group.create_task(self._collect(sent))
            while True:
                intent = await queue.get()
                known = recovered.pop(intent.number, None)
                sent.put_nowait((intent, known or publisher.take_stored(intent.number, intent.encode())))

    async def _collect(self, sent: asyncio.Queue[tuple[Intent, Sending]]) -> None:
        while True:
            intent, sending = await sent.get()
            self._check(intent, await sending)
            self._unconfirmed -= 1
            self._changed.set()

    def _check(self, intent: Intent, outcome: Outcome) -> None:
        if outcome.kind in PUBLISHED_AGAIN:
            raise NotAccepted([outcome])  # the next incarnation publishes it again
        if outcome.kind is OutcomeKind.REJECTED:
            logger.warning(
                "%s rejected a message that the store %r published to %s: %s %s",
                ", ".join(outcome.subscriptions.names if outcome.subscriptions else ()) or "a subscription",
                *(self._store.name, intent.topic, outcome.condition, outcome.description),
            )
