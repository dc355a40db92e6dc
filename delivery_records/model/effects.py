"""What the record core asks of its shell. Effects are carried out in order, each once.

The shell owns sockets, clocks and etcd; it never decides. Client links are named as in inputs.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from delivery_records.model.messages import Datagram, RouterMessage
from delivery_records.model.outcomes import Decision, DeliveryOutcome, Reported
from delivery_records.model.parts import Part
from delivery_records.model.patience import Patience
from delivery_records.model.tags import OWN_TAG_AT
from delivery_records.model.view import PublisherRecord, SubscriptionMode, SubscriptionRecord

Raised: TypeAlias = Exception
"""What handling an input raised. mypyc finds the type of a field by a name of the module, and not all of Python's."""
NO_INFO: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PublisherReply:
    """Answer the publisher's attach (A-3)."""

    link: int
    unsettled: Mapping[bytes, Reported | None] | None
    """What it may resume, and the outcomes that are known (A-3b); empty: nothing (A-3a); None: it presented null."""
    resumed: bool
    exactly_once: bool
    settles_first: bool
    timeout_s: float
    expiry_policy: str
    stream_above: int
    """A delivery of more bytes is handed over in parts, as `LargeTransfer`s (L-1)."""


@dataclass(frozen=True, slots=True)
class SubscriberReply:
    """Answer the subscriber's attach (A-6): the source as it holds now, and the entries that are kept, tag -> null."""

    link: int
    topic: str
    kept: Sequence[bytes] | None
    """None: reply with unsettled null, for the client presented null."""
    incomplete: bool
    resumed: bool
    exactly_once: bool
    mode: SubscriptionMode
    incarnation: int
    expiry_policy: str
    timeout_s: float
    patience: Patience | None = None
    """How long it may make no progress, and what becomes of it then (K-5b)."""
    filter: str = ""
    """Canonical text of the filter that is applied (E-9)."""
    grouped: bool = False
    """Groups of the shared subscription come in order (SH-6)."""


@dataclass(frozen=True, slots=True)
class AskEcho:
    """Send flow(echo=true, properties={x-opt-topic-echo: epoch}): proof of life (A-4, A-10).

    To a publisher with link-credit 0.
    """

    link: int
    epoch: int


@dataclass(frozen=True, slots=True)
class GrantPublisherCredit:
    """Let the publisher send until `limit` deliveries in all have arrived on this attach (C-1).

    The shell sends link-credit = limit - deliveries the engine has counted. The first grant states `session` (F24).
    """

    link: int
    limit: int
    session: int | None = None


@dataclass(slots=True, init=False)
class Dispose:
    """State the outcome of the publisher's deliveries: disposition role=receiver (I-3), ranges merged by the engine.

    Hot path: a frozen dataclass takes ten times as long to make.
    """

    link: int
    delivery_ids: Sequence[int]
    outcome: DeliveryOutcome
    settled: bool
    condition: str
    """With REJECTED: the error condition and description reported to the publisher."""
    description: str
    info: Mapping[str, object]

    def __init__(
        self,
        link: int,
        delivery_ids: Sequence[int],
        outcome: DeliveryOutcome,
        settled: bool,
        condition: str = "",
        description: str = "",
        info: Mapping[str, object] = NO_INFO,
    ) -> None:
        """Keep the fields."""
        self.link = link
        self.delivery_ids = delivery_ids
        self.outcome = outcome
        self.settled = settled
        self.condition = condition
        self.description = description
        self.info = info


class Deliver:
    """Send a transfer to a subscriber (hot path: a plain class).

    With `resume` and `settled` and an empty message it is the settled resume of A-7. `redelivered` adds the annotation,
    `attempt` sets header.delivery-count, `annotations` are merged in (E-4a, E-4b).
    """

    __slots__ = (
        "annotations",
        "attempt",
        "link",
        "message",
        "message_format",
        "outcome",
        "redelivered",
        "resume",
        "settled",
        "tag",
    )

    def __init__(
        self,
        link: int,
        tag: bytes,
        message: bytes,
        resume: bool = False,
        settled: bool = False,
        outcome: DeliveryOutcome | None = None,
        redelivered: bool = False,
        attempt: int = 0,
        annotations: Mapping[bytes, bytes] | None = None,
        message_format: int = 0,
    ) -> None:
        """Keep the fields; `outcome` is the transfer's state on a settled resume."""
        self.link = link
        self.tag = tag
        self.message = message
        self.resume = resume
        self.settled = settled
        self.outcome = outcome
        self.redelivered = redelivered
        self.attempt = attempt
        self.annotations = annotations
        self.message_format = message_format

    def __repr__(self) -> str:
        """Short form for stories."""
        flags = "".join(
            f" {name}"
            for name, on in (("resume", self.resume), ("settled", self.settled), ("redelivered", self.redelivered))
            if on
        )
        return f"Deliver(link={self.link} tag={self.tag[OWN_TAG_AT:].hex()}{flags})"


@dataclass(slots=True)
class DeliverPart:
    """Send a part of a large delivery to a subscriber (L-3).

    FIRST begins it, and LAST ends it, with data or without; one that has both in one comes as a FIRST and a LAST.
    Between them the core sends nothing else that is a transfer on this link (AMQP 1.0 section 2.6.14). ABORT ends it
    aborted, and has no data. `resume` to `message_format` are as in `Deliver`, and are set in FIRST alone.
    """

    link: int
    tag: bytes
    data: bytes
    part: Part
    resume: bool = False
    settled: bool = False
    """At most once: it goes out settled (c.3)."""
    redelivered: bool = False
    attempt: int = 0
    annotations: Mapping[bytes, bytes] | None = None
    message_format: int = 0

    def __repr__(self) -> str:
        """Short form for stories."""
        flags = " resume" * self.resume + " settled" * self.settled + " redelivered" * self.redelivered
        what = f"{self.part.value} {len(self.data)}B"
        return f"DeliverPart(link={self.link} tag={self.tag[OWN_TAG_AT:].hex()} {what}{flags})"


@dataclass(slots=True, init=False)
class SettleAtSubscriber:
    """Settle these network tags at the subscriber: disposition role=sender settled=true (E-5). Hot path."""

    link: int
    tags: Sequence[bytes]

    def __init__(self, link: int, tags: Sequence[bytes]) -> None:
        """Keep the fields."""
        self.link = link
        self.tags = tags


@dataclass(frozen=True, slots=True)
class Confirm:
    """The attach barrier is complete: flow(properties={x-opt-topic-confirmed: incarnation, ...}) (A-6b).

    With the time-out and the policy that hold from now on; sent again when there is more (A-10).
    """

    link: int
    incarnation: int
    timeout_s: float
    expiry_policy: str


@dataclass(frozen=True, slots=True)
class CompleteDrain:
    """Answer the subscriber's drain: nothing more is here for it (C-5)."""

    link: int


@dataclass(frozen=True, slots=True)
class NotifyOwing:
    """Answer x-opt-topic-ask: who still owes this delivery (first names, and how many in all)."""

    link: int
    tag: bytes
    names: Sequence[str]
    count: int


@dataclass(frozen=True, slots=True)
class NotifyEnded:
    """Report subscriptions that ended while they owed deliveries: first names, their number, the oldest owed (I-3b)."""

    link: int
    names: Sequence[str]
    count: int
    tag: bytes


class Named(NamedTuple):
    """Subscriptions: the names of the first ones, and how many there are."""

    names: Sequence[str]
    total: int


@dataclass(frozen=True, slots=True)
class NotifyAcceptedBy:
    """Notify the publisher which subscriptions are done with `tag` and those after it: first names, how many (I-3c)."""

    link: int
    tag: bytes
    names: Sequence[str]
    count: int
    processed: Named
    """Those of them whose applications have processed it (I-3g)."""
    stored: Named
    """Those of them that store it for others."""


@dataclass(frozen=True, slots=True)
class NotifyStart:
    """Notify the publisher that `tag` and all before it were sent before revision `created` (I-6a)."""

    link: int
    created: int
    """Of the subscription that starts behind them."""
    tag: bytes


@dataclass(frozen=True, slots=True)
class DetachLink:
    """Detach the link; when the attach has not been answered yet, answer it as a refusal first (A-8)."""

    link: int
    closed: bool
    condition: str = ""
    """Empty: no error (the answer to the client's own detach)."""
    description: str = ""
    info: Mapping[str, object] = field(default_factory=dict)
    by_store: bool = False
    """Etcd has refused what the link asked of it, or cannot be asked: the shell adds what it said (A-1)."""


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close the whole client connection the link belongs to (K-8a)."""

    link: int
    condition: str
    description: str


class OrderEnding(Enum):
    """What became of an operator's order to end a subscription (K-5a)."""

    DELETED = "deleted"
    """The watch shows that it is gone."""
    CHANGED = "changed"
    """Somebody has attached or written it since the operator was shown it; nothing was deleted by this order."""
    NOT_FOUND = "not-found"
    ATTACHED = "attached"
    """It was to be ended only if it is away, and it is attached, or may be for all this router knows."""
    FAILED = "failed"
    """etcd could not be asked; nothing was deleted."""
    UNKNOWN = "unknown"
    """etcd's answer was lost and the watch shows nothing: look again."""


@dataclass(frozen=True, slots=True)
class OrderAnswered:
    """Notify the operator what became of his `EndSubscription`."""

    order: int
    ending: OrderEnding
    epoch: int
    """Of the subscription as it stands now; 0 where that is not known or there is none."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read an attachment key linearizably; answer with ReadDone or StoreFailed of the same nonce (A-2b)."""

    nonce: str
    key: str
    """`subs/<h>` or `pubs/<h>`."""


@dataclass(frozen=True, slots=True)
class SharedPut:
    """What a member's put writes in the same transaction: its shared subscription (SH-1)."""

    key: str
    """`subs/<h>`."""
    created: int
    """Create revision it must have; 0: it must not exist."""
    record: SubscriptionRecord


@dataclass(frozen=True, slots=True)
class Propose:
    """Compare-and-put (record) or compare-and-delete (None); report failures only (K-2)."""

    nonce: str
    key: str
    expect: int
    """Mod revision the key must have; 0: it must not exist."""
    record: SubscriptionRecord | PublisherRecord | None
    shared: SharedPut | None = None
    """Put before it, in the same transaction, whose revision both get; nothing is put where one compare fails."""


@dataclass(slots=True)
class SendToRouters:
    """Send a sequenced frame to each target (rid, generation, sequence): one body per tree edge (T-2).

    On the hot path, so it is not frozen: that would make it three times as dear.
    """

    targets: tuple[tuple[int, int, int], ...]
    message: RouterMessage


@dataclass(frozen=True, slots=True)
class SendDatagram:
    """Send an unsequenced message to another router."""

    rid: int
    message: Datagram


@dataclass(frozen=True, slots=True)
class Note:
    """A decision worth a log line; counts of the frequent ones are in `Records.counts`."""

    decision: Decision
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RoomAgain:
    """The router's budget has room for bodies again: look at the windows of all AMQP sessions (C-6)."""


@dataclass(frozen=True, slots=True)
class Faulted:
    """Handling an input raised; what it concerned has been ended (K-3b). Log the traceback and count it."""

    error: Raised


Effect: TypeAlias = (
    PublisherReply
    | SubscriberReply
    | AskEcho
    | GrantPublisherCredit
    | Dispose
    | Deliver
    | DeliverPart
    | SettleAtSubscriber
    | Confirm
    | CompleteDrain
    | NotifyOwing
    | NotifyEnded
    | NotifyAcceptedBy
    | NotifyStart
    | DetachLink
    | CloseConnection
    | Read
    | Propose
    | SendToRouters
    | SendDatagram
    | OrderAnswered
    | Note
    | RoomAgain
    | Faulted
)
