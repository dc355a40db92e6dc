"""What a simulated client knows of a delivery in its unsettled map."""

from __future__ import annotations

from enum import Enum

from delivery_records.model.outcomes import DeliveryOutcome


class Mark(Enum):
    """State of an entry in a client's unsettled map."""

    NONE = "none"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RELEASED = "released"
    FAILED = "modified, delivery-failed"
    UNDELIVERABLE = "modified, undeliverable-here"
    SETTLED = "settled by the sender before it was processed"


OUTCOMES = {
    Mark.ACCEPTED: DeliveryOutcome.ACCEPTED,
    Mark.REJECTED: DeliveryOutcome.REJECTED,
    Mark.RELEASED: DeliveryOutcome.RELEASED,
    Mark.FAILED: DeliveryOutcome.MODIFIED_FAILED,
    Mark.UNDELIVERABLE: DeliveryOutcome.UNDELIVERABLE,
}
