"""Words of the protocol: outcomes of deliveries, and the names of the decisions the core takes.

A decision's name is the log event and the metric label; one word stands for one thing everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DeliveryOutcome(Enum):
    """What a receiver said of a delivery (AMQP 1.0 section 3.4), by the classes of rule E-4a."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RELEASED = "released"
    MODIFIED = "modified"
    """modified without delivery-failed: may be sent again, does not count as an attempt."""
    MODIFIED_FAILED = "modified-failed"
    """modified{delivery-failed}: may be sent again, counts as a failed attempt."""
    UNDELIVERABLE = "undeliverable"
    """modified{undeliverable-here}: final on an exclusive subscription."""
    UNDELIVERABLE_FAILED = "undeliverable-failed"
    """The same with delivery-failed: counts as a failed attempt where another member gets it (SH-5)."""
    EXPIRED = "expired"
    """No receiver said so: its time was over before it was sent to the subscription (E-10)."""

    __hash__ = object.__hash__  # members are single objects; Enum's own is Python code, too slow for each message

    @property
    def is_done(self) -> bool:
        """True when the subscription has finished with the delivery (E-4a, class *Done*)."""
        return self in _DONE


UNDELIVERABLE_HERE = frozenset({DeliveryOutcome.UNDELIVERABLE, DeliveryOutcome.UNDELIVERABLE_FAILED})
_DONE = UNDELIVERABLE_HERE | {DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED, DeliveryOutcome.EXPIRED}


class Decision(Enum):
    """Every decision of the core, by name. The value is the log event and the metric label."""

    __hash__ = object.__hash__  # as in DeliveryOutcome

    # publishers
    PUBLISHER_ATTACHED = "publisher_attached"
    PUBLISHER_RESUMED = "publisher_resumed"
    PUBLISHER_ACTIVATED = "publisher_activated"
    PUBLISHER_EXPIRED = "publisher_expired"
    PUBLISHER_UNKNOWN = "publisher_unknown"
    """It wants to resume, without the capability, what this router does not hold (A-3c)."""
    PUBLISHER_STOLEN = "publisher_stolen"
    PUBLISHER_LOST = "publisher_lost"
    PUBLISHER_CLOSED = "publisher_closed"
    PUBLISHER_UNFINISHED = "publisher_unfinished"
    """It ended its link, and deliveries of it had no outcome in time (A-9a)."""
    PUBLISHER_NOT_ALIVE = "publisher_not_alive"
    PUBLISHER_NEVER_SETTLES = "publisher_never_settles"
    SESSION_STARTED = "session_started"
    TRANSFER_STORED = "transfer_stored"
    TRANSFER_REPEATED = "transfer_repeated"
    TRANSFER_PRESETTLED = "transfer_presettled"
    TRANSFER_ABORTED = "transfer_aborted"
    TRANSFER_RESUMED = "transfer_resumed"
    TRANSFER_RESUME_IGNORED = "transfer_resume_ignored"
    TRANSFER_MALFORMED = "transfer_malformed"
    TRANSFER_TAG_IN_USE = "transfer_tag_in_use"
    TRANSFER_NOT_ACTIVE = "transfer_not_active"
    DELIVERY_ACCEPTED = "delivery_accepted"
    DELIVERY_REJECTED = "delivery_rejected"
    DELIVERY_RELEASED = "delivery_released"
    DELIVERY_MODIFIED = "delivery_modified"
    DELIVERY_UNFINISHED = "delivery_unfinished"
    DELIVERY_SETTLED = "delivery_settled"
    DELIVERY_GIVEN_UP = "delivery_given_up"
    DELIVERY_ABANDONED = "delivery_abandoned"
    DELIVERY_POISONED = "delivery_poisoned"
    RETRY_SCHEDULED = "retry_scheduled"
    LARGE_BEGUN = "large_begun"
    LARGE_ABORTED = "large_aborted"
    LARGE_LEFT_OUT = "large_left_out"
    LARGE_ASKED_FOR = "large_asked_for"
    WINDOW_FORGOTTEN = "window_forgotten"
    DELIVERY_FAILED = "delivery_failed"
    """A subscription failed a message whose topic has no dead-letter topic (I-3e)."""
    DEAD_LETTER_SENT = "dead_letter_sent"
    DEAD_LETTER_DONE = "dead_letter_done"
    DEAD_LETTER_WAITS = "dead_letter_waits"
    """There is no dead-letter subscription for a letter, or there is none any more."""
    DEAD_LETTER_GIVEN_UP = "dead_letter_given_up"
    """There was none for as long as the policy lets letters wait (I-3e)."""
    # subscribers
    SUBSCRIBER_ATTACHED = "subscriber_attached"
    SUBSCRIBER_RESUMED = "subscriber_resumed"
    SUBSCRIBER_CONFIRMED = "subscriber_confirmed"
    SUBSCRIBER_PROVEN = "subscriber_proven"
    SUBSCRIBER_STOLEN = "subscriber_stolen"
    SUBSCRIBER_LOST = "subscriber_lost"
    SUBSCRIBER_CLOSED = "subscriber_closed"
    SUBSCRIBER_DELETED = "subscriber_deleted"
    SUBSCRIBER_MAP_REDUCED = "subscriber_map_reduced"
    SUBSCRIBER_SLOW = "subscriber_slow"
    ANNOTATIONS_REFUSED = "annotations_refused"
    """Its *modified* adds more to a delivery than is kept (E-4b)."""
    DELIVERED = "delivered"
    DELIVERED_AGAIN = "delivered_again"
    HELD = "held"
    SKIPPED = "skipped"
    FILTERED = "filtered"
    FILTER_TOO_COSTLY = "filter_too_costly"
    """A message does not match a filter, for finding out takes more than a filter may (E-9)."""
    EXPIRED = "delivery_expired"
    LARGE_DELIVERED = "large_delivered"
    LARGE_CUT_OFF = "large_cut_off"
    LARGE_NEEDED = "large_needed"
    ALREADY_DONE = "already_done"
    ALREADY_SENT = "already_sent"
    DROPPED_AT_MOST_ONCE = "dropped_at_most_once"
    OUTCOME_DONE = "outcome_done"
    OUTCOME_AGAIN = "outcome_again"
    SETTLED_AT_SUBSCRIBER = "settled_at_subscriber"
    # members of shared subscriptions
    RETURNED_BY_MEMBER = "returned_by_member"
    REFUSED_BY_MEMBER = "refused_by_member"
    ASSIGNED_AGAIN = "assigned_again"
    # attach procedure and etcd
    ATTACH_REFUSED = "attach_refused"
    ATTACH_RETRIED = "attach_retried"
    ATTACH_UNKNOWN = "attach_unknown"
    STEAL_REFUSED = "steal_refused"
    EXPIRY_PROPOSED = "expiry_proposed"
    DELETION_ORDERED = "deletion_ordered"
    VIEW_RELOADED = "view_reloaded"
    # the router's end
    DRAIN_STARTED = "drain_started"
    CLIENTS_SENT_AWAY = "clients_sent_away"
    # channels between routers
    CHANNEL_UP = "channel_up"
    CHANNEL_RESTARTED = "channel_restarted"
    FRAME_STALE = "frame_stale"
    FRAME_OUT_OF_SEQUENCE = "frame_out_of_sequence"
    FRAME_PARKED = "frame_parked"
    FRAME_NOT_SYNCED = "frame_not_synced"
    ACK_STALE = "ack_stale"


@dataclass(frozen=True, slots=True, eq=False)
class Reported:
    """What one disposition states; deliveries with the very same object share it."""

    outcome: DeliveryOutcome
    condition: str = ""
    description: str = ""
    rejected_by: tuple[str, ...] = ()
    """Subscriptions that rejected, the first of them (I-3, on-reject=report)."""
    rejections: int = 0
    expired_by: tuple[str, ...] = ()
    """Those for which it expired, the first of them (E-10)."""
    expirations: int = 0
