"""Egress: the router a subscription is attached to. It remembers what its subscriber has, and keeps no message.

Entries are the subscriber's unsettled map as this router knows it: what the client presented, what was sent since, and
what it is done with. The ingress alone says what is settled: absence from its U (E-2) or SETTLE (E-5).

One `Egress` is one link, from the watch event of its attach until the link is lost, or the key is deleted or is that of
a newer attach (A-9, E-7). Then all of it is forgotten, and the next one begins with the map that the client presents.
It has one stream for each publisher, begun by a SYNC; MSG and SETTLE count only behind a SYNC of their own publisher
epoch (E-1).

A SYNC settles what is not in U, states again what the subscriber is done with, and skips what precedes its start (E-2).
A MSG is decided by the state of its entry (E-3). The subscriber's answer makes an ACK, which goes out at the end of the
turn, or asks for another attempt at once (E-4, E-4a). ACKs may be repeated at will, so nothing here has to know what
arrived.

Answers of the client cross SYNCs and settlements on the way. An answer for an entry that is not here any more, or was
answered before, is ignored. Nothing is sent before the attach reply, and what is settled before it is left out of the
reply's map (A-6). When the key is put again for the same link, ingresses with a late watch go on to name the former
epoch, and mean this link (A-10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from delivery_records.model import effects
from delivery_records.model.assigned import Assigned
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.failures import PastFailures
from delivery_records.model.inputs import ClientFlow, LossCause, SubscriberAttach
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.messages import ExpiringMsg, Nack, Run, Sync, ToIngress
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.patience import SlowAction
from delivery_records.model.proposals import Proposals
from delivery_records.model.tags import OWN_TAG_AT, SESSION_AT, VERBATIM_BYTES, network_tag
from delivery_records.model.terms import held_terms, terms_after_proof, timeout_of
from delivery_records.model.timers import Timer
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription, SubscriptionMode, subscription_path
from delivery_records.subscriber.entries import (
    DONE,
    HELD,
    IN_REPLY,
    OPEN_AT_SUBSCRIBER,
    SENT,
    WANTED,
    Entry,
    LargeBody,
    Origin,
    State,
    SyncState,
    presented_map,
)
from delivery_records.subscriber.expiring import HeldExpiry
from delivery_records.subscriber.filters import MessageFilters, SharedFilter
from delivery_records.subscriber.known_deliveries import KnownDeliveries
from delivery_records.subscriber.large_deliveries import LargeDeliveries
from delivery_records.subscriber.outgoing import Outgoing
from delivery_records.subscriber.progress import Progress
from delivery_records.subscriber.proof import ProofOfLife
from delivery_records.subscriber.reduction import Reduction
from delivery_records.subscriber.slow_subscriber import action_if_slow
from delivery_records.subscriber.statements import Statements

# What comes with every delivery, as module names: to look a member up in its class costs as much as a call.
_AT_MOST_ONCE: Final = SubscriptionMode.AT_MOST_ONCE
_NO_ENTRIES: Final[dict[bytes, Entry]] = {}


@dataclass(slots=True)
class EgressParts:
    """What every egress of a router works with."""

    proposals: Proposals
    failures: PastFailures
    synced: dict[int, dict[str, Egress]]
    synced_members: dict[int, dict[str, Egress]]
    """Members of shared subscriptions apart: they get only what names them (SH-2)."""
    synced_letters: dict[int, dict[str, Egress]]
    """Dead-letter subscriptions apart (I-3e)."""
    former_epochs: dict[int, str]
    """Epochs that links here had before their keys were put again, by which ingresses may still name them (A-10)."""
    dirty: list[Outgoing]
    """Those with settlements to send at the end of this turn."""
    dirty_syncs: list[SyncState]
    """Streams with acknowledgements to send at the end of this turn."""
    answer: Callable[[SyncState, ToIngress], None]
    """Notify the ingress of this stream."""
    suspend: Callable[[Endpoint, LossCause], None]
    filters: MessageFilters
    message_format: MessageFormat
    on_answered: Callable[[SubscriberAttach], None]


class Egress(Endpoint):
    """One subscription at its egress."""

    __slots__ = (
        "_former",
        "_parts",
        "_synced",
        "_turn",
        "created",
        "exactly_once",
        "existed",
        "expiry",
        "is_expelled",
        "is_member",
        "known",
        "link",
        "mode",
        "outgoing",
        "progress",
        "proof",
        "reduction",
        "request",
        "sessions",
        "statements",
        "sync_of_publisher",
        "syncs",
    )

    def __init__(self, turn: Turn, subscription: Subscription, request: SubscriberAttach, parts: EgressParts) -> None:
        """Take over the subscription whose attachment the watch just delivered (A-6)."""
        super().__init__(subscription.key, subscription.epoch, subscription.name)
        self._turn = turn
        self._parts = parts
        # The life of the subscription, which is not that of a member (SH-1).
        owed = turn.view.subscriptions.get(subscription.record.member_of, subscription)
        self.created = owed.created
        self.existed = owed.epoch != owed.created
        """It was there before this attach: what it had, goes on."""
        self.is_member = bool(subscription.record.member_of)
        self._synced = parts.synced_members if self.is_member else parts.synced
        self._former: list[int] = []  # epochs that this link had before its key was put again
        self.link = request.link
        self.request = request
        self.mode = subscription.record.mode
        self.exactly_once = request.exactly_once
        self.is_expelled = False
        """Its end was proposed, for it makes no progress (K-5b)."""
        self.reduction = Reduction(turn, self, self.link, parts.failures, parts.suspend) if request.incomplete else None
        """Only a part of the subscriber's map was presented (C-4)."""
        self.progress = None if request.patience is None else Progress(turn, self.key, request.patience)
        """Whether it answers, where a policy wants to know (K-5b)."""
        shared = owed if self.is_member else None
        self.proof = ProofOfLife(
            turn,
            parts.proposals,
            self.link,
            subscription,
            self.exactly_once,
            terms_after_proof(request, subscription.record, turn.limits),
            shared,
            None if shared is None else terms_after_proof(request, shared.record, turn.limits),
        )
        self.sessions = presented_map(turn, request.unsettled or {}, subscription.record.topic)
        """Entries by the session part of their tag (bytes 1 to 10), then by tag."""
        self.statements = Statements(turn, self.sessions, parts.answer, is_member=self.is_member)
        self.syncs: dict[int, SyncState] = {}
        self.sync_of_publisher: dict[str, SyncState] = {}
        self.outgoing = Outgoing(
            turn,
            self.name,
            self.link,
            self.mode,
            subscription.record.map_bound,
            sum(len(entries) for entries in self.sessions.values()),
            self.reduction,
            self.progress,
            parts.dirty,
            LargeDeliveries(turn, self.key, self.link, self.mode, self.progress, parts.answer),
            is_member=self.is_member,
        )
        self.known = KnownDeliveries(turn, self.outgoing, parts.answer)
        self.expiry = HeldExpiry(turn, subscription, self.link, self.outgoing)

    # ------------------------------------------------------------------ attach

    def reply(self) -> None:
        """Answer the attach; transfers may follow at once (A-6b)."""
        if self.outgoing.is_replied:
            return
        self.outgoing.is_replied = True
        self._turn.timers.cancel(Timer.STOCK_REPLY, self.key)
        self._parts.on_answered(request := self.request)  # A-2d
        subscription = self._turn.view.subscriptions[self.key]
        kept = [tag for entries in self.sessions.values() for tag, entry in entries.items() if entry.state in IN_REPLY]
        self._turn.out.append(
            effects.SubscriberReply(
                request.link,
                subscription.record.topic,
                None if request.unsettled is None else kept,
                request.incomplete,
                self.existed,
                request.exactly_once,
                self.mode,
                self._turn.reported_incarnation(self.created),
                held_terms(subscription.record).expiry_policy,
                timeout_of(subscription),
                request.patience,
                subscription.record.filter,
                self._turn.view.subscriptions.get(subscription.record.member_of, subscription).record.grouped,
            )
        )
        if self.reduction is not None:
            self.reduction.begin(len(request.unsettled or ()), len(kept))
        else:
            self._parts.failures.forget_reductions(self.key)
        self.outgoing.pump()

    def confirm(self) -> None:
        """The attach barrier is complete: from here on G1 covers this subscription (A-6)."""
        self.proof.is_known = True
        self.reply()
        self.proof.confirm(self)

    # ------------------------------------------------------------------ from the ingress

    def on_sync(self, publisher_key: str, ingress_rid: int, session: int, sync: Sync) -> None:
        """E-2: everything of this session that is not in U is settled; repeat what S is done with."""
        nonce, is_letters = self._turn.nonce, sync.is_letters
        prefix = network_tag(nonce, session, b"", is_letters)
        entries = self.sessions.setdefault(prefix[1:], {})
        old = self.sync_of_publisher.get(publisher_key)
        if old is not None:
            self.outgoing.drop_held(old)
            self._forget_sync(old.epoch)
        state = SyncState(self, sync, Origin(ingress_rid, session, prefix), entries, self._parts.dirty_syncs)
        state.begin(sync, old, self._former)
        self.syncs[state.epoch] = state
        synced = self._parts.synced_letters if is_letters else self._synced
        synced.setdefault(state.epoch, {})[self.key] = self
        self.sync_of_publisher[publisher_key] = state
        # SH-4: what precedes a delivery of a member may be another member's; I-3e: what precedes a letter was none.
        self.known.declare(sync, state, old, is_part=self.reduction is not None or self.is_member or is_letters)
        self.outgoing.pump()

    def on_msg(
        self,
        publisher_epoch: int,
        number: int,
        tag: bytes,
        message: bytes,
        redelivered: bool = False,
        attempt: int = 0,
        message_format: int = 0,
        large: LargeBody | None = None,
    ) -> None:
        """E-3: hand a delivery to the subscriber, unless its map says it has it.

        With `large` its body comes in parts, of which `message` is the first, or later (L-2, L-7).
        """
        sync = self.syncs.get(publisher_epoch)
        if sync is None:
            self._turn.counts[Decision.FRAME_NOT_SYNCED] += 1
            return
        entry = sync.numbers.get(number)
        outgoing = self.outgoing
        if entry is None:
            prefix = sync.prefix
            if len(tag) <= VERBATIM_BYTES:
                whole = prefix + tag
            else:
                whole = network_tag(self._turn.nonce, sync.session, tag, sync.is_letters)
            if redelivered and number >= sync.first_new:
                redelivered = False  # E-3
            if whole in sync.entries or whole in outgoing.settling:
                self._free_tag(sync, whole)
            entry = Entry(whole, HELD)
            if sync.annotated:
                entry.annotations = sync.annotated.pop(number, None)
            entry.sync = sync
            entry.number = number
            sync.numbers[number] = entry
            sync.entries[whole] = entry
        elif not self.known.wants(entry, sync, attempt):
            return
        entry.redelivered = redelivered or entry.redelivered  # a retry of a repeat is one, too (G7)
        if attempt > entry.attempt:  # E-4a: else the ingress knows less than is known here
            entry.attempt = attempt
        entry.message_format = message_format
        if large is not None:
            outgoing.large.take_up(entry, large)
        outgoing.send(entry, message)

    def expects(self, publisher_epoch: int, number: int, assigned: Assigned) -> bool:
        """For members; see there."""
        return True

    def on_expiring(self, message: ExpiringMsg) -> None:
        """E-10: a MSG with little time, or none. It expires where the subscriber does not have it, as far as is known.

        Not while only a part of the map is presented: the rest may have it (C-4).
        """
        epoch, number, ttl_ms = message.publisher_epoch, message.number, message.ttl_ms
        sync = self.syncs.get(epoch)
        body, message_format = message.message, message.message_format
        is_over = not ttl_ms and not self._excludes(epoch, body, message_format)
        if message.settled:
            if is_over:
                self._turn.counts[Decision.EXPIRED] += 1
            else:
                self.on_presettled(epoch, message.tag, body, message_format, ttl_ms)
        elif sync is None or number in sync.numbers or self.reduction is not None:
            self.on_msg(epoch, number, message.tag, body, message.redelivered, message.attempt, message_format)
        elif is_over:
            whole = network_tag(self._turn.nonce, sync.session, message.tag, sync.is_letters)
            if whole in sync.entries or whole in self.outgoing.settling:
                self._free_tag(sync, whole)
            entry = Entry(whole, State.EXPIRED)
            entry.sync, entry.number = sync, number
            sync.numbers[number] = sync.entries[whole] = entry
            self.expiry.report([entry])
        else:
            self.on_msg(epoch, number, message.tag, body, message.redelivered, message.attempt, message_format)
            found = sync.numbers.get(number)
            if found is not None and found.state is HELD:
                self.expiry.watch(found, ttl_ms)

    def _excludes(self, publisher_epoch: int, message: bytes, message_format: int) -> bool:
        """For subscriptions with a filter; see there."""
        return False

    def on_presettled(
        self, publisher_epoch: int, tag: bytes, message: bytes, message_format: int = 0, ttl_ms: int = 0
    ) -> None:
        """I-1c: at most once; behind what is held, dropped without SYNC or room, or when its time is over."""
        sync = self.syncs.get(publisher_epoch)
        whole = b"" if sync is None else network_tag(self._turn.nonce, sync.session, tag)
        if sync is not None and (whole in sync.entries or whole in self.outgoing.settling):
            self._free_tag(sync, whole)
        entry = None if sync is None else self.outgoing.take_presettled(whole, message, message_format)
        if entry is None:
            self._turn.counts[Decision.DROPPED_AT_MOST_ONCE] += 1
            if self._turn.tracing is not None:
                self._turn.tracing.of_epoch(publisher_epoch, tag, Rule.DROPPED, self.name)
            return
        if ttl_ms and entry.state is HELD:
            self.expiry.watch(entry, ttl_ms)

    def _free_tag(self, sync: SyncState, tag: bytes) -> None:
        """E-3: P uses the tag again, so it has settled the delivery that had it, and S is notified of that first."""
        former = sync.take_tag(tag)
        if former is not None:
            self.outgoing.settle(former)
        self.outgoing.flush()
        self.outgoing.pump()

    def on_settle(self, publisher_epoch: int, runs: Iterable[Run]) -> None:
        """E-5: settle at S, forget the entry and any held copy."""
        sync = self.syncs.get(publisher_epoch)
        if sync is None:
            return
        if sync.annotated:
            sync.forget_annotated(runs)
        tracing = self._turn.tracing
        mapped = self.outgoing.mapped
        for first, count in runs:
            named: Sequence[int] = range(first, first + count)
            if count > len(sync.numbers):  # however long the run is, the work is bounded by what is here
                named = [number for number in sync.numbers if number in named]
            for number in named:
                entry = sync.numbers.get(number)
                if entry is not None:
                    del sync.numbers[number]
                    del sync.entries[entry.tag]
                    if tracing is not None:
                        self.outgoing.trace(entry, Rule.SETTLED_AT_SUBSCRIBER)
                    self.outgoing.settle(entry)
        has_settled = self.outgoing.mapped != mapped
        self.outgoing.pump()
        if self.is_member and has_settled:
            self.after_settling()

    def after_settling(self) -> None:
        """For members; see there."""

    def weight(self) -> int:
        """What a message may cost here, in deliveries."""
        return 1

    @property
    def shared_filter(self) -> SharedFilter | None:
        """Its filter, where it has one that costs something: those with equal ones share it (E-9)."""
        return None

    def look_at_credit(self) -> None:
        """For members; see there."""

    def ask_for_life(self) -> None:
        """A-10: its terms are not written, or only provisionally."""
        if not self.proof.is_proven:
            self.proof.ask(self)

    def on_silence(self) -> None:
        """No answer within T_life (A-10)."""
        self.proof.on_silence(self)

    def on_session_gone(self, session: int) -> None:
        """E-6: nobody can send or settle deliveries of that session any more, so they are settled."""
        prefix = network_tag(self._turn.nonce, session, b"")
        for entry in self.sessions.pop(prefix[1:], {}).values():
            self.outgoing.trace(entry, Rule.SESSION_GONE)
            self.outgoing.settle(entry)
        for epoch in [epoch for epoch, sync in self.syncs.items() if sync.session == session]:
            self._forget_sync(epoch)
        for key in [key for key, sync in self.sync_of_publisher.items() if sync.session == session]:
            del self.sync_of_publisher[key]
        self.outgoing.pump()
        self.after_settling()

    def _forget_sync(self, epoch: int) -> None:
        state = self.syncs.pop(epoch, None)
        synced = self._parts.synced_letters if state is not None and state.is_letters else self._synced
        egresses = synced.get(epoch)
        if egresses is not None:
            egresses.pop(self.key, None)
            if not egresses:
                del synced[epoch]

    def on_reput(self, subscription: Subscription) -> None:
        """A-10: same link, new epoch. Ingresses that have not seen it go on with the former one: it names this, too."""
        self._former.append(self.epoch)
        self._parts.former_epochs[self.epoch] = self.key
        self.epoch = subscription.epoch
        self.proof.on_written(self)

    def forget(self) -> None:
        """The link is gone or stolen: nothing of it is kept (A-9, E-7)."""
        self.outgoing.large.end()
        for epoch, sync in list(self.syncs.items()):
            self._forget_sync(epoch)
            sync.let_go()
        for epoch in self._former:
            self._parts.former_epochs.pop(epoch, None)

    # ------------------------------------------------------------------ from the subscriber

    def on_flow(self, flow: ClientFlow) -> None:
        """C-3, C-5: new credit, or a drain."""
        self.outgoing.limit = flow.limit
        self.outgoing.drain = flow.drain
        if flow.delivery_count > 0 or flow.echoed_epoch == self.epoch:
            self.proof.on_sign_of_life(self)
        self.outgoing.pump()

    def on_disposition(
        self, tags: Iterable[bytes], outcome: DeliveryOutcome | None, settled: bool, delay_ms: int | None = None
    ) -> None:
        """E-4: the subscriber is done with these, or wants them again (E-4a)."""
        self.proof.on_sign_of_life(self)
        if outcome is None and not settled:
            return
        verdict = outcome or DeliveryOutcome.RELEASED  # E-4a: settled without an outcome
        is_done = verdict.is_done
        was_large = False
        done = 0
        tracing = self._turn.tracing
        entries: dict[bytes, Entry] = {}
        for tag in tags:
            entry = entries.get(tag)  # nearly always of the session of the one before
            if entry is None:
                entries = self.sessions.get(tag[SESSION_AT:OWN_TAG_AT], _NO_ENTRIES)
                entry = entries.get(tag)
            if entry is None or (entry.state is not SENT and entry.state not in OPEN_AT_SUBSCRIBER):
                continue
            if self.progress is not None:
                self.progress.on_done(entry)
            is_settled = settled
            if entry.large is not None:
                was_large = True
                is_settled = self.outgoing.large.on_answered(entry, verdict) or settled
            if tracing is not None:
                self.outgoing.trace(entry, Rule.ANSWERED if is_done else Rule.WANTED_AGAIN, verdict.value)
            if is_done:
                done += 1
                if entry.state is SENT:
                    entry.state = State.DONE_SETTLED if is_settled else DONE
                else:
                    entry.step(State.DONE_PRESENTED)
                entry.outcome = verdict
                if entry.sync is not None:
                    entry.sync.acknowledge(entry.number, verdict)
            else:
                self._want_again(entry, verdict, is_settled, delay_ms)
        self._turn.counts[Decision.OUTCOME_DONE] += done
        if self.reduction is not None and done:
            self.reduction.on_answered()
        if self.outgoing.is_waiting:
            self.outgoing.pump()
        if was_large:
            self.after_settling()

    def _want_again(self, entry: Entry, outcome: DeliveryOutcome, settled: bool, delay_ms: int | None) -> None:
        """E-4a: settle this delivery at S, keep no body, and ask the ingress for another attempt.

        What failed is counted here, too, for the next ingress does not know what the last one has counted.
        """
        self._turn.counts[Decision.OUTCOME_AGAIN] += 1
        if not settled:
            self._turn.out.append(effects.SettleAtSubscriber(self.link, [entry.tag]))
        # Its place in the map stays its own: else newer ones could lock it out (C-4).
        entry.step(State.AGAIN_HELD if entry.state is State.KNOWN_HELD else State.AGAIN)
        if self.reduction is not None:
            self.reduction.on_gone()
        failed = outcome is DeliveryOutcome.MODIFIED_FAILED
        if failed:
            entry.attempt += 1
        if entry.sync is not None:
            nack = Nack(entry.sync.epoch, entry.sync.named, entry.number, failed, entry.attempt, delay_ms)
            self._parts.answer(entry.sync, nack)

    # ------------------------------------------------------------------ state

    @property
    def is_at_rest(self) -> bool:
        """K-8a: everything sent is settled, and no close waits for etcd."""
        return (self.outgoing.mapped == 0 or self.mode is _AT_MOST_ONCE) and not self.outgoing.is_closing

    @property
    def resumes(self) -> bool:
        """The subscriber presents all it has wherever it attaches next; what waits for a retry is in no map (E-4a)."""
        if self.mode is not SubscriptionMode.EXACTLY_ONCE:
            return False
        return not any(entry.state in WANTED for entries in self.sessions.values() for entry in entries.values())

    def on_reduction_timer(self) -> None:
        """Nothing has happened to the presented part of the map for a while (C-4)."""
        if self.reduction is not None:
            entries = (entry for entries in self.sessions.values() for entry in entries.values())
            self.reduction.on_timer(any(entry.state is SENT for entry in entries))

    def on_patience_timer(self) -> None:
        """K-5b: is the oldest unanswered delivery the one that it was?"""
        progress = self.progress
        action = action_if_slow(self, self.request.peer, self.outgoing, progress, self.proof, self._turn)
        if action is SlowAction.EXPEL:
            self.is_expelled = True
            self._parts.proposals.delete(subscription_path(self.key), self.epoch)
        elif action is not None and progress is not None:
            reason = progress.reason
            self._turn.out.append(effects.DetachLink(self.link, False, "amqp:link:detach-forced", reason))
            self._parts.suspend(self, LossCause.DETACH)

    @property
    def unsettled(self) -> int:
        """Deliveries not settled at the subscriber; K-9: what its map has of before the nonce nobody settles."""
        return sum(len(entries) for part, entries in self.sessions.items() if part.startswith(self._turn.nonce))
