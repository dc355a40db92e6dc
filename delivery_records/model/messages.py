"""Messages between routers (protocol c.1, rules T-1 to T-9).

A publisher is named by its epoch and a subscription by its epoch: both are etcd revisions, unique in the cluster (T-8).
Within a publisher epoch a delivery is named by its running number in the ingress' window (T-7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from delivery_records.model.assigned import Assigned
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.parts import Part

Run: TypeAlias = tuple[int, int]
"""Consecutive running numbers: (first, count)."""


@dataclass(frozen=True, slots=True)
class Sync:
    """SYNC: the publisher's unsettled set U, in order; absence from it means settled (E-2)."""

    publisher_epoch: int
    subscription_epochs: tuple[int, ...]
    numbers: tuple[int, ...]
    """Running number of each tag of U, rising (a hole is a delivery that was settled)."""
    tags: tuple[bytes, ...]
    is_letters: bool = False
    """What follows for these subscriptions are letters (I-3e)."""
    serial: int = 0
    """To a member: which SYNC of this ingress to it this is; 0 to a router that does not read it (SH-4)."""


class Msg:
    """MSG: one delivery for every synced subscription at the egress, or for the named ones (hot path: plain class)."""

    __slots__ = (
        "after",
        "assigned",
        "attempt",
        "is_large",
        "message",
        "message_format",
        "number",
        "publisher_epoch",
        "redelivered",
        "settled",
        "tag",
        "to",
    )

    def __init__(
        self,
        publisher_epoch: int,
        number: int,
        tag: bytes,
        message: bytes,
        to: tuple[int, ...] | None = None,
        redelivered: bool = False,
        settled: bool = False,
        attempt: int = 0,
        after: int = 0,
        message_format: int = 0,
        assigned: Assigned = Assigned.ANEW,
        is_large: bool = False,
    ) -> None:
        """Keep the fields.

        `to` None means all subscriptions synced to this publisher at the egress. `after` is a revision the egress must
        have applied first: the ingress has seen a subscription deleted that the egress may still count (T-3).
        `is_large`: `message` is the head of a large delivery, whose body is not here (L-7).
        """
        self.publisher_epoch = publisher_epoch
        self.number = number
        self.tag = tag
        self.message = message
        self.to = to
        self.redelivered = redelivered
        self.settled = settled
        self.attempt = attempt
        self.after = after
        self.message_format = message_format
        self.assigned = assigned
        self.is_large = is_large

    def __repr__(self) -> str:
        """Short form for stories and logs."""
        size = "no body" if self.is_large else f"{len(self.message)}B"
        return f"Msg(p{self.publisher_epoch} #{self.number} {size} to={self.to})"


class ExpiringMsg(Msg):
    """A MSG that expires (E-10). A class of its own, so that the others pay nothing for it."""

    __slots__ = ("expires_at", "ttl_ms")

    def __init__(self, of: Msg, ttl_ms: int, expires_at: float = 0.0) -> None:
        """The fields of `of`; `ttl_ms` is left to it as it is sent, and `expires_at` is known to its sender alone."""
        super().__init__(
            of.publisher_epoch,
            of.number,
            of.tag,
            of.message,
            of.to,
            of.redelivered,
            of.settled,
            of.attempt,
            of.after,
            of.message_format,
            of.assigned,
        )
        self.ttl_ms = ttl_ms
        self.expires_at = expires_at

    def __repr__(self) -> str:
        """Short form for stories and logs."""
        return f"Msg(p{self.publisher_epoch} #{self.number} {len(self.message)}B to={self.to} {self.ttl_ms} ms left)"


@dataclass(frozen=True, slots=True)
class MsgPart:
    """MSG-PART: a piece of a large message; the egress acts when `offset + len(data) == header_total` (I-1a)."""

    head: Msg
    """The delivery's fields; its `message` is empty here."""
    offset: int
    total: int
    data: bytes


@dataclass(slots=True)
class LargePart:
    """LARGE: a part of a large delivery, for the named subscriptions (L-2)."""

    publisher_epoch: int
    number: int
    to: tuple[int, ...]
    part: Part
    data: bytes = b""
    is_owed: bool = False
    """With ABORT: it is owed still, and keeps its place (L-6); else nothing of it was sent (L-5)."""
    tag: bytes = b""
    """From here on: with FIRST alone, as in `Msg`."""
    redelivered: bool = False
    attempt: int = 0
    message_format: int = 0
    assigned: Assigned = Assigned.ANEW

    def __repr__(self) -> str:
        """Short form for stories and logs."""
        part = "left out" if self.is_owed else self.part.value
        return f"LargePart(p{self.publisher_epoch} #{self.number} {part} {len(self.data)}B to={self.to})"


@dataclass(frozen=True, slots=True)
class Settle:
    """SETTLE: the publisher settled these numbers (I-4)."""

    publisher_epoch: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Ack:
    """ACK: the subscription is done with these numbers (E-4)."""

    publisher_epoch: int
    subscription_epoch: int
    outcome: DeliveryOutcome
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Nack:
    """NACK: the subscriber wants this number again (E-4a); `failed` counts as an attempt."""

    publisher_epoch: int
    subscription_epoch: int
    number: int
    failed: bool
    attempts: int = 0
    """Failed attempts that the egress knows of, this one included."""
    delay_ms: int | None = None
    """When the subscriber wants the next attempt; None: it does not say."""
    is_presented: bool = False
    """It failed before this link: the map says so. The ingress may have heard of it."""


@dataclass(frozen=True, slots=True)
class Reason:
    """REASON: the error with which the subscriber rejects these numbers; their ACK follows (I-3e)."""

    publisher_epoch: int
    subscription_epoch: int
    error: str
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Annotations:
    """ANNOTATIONS: all that the subscriber's *modified* have added to this delivery; its NACK or ACK follows (E-4b)."""

    publisher_epoch: int
    subscription_epoch: int
    number: int
    added: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class FormerAnnotations:
    """ANNOTATIONS the other way: what former links or other members have added; its MSG follows (E-4b)."""

    publisher_epoch: int
    subscription_epoch: int
    number: int
    added: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Claim:
    """CLAIM: the answer of a member's egress to a SYNC (SH-4): what of U its map has, and its room (SH-2)."""

    publisher_epoch: int
    subscription_epoch: int
    room: int
    """Deliveries that it takes beyond those."""
    runs: tuple[Run, ...]
    serial: int = 0
    """Of the SYNC that it answers."""


@dataclass(frozen=True, slots=True)
class Return:
    """RETURN: this delivery was not sent to the member, which has no room or no link (SH-2)."""

    publisher_epoch: int
    subscription_epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class Room:
    """ROOM: the member takes so many deliveries beyond those that it has; 0: its link is gone (SH-2)."""

    publisher_epoch: int
    subscription_epoch: int
    room: int


@dataclass(frozen=True, slots=True)
class Taken:
    """TAKEN: so many bytes of a large delivery have gone to the subscriber (L-4), or it is `NOT_WANTED` (L-2)."""

    publisher_epoch: int
    subscription_epoch: int
    number: int
    taken: int


@dataclass(frozen=True, slots=True)
class Need:
    """NEED: it is the turn of this delivery, whose body is not here (L-7)."""

    publisher_epoch: int
    subscription_epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class Credit:
    """Byte credit for bodies, cumulative over the generation (T-5)."""

    granted_bytes: int


@dataclass(frozen=True, slots=True)
class Hello:
    """HELLO: opens a channel's generation, probes its tail, and states the applied revision (T-4, T-9)."""

    generation: int
    is_reply: bool
    sent: int
    """Last sequence number the sender has sent in this generation."""
    received: int
    """Last sequence number the sender has received in it."""
    applied: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """BARRIER: answer APPLIED once your applied revision reaches `revision` (A-6a)."""

    revision: int


@dataclass(frozen=True, slots=True)
class Applied:
    """APPLIED: the sender's applied revision."""

    revision: int


ToIngress: TypeAlias = Ack | Nack | Reason | Annotations | Claim | Return | Room | Taken | Need
"""What a subscription's egress says to an ingress."""
ToEgress: TypeAlias = Sync | Msg | LargePart | FormerAnnotations | Settle
"""What an ingress says to the egresses of its subscriptions."""
RouterMessage: TypeAlias = ToEgress | MsgPart | ToIngress | Credit
Datagram: TypeAlias = Hello | Barrier | Applied
