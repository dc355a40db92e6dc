"""Which publishers wait, for what, and since when. Computed from the records when somebody asks; it changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from delivery_records.model.tags import OWN_TAG_AT, SESSION_AT, network_tag
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription
from delivery_records.publisher.ingress import Ingress
from delivery_records.publisher.phase import Phase
from delivery_records.publisher.resumption import NOT_RESUMED
from delivery_records.publisher.window import AWAITED
from delivery_records.subscriber.egress import Egress
from delivery_records.subscriber.entries import SENT, WAITING, State

UNPROVEN = frozenset({Phase.PROVING, Phase.WAITING, Phase.STARTING})


class Reason(Enum):
    """Why the oldest delivery of a window with an open outcome has none, or why it is not settled."""

    SUBSCRIPTIONS = "subscriptions"
    """Subscriptions owe it (I-3)."""
    DEAD_LETTER = "dead-letter"
    """There is no subscription for its dead letter (I-3e)."""
    PUBLISHER_REPEATS = "publisher-repeats"
    """The publisher's map announced it, and it has not come again (I-9)."""
    PUBLISHER_SETTLES = "publisher-settles"
    """All outcomes were reported, and the publisher has not settled (I-4)."""
    PUBLISHER_PROVES = "publisher-proves"
    """The publisher's link has not shown life (A-4)."""
    PUBLISHER_AWAY = "publisher-away"
    """The outcome is known, and there is no link to report it on (A-9)."""


class Holder(Enum):
    """Where a delivery is on its way to a subscription that owes it."""

    IN_DOUBT = "in-doubt"
    """Its client has it and has not said what became of it."""
    HELD = "held"
    """It waits here: for the subscription's credit, or a place in its map (C-3, C-4)."""
    AGAIN = "again"
    """The client wants it again, after a pause (E-4a)."""
    DETACHED = "detached"
    """The subscription has no link; it is waited for until its time is over (K-5)."""
    ORPHANED = "orphaned"
    """The same, and its router is gone."""
    ELSEWHERE = "elsewhere"
    """Its router lives, and knows more."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The delivery a publisher waits for."""

    reason: Reason
    tag: bytes
    """The publisher's own."""
    number: int
    since: float
    """When it arrived, on the core's clock."""
    owing: int
    """Subscriptions that owe it."""


@dataclass(frozen=True, slots=True)
class Owing:
    """One subscription that owes a delivery."""

    subscription: Subscription
    state: Holder
    since: float
    """When the oldest delivery of this publisher arrived that it owes."""


def unsettled_since(ingress: Ingress) -> float | None:
    """When the oldest unsettled delivery arrived; None without one."""
    return ingress.arrivals.at(ingress.window.base) if len(ingress.window) else None


def waiting(ingress: Ingress) -> Wait | None:
    """What the publisher waits for; None when nothing is unsettled."""
    window = ingress.window
    open_one = window.at(window.next_accept)
    slot = open_one or window.at(window.base)
    if slot is None:
        return None
    if ingress.phase in UNPROVEN:
        reason = Reason.PUBLISHER_PROVES
    elif open_one is None:
        reason = Reason.PUBLISHER_SETTLES
    elif open_one.state is AWAITED or open_one.delivery_id == NOT_RESUMED:
        reason = Reason.PUBLISHER_REPEATS
    elif open_one.pending:
        letters = ingress.fanout.letters
        is_waiting = letters is not None and letters.waits(open_one.number)
        reason = Reason.DEAD_LETTER if is_waiting else Reason.SUBSCRIPTIONS
    else:
        reason = Reason.PUBLISHER_AWAY
    owing = slot.pending if reason is Reason.SUBSCRIPTIONS else 0
    return Wait(reason, slot.tag, slot.number, ingress.arrivals.at(slot.number), owing)


def owing(
    turn: Turn, egresses: Mapping[str, Egress], ingress: Ingress, number: int, most: int, looks: int
) -> tuple[list[Owing], int]:
    """The first subscriptions that owe a delivery.

    Args:
        turn: of this router.
        egresses: of this router.
        ingress: of its publisher.
        number: of the delivery in the window.
        most: how many are wanted.
        looks: how many cursors may be looked at: a topic may have 10,000 subscriptions.

    Returns:
        What was found, and how many cursors were looked at.
    """
    found: list[Owing] = []
    looked = 0
    slot = ingress.window.at(number)
    if slot is None or slot.verdict is not None:
        return found, looked
    wanted = min(most, slot.pending)
    for key, cursor in islice(ingress.fanout.cursors.items(), looks):
        if len(found) == wanted:
            break
        looked += 1
        subscription = turn.view.subscriptions.get(key)
        if subscription is not None and cursor.owes(number):
            oldest = max(cursor.through, ingress.window.base)
            since = ingress.arrivals.at(oldest if cursor.owes(oldest) else number)
            tag = network_tag(turn.nonce, ingress.session, slot.tag)
            found.append(Owing(subscription, holder(turn, egresses, subscription, tag), since))
    letters = ingress.fanout.letters
    for key in letters.owing_keys(number)[: most - len(found)] if letters is not None else ():
        subscription = turn.view.subscriptions[key]
        tag = network_tag(turn.nonce, ingress.session, slot.tag, is_letter=True)
        found.append(Owing(subscription, holder(turn, egresses, subscription, tag), ingress.arrivals.at(number)))
    return found, looked


def holder(turn: Turn, egresses: Mapping[str, Egress], subscription: Subscription, tag: bytes) -> Holder:
    """Where a delivery, by its network tag, is on its way to a subscription that owes it; as this router knows it."""
    if subscription.record.rid != turn.rid:
        return Holder.ELSEWHERE if subscription.record.rid in turn.view.routers else Holder.ORPHANED
    egress = egresses.get(subscription.key)
    if egress is None:
        return Holder.DETACHED
    entry = egress.sessions.get(tag[SESSION_AT:OWN_TAG_AT], {}).get(tag)
    if entry is None or (entry.state in WAITING and entry.state is not SENT):
        return Holder.HELD
    return Holder.AGAIN if entry.state is State.AGAIN else Holder.IN_DOUBT
