"""The records that an attach asks etcd to hold (A-2): of a publisher, a subscription, a shared one and its members."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from delivery_records.attachments.refusals import Refusal, others
from delivery_records.model.inputs import PublisherAttach, SubscriberAttach
from delivery_records.model.limits import PROVISIONAL_TIMEOUT_S, Limits
from delivery_records.model.terms import Terms, publisher_terms, subscription_terms
from delivery_records.model.turn import Turn
from delivery_records.model.view import PublisherRecord, SubscriptionMode, SubscriptionRecord
from delivery_records.subscriber.filters import MessageFilters, UnknownFilter


class NoPut(Enum):
    """What an attach leads to that is neither one put nor a refusal with its reason."""

    EXPIRED = "expired"
    """A-5: it presents what nobody can know."""
    LOOK_UP = "look-up"
    """SH-1: there is no such subscription of its own; a shared one may have the name."""
    DELETE_FIRST = "delete-first"
    """A-2, E-9: another topic or filter is another subscription, and so is one of its own (SH-1)."""


def publisher_record(request: PublisherAttach, turn: Turn, session: int, held_s: float) -> PublisherRecord:
    """What stands for a publisher; `held_s`: how long its session is kept already."""
    assert request.topic is not None
    return PublisherRecord(
        request.container_id,
        request.link_name,
        request.topic,
        turn.rid,
        "",
        session,
        publisher_terms(request, turn.limits, held_s).timeout_s,
        bool(request.unsettled),
        request.peer,
        request.owner.vhost,
        request.owner.user,
    )


def subscription_record(
    request: SubscriberAttach, turn: Turn, wanted: tuple[str, str], terms: Terms, provisional: bool, member_of: str = ""
) -> SubscriptionRecord:
    """What stands for a subscription, or for a member of a shared one; `wanted`: its topic and filter."""
    topic, filter_text = wanted
    return SubscriptionRecord(
        request.container_id,
        request.link_name,
        topic,
        turn.rid,
        "",
        terms.timeout_s,
        terms.expiry_policy,
        request.mode,
        request.map_bound,
        provisional,
        bool(request.unsettled),
        request.peer,
        request.owner.vhost,
        request.owner.user,
        member_of=member_of,
        filter=filter_text,
        stores=request.stores,
    )


def new_shared(request: SubscriberAttach, limits: Limits) -> SubscriptionRecord:
    """SH-1: the shared subscription that the first member makes; no router serves it."""
    assert request.share is not None
    assert request.topic is not None
    terms, owner = subscription_terms(request, limits), request.owner
    return SubscriptionRecord(
        "" if request.share.is_global else request.container_id,
        request.share.name,
        request.topic,
        0,
        "",
        terms.timeout_s,
        terms.expiry_policy,
        SubscriptionMode.EXACTLY_ONCE,
        provisional=terms.timeout_s > PROVISIONAL_TIMEOUT_S,
        vhost=owner.vhost,
        user=owner.user,
        shared=True,
        grouped=request.share.by_group,
        filter=request.filter,
        stores=request.stores,
    )


def shared_with(shared: SubscriptionRecord, request: SubscriberAttach) -> SubscriptionRecord:
    """I-3g: one member that stores is enough: nobody can say which messages it has had."""
    return replace(shared, stores=True) if request.stores else shared


def why_unknown(filters: MessageFilters, filter_text: str) -> str:
    """Why this router cannot apply a filter; empty: it can. A newer release may have written it (E-9)."""
    try:
        filters.of(filter_text)
    except UnknownFilter as error:
        return str(error)
    return ""


def why_no_member(
    filters: MessageFilters,
    request: SubscriberAttach,
    own: SubscriptionRecord | None,
    shared: SubscriptionRecord | None,
) -> Refusal | None:
    """Why the link cannot be a member of this shared subscription, or make it; None: it can."""
    if own is not None and (refusal := others(own, request)):
        return refusal
    filter_text = request.filter
    if request.topic is None:
        if shared is None:
            return "amqp:not-found", "there is no subscription of that name to look up"
        filter_text = shared.filter
    elif shared is not None and (shared.topic, shared.filter) != (request.topic, filter_text):
        has = f"the topic {shared.topic}" + (f" and the filter {shared.filter}" if shared.filter else "")
        return "amqp:precondition-failed", f"the shared subscription has {has}: attach with that, or end it first"
    if shared is not None and request.share is not None and request.share.by_group and not shared.grouped:
        return "amqp:precondition-failed", "the shared subscription keeps no groups in order: end it first"
    if shared is not None and (shared.user not in {request.owner.user, ""} or not shared.shared):
        return "amqp:unauthorized-access", "this shared subscription is another user's: take another name"
    if filter_text and (unknown := why_unknown(filters, filter_text)):
        return "amqp:not-implemented", unknown
    if filter_text and filters.of(filter_text).compiled.no_local:
        return "amqp:not-implemented", (
            "a shared subscription has no filter no-local: what one member must not get another one must"
        )
    return None
