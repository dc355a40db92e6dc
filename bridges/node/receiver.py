"""Receives a subscription into its journal: append and acceptance are one transaction of one file.

A message is accepted when it is durable here, not when a pipeline has worked on it (J-1): the network stores nothing,
and publishers wait for the acceptance. When the journal is as deep as it may be, messages are not taken any more; the
routers run out of credit, and publishers feel it (J-11). A subscription that somebody has ended stays ended (J-14).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bridges.node.errors import BadRequest, NodeError
from bridges.node.group_commit_core import DepthGate, GroupCommit
from bridges.node.identity import identity_of
from bridges.node.journal import Arrival, ReceiverJournal
from bridges.node.journal_reader import JournalReader
from bridges.node.model import Subscription
from bridges.node.producers_core import Judgement
from bridges.node.retention import Attention
from bridges.node.shard_core import ShardBy
from bridges.node.signals import Signal
from oncewire.client import (
    ClientError,
    ClientEvent,
    Connected,
    Delivery,
    Disconnected,
    LinkInterrupted,
    LinkRefused,
    NewIncarnation,
    Outcome,
    OutcomeKind,
    SqliteJournal,
    Subscriber,
    SubscriptionExpired,
    connect,
)
from oncewire.client.isolation import Isolation
from oncewire.client.login import TokenSource
from oncewire.wire import encode_data_message

logger = logging.getLogger("oncewire.bridge")

FULL_POLL_S = 0.5
"""How often a journal that is full is looked at; trimming in this process wakes the receiver."""
RETRY_S = 2.0
"""Pause after a failure that the client did not recover from by itself."""
END_S = 15.0
"""How long to wait until the network has deleted a subscription that ends here; after it its `timeout_s` does it."""
MAX_TOPICS = 64
"""Links of one subscription; patterns reach further."""
_REFUSED = "oncewire:identity-not-kept"
_DELETED_BEFORE = "the network had deleted it while the node was disconnected, and no query has asked for it since"
ELSEWHERE = "elsewhere"
"""A message of another shard: accepted here, kept by another node."""


@dataclass(slots=True)
class ReceiverNumbers:
    """What a receiver has done since it was made.

    Attributes:
        messages: what became of them, by the judgement's word, or ELSEWHERE.
        groups: transactions with messages.
        commit_s: seconds these took, from begin to durable.
        is_full: the journal is as deep as it may be: no messages are taken.
        active_links: topics that are subscribed to at this moment.
        new_incarnations: how often the network had deleted the subscription: messages are missing then.
        dropped: messages that no reader had processed and that were deleted (J-15).
        trouble: why nothing can be received just now; empty = nothing is wrong.
    """

    messages: dict[str, int] = field(
        default_factory=lambda: {**{judged.value: 0 for judged in Judgement}, ELSEWHERE: 0}
    )
    groups: int = 0
    commit_s: float = 0.0
    is_full: bool = False
    active_links: int = 0
    new_incarnations: int = 0
    dropped: int = 0
    trouble: str = ""


class _NotKept(Exception):
    """Some messages of a group must be rejected: the transaction is undone and made again without them."""

    def __init__(self, judgements: list[Judgement]) -> None:
        super().__init__()
        self.judgements = judgements


class Receiver:
    """Receives one subscription; the only one that appends to its journal.

    Args:
        subscription: what to receive.
        path: of the journal, made if it does not exist.
        routers: URLs, tried in turn.
        tls: for URLs that ask for TLS; None = Python's default.
        token: as for `connect()`; None = log in with what the URLs have.

    Raises:
        JournalLocked: another process receives into the journal.
        StorageError, JournalError: the file cannot be used.
        BadRequest: it is another subscription's, or there are no topics, or too many.

    Attributes:
        ended: why it receives no more (J-14): `run()` ends, or has ended; empty = it receives.
        is_unsubscribed: the network has deleted it since.
        attention: when it was last asked for.
    """

    def __init__(
        self,
        subscription: Subscription,
        path: Path,
        routers: Sequence[str],
        tls: ssl.SSLContext | None = None,
        token: TokenSource | None = None,
    ) -> None:
        if not 1 <= len(subscription.topics) <= MAX_TOPICS:
            raise BadRequest(
                f"the subscription {subscription.name!r} cannot be received",
                f"it has {len(subscription.topics)} topics, 1 to {MAX_TOPICS} are allowed",
                "give topics, or a pattern",
            )
        self.subscription = subscription
        self.path = path
        self.numbers = ReceiverNumbers()
        self.appended = Signal()
        self._routers = routers
        self._tls = tls
        self._token = token
        self.ended = ""
        self.is_unsubscribed = False
        self._ending = asyncio.Event()
        self._over = asyncio.Event()
        self._subscribers: dict[str, Subscriber] = {}
        self._deleted: set[str] = set()
        self._detached = ""
        self._gate = DepthGate(subscription.max_journal_bytes)
        self._room = Signal()
        self._changed = Signal()
        self._client_journal = SqliteJournal(path)
        try:
            self._journal = ReceiverJournal(
                self._client_journal.connection,
                path,
                subscription.name,
                subscription.isolation,
                subscription.max_journal_bytes,
                subscription.shard,
            )
            self._check_level()
            self._sources = {topic: self._journal.source_id(topic) for topic in subscription.topics}
            self.attention = Attention(self._journal.begin_receiving().unread_s)
            self._reader = JournalReader(path)
        except BaseException:
            self._client_journal.close()
            raise

    @property
    def isolation(self) -> Isolation:
        """What its readers see of transactions."""
        return self._journal.isolation

    @property
    def open_bytes(self) -> int:
        """Of messages whose transaction is open."""
        return self._journal.open_bytes

    def _check_level(self) -> None:
        shard = self.subscription.shard
        if shard is not None and shard.by is ShardBy.KEY and self.isolation is Isolation.READ_COMMITTED:
            raise BadRequest(
                f"subscription {self.subscription.name!r} cannot be received as shard {shard} with read_committed",
                "by key the messages of a transaction and its end go to different nodes",
                "share it out by topic, or use read_uncommitted",
            )

    def trimmed(self) -> None:
        """The journal may be less deep than before."""
        self._room.notify()

    @property
    def producer_count(self) -> int:
        """Producers that number their messages."""
        return self._journal.producer_count

    async def confirmed(self) -> None:
        """Return when the network has confirmed the subscription, or when there is trouble: see `numbers`."""
        while True:
            seen = self._changed.count
            if self.numbers.trouble or self.numbers.active_links == len(self.subscription.topics):
                return
            await self._changed.wait(seen, FULL_POLL_S)

    async def run(self) -> None:
        """Receive until cancelled or ended; after a failure that the client does not recover from, again in a while."""
        try:
            while True:
                was_ended = bool(self.ended)
                try:
                    await self._receive()
                except* (ClientError, NodeError) as errors:
                    self._complain(errors.exceptions[0])
                self.numbers.active_links = 0
                if self.ended and (was_ended or self.is_unsubscribed):
                    break
                await asyncio.sleep(RETRY_S)
        finally:
            self.numbers.active_links = 0
        try:
            self._journal.end_receiving(self.ended)
        except NodeError as error:
            logger.warning("subscription %s comes back when the node restarts: %s", self.subscription.name, error)

    def end_soon(self, why: str) -> None:
        """Receive no more, and delete the subscription in the network (J-14): `run()` does it and ends."""
        if not self.ended:
            self.ended = why
            self._ending.set()

    async def end(self, why: str) -> bool:
        """As `end_soon`, and wait for it; whether the network has deleted it, else its `timeout_s` does."""
        self.end_soon(why)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), END_S)
        return self.is_unsubscribed

    async def over(self) -> None:
        """Return when `close()` was called."""
        await self._over.wait()

    def close(self) -> None:
        """Let go of the file. `run()` has ended."""
        self._reader.close()
        self._client_journal.close()
        self._over.set()

    async def _receive(self) -> None:
        self._subscribers, self._deleted = {}, set()
        async with (
            connect(
                self._routers,
                container_id=self.subscription.container_id,
                ssl_context=self._tls,
                token=self._token,
                on_event=self._on_event,
            ) as client,
            asyncio.TaskGroup() as group,
        ):
            takers = []
            for topic in self.subscription.topics:
                subscriber = self._subscribers[topic] = await client.subscriber(
                    topic,
                    name=topic,
                    journal=self._client_journal,
                    prefetch=self.subscription.credit,
                    timeout=self.subscription.timeout_s,
                    stores=True,
                )
                await self._begin(subscriber, self._sources[topic])
                self.numbers.active_links += 1
                takers.append(group.create_task(self._take_until_ended(subscriber, self._sources[topic])))
            self.numbers.trouble = ""
            self._changed.notify()
            await self._ending.wait()
            for taker in takers:
                taker.cancel()
            await asyncio.wait(takers)
            await self._unsubscribe()

    async def _unsubscribe(self) -> None:
        """No topic may be left: its publishers would wait for a journal that nobody reads."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                for topic in self._subscribers.keys() - self._deleted:
                    await self._subscribers[topic].unsubscribe()
                self.is_unsubscribed = True

    async def _begin(self, subscriber: Subscriber, source: int) -> None:
        """Keep the incarnation before the first message comes: none may be missing unnoticed (J-8)."""
        try:
            async with subscriber.transaction():
                self._journal.begin_incarnation(source, subscriber.incarnation, time.time_ns() // 1000)
        except BaseException:
            self._journal.reload()
            raise

    async def _take_until_ended(self, subscriber: Subscriber, source: int) -> None:
        try:
            await self._take(subscriber, source)
        except ClientError:
            if not self.ended:
                raise

    async def _take(self, subscriber: Subscriber, source: int) -> None:
        group = GroupCommit(self.subscription.group_s, self.subscription.group_count)
        clock = asyncio.get_running_loop().time
        limit = self.subscription.credit
        while True:
            await self._until_room()
            deliveries = await subscriber.receive_many(limit)
            group.arrived(len(deliveries), clock())
            while (wait_s := group.wait_s(clock())) > 0.0:
                try:
                    more = await subscriber.receive_many(limit, timeout=wait_s)
                except TimeoutError:
                    break
                group.arrived(len(more), clock())
                deliveries += more
            await self._write(subscriber, source, deliveries)
            group.written()

    async def _write(self, subscriber: Subscriber, source: int, deliveries: list[Delivery]) -> None:
        """Append and accept (J-1); what cannot be kept apart from its copies is rejected.

        What belongs to other shards (J-9) is accepted in the same transaction, which leaves nothing else of it.
        """
        started = time.perf_counter()
        shard, others = self.subscription.shard, list[Delivery]()
        if shard is not None:
            everything, deliveries = deliveries, []
            for delivery in everything:
                (deliveries if shard.holds(_message_of(delivery)) else others).append(delivery)
        arrivals = [
            Arrival(source, message, identity_of(message), delivery.incarnation)
            for delivery, message in ((delivery, _message_of(delivery)) for delivery in deliveries)
        ]
        while deliveries or others:
            try:
                async with subscriber.transaction(*deliveries, *others):
                    judgements = self._journal.append(arrivals, time.time_ns() // 1000)
                    if any(judged not in _ACCEPTED for judged in judgements):
                        raise _NotKept(judgements)
            except _NotKept as error:
                self._journal.reload()
                judgements = error.judgements
                await self._reject(subscriber, deliveries, judgements)
                kept = [index for index, judged in enumerate(judgements) if judged in _ACCEPTED]
                deliveries = [deliveries[index] for index in kept]
                arrivals = [arrivals[index] for index in kept]
            except BaseException:
                self._journal.reload()
                raise
            else:
                for judged in judgements:
                    self.numbers.messages[judged.value] += 1
                self.numbers.messages[ELSEWHERE] += len(others)
                break
        self.numbers.groups += 1
        self.numbers.commit_s += time.perf_counter() - started
        self.appended.notify()

    async def _reject(
        self, subscriber: Subscriber, deliveries: Sequence[Delivery], judgements: Sequence[Judgement]
    ) -> None:
        for judged in _REJECTED:
            refused = [d for d, found in zip(deliveries, judgements, strict=True) if found is judged]
            if refused:
                logger.warning(
                    "subscription %s rejects %d messages of %s: %s",
                    self.subscription.name,
                    len(refused),
                    refused[0].publisher,
                    judged.value,
                )
                self.numbers.messages[judged.value] += len(refused)
                await subscriber.finish(refused, Outcome(OutcomeKind.REJECTED, _REFUSED, judged.value))

    async def _until_room(self) -> None:
        while True:
            seen = self._room.count
            is_open = self._gate.is_open(self._reader.marks().live_bytes)
            if self.numbers.is_full == is_open:
                self.numbers.is_full = not is_open
                logger.warning(
                    "the journal of subscription %s is %s",
                    self.subscription.name,
                    "no longer full" if is_open else "full: no messages are taken until it is trimmed",
                )
            if is_open:
                return
            await self._room.wait(seen, FULL_POLL_S)

    def _on_event(self, event: ClientEvent) -> None:
        if isinstance(event, Disconnected):
            self.numbers.trouble = f"{event.address}: {event.cause}"
            self.attention.lost()
        elif isinstance(event, Connected):
            self.numbers.trouble = ""
        elif isinstance(event, LinkInterrupted):
            self._detached = event.description
        elif isinstance(event, SubscriptionExpired):
            self._stay_deleted(event.link)
        elif isinstance(event, NewIncarnation):
            self.numbers.new_incarnations += 1
            logger.warning(
                "the network had deleted subscription %s to %s: messages are missing",
                self.subscription.name,
                event.link,
            )
            if not self.subscription.is_configured and self.attention.is_unasked:
                self.end_soon(_DELETED_BEFORE)  # J-14: no query is there that would miss messages

    def _stay_deleted(self, topic: str) -> None:
        """J-14: whoever had it deleted wants the topic to go on; the client would make a new one."""
        self.end_soon(f"it was deleted in the network: {self._detached or 'no reason given'}")
        subscriber = self._subscribers.get(topic)
        if subscriber is not None:  # else it is being opened, and is deleted again when it is there
            self._deleted.add(topic)
            ended = LinkRefused(f"the subscription to {topic!r} has ended", self.ended, "subscribe again")
            subscriber._fail(ended)  # noqa: SLF001 - an application closes a link; here it is refused from inside

    def _complain(self, error: BaseException) -> None:
        text = str(error)
        if self.ended:
            logger.info("subscription %s ends: %s", self.subscription.name, text)
            return
        if self.numbers.trouble != text:
            self.numbers.trouble = text
            self._changed.notify()
            logger.warning("subscription %s cannot receive just now: %s", self.subscription.name, text)


def _message_of(delivery: Delivery) -> bytes:
    """What is kept: other formats as one data section, so that their content is not mistaken for annotations."""
    return encode_data_message(delivery.payload) if delivery.message_format else delivery.payload


_ACCEPTED = frozenset({Judgement.NEW, Judgement.DUPLICATE})
_REJECTED = tuple(judged for judged in Judgement if judged not in _ACCEPTED)
