"""What a client tells its application besides messages and outcomes (`connect(on_event=)`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Connected:
    """A router answered. `router` is its container-id."""

    address: str
    router: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection ended, or could not be made; the client goes on with the next address by itself."""

    address: str
    cause: str


@dataclass(frozen=True, slots=True)
class LinkActive:
    """A link works (again).

    Attributes:
        link: its name.
        resumed: it was resumed, not made anew.
        unsettled: entries of the map it presented.
        gap_s: seconds it was away; 0.0 for the first time.
    """

    link: str
    resumed: bool
    unsettled: int
    gap_s: float


@dataclass(frozen=True, slots=True)
class LinkInterrupted:
    """A router detached the link; the client attaches again by itself. `condition` is the AMQP error, may be empty."""

    link: str
    condition: str
    description: str


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """A publisher was away for too long (A-5).

    `messages` of its messages are affected: each is reported with "outcome unknown", or, `sent_again`, goes out marked
    `x-opt-topic-in-doubt`.
    """

    link: str
    messages: int
    sent_again: bool


@dataclass(frozen=True, slots=True)
class SubscriptionExpired:
    """The subscription was deleted while attached (E-7); NewIncarnation follows when a new one was made."""

    link: str


@dataclass(frozen=True, slots=True)
class NewIncarnation:
    """The subscription was created anew: messages between the two incarnations may be missing (G4)."""

    link: str
    before: int
    now: int


@dataclass(frozen=True, slots=True)
class DeliveryGivenUp:
    """A delivery that had arrived before this process was started again, and was not finished, does not come again.

    The network settled it in between: its publisher gave it up (its session expired), or the subscription had ended.
    `tag` is its network tag. The same may be told once more after another restart.
    """

    link: str
    tag: bytes


ClientEvent: TypeAlias = (
    Connected
    | Disconnected
    | LinkActive
    | LinkInterrupted
    | SessionExpired
    | SubscriptionExpired
    | NewIncarnation
    | DeliveryGivenUp
)


@dataclass(slots=True)
class LinkStatistics:
    """Counts of one publisher or subscriber since it was opened.

    Attributes:
        messages: publisher: messages taken; subscriber: deliveries handed to the application.
        accepted: of these, how many ended with accepted.
        not_accepted: how many ended otherwise.
        resumed_links: times the link was resumed at a router.
        resumed_entries: unsettled entries presented at those times.
        longest_gap_s: longest time the link was away, in seconds.
    """

    messages: int = 0
    accepted: int = 0
    not_accepted: int = 0
    resumed_links: int = 0
    resumed_entries: int = 0
    longest_gap_s: float = 0.0


@dataclass(slots=True)
class ClientStatistics:
    """Counts of one client.

    Attributes:
        connections: connections that were opened.
        resumed_links: sum over its links.
        longest_gap_s: longest over its links, in seconds.
    """

    connections: int = 0
    resumed_links: int = 0
    longest_gap_s: float = 0.0
