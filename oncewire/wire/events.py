"""What the engine tells its owner: drained, in order, by ``Connection.events()``.

An event is a plain fact about the peer; the owner decides what to do about it. Objects of this module are read, never
changed. One read may bring many of them, so the link of an early one may be detached by a later one already: before a
command look at ``link.is_attached`` or ``link.state``.

The two that come once per message are hand-written slotted classes, because making a frozen dataclass costs several
times as much; all others are frozen dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from oncewire.wire.performatives import AmqpError, DeliveryState, Fields, Open

if TYPE_CHECKING:
    from oncewire.wire.link import Link
    from oncewire.wire.receiver_link import ReceiverLink
    from oncewire.wire.session import AmqpSession


@dataclass(frozen=True, slots=True)
class SaslOutcome:
    """The SASL layer ended (5.3.2). After ``ok=False`` a ``ConnectionLost`` follows.

    Attributes:
        ok: whether the peer (at a server) or we (at a client) were let in.
        mechanism: the mechanism's name; empty when the dialogue failed before one was chosen.
        user: the authenticated user; None for ANONYMOUS and on failure.
    """

    ok: bool
    mechanism: str
    user: str | None


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """The peer's open arrived. A server's own open is sent by itself just before this event."""

    open: Open


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The peer's close arrived and is answered; every session and link of the connection is gone (A-9).

    Write out what ``data_to_send()`` still gives, then close the transport.
    """

    error: AmqpError | None


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection ended without a close of the peer; every session and link of it is gone (A-9).

    ``error`` says what the peer did wrong (framing, decoding, time-out, refused login) and a close frame with it is
    queued where AMQP allows one; None means that the transport ended. Write out what ``data_to_send()`` still gives,
    then close the transport.
    """

    error: AmqpError | None


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """Both begins are exchanged. A session that the peer began is answered by the engine itself."""

    session: AmqpSession


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session is gone and its links (``session.links``) with it: they count as suspended (A-9).

    ``error`` is the peer's, or ours when the engine ended the session because of what the peer sent.
    """

    session: AmqpSession
    error: AmqpError | None


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer's attach arrived: ``link.remote_attach``.

    If ``link.local_attach`` is None the peer began it, and the owner must call ``link.reply()`` or ``link.refuse()``,
    now or later.
    """

    link: Link


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """The link is detached; its object is dead, a new attach makes a new one.

    Attributes:
        link: the link.
        closed: False = suspended, its state is kept; True = ended for good (2.6.4).
        error: the peer's error, or ours when the engine detached because of what the peer sent.
        needs_answer: the peer closed an attached link without an error: the owner must call ``link.detach(True)`` when
            it has carried out the close (E-8, I-8). In all other cases the engine has answered.
    """

    link: Link
    closed: bool
    error: AmqpError | None
    needs_answer: bool


@dataclass(frozen=True, slots=True)
class LinkFlow:
    """A flow of the peer that names a link (2.7.4).

    Attributes:
        link: the link.
        credit_limit: at a sender, how many deliveries the peer allows in total on this attach, counted from 0 and never
            wrapped: the next one may be sent while fewer than this were. None at a receiver.
        delivery_count: the peer's delivery-count as it was sent; None if absent.
        available: at a receiver, how many deliveries the sender says are waiting; None if absent.
        drain: the receiver wants its credit used or given back: answer with ``SenderLink.drained()``.
        echo: the peer asks for our state. The engine has answered, unless ``properties`` is not None: then the owner
            answers with ``flow()``, ``grant()`` or ``drained()`` (A-4).
        properties: link state properties, None if absent.
    """

    link: Link
    credit_limit: int | None
    delivery_count: int | None
    available: int | None
    drain: bool
    echo: bool
    properties: Fields | None


class DeliveryReceived:
    """A whole delivery arrived (several frames are put together), or an aborted one was given up.

    Attributes:
        link: the receiver link.
        delivery_id: names the delivery on this session until it is settled.
        tag: up to 32 bytes, may be empty (2.8.7).
        payload: the encoded message; empty for an aborted delivery and for a resumed one that only tells a state.
        settled: the sender has settled it: it must not be disposed of.
        resume: the sender means a delivery that both ends held before this attach (2.6.13).
        state: the sender's state of it, None as a rule.
        message_format: 0 for an AMQP message.
        aborted: drop it; it counts as settled.
        receiver_settles: on a link of rcv-settle-mode second, the sender asks for mode first for this delivery: the
            receiver must settle it together with its outcome, and not wait for the sender (2.7.5).
    """

    __slots__ = (
        "aborted",
        "delivery_id",
        "link",
        "message_format",
        "payload",
        "receiver_settles",
        "resume",
        "settled",
        "state",
        "tag",
    )

    def __init__(
        self,
        link: ReceiverLink,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool = False,
        resume: bool = False,
        state: DeliveryState | None = None,
        message_format: int = 0,
        aborted: bool = False,
        receiver_settles: bool = False,
    ) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.payload = payload
        self.settled = settled
        self.resume = resume
        self.state = state
        self.message_format = message_format
        self.aborted = aborted
        self.receiver_settles = receiver_settles

    def __repr__(self) -> str:
        return (
            f"DeliveryReceived(link={self.link!r}, delivery_id={self.delivery_id}, tag={self.tag!r},"
            f" payload={len(self.payload)} bytes, settled={self.settled}, resume={self.resume}, state={self.state!r},"
            f" message_format={self.message_format}, aborted={self.aborted},"
            f" receiver_settles={self.receiver_settles})"
        )


class DispositionReceived:
    """The peer told the state of deliveries of one link (2.7.6); a frame that spans links gives one event per link.

    Attributes:
        link: a sender link when the receiver speaks, a receiver link when the sender settles.
        deliveries: (delivery-id, tag) of each delivery that was unsettled here, in the order of their ids.
        state: the state told, None if absent.
        settled: the peer has settled them; they are forgotten by the engine and may not be disposed of any more.
    """

    __slots__ = ("deliveries", "link", "settled", "state")

    def __init__(
        self, link: Link, deliveries: list[tuple[int, bytes]], state: DeliveryState | None, settled: bool
    ) -> None:
        self.link = link
        self.deliveries = deliveries
        self.state = state
        self.settled = settled

    def __repr__(self) -> str:
        return (
            f"DispositionReceived(link={self.link!r}, deliveries={self.deliveries!r}, state={self.state!r},"
            f" settled={self.settled})"
        )


Event: TypeAlias = (
    SaslOutcome
    | ConnectionOpened
    | ConnectionClosed
    | ConnectionLost
    | SessionBegun
    | SessionEnded
    | LinkAttached
    | LinkDetached
    | LinkFlow
    | DeliveryReceived
    | DispositionReceived
)
