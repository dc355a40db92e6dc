"""Events a client reports to its application besides messages and outcomes (`connect(on_event=)`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Connected(NamedTuple):
    """A router answered. `router` is its container-id."""

    address: str
    router: str


class Disconnected(NamedTuple):
    """The connection ended, or could not be opened; the client tries the next address by itself."""

    address: str
    cause: str


class LinkActive(NamedTuple):
    """A link works (again).

    Attributes:
        link: its name.
        resumed: it was resumed, not created.
        unsettled: entries of the map it presented.
        gap_s: seconds it was disconnected; 0.0 for the first time.
    """

    link: str
    resumed: bool
    unsettled: int
    gap_s: float


class LinkInterrupted(NamedTuple):
    """A router detached the link; the client attaches again by itself. `condition` is the AMQP error, may be empty."""

    link: str
    condition: str
    description: str


class SessionExpired(NamedTuple):
    """A publisher was disconnected for too long (A-5).

    `messages` of its messages are affected: each is reported with "outcome unknown", or, with `sent_again`, is sent
    again marked `x-opt-topic-in-doubt`.
    """

    link: str
    messages: int
    sent_again: bool


@dataclass(frozen=True, slots=True)
class SubscriptionsEnded:
    """Subscriptions were deleted before they had processed messages of this publisher (rule I-3b).

    These messages end as the other subscriptions decide: *accepted* is about the subscriptions that still exist. Their
    outcomes come after this event. The log of its router has the reason: it unsubscribed, it expired, an operator
    ended it, or it was too slow. What ends while the publisher is disconnected is not reported.

    Attributes:
        link: name of the publisher.
        subscriptions: container-id/link name of the first of them.
        count: how many they are.
        first_message: number of the oldest message that one of them lacks (`Sending.number`).
    """

    link: str
    subscriptions: tuple[str, ...]
    count: int
    first_message: int


@dataclass(frozen=True, slots=True)
class PublisherWaits:
    """A publisher's oldest message has waited for five seconds; repeated each minute, and when its block is left.

    Nothing is lost. Look whether these subscriptions are connected, and why they are slow: `oncewire inspect waits`.

    Attributes:
        link: name of the publisher.
        messages: how many of its messages have no outcome.
        seconds: for how long the oldest was seen to wait.
        subscriptions: container-id/link name of the first that have not processed it.
        count: how many they are; 0 = the router could not be asked.
        why: in words.
        is_leaving: the program leaves the publisher's block, which waits for them.
    """

    link: str
    messages: int
    seconds: float
    subscriptions: tuple[str, ...]
    count: int
    why: str
    is_leaving: bool


class SubscriptionExpired(NamedTuple):
    """The subscription was deleted while attached (E-7); NewIncarnation follows when a new one was created."""

    link: str


class NewIncarnation(NamedTuple):
    """The subscription was created again: messages between the two incarnations may be missing (G4)."""

    link: str
    before: int
    now: int


class DeliveryGivenUp(NamedTuple):
    """A delivery that arrived before this process restarted and was not finished is not delivered again.

    The network settled it in between: its publisher abandoned it (its session expired), or the subscription had ended.
    `tag` is its network tag. The same event may occur once more after another restart.
    """

    link: str
    tag: bytes


class MessageSetAside(NamedTuple):
    """A `Consumer` goes on without a message that its function cannot process (CO-7).

    Attributes:
        topic: the topic or pattern of the subscription that it came in on.
        position: as of `ReceivedMessage`.
        attempts: times the function failed at it.
        error: what it raised last.
        dead_letters: where its dead letter goes; empty: it is kept in the consumer's store.
    """

    topic: str
    position: int
    attempts: int
    error: str
    dead_letters: str


ClientEvent: TypeAlias = (
    Connected
    | Disconnected
    | LinkActive
    | LinkInterrupted
    | SessionExpired
    | SubscriptionsEnded
    | PublisherWaits
    | SubscriptionExpired
    | NewIncarnation
    | DeliveryGivenUp
    | MessageSetAside
)


@dataclass(slots=True)
class LinkStatistics:
    """Counts of one publisher or subscriber since it was opened.

    Attributes:
        messages: publisher: messages taken; subscriber: deliveries handed to the application.
        accepted: of these, how many ended with accepted.
        not_accepted: how many ended with another outcome.
        copies: subscriber with `deduplicate`: copies that were not handed to the application (D-3).
        subscriptions_ended: publisher: subscriptions that ended before they had processed its messages.
        accepted_by_none: publisher with `require`: accepted messages that no subscription has processed or stored.
        accepted_stored: likewise those that subscriptions have stored for others, and none has processed (I-3g).
        resumed_links: times the link was resumed at a router.
        resumed_entries: unsettled entries presented at those times.
        longest_gap_s: longest time the link was disconnected, in seconds.
    """

    messages: int = 0
    accepted: int = 0
    not_accepted: int = 0
    copies: int = 0
    subscriptions_ended: int = 0
    accepted_by_none: int = 0
    accepted_stored: int = 0
    resumed_links: int = 0
    resumed_entries: int = 0
    longest_gap_s: float = 0.0


@dataclass(slots=True)
class ConsumerStatistics:
    """Counts of one consumer since it was made, of what was committed.

    Attributes:
        transactions: that processed something.
        messages: processed.
        dead_letters: messages that the function could not process and that were published as dead letters (CO-7).
        skipped: those that were kept in the store instead.
    """

    transactions: int = 0
    messages: int = 0
    dead_letters: int = 0
    skipped: int = 0


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
