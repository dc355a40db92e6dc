"""What the publisher's and the subscriber's core ask of their shell. Effects are carried out in order, each once.

Most are NamedTuples, which are imported and made in a fraction of a dataclass's time. Those whose values could be
another effect's of the same core are equal to their own kind only. `count` is a method of tuples: what has such a field
is a dataclass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from oncewire.client.outcomes import Outcome

K = TypeVar("K", bound=type[tuple[object, ...]])


def _is_equal(effect: tuple[object, ...], other: object) -> bool:
    return type(other) is type(effect) and tuple.__eq__(effect, other)


def _is_other(effect: tuple[object, ...], other: object) -> bool:
    return not _is_equal(effect, other)


def by_kind(kind: K) -> K:
    """Make the values of a NamedTuple equal to its own kind only."""
    for name, compare in (("__eq__", _is_equal), ("__ne__", _is_other)):
        setattr(kind, name, compare)
    return kind


@by_kind
class AnswerEcho(NamedTuple):
    """Proof of life (A-4): send a flow with `x-opt-topic-echo` = value."""

    value: int


@by_kind
class ProveOwner(NamedTuple):
    """Read that the journal is still this process's, then answer the echo as in AnswerEcho; else end the link (P-b)."""

    value: int


class RefuseLink(NamedTuple):
    """The router does not grant what was asked for: detach, and report to the application why."""

    reason: str


# --- publisher ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SendTransfer:
    """Send the message as a new transfer (resume=false) with this tag; add `x-opt-topic-in-doubt` when `in_doubt`."""

    number: int
    tag: bytes
    payload: bytes
    in_doubt: bool


class SettleDeliveries(NamedTuple):
    """Disposition role=sender settled=true for these delivery-ids of the link."""

    delivery_ids: Sequence[int]


class ReportOutcome(NamedTuple):
    """The outcome is recorded: report it to the application."""

    number: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class AnswerDrain:
    """All credit that can be used is used: give the rest back (C-5)."""


class AskOwing(NamedTuple):
    """Flow with `x-opt-topic-ask` = tag: which subscriptions still owe this message?"""

    tag: bytes


@dataclass(frozen=True, slots=True)
class ReportOwing:
    """The router's answer: the first names, and how many there are."""

    number: int
    names: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class ReportEnded:
    """Subscriptions ended that owed this message or later ones: the first names, and how many there are (I-3b)."""

    number: int
    names: tuple[str, ...]
    count: int


class ReportActive(NamedTuple):
    """The first credit of this attach came: messages flow. `resumed` entries were presented and are sent again."""

    session: int
    resumed: int


class ReportExpired(NamedTuple):
    """The session is gone (A-5). These messages were unsettled in it; `sent_again` states which of two ways they go."""

    numbers: tuple[int, ...]
    sent_again: bool


PublisherEffect: TypeAlias = (
    SendTransfer
    | SettleDeliveries
    | ReportOutcome
    | AnswerEcho
    | ProveOwner
    | AnswerDrain
    | AskOwing
    | ReportOwing
    | ReportEnded
    | ReportActive
    | ReportExpired
    | RefuseLink
)


# --- subscriber ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class DeliverMessage:
    """Hand this delivery to the application, behind all earlier ones (`again`: before them, it was released).

    `serial` names it toward the core. `settled` = the router expects no outcome. `message_format` as in AMQP 2.7.5.
    """

    serial: int
    tag: bytes
    payload: bytes
    settled: bool
    again: int = 0
    message_format: int = 0


class DisposeDeliveries(NamedTuple):
    """Disposition role=receiver settled=false with this outcome for these delivery-ids of the link.

    `settled` is true for a router that settles first only: at-least-once.
    """

    delivery_ids: Sequence[int]
    outcome: Outcome
    settled: bool = False


@by_kind
class GrantCredit(NamedTuple):
    """Flow with this link-credit: so many deliveries may come beyond those that have."""

    credit: int


@by_kind
class ReportConfirmed(NamedTuple):
    """Every message sent from now on is owed to this subscription (A-6b)."""

    incarnation: int


class ReportIncarnation(NamedTuple):
    """The subscription was created anew: messages between the two may be missing. `before` 0 = there was none."""

    before: int
    now: int


class ReportGivenUp(NamedTuple):
    """A delivery that had arrived before a restart and was not done is settled: it will not come again."""

    tag: bytes


SubscriberEffect: TypeAlias = (
    DeliverMessage
    | DisposeDeliveries
    | GrantCredit
    | AnswerEcho
    | ProveOwner
    | ReportConfirmed
    | ReportIncarnation
    | ReportGivenUp
    | RefuseLink
)
