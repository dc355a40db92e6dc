"""Publishes what a store has decided, in its order for each topic, until every subscription has accepted it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from oncewire.client.connection import Client
from oncewire.client.errors import NotAccepted
from oncewire.client.outcomes import Outcome, OutcomeKind
from oncewire.client.sending import Sending
from oncewire.client.transactions.crash_points import CrashPoint, reach
from oncewire.client.transactions.opening import StoreThread
from oncewire.client.transactions.receiving import Network
from oncewire.client.transactions.store import Store
from oncewire.client.transactions.store_schema import Intent

logger = logging.getLogger("oncewire.client")

SESSION_S = 600
"""How long the network keeps the session of a publisher that crashed: its successor has one of its own."""
BACKLOG = 5000
"""Unconfirmed messages beyond which no transaction begins: half of what the store allows (MAX_UNCONFIRMED)."""


class Outputs:
    """What one owner of a store publishes.

    The container-id is random: repeats are recognised by their sequence header, and a zombie that still publishes what
    it committed disturbs nobody.
    """

    def __init__(self, network: Network, store: Store[Any], thread: StoreThread) -> None:
        self._client: Client = network.client(None)
        self._store = store
        self._thread = thread
        self._queues: dict[str, asyncio.Queue[Intent]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._accepted: list[Intent] = []
        self._has_accepted = asyncio.Event()
        self._unconfirmed = 0
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Connect.

        Raises:
            ClientError: no router can be reached.
        """
        _ = await self._client.start()

    async def close(self) -> None:
        """Leave. What is not confirmed is published again by the store's next owner."""
        await self._client.abandon()

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
            await self._confirm()

    async def _publish(self, topic: str, queue: asyncio.Queue[Intent]) -> None:
        publisher = await self._client.publisher(topic, resend_in_doubt=True, timeout=SESSION_S)
        sent: asyncio.Queue[tuple[Intent, Sending]] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            _ = group.create_task(self._collect(sent))
            while True:
                intent = await queue.get()
                sent.put_nowait((intent, await publisher.submit(intent)))
                reach(CrashPoint.PUBLISHED_IN_PART)

    async def _collect(self, sent: asyncio.Queue[tuple[Intent, Sending]]) -> None:
        while True:
            intent, sending = await sent.get()
            self._check(intent, await sending)
            self._accepted.append(intent)
            self._has_accepted.set()

    def _check(self, intent: Intent, outcome: Outcome) -> None:
        if outcome.kind in {OutcomeKind.MODIFIED, OutcomeKind.UNKNOWN}:
            raise NotAccepted([outcome])  # the next incarnation publishes it again
        if outcome.kind is OutcomeKind.REJECTED:
            logger.warning(
                "%s rejected a message that the store %r published to %s: %s %s",
                ", ".join(outcome.subscriptions.names if outcome.subscriptions else ()) or "a subscription",
                *(self._store.name, intent.topic, outcome.condition, outcome.description),
            )

    async def _confirm(self) -> None:
        while True:
            await self._has_accepted.wait()
            self._has_accepted.clear()
            reach(CrashPoint.ACCEPTED)
            accepted, self._accepted = self._accepted, []
            await self._thread.call(lambda: self._store.confirm(accepted))  # noqa: B023  (called before the next turn)
            reach(CrashPoint.CONFIRMED)
            self._unconfirmed -= len(accepted)
            self._changed.set()
