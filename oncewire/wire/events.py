"""What the engine reports to its owner: drained, in order, by ``Connection.events()``.

An event is a plain fact about the peer; the owner decides what to do about it. Objects of this module are read, never
changed. One read may bring many of them, so the link of an early one may be detached by a later one already: before a
command look at ``link.is_attached`` or ``link.state``.

Those of a connection are defined here. Events of a session or link carry the object itself and are defined beside it.
The two that come once per message are hand-written slotted classes, because making a frozen dataclass costs several
times as much; all others are frozen dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from oncewire.wire.delivery_parts import DeliveryAborted, DeliveryBegun, DeliveryEnded, DeliveryPart
from oncewire.wire.link import DispositionReceived, LinkAttached, LinkDetached, LinkFlow
from oncewire.wire.performatives import AmqpError, Open
from oncewire.wire.receiver_link import DeliveryReceived
from oncewire.wire.session import SessionBegun, SessionEnded


@dataclass(frozen=True, slots=True)
class SaslOutcome:
    """The SASL layer ended (5.3.2). After ``ok=False`` a ``ConnectionLost`` follows.

    Attributes:
        ok: whether the peer (at a server) or we (at a client) were admitted.
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

    Write out what ``data_to_send()`` still gives, then close the transport. ``needs_answer``: the owner
    ``answers_close``, and must call ``close()``; until then receivers may state outcomes.
    """

    error: AmqpError | None
    needs_answer: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection ended without a close of the peer; every session and link of it is gone (A-9).

    ``error`` says what the peer did wrong (framing, decoding, time-out, refused login) and a close frame with it is
    queued where AMQP allows one; None means that the transport ended. Write out what ``data_to_send()`` still gives,
    then close the transport.
    """

    error: AmqpError | None


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
    | DeliveryBegun
    | DeliveryPart
    | DeliveryEnded
    | DeliveryAborted
    | DispositionReceived
)
