"""How AMQP's delivery states and the client's outcomes correspond."""

from __future__ import annotations

from oncewire.client.outcomes import ACCEPTED, RELEASED, Outcome, OutcomeKind, Subscriptions
from oncewire.wire import ACCEPTED as STATE_ACCEPTED
from oncewire.wire import Accepted, AmqpError, DeliveryState, Modified, Rejected, Released, Symbol
from oncewire.wire.vocabulary import COUNT, SUBSCRIPTIONS, number_in


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
        rejecting = None
        if isinstance(named, (list, tuple)):
            count = number_in(error.info, COUNT)
            rejecting = Subscriptions(len(named) if count is None else count, tuple(str(name) for name in named))
        return Outcome(OutcomeKind.REJECTED, str(error.condition), error.description or "", subscriptions=rejecting)
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
