"""The names this network adds to AMQP, and outcomes in AMQP's words, as the client uses them."""

from __future__ import annotations

from oncewire.client.outcomes import ACCEPTED, RELEASED, Outcome, OutcomeKind
from oncewire.wire import ACCEPTED as STATE_ACCEPTED
from oncewire.wire import (
    Accepted,
    AmqpError,
    DeliveryState,
    Fields,
    Modified,
    Rejected,
    Released,
    Symbol,
)

EXACTLY_ONCE = Symbol("topic-exactly-once")
RESUME = Symbol("x-opt-topic-resume")
INCARNATION = Symbol("x-opt-topic-incarnation")
ECHO = Symbol("x-opt-topic-echo")
SESSION = Symbol("x-opt-topic-session")
CONFIRMED = Symbol("x-opt-topic-confirmed")
TIMEOUT = Symbol("x-opt-topic-timeout")
ASK = Symbol("x-opt-topic-ask")
ASKED = Symbol("x-opt-topic-asked")
OWING = Symbol("x-opt-topic-owing")
OWING_COUNT = Symbol("x-opt-topic-owing-count")
START = Symbol("x-opt-topic-start")
START_TAG = Symbol("x-opt-topic-start-tag")
STARTS = Symbol("x-opt-topic-starts")
SUBSCRIPTIONS = Symbol("subscriptions")
"""In the info of a rejection: the first subscriptions that rejected (I-3)."""

PUBLISHER = Symbol("x-opt-topic-publisher")
REDELIVERED = Symbol("x-opt-topic-redelivered")
IN_DOUBT = Symbol("x-opt-topic-in-doubt")

FAILOVER_LIST = Symbol("failover-server-list")

TOPIC = Symbol("topic")
COPY = Symbol("copy")
OUTCOMES = (
    Symbol("amqp:accepted:list"),
    Symbol("amqp:rejected:list"),
    Symbol("amqp:released:list"),
    Symbol("amqp:modified:list"),
)
SERIAL_MASK = 0xFFFFFFFF



def number_in(properties: Fields | None, key: Symbol) -> int | None:
    """An unsigned number in link properties; None if it is not there or something else."""
    value = None if properties is None else properties.get(key)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def outcome_of(state: DeliveryState | None) -> Outcome | None:
    """What a receiver said of a delivery of ours; None while it said nothing final."""
    if isinstance(state, Accepted):
        return ACCEPTED
    if isinstance(state, Released):
        return RELEASED
    if isinstance(state, Modified):
        failed = "delivery failed" if state.delivery_failed else ""
        return Outcome(OutcomeKind.MODIFIED, description=failed)
    if isinstance(state, Rejected):
        error = state.error
        if error is None:
            return Outcome(OutcomeKind.REJECTED)
        named = (error.info or {}).get(SUBSCRIPTIONS)
        names = tuple(str(name) for name in named) if isinstance(named, (list, tuple)) else ()
        return Outcome(
            OutcomeKind.REJECTED, str(error.condition), error.description or "", subscriptions=names
        )
    return None


def state_of(outcome: Outcome, *, bare: bool = False) -> DeliveryState:
    """What a subscriber says of a delivery; `bare` as it stands in a map (C-4).

    A subscriber's outcomes are accepted and rejected only: released ones are repeated here.
    """
    if outcome.kind is OutcomeKind.ACCEPTED:
        return STATE_ACCEPTED
    assert outcome.kind is OutcomeKind.REJECTED
    if bare or not outcome.condition:
        return Rejected()
    return Rejected(AmqpError(Symbol(outcome.condition), outcome.description or None))
