"""Delivery states of AMQP as outcomes of the record core and back, and how many of them one attach can present."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from delivery_records.model.limits import LETTER_ERROR_CHARS
from delivery_records.model.outcomes import DeliveryOutcome, Reported
from oncewire.wire import ACCEPTED, RELEASED, Accepted, DeliveryState, Modified, Rejected, Released
from oncewire.wire.annotations import without_ours
from oncewire.wire.encoding import encode
from oncewire.wire.vocabulary import DELIVERY_DELAY, DELIVERY_TIME

MAP_ENTRY_BYTES = 48
"""A tag of 32 bytes and a bare state, encoded (C-4)."""
MAP_FRAME_OVERHEAD = 512
"""What an attach needs besides its map (C-4)."""

_STATES: dict[DeliveryOutcome, DeliveryState] = {
    DeliveryOutcome.ACCEPTED: ACCEPTED,
    DeliveryOutcome.REJECTED: Rejected(),
    DeliveryOutcome.RELEASED: RELEASED,
    DeliveryOutcome.MODIFIED: Modified(),
    DeliveryOutcome.MODIFIED_FAILED: Modified(delivery_failed=True),
    DeliveryOutcome.UNDELIVERABLE: Modified(undeliverable_here=True),
    DeliveryOutcome.UNDELIVERABLE_FAILED: Modified(delivery_failed=True, undeliverable_here=True),
}


def outcome_of(state: DeliveryState | None) -> DeliveryOutcome | None:
    """The terminal outcome a delivery state stands for; None while there is none (section 3.4)."""
    if isinstance(state, Accepted):
        return DeliveryOutcome.ACCEPTED
    if isinstance(state, Rejected):
        return DeliveryOutcome.REJECTED
    if isinstance(state, Released):
        return DeliveryOutcome.RELEASED
    if isinstance(state, Modified):
        if state.undeliverable_here:
            return DeliveryOutcome.UNDELIVERABLE_FAILED if state.delivery_failed else DeliveryOutcome.UNDELIVERABLE
        return DeliveryOutcome.MODIFIED_FAILED if state.delivery_failed else DeliveryOutcome.MODIFIED
    return None


def next_attempt(state: Modified, now_ms: int) -> tuple[dict[bytes, bytes] | None, int | None]:
    """What `modified` adds to the message, encoded (E-4b), and in how many milliseconds it is wanted again (E-4a).

    The latter is for this router, and no part of the message. A value that is no such number is left out.

    Args:
        state: the outcome.
        now_ms: milliseconds since 1970; a subscriber may name the time instead, as for quorum queues of RabbitMQ.
    """
    found = state.message_annotations
    if found is None:
        return None, None
    annotations = without_ours(found)
    delay_ms = _number(annotations.pop(DELIVERY_DELAY, None))
    ready_at_ms = _number(annotations.pop(DELIVERY_TIME, None))
    if delay_ms is None and ready_at_ms is not None:
        delay_ms = max(0, ready_at_ms - now_ms)
    return {encode(key): encode(value) for key, value in annotations.items()}, delay_ms


def _number(value: object) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return int(cast("int", value)) if is_number else None


def error_text(state: Rejected) -> str:
    """Why a subscriber rejects, for a dead letter (I-3e): condition and description; empty where it does not say."""
    error = state.error
    if error is None:
        return ""
    text = f"{error.condition}: {error.description}" if error.description else str(error.condition)
    return text[:LETTER_ERROR_CHARS]


def state_of(outcome: DeliveryOutcome) -> DeliveryState:
    """The delivery state that says `outcome`, bare: maps carry no errors and no annotations (C-4)."""
    return _STATES[outcome]


def map_of(known: Mapping[bytes, Reported | None]) -> dict[bytes, DeliveryState | None]:
    """The map of an attach reply: what may be resumed, with the outcomes that are known (A-3b)."""
    return {tag: None if reported is None else _STATES[reported.outcome] for tag, reported in known.items()}


def outcomes_of_map(
    unsettled: Mapping[bytes, DeliveryState | None] | None,
) -> dict[bytes, DeliveryOutcome | None] | None:
    """A presented unsettled map in the record core's words."""
    if unsettled is None:
        return None
    return {tag: None if state is None else outcome_of(state) for tag, state in unsettled.items()}


def map_bound(frame_size: int) -> int:
    """How many unsettled entries an attach of one frame can present (C-4)."""
    return max(1, (frame_size - MAP_FRAME_OVERHEAD) // MAP_ENTRY_BYTES)
