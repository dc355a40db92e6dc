"""The subscriber as applications see it: the asyncio shell of `subscriber_core`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING

from oncewire.client.core_effects import (
    AnswerEcho,
    DeliverMessage,
    DisposeDeliveries,
    GrantCredit,
    ProveOwner,
    RefuseLink,
    ReportConfirmed,
    ReportGivenUp,
    ReportIncarnation,
    SubscriberEffect,
)
from oncewire.client.delivery import Delivery
from oncewire.client.delivery_states import state_of
from oncewire.client.errors import ClientClosed, ClientError, JournalError, LinkRefused, UsageError
from oncewire.client.events import DeliveryGivenUp, NewIncarnation, SubscriptionExpired
from oncewire.client.journal_writer import JournalWriter
from oncewire.client.link import NO_ANSWER, ClientLink, LinkOwner
from oncewire.client.outcomes import ACCEPTED, Outcome
from oncewire.client.presenting import Presenting
from oncewire.client.source_terms import SourceTerms
from oncewire.client.subscriber_core import SubscriberCore
from oncewire.wire import (
    NOT_FOUND,
    RESOURCE_DELETED,
    AmqpError,
    AmqpSession,
    Attach,
    DeliveryReceived,
    DispositionReceived,
    LinkDetached,
    LinkFlow,
    ReceiverLink,
    ReceiverSettleMode,
    SenderSettleMode,
    Source,
    Target,
    vocabulary,
)

if TYPE_CHECKING:
    import sqlite3

    from oncewire.client.codec import Codec

UNSUBSCRIBE_TRIES = 8
"""Closes sent before `unsubscribe()` gives up: each failed one means that the link was stolen or the router crashed."""
BREAK_OFF_S = 3.0
"""For ending the subscription of a cancelled opening: some round trips to etcd. After it the subscription expires."""
GONE = frozenset({NOT_FOUND, RESOURCE_DELETED})
"""Error conditions of an answer to a close: nothing is left to be closed."""


class Subscriber(ClientLink):
    """Receives the messages of a topic or pattern. Made by ``Client.subscriber()``; use it with ``async with``.

    ``async for delivery in subscriber`` gives deliveries in order; each must be finished. Deliveries of one publisher
    come in the order they were sent, each is given once, whichever routers or connections fail.
    """

    _gone = GONE
    """Answers to a close that mean that there is nothing left to end."""

    def __init__(
        self,
        client: LinkOwner,
        name: str,
        topic: str,
        journal: JournalWriter,
        core: SubscriberCore,
        *,
        exactly_once: bool,
        settled: bool,
        timeout_s: int | None,
        is_named: bool,
        terms: SourceTerms,
    ) -> None:
        super().__init__(client, name, journal, is_named=is_named)
        self.topic = topic
        self.codec: Codec | None = None
        self._terms = terms
        self._core = core
        self._exactly_once = exactly_once
        self._snd_settle_mode = SenderSettleMode.SETTLED if settled else SenderSettleMode.UNSETTLED
        self._timeout_s = timeout_s
        self._granted_s: int | None = None
        self._presenting = Presenting(None, 0)
        self._queue: deque[Delivery] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._effects: list[Callable[[], object]] = []  # of what the next commit records
        self._recording: list[asyncio.Future[None]] = []
        self._being_recorded: list[asyncio.Future[None]] = []
        self._confirmed: asyncio.Future[None] = self._loop.create_future()
        # Set while the terminus is attached to only to be closed (E-8).
        self._looked_up: asyncio.Future[AmqpError | None] | None = None
        self._is_ending = False  # no process is to open it again
        self._is_deleted = False

    # --- receiving ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Subscriber:
        return self

    async def __anext__(self) -> Delivery:
        try:
            await self._until_available()
        except ClientClosed:
            raise StopAsyncIteration from None
        return self._pop()

    async def receive(self, timeout: float | None = None) -> Delivery:
        """The next delivery.

        Raises:
            TimeoutError: none came in `timeout` seconds.
            ClientError: the subscriber failed or was closed.
        """
        async with asyncio.timeout(timeout):
            await self._until_available()
        return self._pop()

    async def receive_many(self, limit: int, timeout: float | None = None) -> list[Delivery]:
        """All deliveries that are there, at least one, at most `limit`; for ``transaction``. Errors as `receive`."""
        async with asyncio.timeout(timeout):
            await self._until_available()
        return [self._pop() for _ in range(min(limit, len(self._queue)))]

    @property
    def waiting(self) -> int:
        """Deliveries that are here and not yet taken by the application."""
        return len(self._queue)

    @property
    def incarnation(self) -> int:
        """The subscription's incarnation, as last reported by a router; 0 = not yet. See `NewIncarnation`."""
        return self._core.incarnation

    @property
    def granted_timeout(self) -> int | None:
        """Seconds the network keeps the subscription while it is not attached, as last stated; None = not yet.

        It may be less than was asked for: routers have a cap, and a client that asks for less later gets less.
        """
        return self._granted_s

    async def _until_available(self) -> None:
        self.check_usable()
        while not self._queue:
            taker: asyncio.Future[None] = self._loop.create_future()
            self._takers.append(taker)
            try:
                await self._wait(taker)
            except asyncio.CancelledError:
                if self._queue and taker not in self._takers:  # it was our turn: let the next one have it
                    self._wake_taker()
                raise
            finally:
                if taker in self._takers:
                    self._takers.remove(taker)

    def _pop(self) -> Delivery:
        delivery = self._queue.popleft()
        if self._queue:
            self._wake_taker()
        return delivery

    def _wake_taker(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    # --- finishing deliveries -----------------------------------------------------------------------------------------

    async def finish(
        self, deliveries: Sequence[Delivery], outcome: Outcome = ACCEPTED, *, effect: Callable[[], object] | None = None
    ) -> None:
        """Record the outcome of deliveries, then notify the network. Returns when it is recorded.

        Args:
            deliveries: not finished yet.
            outcome: of all of them.
            effect: called in the journal's thread, inside the transaction that records the outcome, for journals whose
                database has effects of its own. What it raises must be a JournalError; then nothing is recorded.

        Raises:
            UsageError: one of them was finished before, or an effect without a durable journal; none is finished then.
            ClientError: it could not be recorded.
        """
        self.check_usable()
        if effect is not None and not self._journal.journal.is_durable:
            raise UsageError(
                "the effect cannot be stored with the outcome",
                "the subscriber has no durable journal",
                "open it with a journal that keeps the effects, too",
            )
        self._complete(deliveries, outcome)
        if effect is not None:
            self._effects.append(effect)
        if not self._journal.journal.is_durable:
            self._journal.work(self)
            return
        recorded: asyncio.Future[None] = self._loop.create_future()
        self._recording.append(recorded)
        self._journal.work(self)
        await recorded

    @asynccontextmanager
    async def transaction(self, *deliveries: Delivery) -> AsyncIterator[sqlite3.Connection]:
        """Process deliveries and accept them in one transaction of the journal.

        Yields the journal's SQLite connection inside the transaction: the application's changes to its own tables and
        the acceptance become durable together when the block ends, or, by an exception, neither does (then `release()`
        or process them again). Do not commit inside, and do not wait there for anything that needs the same journal.

        Raises:
            UsageError: the subscriber has no SQLite journal, or a delivery was finished before.
            JournalError: nothing was recorded; the subscriber has failed.
            ClientError: the subscriber failed or was closed, before the block or inside it: nothing was recorded.
        """
        journal = self._journal.journal
        if journal.connection is None:
            raise UsageError(
                "no transaction can be made", "the subscriber has no SQLite journal", "open it with journal=PATH"
            )
        self.check_usable()
        self._check_unfinished(deliveries)
        async with self._journal.transaction(self) as add_changes:
            yield journal.connection
            self._complete(deliveries, ACCEPTED)
            add_changes()

    def put_back(self, delivery: Delivery) -> None:
        """See ``Delivery.release``."""
        self.check_usable()
        self._check_unfinished([delivery])
        self._perform(self._core.release(delivery.serial))

    def _complete(self, deliveries: Sequence[Delivery], outcome: Outcome) -> None:
        self._check_unfinished(deliveries)
        for delivery in deliveries:
            self._core.complete(delivery.serial, outcome)
        if outcome.is_accepted:
            self.statistics.accepted += len(deliveries)
        else:
            self.statistics.not_accepted += len(deliveries)

    def _check_unfinished(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if not self._core.is_unprocessed(delivery.serial):
                raise UsageError(
                    "the delivery cannot be finished",
                    "it was accepted or rejected before, or its subscription has ended",
                    "finish each delivery once",
                )

    # --- the end ------------------------------------------------------------------------------------------------------

    async def suspend(self) -> None:
        """Detach; the network keeps the subscription (for its `timeout`) and everything it is owed.

        Deliveries that are not finished come again when it is opened again. One without a name ends.
        """
        if not await self._begin_closing():
            return
        try:
            await self._journal.drain(self)
        finally:
            self.fail(self._is_over())  # waits for nothing

    async def close(self) -> None:
        """Suspend a subscription with a name, end one without: no process could open it again."""
        await (self._delete() if self._is_worthless() else self.suspend())

    async def unsubscribe(self) -> None:
        """End the subscription for good. Returns when the network has deleted it (E-8).

        Deliveries that are not finished are dropped. If it has a name, its journal keeps what is accepted and that its
        publishers have not settled: a subscriber of the same name and journal gets none of it again (S-1).

        Raises:
            ClientError: it could not be deleted; it ends by itself after its `timeout`.
            ClientClosed: it was suspended before, or its client closed, so that it still exists.
        """
        await self._delete()
        if not self._is_deleted and self._failure is not None:
            raise self._failure

    async def break_off(self, error: ClientError) -> None:
        """Abandon the opening. A subscription without a name is ended first: publishers would wait until it expires.

        The attach may be on its way to etcd, so a detach is not enough: the router's answer shows that none is left.
        """
        try:
            is_open = self._failure is None and self._session is not None  # what was refused has nothing to end
            if is_open and self._is_worthless() and await self._begin_closing():
                with suppress(ClientError, TimeoutError):
                    async with asyncio.timeout(BREAK_OFF_S):
                        await self._end_subscription()
        finally:
            self.fail(error)

    async def _delete(self) -> None:
        """End the subscription, if its link has not ended otherwise."""
        if not await self._begin_closing() or self._failure is not None:
            return
        self._is_ending = True
        try:
            await self._end_subscription()
        finally:
            self.fail(self._is_over())

    async def _end_subscription(self) -> None:
        await self._journal.drain(self)
        error = await self._close_until_deleted()
        if error is not None:
            failure = LinkRefused(
                f"the subscription {self.name!r} may still exist",
                f"closing it failed {UNSUBSCRIBE_TRIES} times, at last: {error.condition} {error.description or ''}",
                "open and unsubscribe it again, or let it expire",
                str(error.condition),
            )
            self.fail(failure)
            raise failure
        self._is_deleted = True
        self._core.end_subscription(keeps_done=self._is_named)
        await self._journal.drain(self)

    async def _close_until_deleted(self) -> AmqpError | None:
        """E-8: only an answer without an error counts; after any other the link is looked up and closed again."""
        error = await self._leave(closed=True)
        for attempt in range(1, UNSUBSCRIBE_TRIES):
            if error is None or error.condition in self._gone:
                return None
            await asyncio.sleep(self.client.jitter(attempt))
            error = await self._look_up()
            if error is None:
                error = await self._leave(closed=True)
        return None if error is None or error.condition in self._gone else error

    def _source_to_close(self) -> Source | None:
        """Null, so that nothing new is created if the subscription was deleted."""
        return None

    async def _look_up(self) -> AmqpError | None:
        """Attach only to close it; None = attached."""
        self._leaving = None
        looked_up = self._looked_up = self._loop.create_future()
        self.attach_soon()
        await asyncio.wait([looked_up], timeout=self.client.open_timeout)
        return looked_up.result() if looked_up.done() else AmqpError(NO_ANSWER)

    async def __aenter__(self) -> Subscriber:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.suspend())

    # --- the link -----------------------------------------------------------------------------------------------------

    async def opened(self) -> None:
        """Wait until the subscription is confirmed: every message sent from now on is owed to it (A-6b).

        Raises:
            ClientError: it was refused.
        """
        await self._wait_shared(self._confirmed)

    def _attach(self, session: AmqpSession) -> ReceiverLink | None:
        target = Target(address=self.client.container_id)
        capabilities = (vocabulary.EXACTLY_ONCE,) if self._exactly_once else ()
        if self._looked_up is not None:
            source = self._source_to_close()
            return session.attach_receiver(self.name, source=source, target=target, desired_capabilities=capabilities)
        bound = self.client.map_bound
        presenting = self._presenting = Presenting(self._core.begin_attach(bound), bound)
        link = session.attach_receiver(
            self.name,
            source=self._terms.source(self.topic, self._timeout_s),
            target=target,
            snd_settle_mode=self._snd_settle_mode,
            unsettled=presenting.unsettled,
            incomplete_unsettled=presenting.is_incomplete,
            max_message_size=self.client.max_message_size,
            desired_capabilities=capabilities,
            properties={**self._terms.properties, **(presenting.properties or {})} or None,
        )
        presenting.send_rest(link)
        return link

    def _is_granted(self) -> bool:
        remote = None if self._wire is None else self._wire.remote_attach
        return remote is not None and remote.source is not None

    def _attached(self) -> None:
        assert self._wire is not None
        if self._looked_up is not None:
            if not self._looked_up.done():
                self._looked_up.set_result(None)
            return
        remote = self._wire.remote_attach
        assert remote is not None
        refused = self._terms.refused(remote.source)
        if refused is not None:
            self._refuse(*refused)
        else:
            self._replied(self._presenting.take_reply(remote))

    def _replied(self, remote: Attach | None) -> None:
        if remote is None:
            return
        kept = self._presenting.kept
        properties = remote.properties or {}
        self._granted_s = None if remote.source is None else remote.source.timeout
        capable = vocabulary.EXACTLY_ONCE in remote.offered_capabilities
        effects = self._core.attached(
            kept,
            capable=capable,
            is_whole=self._presenting.is_whole,
            incarnation=vocabulary.number_in(properties, vocabulary.INCARNATION) or 0,
            settles_first=remote.rcv_settle_mode == ReceiverSettleMode.FIRST,
        )
        self._perform(effects)
        if self._failure is None:
            self._became_active(resumed=properties.get(vocabulary.RESUME) == "resumed", unsettled=len(kept))
            if not capable:  # such a router answers the attach when it is done with it
                self._confirm()
        self._journal.work(self)

    def _refuse(self, reason: str, remedy: str) -> None:
        self.fail(
            LinkRefused(f"the subscriber {self.name!r} cannot work with {self.client.router_name}", reason, remedy)
        )

    def on_detached(self, event: LinkDetached) -> None:
        """The link is detached; while it was only looked up, that is the answer."""
        looked_up = self._looked_up
        if looked_up is not None and not looked_up.done() and event.link is self._wire:
            self._link_over()
            looked_up.set_result(event.error or AmqpError(NO_ANSWER))
            return
        super().on_detached(event)

    def on_flow(self, event: LinkFlow) -> None:
        """Confirmation of the subscription with its time-out, a proof of life that is asked for, more of the reply."""
        self._replied(self._presenting.take_part(event))
        granted_s = vocabulary.number_in(event.properties, vocabulary.TIMEOUT)
        self._granted_s = self._granted_s if granted_s is None else granted_s
        self._perform(
            self._core.flow(
                echo=vocabulary.number_in(event.properties, vocabulary.ECHO),
                confirmed=vocabulary.number_in(event.properties, vocabulary.CONFIRMED),
            )
        )

    def on_delivery(self, event: DeliveryReceived) -> None:
        """A delivery: new, repeated, or only the settlement of an old one."""
        self._perform(
            self._core.transfer(
                event.delivery_id,
                event.tag,
                event.payload,
                settled=event.settled,
                resume=event.resume,
                aborted=event.aborted,
                message_format=event.message_format,
                receiver_settles=event.receiver_settles,
            )
        )
        if self._core.copies:  # D-3: a copy may be done without the application
            self.statistics.copies = self._core.copies
            self._journal.work(self)

    def on_disposition(self, event: DispositionReceived) -> None:
        """The router settled deliveries."""
        if event.settled:
            self._perform(self._core.settled(event.deliveries))
            self._journal.work(self)

    def _lost(self) -> None:
        self._core.lost()

    def _is_worthless(self) -> bool:
        return not self._is_named or self._is_ending or not self.client.keeps_links

    def _expired(self) -> None:
        self.client.notify(SubscriptionExpired(self.name))

    # --- the journal --------------------------------------------------------------------------------------------------

    @property
    def wants_commit(self) -> bool:
        """Whether the core has something to write, and may."""
        return self._failure is None and self._core.wants_commit

    def take_commit(self) -> Callable[[], None]:
        """Take the core's changes; see JournalUser."""
        changes = self._core.next_commit()
        effects, self._effects = self._effects, []
        self._being_recorded, self._recording = self._recording, []

        def write() -> None:
            for effect in effects:
                effect()
            self._journal.journal.write_subscriber(self.name, changes)

        return write

    def commit_done(self) -> None:
        """The changes are durable."""
        for waiter in self._being_recorded:
            if not waiter.done():
                waiter.set_result(None)
        self._being_recorded = []
        self._perform(self._core.committed())
        self._journal.work(self)

    def commit_failed(self, error: JournalError) -> None:
        """They are not; their waiters are notified, also when the link had ended before."""
        super().commit_failed(error)
        for waiter in self._being_recorded:
            if not waiter.done():
                waiter.set_exception(error)
        self._being_recorded = []

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[SubscriberEffect]) -> None:
        wire = self._wire
        is_attached = isinstance(wire, ReceiverLink) and wire.is_attached
        for effect in effects:
            if isinstance(effect, DeliverMessage):
                self._deliver(effect)
            elif isinstance(effect, RefuseLink):
                remedy = "connect to an Oncewire router, or open the subscriber with exactly_once=False"
                self._refuse(effect.reason, remedy)
            elif isinstance(effect, ReportConfirmed):
                self._confirm()
            elif isinstance(effect, ReportIncarnation):
                if effect.before:
                    self.client.notify(NewIncarnation(self.name, effect.before, effect.now))
            elif isinstance(effect, ReportGivenUp):
                self.client.notify(DeliveryGivenUp(self.name, effect.tag))
            elif is_attached:
                assert isinstance(wire, ReceiverLink)
                if isinstance(effect, DisposeDeliveries):
                    state = state_of(effect.outcome)
                    wire.dispose(sorted(effect.delivery_ids), state, effect.settled)
                elif isinstance(effect, GrantCredit):
                    wire.grant(effect.credit)
                elif isinstance(effect, (AnswerEcho, ProveOwner)):
                    self._prove_life(effect)
        if is_attached and effects:
            self.client.flush()

    def _deliver(self, effect: DeliverMessage) -> None:
        delivery = Delivery(
            self,
            effect.serial,
            effect.tag,
            effect.payload,
            effect.again,
            effect.settled,
            self._core.incarnation,
            effect.message_format,
        )
        if effect.again:
            self._queue.appendleft(delivery)
        else:
            self.statistics.messages += 1
            self._queue.append(delivery)
        self._wake_taker()

    def _confirm(self) -> None:
        if not self._confirmed.done():
            self._confirmed.set_result(None)

    def _release_all(self, error: ClientError) -> None:
        self._queue.clear()
        for waiter in self._recording:  # a commit in progress ends first and reports its result
            if not waiter.done():
                waiter.set_exception(error)
        self._recording = []
