"""One owner of a consumer's store: from raising the fence to its failure, its successor or its stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from oncewire.client.codec import Codec
from oncewire.client.errors import ProcessFailed, UsageError
from oncewire.client.events import ConsumerStatistics
from oncewire.client.isolation import Isolation
from oncewire.client.source_terms import Start
from oncewire.client.transactions.crash_points import CrashPoint, reach
from oncewire.client.transactions.failed_messages import FailedMessages, Failure
from oncewire.client.transactions.feed import Feed
from oncewire.client.transactions.inputs import InputJournal
from oncewire.client.transactions.journal_inputs import JournalPositions, JournalReceiving, source_of
from oncewire.client.transactions.messages import ReceivedMessage, Transaction
from oncewire.client.transactions.opening import StoreThread
from oncewire.client.transactions.outputs import BACKLOG, Outputs
from oncewire.client.transactions.receiving import Network, Receiving
from oncewire.client.transactions.refused import LOOK_S
from oncewire.client.transactions.running import until_first_ends
from oncewire.client.transactions.store import Store
from oncewire.client.transactions.store_schema import Intent

LEAVE_S = 10.0
"""How long an owner that stops waits until what it published is accepted; its successor resumes with the rest."""

Process = Callable[[Transaction, ReceivedMessage], object]
Finalize = Callable[[Transaction], object]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a consumer was notified of.

    Attributes:
        network: where topics are.
        store: address of the database.
        name: of the consumer: its store's name and its container-id.
        topics: its subscriptions.
        schema: statements to run once it is opened.
        timeout_s: how long the network keeps its subscriptions while it is not connected; None = as long as possible.
        batch: positions that one transaction reads at most.
        ring_messages: pending messages in memory for each topic.
        failed: messages at which the function fails.
        require: subscriptions that topics must have that it publishes to.
        journals: where to start in each journal that is read.
        statistics: counted in all incarnations.
        codec: reads bodies and encodes what is published.
        leave_s: how long an owner that stops waits until what it published is accepted.
    """

    network: Network
    store: str
    name: str
    topics: Sequence[str]
    schema: Sequence[str]
    timeout_s: int | None
    batch: int
    ring_messages: int
    failed: FailedMessages
    require: int
    journals: Mapping[str, Start] = field(default_factory=dict)
    statistics: ConsumerStatistics = field(default_factory=ConsumerStatistics)
    codec: Codec | None = None
    leave_s: float = LEAVE_S

    @property
    def sources(self) -> Sequence[str]:
        """What its messages come in on."""
        return [*self.topics, *map(source_of, self.journals)]

    def required(self, topic: str) -> int:
        """Subscriptions that a topic must have; a dead letter that nobody gets would be lost."""
        return max(self.require, 1 if topic == self.failed.topic else 0)


@dataclass(frozen=True, slots=True)
class _Committed:
    """What a transaction has done."""

    messages: Sequence[ReceivedMessage]
    intents: Sequence[Intent]


class Incarnation:
    """An owner. Made by ``open_incarnation``.

    Attributes:
        transactions: how many were committed.
    """

    def __init__(self, plan: Plan, thread: StoreThread, store: Store[Any], inputs: InputJournal, feed: Feed) -> None:
        self._plan = plan
        self._thread = thread
        self._store = store
        self._inputs = inputs
        self._feed = feed
        self._stop = asyncio.Event()
        self._receiving = Receiving(
            plan.network, plan.name, inputs, thread, lambda: inputs.last_position - feed.position
        )
        self._journals = JournalReceiving(
            self._receiving, JournalPositions(store, inputs), plan.journals, inputs, thread
        )
        inputs.keeps_released = plan.require > 0 or plan.failed.topic is not None
        self._outputs = Outputs(self._receiving.client, store, inputs, thread, plan.required)
        self.transactions = 0
        self._batch = plan.batch
        self._is_working = False
        """A transaction is in progress, or what it published is not counted yet."""

    async def connect(self) -> None:
        """Connect and subscribe.

        Raises:
            ClientError: no router can be reached, or it refuses.
        """
        await self._receiving.open(self._plan.topics, self._plan.timeout_s)
        await self._journals.open()

    async def run(self, process: Process, finalize: Finalize) -> None:
        """Process until `stop`.

        Raises:
            StoreFenced: a later owner has opened the store.
            ProcessFailed: the function raised; its transaction was rolled back.
            ClientError: something else failed. What was committed stays.
        """
        async with self._receiving.explained():
            await until_first_ends(
                self._outputs.run(list(self._store.unconfirmed)),
                self._receiving.run(),
                *((self._journals.run(),) if self._plan.journals else ()),
                self._transact(process, finalize),
                self._take_back(),
            )

    @property
    def is_idle(self) -> bool:
        """Whether all that has arrived is processed, and all that was published is accepted."""
        parts = (self._feed.has_more, self._receiving.has_more, self._journals.has_more, self._outputs.unconfirmed)
        return not (self._is_working or any(parts))

    def begin_small(self) -> None:
        """Begin with one position in a transaction, and twice as many in each next one.

        After a failure, so that what precedes the message at which the function raises is committed (CO-4).
        """
        self._batch = 1

    def stop(self) -> None:
        """End after the transaction in progress; what is published may still be accepted for `leave_s` seconds."""
        self._stop.set()
        self._receiving.wake()
        self._outputs.wake()

    async def close(self, *, unsubscribe: bool = False) -> None:
        """Leave: the store stays as it was committed, the network keeps the subscriptions unless they are to end."""
        try:
            await self._receiving.close(unsubscribe=unsubscribe)
        finally:
            await self._thread.call(self._store.close)

    async def _transact(self, process: Process, finalize: Finalize) -> None:
        while not self._stop.is_set():
            if not self._feed.has_more:
                await self._receiving.changed()
                continue
            await self._outputs.until_at_most(BACKLOG, self._stop)
            self._is_working = True
            committed = await self._thread.call(lambda: self._one_transaction(process, finalize))
            reach(CrashPoint.COMMITTED)
            self.transactions += 1
            self._batch = min(2 * self._batch, self._plan.batch)
            self._count(committed.messages)
            self._outputs.add(committed.intents)
            self._is_working = False
            self._receiving.made_room()
            await self._outputs.on_their_way()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._plan.leave_s):
                await self._outputs.until_none()

    async def _take_back(self) -> None:
        """Look for messages that an operator wants retried (CO-12)."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._feed.keeps_any and await self._thread.call(self._feed.take_back) > 0:
                self._receiving.wake()

    def _count(self, messages: Sequence[ReceivedMessage]) -> None:
        """Count what was committed, and report what was set aside."""
        statistics = self._plan.statistics
        set_aside = self._plan.failed.committed(messages)
        statistics.transactions += bool(messages)
        statistics.messages += len(messages) - len(set_aside)
        for event in set_aside:
            statistics.dead_letters += bool(event.dead_letters)
            statistics.skipped += not event.dead_letters
            if self._plan.network.on_event is not None:
                self._plan.network.on_event(event)

    def _one_transaction(self, process: Process, finalize: Finalize) -> _Committed:
        """Process what is recorded, up to the limit. Blocks."""
        first = self._store.next_number
        messages: list[ReceivedMessage] = []
        try:
            with self._store.transaction(self._feed.sequencers):
                self._process(process, finalize, messages)
                self._feed.trim()
                reach(CrashPoint.PROCESSED)
        except UsageError as error:  # what was published cannot be encoded, or the block ended the transaction
            if not self._plan.failed.is_enabled:
                raise
            raise self._failed_at_the_end(error, messages) from error
        return _Committed(messages, [intent for intent in self._store.unconfirmed if intent.number >= first])

    def _process(self, process: Process, finalize: Finalize, messages: list[ReceivedMessage]) -> None:
        """Process the messages and add them to the list, in the transaction that is open."""
        transaction, codec = Transaction(self._store, self._plan.codec), self._plan.codec
        is_empty = True
        for message in self._feed.messages(self._batch):
            messages.append(message)
            failure = self._plan.failed.of(message.position)
            if failure is not None:
                self._set_aside(message, failure)
                continue
            is_empty = False
            try:
                process(transaction, message if codec is None else replace(message, codec=codec))
            except Exception as error:
                where = f"message {message.position} of {message.topic!r}"
                raise self._process_failed(where, error, [message]) from error
        try:
            if not is_empty:
                finalize(transaction)
        except Exception as error:
            raise self._failed_at_the_end(error, messages) from error

    def _set_aside(self, message: ReceivedMessage, failure: Failure) -> None:
        """In the transaction that records the message as processed decide on its dead letter, or keep it (CO-7)."""
        failed = self._plan.failed
        if failed.topic is None:
            self._feed.keep(message, f"failed {failure.attempts} times: {failure.error}")
        else:
            letter = failed.letter(message, self._feed.payload_of(message), failure)
            self._store.publish(failed.topic, letter)

    def _failed_at_the_end(self, error: Exception, messages: Sequence[ReceivedMessage]) -> ProcessFailed:
        """Where one position was read its messages are the cause; else a smaller transaction will show it."""
        return self._process_failed("the end of a transaction", error, messages if self._batch == 1 else ())

    def _process_failed(self, where: str, error: Exception, messages: Sequence[ReceivedMessage]) -> ProcessFailed:
        return ProcessFailed(
            f"the consumer {self._plan.name!r} does not get past {where}",
            f"its function raised {type(error).__name__}: {error}",
            "nothing of it was committed; correct the function, then start the consumer again: it continues there, and "
            "publishers wait until then; dead_letters= or skip= let it go on without such a message",
            error,
            [message.position for message in messages],
        )


async def open_incarnation(plan: Plan, thread: StoreThread) -> Incarnation:
    """Open the store, raise its fence, read the checkpoint, connect and subscribe.

    Raises:
        UsageError: the plan cannot be carried out.
        StoreError: the store cannot be opened.
        ClientError: no router can be reached, or it refuses.
    """
    store = await thread.open(plan.store, plan.name)
    reach(CrashPoint.OPENED)
    try:
        inputs, feed = await thread.call(lambda: _prepare(plan, store))
        incarnation = Incarnation(plan, thread, store, inputs, feed)
    except BaseException:
        await thread.call(store.close)
        raise
    try:
        await incarnation.connect()
    except BaseException:
        await incarnation.close()
        raise
    return incarnation


def _prepare(plan: Plan, store: Store[Any]) -> tuple[InputJournal, Feed]:
    for statement in plan.schema:
        _ = store.run(statement)
    inputs = InputJournal(store)
    feed = Feed(store, inputs, plan.sources, Isolation.READ_COMMITTED, plan.ring_messages)
    _ = feed.take_back()
    return inputs, feed
