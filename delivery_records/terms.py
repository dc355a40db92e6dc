"""What a terminus is granted: time-out and expiry policy (K-5), and when that is written (A-10).

An attach that has not shown life may be one that was read from a dead connection. So it makes at most a provisional
subscription, and changes nothing about one that is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delivery_records import effects
from delivery_records.inputs import Failure, PublisherAttach, SubscriberAttach
from delivery_records.limits import PROOF_RETRY_S, PROVISIONAL_TIMEOUT_S, Limits
from delivery_records.outcomes import Decision
from delivery_records.timers import Timer
from delivery_records.view import SubscriptionRecord

if TYPE_CHECKING:
    from delivery_records.egress import Egress
    from delivery_records.records import Records

NEVER = "never"
CAPPED_NEVER = "link-detach"
"""What *never* becomes, with the cap as its time-out: no subscription may hold its topic for ever (K-5)."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a terminus is kept, and from which end on (AMQP 1.0 section 3.5.6)."""

    timeout_s: float
    expiry_policy: str


def subscription_terms(request: SubscriberAttach, limits: Limits) -> Terms:
    """T_sub and policy granted to an attach that shows life."""
    if request.expiry_policy == NEVER:
        return Terms(limits.subscription_timeout_cap_s, CAPPED_NEVER)
    asked = limits.subscription_timeout_s if request.timeout_s is None else request.timeout_s
    return Terms(max(0.0, min(asked, limits.subscription_timeout_cap_s)), request.expiry_policy)


def publisher_terms(request: PublisherAttach, limits: Limits) -> Terms:
    """T_pub and policy granted; a stock publisher's session is worth nothing once its link is gone (c.5)."""
    if request.expiry_policy == NEVER:
        return Terms(limits.publisher_timeout_cap_s, CAPPED_NEVER)
    default = limits.publisher_timeout_s if request.exactly_once or request.unsettled is not None else 0.0
    asked = default if request.timeout_s is None else request.timeout_s
    if request.exactly_once:
        asked = max(asked, default)
    return Terms(max(0.0, min(asked, limits.publisher_timeout_cap_s)), request.expiry_policy)


def held_terms(record: SubscriptionRecord) -> Terms:
    """What a subscription's key says; a key of an older release may say *never*."""
    policy = CAPPED_NEVER if record.expiry_policy == NEVER else record.expiry_policy
    return Terms(record.timeout_s, policy)


def terms_after_proof(request: SubscriberAttach, record: SubscriptionRecord, limits: Limits) -> Terms:
    """What the subscription has when its client has shown life; a look-up changes nothing (A-10)."""
    return held_terms(record) if request.topic is None else subscription_terms(request, limits)


class SubscriberProofs:
    """Proof of life of subscribers: asked for, waited for, written (A-10)."""

    __slots__ = ("_core", "_turn", "_writing")

    def __init__(self, core: Records) -> None:
        """Nobody is asked."""
        self._core = core
        self._turn = core.turn
        self._writing: dict[str, Egress] = {}
        """Whose granted terms are under way to etcd."""

    def is_writing(self, egress: Egress) -> bool:
        """A put is under way that will be its new epoch, so that a deletion at this one may lose (E-8)."""
        return egress.key in self._writing

    def forget(self, egress: Egress) -> None:
        """Its link is gone."""
        self._writing.pop(egress.key, None)

    def ask(self, egress: Egress) -> None:
        """The attach is in the view, and its terms are not, or only provisionally."""
        turn = self._turn
        if egress.exactly_once:
            turn.out.append(effects.AskEcho(egress.link, egress.epoch))
            turn.timers.set(Timer.LIFE, egress.key, turn.now + turn.limits.proof_timeout_s)
        turn.timers.set(Timer.PROVISIONAL, egress.key, turn.now + PROVISIONAL_TIMEOUT_S)

    def on_written(self, egress: Egress) -> None:
        """The watch shows that its key says what it was granted."""
        self._writing.pop(egress.key, None)
        egress.is_proven = True
        egress.awaits_proof = False
        self.confirm(egress)

    def on_silence(self, egress: Egress) -> None:
        """No answer to the echo within T_life, perhaps of a client that knows none: confirmed with what it has."""
        egress.awaits_proof = False
        self.confirm(egress)

    def confirm(self, egress: Egress) -> None:
        """A-6b: when every router knows it, and its key says what it was granted; again when that changes."""
        core = self._core
        turn = self._turn
        if not egress.is_known or egress.awaits_proof:
            return
        incarnation = turn.told_incarnation(egress.created)
        if not egress.confirmed:
            egress.confirmed = True
            turn.note(Decision.SUBSCRIBER_CONFIRMED, subscription=egress.name, incarnation=incarnation)
        if egress.exactly_once:
            subscription = turn.view.subscriptions[egress.key]
            policy = held_terms(subscription.record).expiry_policy
            turn.out.append(
                effects.Confirm(egress.link, incarnation, core.expiry.timeout_of(subscription), policy)
            )

    def on_sign_of_life(self, egress: Egress) -> None:
        """The client lives: write what its attach was granted; that put's revision is the new epoch."""
        if egress.is_proven:
            return
        core = self._core
        turn = self._turn
        egress.is_proven = True
        turn.timers.cancel(Timer.LIFE, egress.key)  # from now on the confirmation waits for the put
        turn.timers.cancel(Timer.PROVISIONAL, egress.key)
        subscription = turn.view.subscriptions.get(egress.key)
        if subscription is not None and subscription.epoch == egress.epoch:
            terms = egress.terms
            nonce = core.propose_record(
                f"subs/{egress.key}", egress.epoch, subscription.record, provisional=False,
                timeout_s=terms.timeout_s, expiry_policy=terms.expiry_policy,
            )  # fmt: skip
            core.remember_reput(nonce, egress)
            self._writing[egress.key] = egress
            turn.note(Decision.SUBSCRIBER_PROVEN, subscription=egress.name)

    def on_put_failed(self, egress: Egress, failure: Failure) -> None:
        """It is tried again, at the next sign of life or soon; after a lost compare the link is another's."""
        core = self._core
        turn = self._turn
        if self._writing.get(egress.key) is egress:
            del self._writing[egress.key]
        if failure is not Failure.CONFLICT and core.egresses.get(egress.key) is egress:
            egress.is_proven = False
            turn.timers.set(Timer.PROVISIONAL, egress.key, turn.now + PROOF_RETRY_S)
