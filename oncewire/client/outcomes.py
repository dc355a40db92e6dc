"""What became of a delivery, in the client's own words.

The pure cores speak these and not the wire's classes, so that they run without a wire engine (in the simulator, too).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class OutcomeKind(Enum):
    """The terminal states of AMQP 1.0 section 3.4, and one of our own; the value is also the journal's word."""

    ACCEPTED = "accepted"
    """Publisher: every subscription it was owed to has processed or stored it (I-3g). Subscriber: processed."""
    REJECTED = "rejected"
    """Publisher: a subscription rejected it (if the topic reports that). Subscriber: finished with, not usable."""
    RELEASED = "released"
    """Fewer subscriptions than required, or none, matched the topic; the message was sent to nobody (I-3c)."""
    MODIFIED = "modified"
    """A foreign router did not process it."""
    UNKNOWN = "unknown"
    """The publisher's session expired before an outcome came (A-5), or fewer subscriptions than required processed the
    message (I-3c): it may or may not have been processed."""


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Subscriptions that did something with a message: how many, and the names of the first eight.

    A name is the subscriber's container-id, a slash and the name of its link.
    """

    count: int
    names: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """One delivery's end.

    Attributes:
        kind: what happened.
        condition: AMQP error condition of a rejection, else empty.
        description: its explanation, else empty.
        in_doubt: publisher only: the message had been sent before in a session that expired, and was sent again
            (A-5), so subscribers may have processed it twice.
        subscriptions: of a rejection, those that rejected; of a publisher with `require` those that are done with it,
            whether they have processed or stored it. None where the router does not report them.
        processed_by: of a publisher with `require` the subscriptions whose applications have processed the message.
            None where the router does not distinguish them, and of an outcome that a journal kept.
        stored_by: likewise those that store it for others, who process it later: journals, work queues (I-3g).
    """

    kind: OutcomeKind
    condition: str = ""
    description: str = ""
    in_doubt: bool = False
    subscriptions: Subscriptions | None = None
    processed_by: Subscriptions | None = None
    stored_by: Subscriptions | None = None

    @property
    def is_accepted(self) -> bool:
        """True for the one good end."""
        return self.kind is OutcomeKind.ACCEPTED


ACCEPTED = Outcome(OutcomeKind.ACCEPTED)
RELEASED = Outcome(OutcomeKind.RELEASED)
UNKNOWN = Outcome(
    OutcomeKind.UNKNOWN,
    "oncewire:session-expired",
    "the session expired while this message was unsettled; it may or may not have been processed",
)


TOO_FEW = "oncewire:too-few-subscriptions"
"""Condition of a message for which there were fewer subscriptions than its publisher requires (I-3c)."""


def counted(count: int, noun: str) -> str:
    """For people: `1 message`, `2 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class Required(NamedTuple):
    """How many subscriptions a publisher requires, and how many of them must process and not only store (I-3g)."""

    subscriptions: int = 0
    processing: int = 0

    def __str__(self) -> str:
        """For people."""
        processing = (
            f"{counted(self.processing, 'subscription')} that {'process' if self.processing > 1 else 'processes'}"
        )
        wanted = counted(self.subscriptions, "subscription")
        if self.processing:
            return f"{wanted}, or than {processing}" if self.subscriptions else processing
        return wanted


def released_for_want_of(required: Required) -> Outcome:
    """The outcome of a message that was sent to nobody, because there were fewer subscriptions."""
    wanted = str(required)
    text = f"the topic has fewer than {wanted}, or had when an earlier message came; sent to nobody"
    return Outcome(OutcomeKind.RELEASED, TOO_FEW, text)


class DoneBy(NamedTuple):
    """Who is done with a message; None: the router does not say which of them only store it."""

    subscriptions: Subscriptions
    processed: Subscriptions | None = None
    stored: Subscriptions | None = None


def accepted_by(done: DoneBy, required: Required) -> Outcome:
    """The outcome of a message that these are done with, and that no other subscription owes."""
    processed = 0 if done.processed is None else done.processed.count
    kind, condition, text = OutcomeKind.ACCEPTED, "", ""
    if done.subscriptions.count < required.subscriptions or processed < required.processing:
        kind, condition = OutcomeKind.UNKNOWN, TOO_FEW
        has, wanted = counted(done.subscriptions.count, "subscription"), str(required.subscriptions)
        if done.processed is None:
            text = f"{has} processed it, required: {wanted}; others that have ended may have processed it"
        else:
            has = f"{counted(processed, 'subscription')} processed it"
            has += f" and {counted(done.stored.count, 'other')} stored it" if done.stored and done.stored.count else ""
            wanted = f"{required.processing} that process" if processed < required.processing else wanted
            text = f"{has}, required: {wanted}; others that have ended may have processed it"
    return Outcome(kind, condition, text, False, *done)


def rejected(condition: str = "", description: str = "") -> Outcome:
    """The outcome of a message that a subscriber cannot use: finished with, never sent again."""
    return Outcome(OutcomeKind.REJECTED, condition, description)


def ending(name: str) -> str:
    """For people: what ends a subscription, container-id/link-name, whose owner is gone."""
    return f"`oncewire manage delete subscription '{name}'` ends it if nobody needs it any more"
