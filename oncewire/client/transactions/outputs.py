"""Publishes what a store has decided, in its order for each topic, until every subscription has accepted it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncewire.client.connection import Client
from oncewire.client.errors import NotAccepted
from oncewire.client.outcomes import Outcome, OutcomeKind, counted
from oncewire.client.publisher import Publisher
from oncewire.client.sending import Sending
from oncewire.client.transactions.crash_points import CrashPoint, reach
from oncewire.client.transactions.inputs import InputJournal
from oncewire.client.transactions.opening import StoreThread
from oncewire.client.transactions.output_maps import is_published_again
from oncewire.client.transactions.running import until_first_ends
from oncewire.client.transactions.store import Store
from oncewire.client.transactions.store_schema import Intent

logger = logging.getLogger("oncewire.client")

BACKLOG = 5000
"""Unconfirmed messages beyond which no transaction begins: half of what the store allows (MAX_UNCONFIRMED)."""
RETRY_S = 1.0
"""Pause before messages without enough subscriptions are sent again (ST-8)."""


@dataclass(slots=True)
class _Topic:
    """What is published to one topic.

    Attributes:
        queue: intents that were not looked at.
        taken: those that its publisher has and that have no outcome, by number, in order.
        publisher: None while it is opened.
        waits: for subscriptions (ST-8).
    """

    queue: asyncio.Queue[Intent] = field(default_factory=asyncio.Queue)
    taken: dict[int, Intent] = field(default_factory=dict)
    publisher: Publisher | None = None
    waits: bool = False


class Outputs:
    """What one owner of a store publishes, as the same publishers as all owners before it (ST-7).

    Args:
        client: connected, under the store's name.
        store: open.
        journal: of the store's links.
        thread: where the store is used.
        required: subscriptions that a topic must have, 0: none.
    """

    def __init__(
        self,
        client: Client,
        store: Store[Any],
        journal: InputJournal,
        thread: StoreThread,
        required: Callable[[str], int],
    ) -> None:
        self._client = client
        self._store = store
        self._journal = journal
        self._thread = thread
        self._required = required
        self._topics: dict[str, _Topic] = {}
        self._group: asyncio.TaskGroup | None = None
        self._unconfirmed = 0
        self._changed = asyncio.Event()

    def add(self, intents: Sequence[Intent]) -> None:
        """Publish these, which are committed."""
        assert self._group is not None
        self._unconfirmed += len(intents)
        for intent in intents:
            known = self._topics.get(intent.topic)
            if known is None:
                known = self._topics[intent.topic] = _Topic()
                _ = self._group.create_task(self._publish(intent.topic, known))
            known.queue.put_nowait(intent)

    async def on_their_way(self) -> None:
        """Wait until what was added and credit allows is sent: the next transaction would hold up its commit (P-1).

        Raises:
            JournalError: it cannot be sent.
        """
        await asyncio.sleep(0)  # the publishers take it
        for known in list(self._topics.values()):
            if known.publisher is not None:
                await known.publisher._recorded()
        await asyncio.sleep(0)  # the client writes it
        reach(CrashPoint.PUBLISHED_IN_PART)

    async def until_at_most(self, count: int, stop: asyncio.Event | None = None) -> None:
        """Wait until no more messages than this are unconfirmed, or `stop` is set and ``wake`` was called."""
        while self._unconfirmed > count and not (stop is not None and stop.is_set()):
            await self._change()

    @property
    def unconfirmed(self) -> int:
        """Messages that were committed and have no outcome, also those that wait for subscriptions."""
        return self._unconfirmed

    async def until_none(self) -> None:
        """Wait until none is unconfirmed but those that wait for subscriptions (ST-8)."""
        while any(not known.waits and (known.taken or known.queue.qsize()) for known in self._topics.values()):
            await self._change()

    async def _change(self) -> None:
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

    async def _publish(self, topic: str, known: _Topic) -> None:
        while True:
            publisher = known.publisher = await self._client.publisher(
                topic,
                name=self._store.maps.link(topic),
                journal=self._journal,
                resend_in_doubt=True,
                require=self._required(topic) or None,
            )
            if not self._store.maps.has_released(topic):
                await self._until_released(publisher, known)
            known.publisher = None
            await self._wait_for_subscriptions(publisher, known)

    async def _until_released(self, publisher: Publisher, known: _Topic) -> None:
        recovered = {sending.number: sending for sending in publisher.recovered}
        first_new = publisher.next_number
        sent: asyncio.Queue[tuple[Intent, Sending]] = asyncio.Queue()

        def take(intent: Intent) -> None:
            known.taken[intent.number] = intent
            if intent.number >= first_new:
                sent.put_nowait((intent, publisher._take_stored(intent.number, intent.encode())))
            elif intent.number in recovered:
                sent.put_nowait((intent, recovered.pop(intent.number)))
            else:
                self._finish(known, intent)  # it got its outcome behind a release

        async def take_all() -> None:
            for intent in list(known.taken.values()):
                take(intent)
            while True:
                take(await known.queue.get())

        try:
            await until_first_ends(take_all(), self._collect(known, sent))
        except NotAccepted as error:
            if any(outcome.kind is not OutcomeKind.RELEASED for outcome in error.outcomes):
                raise

    async def _wait_for_subscriptions(self, publisher: Publisher, known: _Topic) -> None:
        """ST-8: when all that was sent has its outcome, another session sends again what was sent to nobody."""
        if not known.waits:
            known.waits = True
            wanted = counted(self._required(publisher.topic), "subscription")
            logger.warning(
                "%r: the topic %r has fewer than %s; messages to it wait", self._store.name, publisher.topic, wanted
            )
        if await publisher.end_released():
            await self._thread.call(lambda: self._journal.send_released(publisher.topic))
        self._changed.set()
        await asyncio.sleep(RETRY_S)

    async def _collect(self, known: _Topic, sent: asyncio.Queue[tuple[Intent, Sending]]) -> None:
        """Until something is released and kept."""
        while True:
            intent, sending = await sent.get()
            outcome = await sending
            if outcome.kind is OutcomeKind.RELEASED and self._journal.keeps_released:
                return
            self._check(intent, outcome)
            known.waits = known.waits and not outcome.is_accepted
            self._finish(known, intent)

    def _finish(self, known: _Topic, intent: Intent) -> None:
        del known.taken[intent.number]
        self._unconfirmed -= 1
        self._changed.set()

    def _check(self, intent: Intent, outcome: Outcome) -> None:
        if is_published_again(outcome):
            raise NotAccepted([outcome])  # the next incarnation publishes it again
        if not outcome.is_accepted:
            logger.warning(
                "a message that the store %r published to %s was %s by %s: %s %s",
                *(self._store.name, intent.topic, outcome.kind.value),
                ", ".join(outcome.subscriptions.names if outcome.subscriptions else ()) or "a subscription",
                *(outcome.condition, outcome.description),
            )
