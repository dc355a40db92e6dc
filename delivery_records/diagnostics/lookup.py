"""A delivery's record, found by its tag: what this router knows of one delivery. Read only, when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from delivery_records.attachments.endpoints import Endpoints
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.tags import (
    OWN_TAG_AT,
    SESSION_AT,
    VERBATIM_BYTES,
    network_tag,
    original_tag,
    own_tag,
    session_of,
)
from delivery_records.model.turn import Turn
from delivery_records.model.view import Publisher
from delivery_records.publisher.ingress import Ingress
from delivery_records.publisher.window import REPORTED, Slot
from delivery_records.subscriber.entries import MAPPED, NEVER_SENT, Entry

IN_DOUBT = "in-doubt"


@dataclass(frozen=True, slots=True)
class AtSubscription:
    """A delivery at one subscription of this router."""

    name: str
    state: str
    """`in-doubt`, or the outcome."""
    detail: str
    """State of the entry at the egress; empty when it has none."""
    owed: bool


@dataclass(frozen=True, slots=True)
class AtRouter:
    """A delivery at all subscriptions of another router."""

    rid: int
    subscriptions: int
    owing: int
    rejected: int


@dataclass(frozen=True, slots=True)
class FoundDelivery:
    """One delivery as one router knows it."""

    is_ingress: bool
    publisher: str
    topic: str
    session: int
    number: int
    """Running number of the publisher's epoch; -1 where it is not known."""
    publisher_tag: bytes | None
    """None where only a digest of it is known."""
    network_tag: bytes
    state: str
    message: bytes
    """With our annotations; empty where no body is held."""
    message_format: int
    arrived: float | None
    """On the core's clock; only the ingress knows."""
    local: tuple[AtSubscription, ...]
    others: tuple[AtRouter, ...]


def find(turn: Turn, endpoints: Endpoints, tag: bytes, publisher: str = "") -> list[FoundDelivery]:
    """Deliveries of this tag.

    Args:
        turn: of this router.
        endpoints: of this router.
        tag: the network tag, or the publisher's own.
        publisher: name of the publisher; empty = any. The publisher's own tag is found at other routers than its
            ingress only with this name.
    """
    found: list[FoundDelivery] = []
    for whole in _network_tags(turn, endpoints, tag, publisher):
        key = turn.view.sessions.get(session_of(whole, turn.nonce), "")
        owner = turn.view.publishers.get(key)
        ingress = endpoints.ingresses.get(key)
        original = original_tag(whole)
        slot = None if ingress is None else _slot_of(turn, endpoints, ingress, original)
        if ingress is not None and slot is not None:
            found.append(_at_ingress(turn, endpoints, ingress, slot, original))
        else:
            found += _at_egress(turn, endpoints, owner, whole)
    return found


def _network_tags(turn: Turn, endpoints: Endpoints, tag: bytes, publisher: str) -> list[bytes]:
    """Every network tag that may be meant."""
    tags: dict[bytes, None] = {}
    session = session_of(tag, turn.nonce)
    if session:
        owner = turn.view.publishers.get(turn.view.sessions.get(session, ""))
        if not publisher or (owner is not None and owner.name == publisher):
            tags[tag] = None
    if publisher:
        sessions = [p.session for p in turn.view.publishers.values() if p.session and p.name == publisher]
    else:
        sessions = [i.session for i in endpoints.ingresses.values() if i.session and i.window.find(tag) is not None]
    for each in sessions:
        tags[network_tag(turn.nonce, each, tag)] = None
    return list(tags)


def _slot_of(turn: Turn, endpoints: Endpoints, ingress: Ingress, whole: bytes) -> Slot | None:
    slot = ingress.window.find(whole[OWN_TAG_AT:])
    if slot is not None and network_tag(turn.nonce, ingress.session, slot.tag) == whole:
        return slot
    for each in ingress.window.slots():  # a longer tag is named by its digest
        if len(each.tag) > VERBATIM_BYTES and network_tag(turn.nonce, ingress.session, each.tag) == whole:
            return each
    return None


def _at_ingress(turn: Turn, endpoints: Endpoints, ingress: Ingress, slot: Slot, whole: bytes) -> FoundDelivery:
    local: list[AtSubscription] = []
    others: dict[int, AtRouter] = {}
    rejected = frozenset(slot.rejected_by or ())
    expired = frozenset(ingress.outcomes.expired_by.get(slot.number, ()))
    for key, cursor in ingress.fanout.cursors.items():
        subscription = turn.view.subscriptions.get(key)
        if subscription is None or cursor.start > slot.number:
            continue  # I-6: it came later
        owes = slot.verdict is None and cursor.owes(slot.number)
        has_rejected = subscription.name in rejected
        rid = subscription.record.rid
        if rid == turn.rid:
            said = DeliveryOutcome.REJECTED if has_rejected else slot.verdict
            state = IN_DOUBT if owes else _of(DeliveryOutcome.EXPIRED if subscription.name in expired else said)
            local.append(AtSubscription(subscription.name, state, _detail(turn, endpoints, key, whole), owes))
        else:
            old = others.get(rid, AtRouter(rid, 0, 0, 0))
            others[rid] = AtRouter(rid, old.subscriptions + 1, old.owing + int(owes), old.rejected + int(has_rejected))
    letters = ingress.fanout.letters
    for key in letters.owing_keys(slot.number) if letters is not None else ():  # I-3e
        tag = network_tag(turn.nonce, ingress.session, slot.tag, is_letter=True)
        name = turn.view.subscriptions[key].name
        local.append(AtSubscription(name, IN_DOUBT, _detail(turn, endpoints, key, tag), True))
    is_reported = (rejected or expired) and ingress.policy.report_rejections
    reported = DeliveryOutcome.REJECTED if is_reported else slot.verdict
    state = _of(reported) if slot.state is REPORTED else IN_DOUBT
    return FoundDelivery(
        True,
        ingress.name,
        ingress.topic,
        ingress.session,
        slot.number,
        slot.tag,
        whole,
        state,
        slot.message,
        slot.message_format,
        ingress.arrivals.at(slot.number),
        tuple(local),
        tuple(others.values()),
    )


def _at_egress(turn: Turn, endpoints: Endpoints, owner: Publisher | None, whole: bytes) -> Iterator[FoundDelivery]:
    local: list[AtSubscription] = []
    message, message_format, number = b"", 0, -1
    for egress in endpoints.egresses.values():
        entry = egress.sessions.get(whole[SESSION_AT:OWN_TAG_AT], {}).get(whole)
        if entry is None:
            continue
        local.append(AtSubscription(egress.name, _state_of(entry), entry.state.shown, entry.outcome is None))
        number = max(number, entry.number)
        if entry.message:
            message, message_format = entry.message, entry.message_format
    if not local:
        return
    state = IN_DOUBT if any(each.owed for each in local) else local[0].state
    yield FoundDelivery(
        False,
        "" if owner is None else owner.name,
        "" if owner is None else owner.record.topic,
        session_of(whole, turn.nonce),
        number,
        own_tag(whole),
        whole,
        state,
        message,
        message_format,
        None,
        tuple(local),
        (),
    )


def _detail(turn: Turn, endpoints: Endpoints, key: str, whole: bytes) -> str:
    egress = endpoints.egresses.get(key)
    entry = None if egress is None else egress.sessions.get(whole[SESSION_AT:OWN_TAG_AT], {}).get(whole)
    return "" if entry is None else entry.state.shown


def _state_of(entry: Entry) -> str:
    if entry.outcome is not None and (entry.state in MAPPED or entry.state in NEVER_SENT):
        return entry.outcome.value
    return IN_DOUBT


def _of(outcome: DeliveryOutcome | None) -> str:
    return (outcome or DeliveryOutcome.ACCEPTED).value
