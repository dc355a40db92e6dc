"""Ingress: the router a publisher is attached to, the only authority on which of its deliveries are unsettled.

One `Ingress` serves one attach of one publisher. It is made when the watch delivers the put of that attach (A-3), and
retired when the watch shows a newer attach or the deletion of the key (I-7). A router whose watch is late may still
have a former one. An egress that knows the newer epoch takes no SYNC of the former one, whose stream ends there with
the SYNC of the newer epoch (E-1).

Phases: an attach whose put was seen in the watch is PROVING (it must answer the echo, A-4) or, for a client that does
not answer echoes, WAITING for the first frame that needs our credit (c.5); a publisher without a session is STARTING
one; then it is ACTIVE. ENDING is answered behind the outcomes; SUSPENDED keeps collecting acceptances after the link
was lost (A-9), and reports none. Before ACTIVE nothing is sent to any subscription: the bytes of an attach may come
from a connection that was lost long ago, and such an attach must not state what is unsettled.

A delivery passes in four steps. `on_transfer` enters it into the window and forwards it, which fixes the subscriptions
that owe it (I-1). Each acknowledgement takes one of these away (I-2, `answers`). At the end of the turn `flush` reports
outcomes from the head of the window on, as far as deliveries are received and owed by nobody (I-3). The publisher's
settlement takes the delivery out, and a SETTLE has the egresses forget it (I-4).

An ingress is called with one input at a time and never waits. Subscriptions may join, move and end between any two of
these steps: a join adds nothing to what is in the window (I-6), an end takes away what that subscription owed (I-3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from delivery_records.channels.channel import Channels
from delivery_records.model import effects
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.failures import PastFailures
from delivery_records.model.inputs import ClientFlow, LossCause, PublisherAttach, PublisherTransfer
from delivery_records.model.limits import OWING_NAMES, PROVISIONAL_TIMEOUT_S, RESEND_FAILURES, UNKNOWN_PUT_S
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.outcomes import Decision
from delivery_records.model.proposals import Proposals
from delivery_records.model.runs import add_run, frozen_runs
from delivery_records.model.tags import MAX_TAG_BYTES
from delivery_records.model.terms import publisher_terms
from delivery_records.model.timers import Timer
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import SESSION_IS_THIS_PUT, Publisher, Subscription, publisher_path
from delivery_records.publisher.answers import Answers
from delivery_records.publisher.arrivals import Arrivals
from delivery_records.publisher.credit import PublisherCredit
from delivery_records.publisher.dead_letters import DeadLetters
from delivery_records.publisher.departure import Departure
from delivery_records.publisher.fanout import Fanout
from delivery_records.publisher.large_arrivals import LargeArrivals, stream_above
from delivery_records.publisher.lifetimes import Lifetimes
from delivery_records.publisher.owner import Owner
from delivery_records.publisher.phase import Phase, step
from delivery_records.publisher.publisher_outcomes import PublisherOutcomes
from delivery_records.publisher.requirement import RequiringFanout, counted_outcomes, required_by
from delivery_records.publisher.resends import Resends
from delivery_records.publisher.resumption import Held, Resumption
from delivery_records.publisher.retries import Retries
from delivery_records.publisher.special_transfers import SpecialTransfers
from delivery_records.publisher.starts import Start, presented_starts
from delivery_records.publisher.window import REPORTED, Slot, Window
from delivery_records.subscriber.to_egresses import ToEgresses

# What comes with every delivery, as module names: to look a member up in its class costs as much as a call.
_ACTIVE: Final = Phase.ACTIVE


class Ingress(Owner):
    """One publisher at its ingress: phase, window, and who owes what."""

    __slots__ = (
        "_annotate",
        "_asked_s",
        "_parts",
        "_start_reported",
        "_starts",
        "_turn",
        "answers",
        "arrivals",
        "credit",
        "departure",
        "expiry_policy",
        "fanout",
        "is_dirty",
        "large",
        "lifetimes",
        "outcomes",
        "peer",
        "phase",
        "place",
        "resends",
        "resumption",
        "retries",
        "sends_as_new",
        "settled_runs",
        "special",
        "timeout_s",
        "window",
    )

    def __init__(
        self,
        turn: Turn,
        publisher: Publisher,
        request: PublisherAttach,
        began: float,
        parts: IngressParts,
        held: Held | None = None,
    ) -> None:
        """Take over the publisher whose attachment the watch just delivered (A-3); its attach was read at `began`.

        `held`: what is here of it (A-3b).
        """
        super().__init__(publisher.key, publisher.epoch, publisher.name)
        self._turn = turn
        self._parts = parts
        self._annotate = parts.message_format.annotate
        self.session = publisher.session
        self.topic = publisher.record.topic
        self.user = publisher.record.user
        self.timeout_s = publisher.record.timeout_s
        terms = publisher_terms(request, turn.limits)
        self._asked_s, self.expiry_policy = terms.timeout_s, terms.expiry_policy
        self.place = request.place
        self.peer = request.peer
        self.link = request.link
        self.exactly_once = request.exactly_once
        self.sends_as_new = not (request.exactly_once or request.sends_again)
        """What it is asked to send again comes as a new message (c.5)."""
        presented = None if held is None else held.among(request.unfinished)
        self.window = Window(request.unfinished if presented is None else presented.tags, turn.budget)
        starts = () if request.waits else presented_starts(self.window, request.starts, publisher.epoch)  # I-3f
        self._starts: list[Start] = [*starts]
        self._start_reported = self.window.end
        """Below it the publisher knows a revision already: of a start, or of its attach (I-6a)."""
        self.arrivals = Arrivals(self.window.end, turn.now)
        self.fanout = self._new_fanout(request)
        self.policy = turn.policy_of(self.topic)
        self.retries = Retries(turn, self, self.window, self.fanout, self.policy)
        self.lifetimes = Lifetimes(turn, self, self.fanout, parts.message_format.read_ttl)
        self.resends = Resends(turn, self, self.window, began)
        self.large = LargeArrivals(turn, self, self.window, self.fanout, self.resends)
        """The large delivery that comes on its link, if one does (L-1)."""
        modes = self.policy, self.exactly_once, request.settles_first
        self.outcomes = (
            PublisherOutcomes(turn, self, self.window, *modes)
            if request.require is None
            else counted_outcomes(turn, self, self.window, self.fanout, modes, request)
        )
        self.resumption = Resumption(turn, self, self.window, self.fanout, self.outcomes, held)
        self._starts += self.resumption.starts
        self.special = SpecialTransfers(
            turn, self, self._annotate, self.window, self.fanout, self.lifetimes, self.resends, self.resumption
        )
        """What is not simply the next whole delivery."""
        self.answers = Answers(turn, self, self.window, self.fanout, self.outcomes, self.retries, self._new_letters)
        """What subscriptions say of its deliveries."""
        self.credit = PublisherCredit(turn, self.window, self.topic, request.map_bound)
        self.departure = Departure(request, self.window)
        self.settled_runs: list[list[int]] = []
        self.is_dirty = False
        self.phase = Phase.PROVING if self.exactly_once else Phase.WAITING

    # ------------------------------------------------------------------ attach

    def open(self, request: PublisherAttach) -> None:
        """Answer the attach, and ask for proof of life or start at once (A-3, A-3a, A-4)."""
        turn = self._turn
        resumed = len(self.window) > 0
        turn.note(
            Decision.PUBLISHER_RESUMED if resumed else Decision.PUBLISHER_ATTACHED,
            publisher=self.name,
            topic=self.topic,
            epoch=self.epoch,
            unsettled=len(self.window),
            peer=request.peer,
        )
        unsettled = None if request.unsettled is None else self.resumption.reply
        turn.out.append(
            effects.PublisherReply(
                request.link,
                unsettled,
                resumed,
                self.exactly_once,
                request.settles_first,
                self.timeout_s,
                self.expiry_policy,
                stream_above(request),
            )
        )
        if self.phase is Phase.PROVING:
            turn.out.append(effects.AskEcho(request.link, self.epoch))
            turn.timers.set(Timer.PROOF, self.key, turn.now + turn.limits.proof_timeout_s)
        elif not request.unfinished:
            self._activate()  # c.5: the session started with the attach itself
        else:
            self.credit.grant(
                request.link, self.session, self.fanout.has_released
            )  # A-4 (ii): the first frame that needs this credit proves life
            time_s = turn.limits.proof_timeout_s if self.resumption.must_show_life else PROVISIONAL_TIMEOUT_S
            turn.timers.set(Timer.PROOF, self.key, turn.now + time_s)

    def on_flow(self, flow: ClientFlow) -> None:
        """A flow of the publisher: proof of life, or the question who still owes a delivery."""
        if flow.asked_tag is not None:
            if len(flow.asked_tag) > MAX_TAG_BYTES:
                self.detach("amqp:invalid-field", f"x-opt-topic-ask names a tag of more than {MAX_TAG_BYTES} bytes")
                return
            self._notify_owing(flow.asked_tag)
        if self.phase is Phase.PROVING and flow.echoed_epoch == self.epoch:
            self._turn.timers.cancel(Timer.PROOF, self.key)
            if len(self.window):
                self._activate()
            else:
                self._start_session()

    def _start_session(self) -> None:
        """A-4: a session exists only after proof of life; its number is the revision of this put, and K-5d its time."""
        record = replace(self._turn.view.publishers[self.key].record, timeout_s=self._asked_s)
        self.phase = step(self.phase, Phase.STARTING)
        nonce = self._parts.proposals.put_again(publisher_path(self.key), self, record, session=SESSION_IS_THIS_PUT)
        self._turn.timers.set(Timer.UNKNOWN_PUT, nonce, self._turn.now + UNKNOWN_PUT_S)

    def on_reput(self, publisher: Publisher) -> None:
        """The watch delivered the put that starts the session: its revision is the new epoch (A-4)."""
        assert self.phase in (Phase.STARTING, Phase.SUSPENDED, Phase.CLOSING)
        self.epoch = publisher.epoch
        self.session = publisher.session
        self.timeout_s = publisher.record.timeout_s
        if self.phase is Phase.STARTING:
            self._turn.note(Decision.SESSION_STARTED, publisher=self.name, session=self.session)
            self._activate()

    def _activate(self) -> None:
        """Declare U to every subscription, then let the publisher send (A-4, I-5)."""
        self.phase = step(self.phase, Phase.ACTIVE)
        self._turn.timers.cancel(Timer.PROOF, self.key)
        self.fanout.join_all(self._turn.view.matching(self.topic), self._starts)
        for slot, owed in self.fanout.owed(self.window.slots()):
            slot.pending = owed
            self.trace(slot, Rule.PRESENTED, slot.number, slot.pending)
        self.fanout.sync_all()
        if self.policy.dead_letter:
            self.answers.letters().use(self.policy)
        self.resends.begin()
        self.resumption.begin()
        self._turn.note(Decision.PUBLISHER_ACTIVATED, publisher=self.name, unsettled=len(self.window))
        assert self.link is not None
        self.credit.grant(self.link, self.session, self.fanout.has_released)
        self.mark_dirty()

    # ------------------------------------------------------------------ transfers

    def on_transfer(self, transfer: PublisherTransfer) -> None:
        """I-1: store the delivery whole, then forward it to every subscription that owes it."""
        if self.phase is not _ACTIVE and not self._may_activate():
            return
        self.credit.received += 1
        if not self.is_dirty:
            self.mark_dirty()
        window = self.window
        if transfer.is_special or self.policy.ttl_s or window.unreceived or window.find(transfer.tag) is not None:
            self.special.take(transfer)
            return
        try:
            message = self._annotate(transfer.message, self.name, transfer.tag, self.session, self.user)  # I-1b
        except ValueError:
            self.special.take(transfer)
            return
        slot = window.append(transfer.tag)
        slot.pending = len(self.fanout.cursors)
        window.fill(slot, message, transfer.delivery_id)
        self._turn.stored += 1
        self.send_on(slot)

    def send_on(self, slot: Slot) -> None:
        """I-1: it is stored; to everybody who owes it or listens."""
        if not slot.pending or self.fanout.listeners:
            self.outcomes.on_no_answer_due(slot, bool(self.fanout.listeners))
        if self._turn.tracing is not None:
            rule = Rule.REPEATED if slot.repeated else Rule.STORED
            self.trace(slot, rule, slot.number, slot.pending, len(slot.message))
        self.fanout.forward(slot)

    def _may_activate(self) -> bool:
        """c.5: the first transfer on the credit of a resumed link activates it; no other phase takes transfers."""
        if self.phase is Phase.WAITING:
            self._activate()
            return True
        self._turn.counts[Decision.TRANSFER_NOT_ACTIVE] += 1
        return False

    # ------------------------------------------------------------------ outcomes

    def _new_fanout(self, request: PublisherAttach) -> Fanout:
        turn, parts = self._turn, self._parts
        ways = parts.to_egresses, parts.channels, parts.message_format.read_group
        if request.require or request.require_processed:
            return RequiringFanout(turn, self, self.window, *ways, required_by(request))
        return Fanout(turn, self, self.window, *ways)

    def _new_letters(self) -> DeadLetters:
        fanout, parts = self.fanout, self._parts
        ways = parts.to_egresses, parts.channels, parts.message_format.make_letter
        return DeadLetters(self._turn, self, self.window, *ways, fanout)

    def on_settled(self, tags: tuple[bytes, ...] | list[bytes]) -> None:
        """I-4: the publisher settled; forget the deliveries and send SETTLE to everybody who has them."""
        turn = self._turn
        self.outcomes.last_progress = turn.now
        for tag in tags:
            slot = self.window.find(tag)
            if slot is not None:
                has_outcome = slot.state is REPORTED
                if turn.tracing is not None:
                    self.trace(slot, Rule.SETTLED if has_outcome else Rule.GIVEN_UP)
                if has_outcome:
                    turn.settled += 1
                else:
                    turn.counts[Decision.DELIVERY_GIVEN_UP] += 1  # I-4a
                self.drop(slot)

    def drop(self, slot: Slot) -> None:
        """Forget a delivery and settle it at all that have it: settled, given up or abandoned (I-4, I-4a, I-9)."""
        self.window.remove(slot)
        for policy in self.fanout.policies:
            policy.forget(slot)
        if slot.rejected_by is not None:
            self.outcomes.forget(slot.number)
        add_run(self.settled_runs, slot.number)
        if not self.is_dirty:
            self.mark_dirty()

    def flush(self) -> None:
        """Carry out what this turn added up to: acceptances, settlements, credit (2.4: once per turn)."""
        self.is_dirty = False
        if self.window.end != self.arrivals.end:
            self.arrivals.mark(self.window, self._turn.now)
        if not self.fanout.is_active:
            return
        for policy in self.fanout.policies:
            policy.flush()
        if self.link is not None and self.phase in (Phase.ACTIVE, Phase.ENDING):
            self.outcomes.decide_in_order()
            self.outcomes.send(self.link)
            if self.outcomes.may_go_on:
                self.detach("amqp:link:detach-forced", "subscriptions are there that it has waited for: attach again")
        if self.settled_runs:
            runs, self.settled_runs = frozen_runs(self.settled_runs), []
            self.fanout.settle(runs)
        self.credit.look_at(self.fanout.longest_line())
        if self.phase is Phase.ACTIVE and self.link is not None:
            self.credit.grant(self.link, self.session, self.fanout.has_released)
        elif self.phase is Phase.ENDING or self.departure.is_kept or self.departure.is_awaited:
            self._parts.on_departing(self)
        if self.large.is_needed:
            self.large.ask_publisher()

    def withdraw_credit(self) -> None:
        """K-8a, I-3c: take back what was granted; what was sent on it is still received."""
        if self.link is not None:
            self.credit.withdraw(self.link)

    @property
    def is_at_rest(self) -> bool:
        """K-8a: everything received is settled, and no close waits for etcd."""
        return len(self.window) == self.window.unreceived and self.phase is not Phase.CLOSING

    @property
    def resumes(self) -> bool:
        """The publisher presents its map wherever it attaches next."""
        return self.exactly_once

    def trace(self, slot: Slot, rule: Rule, *fields: object) -> None:
        """A step of a delivery of this publisher, while an operator wants to see them."""
        if self._turn.tracing is not None:
            self._turn.tracing.own(self.session, slot.tag, rule, *fields)

    def retire(self) -> None:
        """I-7: a newer epoch or a deletion ended this one; nothing of it may be sent any more."""
        self.fanout.is_active = False
        self.settled_runs = []
        self.fanout.streams.clear()
        self.window.release()
        self.credit.look_at(None)

    def limit_life(self, slot: Slot) -> None:
        """E-10: it is stored; where its topic's policy limits the life of messages, its time begins."""
        if self.policy.ttl_s:
            self.lifetimes.begin(slot, self.policy.ttl_s)

    def mark_dirty(self) -> None:
        """Have `flush` called at the end of this turn."""
        if not self.is_dirty:
            self.is_dirty = True
            self._parts.dirty.append(self)

    def on_less_waits(self) -> None:
        """C-1: perhaps less waits for a channel than at the last look."""
        if self.credit.waiting_bodies:
            self.mark_dirty()

    def use_policy(self) -> None:
        """I-3d: the operator's rules have changed."""
        self.policy = self.retries.policy = self.outcomes.policy = self._turn.policy_of(self.topic)
        if self.fanout.is_active and (self.fanout.letters is not None or self.policy.dead_letter):
            self.answers.letters().use(self.policy)

    # ------------------------------------------------------------------ members of shared subscriptions

    def on_member(self, member: Subscription) -> None:
        """SH-4: it came, moved, or was put again."""
        if self.fanout.is_active:
            self.fanout.sync_members([member])

    def on_member_deleted(self, member: Subscription) -> None:
        """SH-3: what it had goes to others."""
        self.fanout.streams.leave(member.key)
        self.answers.on_member_deleted(member)

    def on_share_expiry(self) -> None:
        """E-10: what no member was given in time, the shared subscription is done with."""
        self.lifetimes.on_timer(self.window, self.answers.count_done)

    # ------------------------------------------------------------------ subscriptions come, move and go

    def on_subscription(self, subscription: Subscription, is_new: bool) -> None:
        """I-6 for a new subscription, I-5 for one that moved."""
        if self.phase not in (Phase.ACTIVE, Phase.ENDING, Phase.SUSPENDED) or not self.fanout.is_active:
            return
        if is_new or self.fanout.has_other_mode(subscription):
            self.on_subscription_deleted(subscription.key, subscription)
            for slot in self.window.slots() if self._turn.tracing is not None else ():
                self.trace(slot, Rule.NOT_OWED, subscription.name)
            self.fanout.join(subscription)
        if is_new:
            self._notify_start(subscription)
        self.fanout.sync([subscription])
        self.mark_dirty()  # C-1, I-3f

    def on_other_subscription(self, subscription: Subscription) -> None:
        """I-3e: it does not match the topic; it may be a dead-letter subscription."""
        if self.fanout.letters is not None and self.fanout.is_active:
            self.fanout.letters.on_subscription(subscription)

    def _notify_start(self, subscription: Subscription) -> None:
        """I-6a: the publisher alone can state to its next ingress that all of this was sent before the subscription."""
        if self.exactly_once and self.link is not None and self._start_reported < self.window.end and len(self.window):
            self._start_reported = self.window.end
            self._turn.out.append(effects.NotifyStart(self.link, subscription.created, self.window.newest.tag))

    def on_subscription_deleted(self, key: str, old: Subscription | None) -> None:
        """I-3: what a deleted subscription owed is owed no longer; I-3b: the publisher learns that it ended."""
        self.on_less_waits()
        if key in self.fanout.cursors:
            if old is not None:
                self.outcomes.on_leaving(old)
            self.mark_dirty()
        oldest = self.fanout.leave(key)
        if oldest is not None and self.link is not None:
            self.outcomes.on_subscription_ended("" if old is None else old.name, oldest)

    # ------------------------------------------------------------------ ends of the link

    def on_link_lost(self) -> None:
        """A-9: keep the window and go on collecting acceptances until a newer epoch, deletion, or T_pub."""
        self.large.abort(is_link_lost=True)  # L-5
        self.link = None
        if self.phase not in (Phase.ACTIVE, Phase.ENDING):
            self.fanout.is_active = False
        self.phase = step(self.phase, Phase.SUSPENDED)
        self.departure.left_at = self._turn.now
        self._turn.timers.cancel(Timer.PROOF, self.key)
        self._turn.timers.cancel(Timer.RESEND, self.key)
        self._turn.timers.cancel(Timer.SETTLE, self.key)
        self._turn.note(Decision.PUBLISHER_LOST, publisher=self.name, unsettled=len(self.window))

    def on_proof_timeout(self) -> None:
        """A-4: no proof of life within T_life; or it is still there, with nothing but outcomes to read (A-3b)."""
        if self.phase is Phase.WAITING and not self.resumption.must_show_life:
            self._activate()
        elif self.phase in (Phase.PROVING, Phase.WAITING):
            self._turn.note(Decision.PUBLISHER_NOT_ALIVE, publisher=self.name)
            echo = "no answer to the flow with x-opt-topic-echo"
            text = echo if self.exactly_once else "no transfer on the credit of a resumed link"
            self.detach("amqp:link:detach-forced", text)

    def on_resend_timeout(self) -> None:
        """I-9: neither a resend nor a new delivery within T_resend."""
        is_due = self.window.unreceived or self.resumption.is_due
        if self.phase is not Phase.ACTIVE or not is_due or not self.resends.is_overdue():
            return
        failures = self._parts.failures.count_resend(self.key, self._turn.now, self.timeout_s)
        self.detach("amqp:link:detach-forced", "the deliveries of the presented map were not sent again")
        if failures >= RESEND_FAILURES:
            self._parts.proposals.delete(publisher_path(self.key), self.epoch)

    def on_letters_timer(self) -> None:
        """I-3e: nobody was there for its letters in all the time that the policy gives them."""
        if self.fanout.letters is not None:
            self.fanout.letters.on_timer()

    def on_settle_timeout(self) -> None:
        """I-4, T_settle: reported outcomes must be settled, or joiners and memory wait for a hung publisher."""
        self.resumption.settle_stated()
        if self.phase is not Phase.ACTIVE or not self.window.reported or not self.outcomes.is_overdue():
            return
        self._turn.note(Decision.PUBLISHER_NEVER_SETTLES, publisher=self.name, reported=self.window.reported)
        self.detach("amqp:link:detach-forced", "outcomes were reported and nothing was settled")

    def detach(self, condition: str, description: str) -> None:
        """Suspend the link from our side; the terminus stays (A-9)."""
        if self.link is not None:
            self._turn.out.append(effects.DetachLink(self.link, False, condition, description))
            self._parts.suspend(self, LossCause.DETACH)

    def _notify_owing(self, tag: bytes) -> None:
        slot = self.window.find(tag)
        names = [] if slot is None else self.fanout.owing(slot.number)
        if self.link is not None:
            self._turn.out.append(effects.NotifyOwing(self.link, tag, names[:OWING_NAMES], len(names)))


@dataclass(slots=True)
class IngressParts:
    """What every ingress of a router works with."""

    message_format: MessageFormat
    proposals: Proposals
    failures: PastFailures
    to_egresses: ToEgresses
    channels: Channels
    dirty: list[Ingress]
    """Those to flush at the end of this turn."""
    suspend: Callable[[Endpoint, LossCause], None]
    on_departing: Callable[[Ingress], None]
    """One that ends has done what this turn added up to (A-9a)."""
