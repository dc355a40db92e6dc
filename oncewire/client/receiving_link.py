"""A subscriber's link over all its attaches: what it presents, what comes in, what is recorded, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

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
from oncewire.client.delivery_states import state_of
from oncewire.client.errors import ClientError, JournalError, LinkRefused
from oncewire.client.events import DeliveryGivenUp, NewIncarnation, SubscriptionExpired
from oncewire.client.guarantee import OTHERWISE, Guarantee
from oncewire.client.journal_writer import JournalWriter
from oncewire.client.link import NO_ANSWER, ClientLink, LinkOwner
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

UNSUBSCRIBE_TRIES = 8
"""Closes sent before `unsubscribe()` gives up: each failed one means that the link was stolen or the router crashed."""
GONE = frozenset({NOT_FOUND, RESOURCE_DELETED})
"""Error conditions of an answer to a close: nothing is left to be closed."""


class ReceivingLink(ClientLink):
    """See the module; `Subscriber` is what applications hold."""

    _gone = GONE
    """Answers to a close that mean that there is nothing left to end."""

    def __init__(
        self,
        client: LinkOwner,
        name: str,
        topic: str,
        journal: JournalWriter,
        core: SubscriberCore,
        terms: SourceTerms,
        *,
        is_named: bool,
    ) -> None:
        super().__init__(client, name, journal, is_named=is_named)
        self.topic = topic
        self._terms = terms
        self.guarantee = Guarantee.AT_MOST_ONCE
        self._core = core
        self._granted_s: int | None = None
        self._presenting = Presenting(None, 0)
        self._effects: list[Callable[[], object]] = []  # of what the next commit records
        self._recording: list[asyncio.Future[None]] = []
        self._being_recorded: list[asyncio.Future[None]] = []
        self._confirmed: asyncio.Future[None] = self._loop.create_future()
        # Set while the terminus is attached to only to be closed (E-8).
        self._looked_up: asyncio.Future[AmqpError | None] | None = None
        self._is_ending = False  # no process is to open it again
        self._is_deleted = False

    # --- the link -----------------------------------------------------------------------------------------------------

    async def _opened(self) -> None:
        """Wait until the subscription is confirmed: every message sent from now on is owed to it (A-6b).

        Raises:
            ClientError: it was refused.
        """
        await self._wait_shared(self._confirmed)

    def _attach(self, session: AmqpSession) -> ReceiverLink | None:
        target = Target(address=self.client.container_id)
        capabilities = (vocabulary.EXACTLY_ONCE,) if self._terms.exactly_once else ()
        peer = self.client._peer
        settles = peer.receiver_settles
        if self._looked_up is not None:
            source = self._source_to_close() if peer.is_network else peer.source(self._terms, self.topic)
            return session.attach_receiver(
                self.name, source=source, target=target, rcv_settle_mode=settles, desired_capabilities=capabilities
            )
        lacks = peer.lacks(self._terms)
        if lacks is not None:
            self._refuse(*lacks)
            return None
        if not self._terms.settled:
            self.guarantee = peer.guarantee(exactly_once=self._terms.exactly_once)
        bound = self.client._map_bound
        presenting = self._presenting = Presenting(self._core.begin_attach(bound), bound)
        link = session.attach_receiver(
            self.name,
            source=peer.source(self._terms, self.topic),
            target=target,
            snd_settle_mode=SenderSettleMode.SETTLED if self._terms.settled else SenderSettleMode.UNSETTLED,
            rcv_settle_mode=settles,
            unsettled=presenting.unsettled,
            incomplete_unsettled=presenting.is_incomplete,
            max_message_size=self.client.max_message_size,
            desired_capabilities=capabilities,
            properties={**self._terms.properties, **(presenting.properties or {})} or None,
        )
        presenting.send_rest(link)
        return link

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
        self._fail(
            LinkRefused(f"the subscriber {self.name!r} cannot work with {self.client._router_name}", reason, remedy)
        )

    def _on_detached(self, event: LinkDetached) -> None:
        """The link is detached; while it was only looked up, that is the answer."""
        looked_up = self._looked_up
        if looked_up is not None and not looked_up.done() and event.link is self._wire:
            self._link_over()
            looked_up.set_result(event.error or AmqpError(NO_ANSWER))
            return
        super()._on_detached(event)

    def _on_flow(self, event: LinkFlow) -> None:
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

    def _on_delivery(self, event: DeliveryReceived) -> None:
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

    def _on_disposition(self, event: DispositionReceived) -> None:
        """The router settled deliveries."""
        if event.settled:
            self._perform(self._core.settled(event.deliveries))
            self._journal.work(self)

    def _lost(self) -> None:
        self._core.lost()

    def _is_worthless(self) -> bool:
        return not self._is_named or self._is_ending or not self.client.keeps_links

    def _expired(self) -> None:
        self.client._notify(SubscriptionExpired(self.name))

    def _deliver(self, effect: DeliverMessage) -> None:
        """Hand a delivery to the application."""
        raise NotImplementedError

    # --- the journal --------------------------------------------------------------------------------------------------

    @property
    def _wants_commit(self) -> bool:
        """Whether the core has something to write, and may."""
        return self._failure is None and self._core.wants_commit

    def _take_commit(self) -> Callable[[], None]:
        """Take the core's changes; see JournalUser."""
        changes = self._core.next_commit()
        effects, self._effects = self._effects, []
        self._being_recorded, self._recording = self._recording, []

        def write() -> None:
            for effect in effects:
                effect()
            self._journal.journal.write_subscriber(self.name, changes)

        return write

    def _skip_commit(self) -> None:
        """Take the core's changes, which nobody writes; see JournalUser."""
        self._take_commit()

    def _commit_done(self) -> None:
        """The changes are durable."""
        for waiter in self._being_recorded:
            if not waiter.done():
                waiter.set_result(None)
        self._being_recorded = []
        self._perform(self._core.committed())
        self._journal.work(self)

    def _commit_failed(self, error: JournalError) -> None:
        """They are not; their waiters are notified, also when the link had ended before."""
        super()._commit_failed(error)
        for waiter in self._being_recorded:
            if not waiter.done():
                waiter.set_exception(error)
        self._being_recorded = []

    def _release_all(self, error: ClientError) -> None:
        for waiter in self._recording:  # a commit in progress ends first and reports its result
            if not waiter.done():
                waiter.set_exception(error)
        self._recording = []

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[SubscriberEffect]) -> None:
        if len(effects) == 1 and isinstance(effects[0], DeliverMessage):  # as most deliveries have it
            self._deliver(effects[0])
            return
        wire = self._wire
        is_attached = isinstance(wire, ReceiverLink) and wire.is_attached
        for effect in effects:
            if isinstance(effect, DeliverMessage):
                self._deliver(effect)
            elif isinstance(effect, RefuseLink):
                self._refuse(effect.reason, OTHERWISE)
            elif isinstance(effect, ReportConfirmed):
                self._confirm()
            elif isinstance(effect, ReportIncarnation):
                if effect.before:
                    self.client._notify(NewIncarnation(self.name, effect.before, effect.now))
            elif isinstance(effect, ReportGivenUp):
                self.client._notify(DeliveryGivenUp(self.name, effect.tag))
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
            self.client._flush()

    def _confirm(self) -> None:
        if not self._confirmed.done():
            self._confirmed.set_result(None)

    # --- the end of the subscription ----------------------------------------------------------------------------------

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
            self._fail(failure)
            raise failure
        self._is_deleted = True
        self._core.end_subscription(keeps_done=self._is_named)
        await self._journal.drain(self)

    async def _close_until_deleted(self) -> AmqpError | None:
        """E-8: only an answer without an error counts; after any other the link is looked up and closed again."""
        error = await self._leave(closed=True)
        for attempt in range(1, UNSUBSCRIBE_TRIES):
            if self._is_gone(error):
                return None
            await asyncio.sleep(self.client._jitter(attempt))
            error = await self._look_up()
            if error is None:
                error = await self._leave(closed=True)
        return None if self._is_gone(error) else error

    def _is_gone(self, error: AmqpError | None) -> bool:
        """Whether the answer to a close means that nothing of ours is left to end."""
        return error is None or error.condition in self._gone or self.client._peer.keeps_for_others(error)

    def _source_to_close(self) -> Source | None:
        """Null, so that nothing new is created if the subscription was deleted."""
        return None

    async def _look_up(self) -> AmqpError | None:
        """Attach only to close it; None = attached."""
        self._leaving = None
        looked_up = self._looked_up = self._loop.create_future()
        self._attach_soon()
        await asyncio.wait([looked_up], timeout=self.client.open_timeout)
        return looked_up.result() if looked_up.done() else AmqpError(NO_ANSWER)
