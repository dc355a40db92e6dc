"""What became of a delivery, in the client's own words.

The pure cores speak these and not the wire's classes, so that they run without a wire engine (in the simulator, too).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class OutcomeKind(Enum):
    """The terminal states of AMQP 1.0 section 3.4, and one of our own; the value is also the journal's word."""

    ACCEPTED = "accepted"
    """Publisher: every subscription it was owed to has finished with it. Subscriber: processed."""
    REJECTED = "rejected"
    """Publisher: a subscription rejected it (if the topic reports that). Subscriber: finished with, not usable."""
    RELEASED = "released"
    """No subscription matched the topic; the message went nowhere."""
    MODIFIED = "modified"
    """A foreign router did not process it."""
    UNKNOWN = "unknown"
    """The publisher's session expired before an outcome came (A-5): it may or may not have been processed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One delivery's end.

    Attributes:
        kind: what happened.
        condition: AMQP error condition of a rejection, else empty.
        description: its explanation, else empty.
        in_doubt: publisher only: the message had been sent before in a session that expired, and was sent again
            (A-5), so subscribers may have processed it twice.
        subscriptions: of a rejection: the first names of the subscriptions that rejected.
    """

    kind: OutcomeKind
    condition: str = ""
    description: str = ""
    in_doubt: bool = False
    subscriptions: tuple[str, ...] = ()

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


def rejected(condition: str = "", description: str = "") -> Outcome:
    """The outcome of a message that a subscriber cannot use: finished with, never sent again."""
    return Outcome(OutcomeKind.REJECTED, condition, description)
