"""The outcomes of one publisher's deliveries: decided in the order of its window, stated once per turn (rule I-3).

An outcome is due when the delivery is received and nothing is pending for it, and the same holds for all before it. So
`decide_in_order` walks on from the first unreported number and stops at the first open one; a subscriber that is quick
with later deliveries changes nothing. Egresses rely on this order. What a subscriber is done with stays in its map
while an earlier delivery is open; an earlier one that is not in that map was never owed to it, and the egress skips it
instead of sending it behind the later one (E-2).

The outcome is *accepted* unless something has fixed another one: a message that cannot be read (I-1b), one that nobody
is done with (I-3, I-3d), one in doubt because it would come again as a new message (L-7), or a rejection that the
policy has reported, or that has no dead letter (I-3d, I-3e). With rcv-settle-mode first the outcome goes out settled,
and the delivery leaves the window at once.

Calls come from the ingress: `decide_in_order` and `send` at the end of a turn, only while the link is attached. While
the publisher is disconnected nothing is reported. Nothing here is durable: a reported outcome other than accepted may
change over a failover unless the publisher has recorded it. Subscriptions that ended are reported ahead of the outcomes
which their end releases (I-3b). From the first reported outcome on, T_settle runs.
"""

from __future__ import annotations

from typing import Final

from delivery_records.model import effects
from delivery_records.model.limits import OWING_NAMES, OnEmpty, TopicPolicy
from delivery_records.model.outcomes import Decision, DeliveryOutcome, Reported
from delivery_records.model.timers import Timer
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription
from delivery_records.publisher.owner import Owner
from delivery_records.publisher.window import ARRIVING, AWAITED, RECEIVED, REPORTED, Slot, Window

_ACCEPTED: Final = Reported(DeliveryOutcome.ACCEPTED)
_IN_DOUBT: Final = Reported(DeliveryOutcome.MODIFIED_FAILED)
_RELEASED: Final = Reported(DeliveryOutcome.RELEASED)
_NOBODY: Final = Reported(
    DeliveryOutcome.REJECTED,
    "amqp:not-found",
    "no subscription matches the topic, and its policy rejects such messages: subscribe first, then send it again",
)
_OF_VERDICT: Final = {DeliveryOutcome.RELEASED: _RELEASED, DeliveryOutcome.MODIFIED_FAILED: _IN_DOUBT}
_OF_EMPTY: Final = {
    OnEmpty.ACCEPT: None,
    OnEmpty.RELEASE: DeliveryOutcome.RELEASED,
    OnEmpty.REJECT: DeliveryOutcome.REJECTED,
}

_REPORTED = {
    DeliveryOutcome.ACCEPTED: Decision.DELIVERY_ACCEPTED,
    DeliveryOutcome.REJECTED: Decision.DELIVERY_REJECTED,
    DeliveryOutcome.RELEASED: Decision.DELIVERY_RELEASED,
    DeliveryOutcome.MODIFIED_FAILED: Decision.DELIVERY_MODIFIED,
}


class PublisherOutcomes:
    """What was reported to the publisher, and what it gets at the end of this turn."""

    __slots__ = (
        "_accepted",
        "_ended",
        "_ended_count",
        "_ended_from",
        "_exactly_once",
        "_owner",
        "_reported",
        "_reported_settled",
        "_settles_first",
        "_turn",
        "_window",
        "expired_by",
        "in_doubt",
        "last_progress",
        "policy",
    )

    def __init__(
        self, turn: Turn, owner: Owner, window: Window, policy: TopicPolicy, exactly_once: bool, settles_first: bool
    ) -> None:
        """Nothing is reported yet. `settles_first`: outcomes go out settled (c.3)."""
        self._turn = turn
        self.policy = policy
        """Of its topic (I-3d)."""
        self._owner = owner
        self._window = window
        self._exactly_once = exactly_once
        self._settles_first = settles_first
        self._accepted: list[int] = []
        """Delivery-ids of what was simply accepted, and is not settled with that: nearly all."""
        self._reported: dict[Reported, list[int]] = {}
        self._reported_settled: dict[Reported, list[int]] = {}
        self.expired_by: dict[int, list[str]] = {}
        """Number of a delivery -> subscriptions for which it expired (E-10)."""
        self.in_doubt: set[int] = set()
        """Numbers of those that a subscription needs again, and that would come as new messages (L-7)."""
        self._ended: list[str] = []
        self._ended_count = 0
        self._ended_from: Slot | None = None
        """The oldest delivery that one of them owed (I-3b)."""
        self.last_progress = turn.now
        """When the publisher settled last, or got an outcome while all before were settled (I-4)."""

    @property
    def may_go_on(self) -> bool:
        """I-3f: what it waited for is there."""
        return False

    def on_no_answer_due(self, slot: Slot, has_listeners: bool) -> None:
        """I-3: there is a subscription that never answers (c.3), or none that will: who comes later is not owed it."""
        if has_listeners:
            slot.processed = True
        elif not slot.processed and not slot.repeated:
            slot.verdict = self._of_empty()  # I-3d; what a map names may have been processed

    def on_expired(self, slot: Slot, name: str) -> None:
        """E-10: a subscription is done with it, and was never sent it."""
        self.expired_by.setdefault(slot.number, []).append(name)
        slot.rejected_by = slot.rejected_by or []  # not None: its outcome is looked at

    def put_in_doubt(self, slot: Slot) -> None:
        """L-7: a subscription needs it again, and it would come as a new message."""
        self.in_doubt.add(slot.number)
        slot.rejected_by = slot.rejected_by or []  # not None: its outcome is looked at

    def forget(self, number: int) -> None:
        """A delivery whose outcome was looked at has left the window."""
        self.expired_by.pop(number, None)
        self.in_doubt.discard(number)

    def decide_in_order(self) -> None:
        """I-3: in window order, while the next delivery is received and no subscription owes it."""
        window = self._window
        while window.next_accept < window.end:
            slot = window.at(window.next_accept)
            if slot is not None and (slot.pending or slot.state is AWAITED or slot.state is ARRIVING):
                return
            window.next_accept += 1  # first: telling may take the slot out and move it on
            if slot is not None:
                self._notify(slot)

    def settle_with_outcomes(self) -> None:
        """A-9a: the publisher ends, and settles nothing any more."""
        self._settles_first = True

    def notify_all(self) -> int:
        """A-9a: T_end is over. Returns how many deliveries had no outcome, and are in doubt."""
        in_doubt = 0
        self._window.next_accept = self._window.end
        for slot in [slot for slot in self._window.slots() if slot.state is not REPORTED]:
            if slot.pending:
                in_doubt += 1
                slot.verdict = DeliveryOutcome.MODIFIED_FAILED
            self._notify(slot)
        return in_doubt

    def on_stated(self, slot: Slot) -> None:
        """A-3b: its outcome stands in the attach reply's map."""
        slot.step(REPORTED)
        if not self._window.reported:
            self._await_settlement()
        self._window.reported += 1

    def notify_again(self, slot: Slot, reported: Reported) -> None:
        """A-3b: the publisher resumes it all the same."""
        if self._settles_first or slot.receiver_settles:
            self._reported_settled.setdefault(reported, []).append(slot.delivery_id)
            self._owner.drop(slot)
        else:
            (self._accepted if reported is _ACCEPTED else self._reported.setdefault(reported, [])).append(
                slot.delivery_id
            )

    def outcome_of(self, slot: Slot) -> Reported:
        """I-3: of what is received, and owed by nobody any more."""
        plain = slot.processed and slot.verdict is None and slot.rejected_by is None
        return _ACCEPTED if plain else self._outcome_of(slot)

    def _notify(self, slot: Slot) -> None:
        plain = slot.processed and slot.verdict is None and slot.rejected_by is None
        reported = _ACCEPTED if plain else self._outcome_of(slot)
        assert slot.state is RECEIVED
        slot.state = REPORTED
        if self._turn.tracing is not None:
            self._owner.trace(slot, Rule.REPORTED, reported.outcome.value)
        if not self._window.reported:
            self._await_settlement()
        self._window.reported += 1
        if self._settles_first or slot.receiver_settles:
            self._reported_settled.setdefault(reported, []).append(slot.delivery_id)
            self._owner.drop(slot)  # c.3: at-least-once is settled together with the outcome
        elif reported is _ACCEPTED:
            self._accepted.append(slot.delivery_id)
        else:
            self._reported.setdefault(reported, []).append(slot.delivery_id)

    def _await_settlement(self) -> None:
        """I-4, T_settle: from the first reported outcome on. While more are reported the timer sets itself again."""
        self.last_progress = self._turn.now
        if not self._turn.timers.is_set(Timer.SETTLE, self._owner.key):
            self._turn.timers.set(Timer.SETTLE, self._owner.key, self._turn.now + self._turn.limits.settle_timeout_s)

    def _outcome_of(self, slot: Slot) -> Reported:
        """The outcome reported to the publisher (I-3)."""
        if slot.failure:
            return Reported(DeliveryOutcome.REJECTED, "amqp:decode-error", slot.failure)  # I-1b
        if slot.number in self.in_doubt:
            return _IN_DOUBT  # L-7
        if slot.verdict is None and not slot.processed and not (self._exactly_once or slot.repeated):
            slot.verdict = self._of_empty()  # I-3: whoever owed it has ended without it
        if slot.verdict is not None:
            return _OF_VERDICT.get(slot.verdict, _NOBODY)
        if self.policy.report_rejections or (slot.has_no_letter and self.policy.dead_letter):  # I-3e
            return self._rejected(slot, slot.rejected_by or [], self.expired_by.get(slot.number, []))
        return _ACCEPTED

    def _rejected(self, slot: Slot, rejected: list[str], expired: list[str]) -> Reported:
        """on_reject=report, or no letter: who rejected it, and for whom it expired (E-10)."""
        said = [f"rejected by {len(rejected)}"] if rejected else []
        said += [f"expired for {len(expired)}"] if expired else []
        has_no_letter = slot.has_no_letter and bool(self.policy.dead_letter)
        if not said and not has_no_letter:
            return _ACCEPTED
        of_subscriptions = [" and ".join(said) + " of its subscriptions"] if said else []
        no_letter = ["nobody has a dead letter of it"] if has_no_letter else []
        return Reported(
            DeliveryOutcome.REJECTED,
            "oncewire:rejected",
            "; ".join(of_subscriptions + no_letter),
            tuple(rejected[:OWING_NAMES]),
            len(rejected),
            tuple(expired[:OWING_NAMES]),
            len(expired),
        )

    def on_leaving(self, subscription: Subscription) -> None:
        """A subscription ends, and has not left the window yet (I-3c)."""

    def on_subscription_ended(self, name: str, oldest: Slot) -> None:
        """I-3b: a subscription ended that owed this delivery, and none before it."""
        if self._exactly_once:
            self._ended_count += 1
            if len(self._ended) < OWING_NAMES:
                self._ended.append(name)
            if self._ended_from is None or oldest.number < self._ended_from.number:
                self._ended_from = oldest

    def _report_ended(self, link: int) -> None:
        assert self._ended_from is not None
        reported = effects.NotifyEnded(link, tuple(self._ended), self._ended_count, self._ended_from.tag)
        self._ended, self._ended_count, self._ended_from = [], 0, None
        self._turn.out.append(reported)

    def send(self, link: int) -> None:
        """State what this turn decided: one disposition for each outcome, behind who ended without (I-3b)."""
        if self._accepted:
            self._reported[_ACCEPTED], self._accepted = self._accepted, []
        if self._ended_count:
            self._report_ended(link)
        if self._reported:
            reported, self._reported = self._reported, {}
            self._dispose(link, reported, False)
        if self._reported_settled:
            reported, self._reported_settled = self._reported_settled, {}
            self._dispose(link, reported, True)

    def _dispose(self, link: int, all_reported: dict[Reported, list[int]], settled: bool) -> None:
        for reported, ids in all_reported.items():
            self._turn.counts[_REPORTED[reported.outcome]] += len(ids)
            info: dict[str, object] = {}
            if reported.rejected_by:
                info = {"subscriptions": list(reported.rejected_by), "count": reported.rejections}
            if reported.expired_by:
                info |= {"expired": list(reported.expired_by), "expired-count": reported.expirations}
            self._turn.out.append(
                effects.Dispose(link, ids, reported.outcome, settled, reported.condition, reported.description, info)
            )

    def _of_empty(self) -> DeliveryOutcome | None:
        """I-3d: the outcome of what no subscription is done with; None: accepted."""
        policy = self.policy
        return _OF_EMPTY[policy.on_empty_exactly_once if self._exactly_once else policy.on_empty]

    def is_overdue(self) -> bool:
        """T_settle: outcomes were reported, and nothing was settled for so long; else asked again when it may be."""
        deadline = self.last_progress + self._turn.limits.settle_timeout_s
        if self._turn.now < deadline:
            self._turn.timers.set(Timer.SETTLE, self._owner.key, deadline)
            return False
        return True
