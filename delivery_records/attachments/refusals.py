"""Why an attach is refused, in words; and whose key an attach may take (A-1, A-2c)."""

from __future__ import annotations

from typing import TypeAlias

from delivery_records.model import effects
from delivery_records.model.inputs import PublisherAttach, SubscriberAttach
from delivery_records.model.tags import MAX_TAG_BYTES, shared_key
from delivery_records.model.topics import TopicError, check_pattern, check_topic
from delivery_records.model.turn import Turn
from delivery_records.model.view import PublisherRecord, SubscriptionRecord

Refusal: TypeAlias = tuple[str, str]
"""Condition and description."""

DRAINING = "this router is going to stop and takes no links; attach at another router"
NO_ROOM = "this router holds as much as limits.router_bytes allows; attach at another router, or later"
SHARED_LETTERS = (
    "a shared subscription gets no dead letters, and this is a dead-letter topic: subscribe with one link, and give its"
    " messages to workers, or let each worker have a topic of its own"
)
NO_PART = "a part of the unsettled map is no map, has an entry that came before, or more than the attach has stated"
NOT_HELD: Refusal = (
    "oncewire:unsettled-unknown",
    (
        "this router does not hold the link's unsettled deliveries: attach at the router that did, or without them;"
        " whether they were delivered is unknown"
    ),
)
NO_STORE = "this router cannot reach etcd or has lost its lease; connect to another router"
EXPIRED = "the session has expired: the outcome of the presented deliveries is unknown; attach with an empty map"


def shared_key_of(request: SubscriberAttach) -> str:
    """Of the shared subscription whose member the link is to be (SH-1)."""
    assert request.share is not None
    owner = request.owner
    container_id = "" if request.share.is_global else request.container_id
    return shared_key(container_id, request.share.name, owner.vhost, "" if owner.adopts else owner.user)


def others(record: PublisherRecord | SubscriptionRecord, request: PublisherAttach | SubscriberAttach) -> Refusal | None:
    """Why a key is not this client's; None: it is. A key is a hash, and the value says whose it is (A-2c)."""
    owner = request.owner
    if (record.vhost, record.container_id, record.link_name) != (owner.vhost, request.container_id, request.link_name):
        return "amqp:invalid-field", "another link has this key"
    if record.user not in {owner.user, ""}:  # without a user it becomes the user's who adopts it
        return "amqp:unauthorized-access", "this link is another user's: take another container-id or link name"
    return None


def refused_by_store(link: int, why: str) -> effects.DetachLink:
    """A-1: what etcd refuses one link ends that link; the others live as long as the lease is kept (K-3)."""
    return effects.DetachLink(link, True, "amqp:internal-error", why, by_store=True)


def entries_of(request: PublisherAttach | SubscriberAttach) -> int:
    """Of the map it presents, or is about to present (C-4)."""
    here = len(request.unsettled or ())
    return max(here, request.entries) if isinstance(request, SubscriberAttach) else here


def refusal_of_terms(turn: Turn, request: PublisherAttach | SubscriberAttach) -> Refusal | None:
    """Why no attach with these terms can succeed at this router; None: it may."""
    if turn.is_draining:
        return "amqp:link:redirect", DRAINING  # K-8a
    if request.topic is not None:
        try:
            (check_topic if isinstance(request, PublisherAttach) else check_pattern)(request.topic)
        except TopicError as error:
            return "amqp:invalid-field", str(error)
    if max(map(len, request.unsettled or ()), default=0) > MAX_TAG_BYTES:
        return "amqp:invalid-field", f"a delivery-tag of the unsettled map has more than {MAX_TAG_BYTES} bytes"
    entries = entries_of(request)
    if isinstance(request, PublisherAttach) and entries > turn.limits.window:
        return "amqp:resource-limit-exceeded", (
            f"the unsettled map has {entries} deliveries; a publisher may have {turn.limits.window} here:"
            " settle some, or raise limits.window at every router"
        )
    if entries and not turn.budget.has_room_for_map(entries):
        return "amqp:resource-limit-exceeded", NO_ROOM  # C-6
    if isinstance(request, PublisherAttach) and (request.incomplete or _is_reply_too_large(request)):
        return "amqp:resource-limit-exceeded", "the unsettled map must fit one frame: raise max-frame-size"
    if isinstance(request, SubscriberAttach) and request.share is not None:
        return _refusal_of_member(turn, request)
    return None


def _is_reply_too_large(request: PublisherAttach) -> bool:
    """A-3b: the reply names as many entries as the attach, in a frame of the client's size (C-4)."""
    return request.resumes and 0 < request.map_bound < len(request.unfinished)


def _refusal_of_member(turn: Turn, request: SubscriberAttach) -> Refusal | None:
    if request.incomplete:
        return "amqp:resource-limit-exceeded", (
            "the unsettled map of a member of a shared subscription must fit one frame: raise max-frame-size"
        )  # SH-4
    if request.topic is not None and turn.policy_of(request.topic).is_dead_letter:
        return "amqp:not-implemented", SHARED_LETTERS  # I-3e
    return None
