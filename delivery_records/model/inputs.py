"""What a router's record core is notified of: `Records.handle(inputs, now)`.

Inputs are facts, in the order the router saw them. A client link is named by the `link` number its shell hands out; a
number is never used twice in one incarnation. Times are seconds on the caller's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from delivery_records.model.limits import DRAIN_LIMIT_S, PolicyOf
from delivery_records.model.messages import Datagram, RouterMessage
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.parts import Part
from delivery_records.model.patience import Patience
from delivery_records.model.view import Change, PublisherRecord, SubscriptionMode, SubscriptionRecord

UnsettledMap: TypeAlias = Mapping[bytes, DeliveryOutcome | None]
"""A presented unsettled map: tag -> terminal outcome, or None while there is none (AMQP 1.0 section 2.6.13)."""


class LossCause(Enum):
    """Why a link is no longer attached (A-9): decides whether an expiry policy's timer starts."""

    DETACH = "detach"
    SESSION_END = "session-end"
    CONNECTION_LOSS = "connection-loss"


class StoreFailure(Enum):
    """What became of an etcd operation that did not succeed (K-2a)."""

    CONFLICT = "conflict"
    """The compare failed: definitely not applied, somebody else wrote first."""
    UNAVAILABLE = "unavailable"
    """Definitely not applied: etcd could not be reached."""
    UNKNOWN = "unknown"
    """It may have been applied; only the watch can know."""


@dataclass(frozen=True, slots=True)
class LinkPlace:
    """The AMQP session and the connection of a link: numbers the shell hands out, each used once; 0 = not known."""

    amqp_session: int = 0
    connection: int = 0


NO_PLACE = LinkPlace()


@dataclass(frozen=True, slots=True)
class Owner:
    """Who attaches a link (A-2c), and for how long a policy lets it be kept (K-5c)."""

    vhost: str = ""
    """The virtual host; empty: the default one."""
    user: str = ""
    """As logged in; empty: anonymous."""
    adopts: bool = False
    """The user's links have the keys that they had without a login."""
    longest_s: float | None = None
    """Longest terminus time-out that a policy grants (K-5c); None: as the limits say."""


NOBODY = Owner()


@dataclass(frozen=True, slots=True)
class Share:
    """Which shared subscription a link joins (SH-1): whose members compete for its deliveries."""

    name: str
    is_global: bool = False
    """Members may have any container-id; else all have the same."""
    by_group: bool = False
    """Messages of one group are to come in order (SH-6)."""


@dataclass(frozen=True, slots=True)
class PublisherAttach:
    """A publisher's attach was read from a client connection (A-2)."""

    link: int
    container_id: str
    link_name: str
    topic: str
    unsettled: UnsettledMap | None
    """None: the client did not present a map (null); {} presents an empty one."""
    exactly_once: bool = False
    """The client desires the capability `topic-exactly-once` (c.5)."""
    settles_first: bool = False
    """rcv-settle-mode first was asked for: at-least-once (c.3)."""
    timeout_s: float | None = None
    """Terminus timeout asked for; None = the default."""
    map_bound: int = 0
    """Entries that fit the client's frame (C-4); 0 = it presents no map."""
    incomplete: bool = False
    peer: str = ""
    starts: Sequence[tuple[bytes, int]] = ()
    """(tag, revision): that entry of the map and all before it were sent before that revision (I-6a)."""
    expiry_policy: str = "session-end"
    place: LinkPlace = NO_PLACE
    owner: Owner = NOBODY
    require: int | None = None
    """Subscriptions that a new message must be owed to (I-3c); None: it does not ask who processed its messages."""
    sends_again: bool = False
    """It desires the capability, which it may not get (c.3): what it presents it sends again, under the same tags."""
    require_processed: int | None = None
    """So many of them must process it, and not only store it (I-3g); None: its client does not distinguish them."""
    waits: bool = False
    """It wants no outcome of what fewer subscriptions than it requires have processed, but waits for them (I-3f)."""

    @property
    def resumes(self) -> bool:
        """A-3b: it goes by the reply's map, and may send what is not there under other tags."""
        return bool(self.unfinished) and not (self.exactly_once or self.sends_again)

    @property
    def unfinished(self) -> list[bytes]:
        """The entries without an outcome. One that has an outcome is the publisher's to settle (A-4)."""
        return [tag for tag, outcome in (self.unsettled or {}).items() if outcome is None]


@dataclass(frozen=True, slots=True)
class SubscriberAttach:
    """A subscriber's attach was read from a client connection (A-2)."""

    link: int
    container_id: str
    link_name: str
    topic: str | None
    """None: source null, look the existing terminus up."""
    unsettled: UnsettledMap | None
    exactly_once: bool = False
    mode: SubscriptionMode = SubscriptionMode.AT_LEAST_ONCE
    expiry_policy: str = "session-end"
    timeout_s: float | None = None
    map_bound: int = 0
    incomplete: bool = False
    peer: str = ""
    place: LinkPlace = NO_PLACE
    patience: Patience | None = None
    """What a policy allows it without progress (K-5b); None: its publishers wait."""
    owner: Owner = NOBODY
    share: Share | None = None
    """It is to be a member of a shared subscription (SH-1)."""
    filter: str = ""
    """Canonical text of the filter it asks for (E-9); of no meaning in a look-up."""
    entries: int = 0
    """Entries of its whole map, the rest of which comes in `MapPart`s (C-4); 0: this is all of it."""
    stores: bool = False
    """It states that it keeps messages for others, who process them later (I-3g)."""


@dataclass(frozen=True, slots=True)
class MapPart:
    """More of the map of a subscriber whose attach has not begun (C-4)."""

    link: int
    unsettled: UnsettledMap | None
    """None: it was no map."""


class PublisherTransfer:
    """A complete delivery arrived on a publisher's link (hot path: a plain class)."""

    __slots__ = (
        "aborted",
        "delivery_id",
        "is_large",
        "is_special",
        "link",
        "message",
        "message_format",
        "receiver_settles",
        "resume",
        "settled",
        "tag",
    )

    def __init__(
        self,
        link: int,
        delivery_id: int,
        tag: bytes,
        message: bytes,
        settled: bool = False,
        resume: bool = False,
        aborted: bool = False,
        message_format: int = 0,
        receiver_settles: bool = False,
        is_large: bool = False,
    ) -> None:
        """Keep the transfer's fields; `delivery_id` comes back in `Dispose`.

        `receiver_settles`: the publisher wants the outcome of this delivery settled, whatever its link's mode is (c.3).
        `is_large`: `message` is the first part of a large one (L-1); the record core sets it, and no shell.
        """
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.message = message
        self.settled = settled
        self.resume = resume
        self.aborted = aborted
        self.message_format = message_format
        self.receiver_settles = receiver_settles
        self.is_large = is_large
        self.is_special = bool(settled or resume or aborted or message_format or receiver_settles or is_large)
        """It is not simply the next whole delivery."""


@dataclass(slots=True)
class LargeTransfer:
    """A part of a large delivery arrived on a publisher's link (L-1).

    FIRST has all that has come so far, more than `PublisherReply.stream_above`. LAST and ABORT end it; ABORT has no
    data. One with `resume` is ignored, from FIRST to its end (A-3a). `settled` counts with LAST: given up behind this
    one try (I-4a).
    """

    link: int
    delivery_id: int
    tag: bytes
    data: bytes
    part: Part
    message_format: int = 0
    receiver_settles: bool = False
    resume: bool = False
    settled: bool = False


@dataclass(slots=True)
class LargeTaken:
    """So many more bytes of the large deliveries of a subscriber's link have left the engine toward the socket (L-4).

    Counted in bytes of `DeliverPart.data`: when all of one has left, the sizes add up to what it was handed. What is
    dropped with an abort is not counted.
    """

    link: int
    size: int


@dataclass(slots=True, init=False)
class PublisherSettle:
    """The publisher settled these deliveries (disposition role=sender settled=true). Hot path."""

    link: int
    tags: Sequence[bytes]

    def __init__(self, link: int, tags: Sequence[bytes]) -> None:
        """Keep the fields."""
        self.link = link
        self.tags = tags


@dataclass(slots=True, init=False)
class SubscriberDisposition:
    """The subscriber stated an outcome (None: settled without one) for these network tags. Hot path."""

    link: int
    tags: Sequence[bytes]
    outcome: DeliveryOutcome | None
    settled: bool
    annotations: Mapping[bytes, bytes] | None
    """What `modified` adds to the message: keys and values, each as AMQP encodes it (E-4b)."""
    delay_ms: int | None
    """When the subscriber wants the next attempt (E-4a); None: it does not say."""
    error: str
    """Condition and description of a `rejected` (I-3e); empty: it has none."""

    def __init__(
        self,
        link: int,
        tags: Sequence[bytes],
        outcome: DeliveryOutcome | None,
        settled: bool,
        annotations: Mapping[bytes, bytes] | None = None,
        delay_ms: int | None = None,
        error: str = "",
    ) -> None:
        """Keep the fields."""
        self.delay_ms = delay_ms
        self.error = error
        self.link = link
        self.tags = tags
        self.outcome = outcome
        self.settled = settled
        self.annotations = annotations


@dataclass(frozen=True, slots=True)
class ClientFlow:
    """A flow was read on a link."""

    link: int
    limit: int = 0
    """Subscriber links: deliveries the client allows in all on this attach (delivery-count + link-credit)."""
    delivery_count: int = 0
    """Subscriber links: deliveries the client has seen on this attach; above 0 it proves life (A-10)."""
    drain: bool = False
    echoed_epoch: int | None = None
    """Value of `x-opt-topic-echo` in the flow's properties (A-4)."""
    asked_tag: bytes | None = None
    """Value of `x-opt-topic-ask`: the publisher wants to know who still owes this delivery."""


@dataclass(frozen=True, slots=True)
class SessionRoom:
    """The session of a publisher that has deliveries to send again has no room for a frame, or has some again (C-6)."""

    link: int
    is_narrow: bool


@dataclass(frozen=True, slots=True)
class LinkDetach:
    """The client detached the link; closed=True ends its terminus (I-8, E-8), False suspends it (A-9).

    Or it has ended the AMQP session or closed the connection of a publisher, and waits for our answer.
    """

    link: int
    closed: bool
    cause: LossCause = LossCause.DETACH


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The link is gone without a detach: its session ended or its connection was lost (A-9)."""

    link: int
    cause: LossCause = LossCause.CONNECTION_LOSS


@dataclass(frozen=True, slots=True)
class EndpointEnded:
    """An AMQP session or connection is over, behind the loss of its links: detached termini may wait for it (A-9)."""

    number: int
    """As in `LinkPlace`."""


@dataclass(frozen=True, slots=True)
class ReadDone:
    """Answer to `Read`: the record and its revisions, or record None when the key does not exist."""

    nonce: str
    record: SubscriptionRecord | PublisherRecord | None
    create_revision: int = 0
    mod_revision: int = 0


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A `Read` or `Propose` did not succeed. Success of a proposal is seen in the watch only (K-2)."""

    nonce: str
    failure: StoreFailure


@dataclass(frozen=True, slots=True)
class ViewSnapshot:
    """All keys at `revision`: at start and after a watch that was compacted or cancelled (K-1, K-4)."""

    revision: int
    entries: Sequence[Change]


@dataclass(frozen=True, slots=True)
class ViewChanges:
    """All changes of one or several whole revisions, in order; `revision` is the last of them (K-7)."""

    revision: int
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """Whether the router has a valid lease and a working etcd session (A-1)."""

    available: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """The router is to stop: let the clients move first (K-8a). The shell takes no connection from now on."""

    connections: Sequence[Sequence[int]]
    """The links of each client connection."""
    limit_s: float = DRAIN_LIMIT_S
    """After so many seconds everybody is sent away as it is."""


@dataclass(frozen=True, slots=True)
class EndSubscription:
    """An operator ends a subscription before its time (K-5a); answered by one `OrderAnswered`."""

    order: int
    """Number the shell gives it; comes back in the answer."""
    key: str
    epoch: int
    """As the operator was shown it: nothing that was attached since is ended."""
    only_if_away: bool = False
    """Not while it is attached, or may be for all this router knows."""


@dataclass(slots=True)
class RouterFrame:
    """A sequenced frame of another router's channel arrived (T-1). On the hot path, so it is not frozen."""

    origin: int
    generation: int
    sequence: int
    message: RouterMessage


@dataclass(frozen=True, slots=True)
class RouterDatagram:
    """An unsequenced message of another router arrived (HELLO, BARRIER, APPLIED)."""

    origin: int
    message: Datagram


@dataclass(frozen=True, slots=True)
class PathsChanged:
    """Best paths changed: `reachable` routers now; `moved` ones have a new next hop, frames may be lost (T-4)."""

    reachable: frozenset[int]
    moved: frozenset[int]


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A `SendToRouters` could not be encoded, which is a fault of our own (K-3b)."""

    message: RouterMessage
    rids: tuple[int, ...]
    """Its targets; their channels have a gap now."""


@dataclass(frozen=True, slots=True)
class PoliciesChanged:
    """The operator's rules for topics are others from now on (I-3d)."""

    policy_of: PolicyOf


Input: TypeAlias = (
    PublisherAttach
    | SubscriberAttach
    | MapPart
    | PublisherTransfer
    | LargeTransfer
    | LargeTaken
    | PublisherSettle
    | SubscriberDisposition
    | ClientFlow
    | SessionRoom
    | LinkDetach
    | LinkLost
    | EndpointEnded
    | ReadDone
    | StoreFailed
    | ViewSnapshot
    | ViewChanges
    | StoreHealth
    | Drain
    | EndSubscription
    | RouterFrame
    | RouterDatagram
    | PathsChanged
    | SendFailed
    | PoliciesChanged
)
