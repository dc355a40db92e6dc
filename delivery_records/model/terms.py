"""What a terminus is granted: time-out and expiry policy (K-5), and when that is written (A-10).

An attach that has not shown life may be one that was read from a dead connection. So it makes at most a provisional
subscription, and changes nothing about one that is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from delivery_records.model.inputs import PublisherAttach, SubscriberAttach
from delivery_records.model.limits import PROVISIONAL_TIMEOUT_S, Limits
from delivery_records.model.patience import SlowAction
from delivery_records.model.view import Publisher, Subscription, SubscriptionMode, SubscriptionRecord

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
    cap_s = _cap_s(request, limits.subscription_timeout_cap_s)
    if request.patience is not None and request.patience.action is SlowAction.EXPEL:
        cap_s = min(cap_s, request.patience.seconds)  # K-5b: away is no progress either
    if request.expiry_policy == NEVER:
        return Terms(cap_s, CAPPED_NEVER)
    asked = limits.subscription_timeout_s if request.timeout_s is None else request.timeout_s
    return Terms(max(0.0, min(asked, cap_s)), request.expiry_policy)


def member_terms(request: SubscriberAttach, limits: Limits) -> Terms:
    """SH-3: how long what a member was assigned waits for it. A member without a map cannot come back to it."""
    if request.mode is not SubscriptionMode.EXACTLY_ONCE:
        return Terms(0.0, CAPPED_NEVER)
    return subscription_terms(request, limits)


def publisher_terms(request: PublisherAttach, limits: Limits, held_s: float = 0.0) -> Terms:
    """K-5d: T_pub and policy granted; a stock publisher's session is worth nothing once its link is gone (c.5).

    `held_s`: what its session has, which goes on. No life has been shown, so it gets no less.
    """
    cap_s = _cap_s(request, limits.publisher_timeout_cap_s)
    if request.expiry_policy == NEVER:
        return Terms(cap_s, CAPPED_NEVER)
    default = limits.publisher_timeout_s if request.exactly_once or request.unsettled is not None else 0.0
    asked = default if request.timeout_s is None else request.timeout_s
    return Terms(max(0.0, min(max(asked, held_s), cap_s)), request.expiry_policy)


def _cap_s(request: SubscriberAttach | PublisherAttach, cap_s: float) -> float:
    """K-5c: a policy of the owner may grant less than the limits do."""
    longest_s = request.owner.longest_s
    return cap_s if longest_s is None else min(cap_s, longest_s)


def held_terms(record: SubscriptionRecord) -> Terms:
    """What a subscription's key says."""
    return Terms(record.timeout_s, record.expiry_policy)


def terms_after_proof(request: SubscriberAttach, record: SubscriptionRecord, limits: Limits) -> Terms:
    """What the subscription has when its client has shown life; a look-up changes nothing (A-10)."""
    if request.topic is None:
        return held_terms(record)
    return member_terms(request, limits) if record.member_of else subscription_terms(request, limits)


def timeout_of(attachment: Subscription | Publisher) -> float:
    """T in seconds; a provisional subscription has at most T_prov (A-10)."""
    if isinstance(attachment, Subscription) and attachment.record.provisional:
        return min(attachment.record.timeout_s, PROVISIONAL_TIMEOUT_S)
    return attachment.record.timeout_s
