"""The link of a publisher: executes what `publisher_core` decides, passes it what the router sends.

The core decides and knows no socket; this class decides nothing about deliveries. Whatever comes from the router is a
call of the core: the attach it has answered, a flow, a disposition, the end of the link or of the session. Each call
returns effects, which `_perform` carries out in their order. A transfer, a settlement or a flow whose link is detached
meanwhile is dropped: the core hears of the end of the link, and decides anew at the next attach.

What must outlive the process goes through the journal. `wants_commit`, `take_commit`, `commit_done` are how the writer
of the journal asks for changes and says that they are durable; only then the core returns what may be sent or
reported. An attach that has to wait for a commit (A-5, P-a) is made when it is done.

A flow may carry more than credit: the echo that asks for a proof of life (A-4), the answer to the question who still
owes a message, subscriptions that ended (I-3b), and who processed what is accepted (I-3c). They are passed on before
the credit is, so that the core knows all of the flow when it sends.

Each message has a `Sending`, from when it is taken until its outcome is reported. Other outcomes than accepted that
nobody awaits are kept for `flush()`, a limited number of them. If the link fails for good, everybody who waits gets
the error.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from oncewire.client.core_effects import (
    AnswerDrain,
    AnswerEcho,
    AskOwing,
    ProveOwner,
    PublisherEffect,
    RefuseLink,
    ReportActive,
    ReportEnded,
    ReportExpired,
    ReportOutcome,
    ReportOwing,
    SendTransfer,
    SettleDeliveries,
)
from oncewire.client.delivery_states import outcome_of
from oncewire.client.errors import ClientError, LinkRefused, MessageTooLarge
from oncewire.client.events import SessionExpired, SubscriptionsEnded
from oncewire.client.guarantee import LACKS
from oncewire.client.journal_writer import JournalWriter
from oncewire.client.link import ClientLink, LinkOwner
from oncewire.client.outcomes import DoneBy, Subscriptions, counted
from oncewire.client.publisher_core import PublisherCore
from oncewire.client.sending import Sending
from oncewire.wire import (
    AmqpSession,
    DeliveryReceived,
    DispositionReceived,
    Fields,
    LimitError,
    LinkFlow,
    SenderLink,
    Source,
    Symbol,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
    UInt,
    ULong,
    mark_in_doubt,
    vocabulary,
)

logger = logging.getLogger("oncewire.client")

ENDED_LOG_S = 60.0
"""A publisher logs ended subscriptions once in this time: those that only come and go must not fill its log."""
UNSEEN_OUTCOMES = 1024
"""Outcomes other than accepted that are kept for `flush()` until they are awaited."""


class PublisherLink(ClientLink):
    """See the module; `Publisher` is what applications hold."""

    def __init__(
        self,
        client: LinkOwner,
        name: str,
        topic: str,
        journal: JournalWriter,
        core: PublisherCore,
        *,
        exactly_once: bool,
        timeout_s: int,
        is_named: bool,
    ) -> None:
        super().__init__(client, name, journal, is_named=is_named)
        self.topic = topic
        self._core = core
        self._exactly_once = exactly_once
        self._timeout_s = timeout_s
        self._sendings: dict[int, Sending] = {}
        # Ended with another outcome than accepted, and perhaps not awaited.
        self._unhappy: deque[Sending] = deque(maxlen=UNSEEN_OUTCOMES)
        self._owing: dict[int, asyncio.Future[ReportOwing]] = {}
        self._ended_logged_at: float | None = None
        self._room: asyncio.Future[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._max_message_size = 0
        recovered = [self._sending(number) for number in core.recovered_messages()]
        for report in core.recovered_outcomes():
            recovered.append(self._sending(report.number))
            self._report(report)
        self.recovered = tuple(sorted(recovered, key=lambda sending: sending.number))
        """Messages that the journal held when the publisher was opened; they are sent again by themselves."""

    def _sending(self, number: int) -> Sending:
        self._sendings[number] = sending = Sending(number, self._loop)
        return sending

    async def _opened(self) -> None:
        """Wait until the first router has granted the link.

        Raises:
            ClientError: it was refused.
        """
        await self._wait_shared(self._ready)

    def _attach(self, session: AmqpSession) -> SenderLink | None:
        if not self._core.may_attach:
            return None
        peer = self.client._peer
        if self._exactly_once and not peer.is_network:
            self._refuse(LACKS)
            return None
        self.guarantee = peer.guarantee(exactly_once=self._exactly_once)
        bound = self.client._map_bound
        if not self._core.fits(bound):
            self._fail(
                LinkRefused(
                    f"the publisher {self.name!r} cannot be resumed",
                    f"{self.client._router_name} takes frames that hold {bound} unsettled deliveries, there are more",
                    "raise max_frame_size of the routers, or use a smaller window",
                )
            )
            return None
        presented = self._core.begin_attach(bound)
        starts: list[object] = [[tag, ULong(revision)] for tag, revision in self._core.starts()]
        properties: Fields = {vocabulary.STARTS: starts} if starts else {}
        if self._core.requirement.asked is not None:
            properties[vocabulary.REQUIRE] = UInt(self._core.requirement.asked)
            properties[vocabulary.REQUIRE_PROCESSED] = UInt(self._core.requirement.counts.processing)
        if self._core.requirement.is_any and self._core.holds_released:
            properties[vocabulary.WAIT] = True
        expiry = TerminusExpiryPolicy.LINK_DETACH
        return session.attach_sender(
            self.name,
            source=Source(address=self.client.container_id, outcomes=vocabulary.OUTCOMES),
            target=Target(
                address=self.topic,
                durable=TerminusDurability.UNSETTLED_STATE,
                expiry_policy=expiry,
                timeout=self._timeout_s,
                capabilities=(vocabulary.TOPIC,),
            ),
            rcv_settle_mode=peer.receiver_settles,
            unsettled=None if presented is None else dict(presented),
            desired_capabilities=(vocabulary.EXACTLY_ONCE,) if self._exactly_once else (),
            properties=properties or None,
        )

    def _attached(self) -> None:
        assert self._wire is not None
        remote = self._wire.remote_attach
        assert remote is not None
        self._max_message_size = remote.max_message_size or 0
        resume = (remote.properties or {}).get(vocabulary.RESUME)
        self._perform(
            self._core.attached(
                capable=vocabulary.EXACTLY_ONCE in remote.offered_capabilities,
                resume=resume if isinstance(resume, str) else "",
                require=vocabulary.number_in(remote.properties, vocabulary.REQUIRE),
                require_processed=vocabulary.number_in(remote.properties, vocabulary.REQUIRE_PROCESSED),
            )
        )

    def _on_flow(self, event: LinkFlow) -> None:
        """Credit, a request for proof of life, an answer to `ask`, who ended without (I-3b), who processed (I-3c)."""
        wire = self._wire
        if wire is None or event.link is not wire or event.credit_limit is None:
            return
        assert isinstance(wire, SenderLink)
        properties = event.properties
        asked = None if properties is None else properties.get(vocabulary.ASKED)
        if properties is not None and isinstance(asked, bytes):
            self._perform(self._core.asked(asked, *_named(properties, vocabulary.OWING, vocabulary.OWING_COUNT)))
        ended = None if properties is None else properties.get(vocabulary.ENDED_TAG)
        if properties is not None and isinstance(ended, bytes):
            self._perform(self._core.ended(ended, *_named(properties, vocabulary.ENDED, vocabulary.ENDED_COUNT)))
        accepted = None if properties is None else properties.get(vocabulary.ACCEPTED_TAG)
        if properties is not None and isinstance(accepted, bytes):
            self._core.accepted_by(accepted, _done_by(properties))
        start = vocabulary.number_in(properties, vocabulary.START)
        start_tag = None if properties is None else properties.get(vocabulary.START_TAG)
        if start is not None and isinstance(start_tag, bytes):
            self._core.started(start, start_tag)
        # A later flow of the same read may have lowered the credit already.
        limit = min(event.credit_limit, wire.credit_limit)
        self._perform(
            self._core.flow(
                limit,
                drain=event.drain,
                echo=vocabulary.number_in(properties, vocabulary.ECHO),
                session=vocabulary.number_in(properties, vocabulary.SESSION),
            )
        )
        self._journal.work(self)

    def _on_delivery(self, event: DeliveryReceived) -> None:
        """Routers send nothing on a publisher's link."""
        raise AssertionError(event)

    def _on_disposition(self, event: DispositionReceived) -> None:
        """Outcomes."""
        outcome = outcome_of(event.state)
        self._perform(self._core.disposition(event.deliveries, outcome, event.settled))
        self._make_room()
        self._journal.work(self)

    def _lost(self) -> None:
        self._core.lost()

    def _is_worthless(self) -> bool:
        # K-5d: what has no outcome yet may still reach subscriptions, for as long as was asked for.
        return not self._sendings and not (self._is_named and self.client.keeps_links)

    def _expired(self) -> None:
        self._perform(self._core.expire())
        self._journal.work(self)

    # --- the journal --------------------------------------------------------------------------------------------------

    @property
    def _wants_commit(self) -> bool:
        """Whether the core has something to write, and may."""
        return self._failure is None and self._core.wants_commit

    def _take_commit(self) -> Callable[[], None]:
        """Take the core's changes; see JournalUser."""
        changes = self._core.next_commit()
        return lambda: self._journal.journal.write_publisher(self.name, changes)

    def _skip_commit(self) -> None:
        """Take the core's changes, which nobody writes; see JournalUser."""
        self._core.skip_commit()

    def _commit_done(self) -> None:
        """The changes are durable."""
        self._perform(self._core.committed())
        if self._core.may_attach and self._wire is None:
            self._attach_after_commit()
        self._make_room()
        self._journal.work(self)

    def _make_room(self) -> None:
        """Let the submitter whose turn it is look again."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _attach_after_commit(self) -> None:
        """An expired session, or outcomes of the old link, are recorded: the attach that waited for it (A-5, P-a)."""
        if self._retry is None:
            self._attach_soon()

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[PublisherEffect]) -> None:
        wire = self._wire
        is_attached = isinstance(wire, SenderLink) and wire.is_attached
        for effect in effects:
            if isinstance(effect, SendTransfer):
                if is_attached:
                    self._transfer(effect)
            elif isinstance(effect, ReportOutcome):
                self._report(effect)
            elif isinstance(effect, SettleDeliveries):
                if is_attached:
                    assert isinstance(wire, SenderLink)
                    wire.settle(effect.delivery_ids)
            else:
                self._perform_rare(effect, is_attached=is_attached)
        if is_attached and effects:
            self.client._flush()

    def _perform_rare(self, effect: PublisherEffect, *, is_attached: bool) -> None:
        wire = self._wire
        if isinstance(effect, ReportActive):
            if not self._ready.done():
                self._ready.set_result(None)
            self._became_active(resumed=effect.resumed > 0, unsettled=effect.resumed)
        elif isinstance(effect, ReportExpired):
            self.client._notify(SessionExpired(self.name, len(effect.numbers), effect.sent_again))
        elif isinstance(effect, ReportEnded):
            self._report_ended(effect)
        elif isinstance(effect, ReportOwing):
            answer = self._owing.get(effect.number)
            if answer is not None and not answer.done():
                answer.set_result(effect)
        elif isinstance(effect, RefuseLink):
            self._refuse(effect.reason)
        elif is_attached:
            assert isinstance(wire, SenderLink)
            if isinstance(effect, (AnswerEcho, ProveOwner)):
                self._prove_life(effect)
            elif isinstance(effect, AskOwing):
                wire.flow({vocabulary.ASK: effect.tag})
            elif isinstance(effect, AnswerDrain):
                wire.drained()

    def _refuse(self, reason: str) -> None:
        self._fail(
            LinkRefused(
                f"the publisher {self.name!r} cannot work with {self.client._router_name}",
                reason,
                "connect to an Oncewire router of this release, or open the publisher with exactly_once=False and "
                "without require",
            )
        )

    def _report_ended(self, report: ReportEnded) -> None:
        self.statistics.subscriptions_ended += report.count
        self.client._notify(SubscriptionsEnded(self.name, report.names, report.count, report.number))
        now = self._loop.time()
        if self._ended_logged_at is None or now - self._ended_logged_at >= ENDED_LOG_S:
            self._ended_logged_at = now
            logger.warning(
                "%s ended before processing message %d of %s, or later ones: %s",
                counted(report.count, "subscription"),
                report.number,
                self.name,
                ", ".join(report.names),
            )

    def _transfer(self, effect: SendTransfer) -> None:
        assert isinstance(self._wire, SenderLink)
        payload = mark_in_doubt(effect.payload) if effect.in_doubt else effect.payload
        try:
            self._wire.send(effect.tag, payload)
        except LimitError as error:  # taken while another router, or none, was connected
            self._fail(
                MessageTooLarge(
                    f"message {effect.number} cannot be sent",
                    str(error),
                    "raise max_message_size of the routers and open the publisher again",
                )
            )

    def _report(self, report: ReportOutcome) -> None:
        sending = self._sendings.pop(report.number, None)
        if report.outcome.is_accepted:
            self.statistics.accepted += 1
            by, processed = report.outcome.subscriptions, report.outcome.processed_by
            self.statistics.accepted_by_none += by is not None and not by.count
            self.statistics.accepted_stored += bool(by and by.count) and processed is not None and not processed.count
        else:
            self.statistics.not_accepted += 1
            self._core.reported(report.number)
            if sending is not None and not sending.was_awaited:
                self._unhappy.append(sending)
        if sending is not None:
            sending._end(report.outcome)
        if not self._sendings and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _release_all(self, error: ClientError) -> None:
        sendings, self._sendings = self._sendings, {}
        for sending in sendings.values():
            sending._end(None, error)


def _done_by(properties: Fields) -> DoneBy:
    """Who is done with a message; routers of earlier releases do not say what is only stored."""
    done = _subscriptions(properties, vocabulary.ACCEPTED_BY, vocabulary.ACCEPTED_COUNT)
    if vocabulary.PROCESSED_COUNT not in properties:
        return DoneBy(done)
    processed = _subscriptions(properties, vocabulary.PROCESSED_BY, vocabulary.PROCESSED_COUNT)
    return DoneBy(done, processed, _subscriptions(properties, vocabulary.STORED_BY, vocabulary.STORED_COUNT))


def _subscriptions(properties: Fields, names_key: Symbol, count_key: Symbol) -> Subscriptions:
    names, count = _named(properties, names_key, count_key)
    return Subscriptions(count, tuple(names))


def _named(properties: Fields, names_key: Symbol, count_key: Symbol) -> tuple[list[str], int]:
    """The subscriptions that a router names in a flow, and how many it counts."""
    named = properties.get(names_key)
    names = [str(name) for name in named] if isinstance(named, (list, tuple)) else []
    count = vocabulary.number_in(properties, count_key)
    return names, len(names) if count is None else count
