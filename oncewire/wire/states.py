"""Life cycles of connection, AMQP session and link as tables (AMQP 1.0 part 2, sections 2.4.6, 2.5.5 and 2.6.3).

A table maps (state, step) to the next state. A pair that is not in the table is illegal: done by our own caller it is
a ``LocalProtocolError``, done by the peer an ``amqp:illegal-state`` fault.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class ConnectionState(Enum):
    """Where a connection stands. Only ``OPENED`` carries sessions in both directions."""

    START = auto()
    OPEN_SENT = auto()
    OPEN_RECEIVED = auto()
    OPENED = auto()
    CLOSE_RECEIVED = auto()
    CLOSE_SENT = auto()
    ENDED = auto()


class SessionState(Enum):
    """Where an AMQP session stands. Links can be attached in ``BEGIN_SENT`` (pipelined) and ``MAPPED``."""

    UNMAPPED = auto()
    BEGIN_SENT = auto()
    BEGIN_RECEIVED = auto()
    MAPPED = auto()
    END_SENT = auto()
    END_RECEIVED = auto()
    ENDED = auto()


class LinkState(Enum):
    """Where a link stands. Deliveries are sent in ``ATTACHED`` only."""

    INITIAL = auto()
    ATTACH_SENT = auto()
    ATTACH_RECEIVED = auto()
    ATTACHED = auto()
    DETACH_SENT = auto()
    DETACH_RECEIVED = auto()
    DETACHED = auto()


class Step(Enum):
    """One frame that starts or ends a connection, session or link: open/begin/attach or close/end/detach."""

    SEND_START = auto()
    RECEIVE_START = auto()
    SEND_END = auto()
    RECEIVE_END = auto()


CONNECTION_NEXT: dict[tuple[ConnectionState, Step], ConnectionState] = {
    (ConnectionState.START, Step.SEND_START): ConnectionState.OPEN_SENT,
    (ConnectionState.START, Step.RECEIVE_START): ConnectionState.OPEN_RECEIVED,
    (ConnectionState.OPEN_SENT, Step.RECEIVE_START): ConnectionState.OPENED,
    (ConnectionState.OPEN_SENT, Step.SEND_END): ConnectionState.CLOSE_SENT,
    (ConnectionState.OPEN_RECEIVED, Step.SEND_START): ConnectionState.OPENED,
    (ConnectionState.OPENED, Step.SEND_END): ConnectionState.CLOSE_SENT,
    (ConnectionState.OPENED, Step.RECEIVE_END): ConnectionState.CLOSE_RECEIVED,
    (ConnectionState.CLOSE_RECEIVED, Step.SEND_END): ConnectionState.ENDED,
    # A pipelined open and close: the peer's open is still to come.
    (ConnectionState.CLOSE_SENT, Step.RECEIVE_START): ConnectionState.CLOSE_SENT,
    (ConnectionState.CLOSE_SENT, Step.RECEIVE_END): ConnectionState.ENDED,
}

SESSION_NEXT: dict[tuple[SessionState, Step], SessionState] = {
    (SessionState.UNMAPPED, Step.SEND_START): SessionState.BEGIN_SENT,
    (SessionState.UNMAPPED, Step.RECEIVE_START): SessionState.BEGIN_RECEIVED,
    (SessionState.BEGIN_SENT, Step.RECEIVE_START): SessionState.MAPPED,
    (SessionState.BEGIN_SENT, Step.SEND_END): SessionState.END_SENT,
    (SessionState.BEGIN_RECEIVED, Step.SEND_START): SessionState.MAPPED,
    (SessionState.MAPPED, Step.SEND_END): SessionState.END_SENT,
    (SessionState.MAPPED, Step.RECEIVE_END): SessionState.END_RECEIVED,
    (SessionState.END_RECEIVED, Step.SEND_END): SessionState.ENDED,
    # A pipelined begin and end: the peer's begin is still to come.
    (SessionState.END_SENT, Step.RECEIVE_START): SessionState.END_SENT,
    (SessionState.END_SENT, Step.RECEIVE_END): SessionState.ENDED,
}

LINK_NEXT: dict[tuple[LinkState, Step], LinkState] = {
    (LinkState.INITIAL, Step.SEND_START): LinkState.ATTACH_SENT,
    (LinkState.INITIAL, Step.RECEIVE_START): LinkState.ATTACH_RECEIVED,
    (LinkState.ATTACH_SENT, Step.RECEIVE_START): LinkState.ATTACHED,
    (LinkState.ATTACH_SENT, Step.SEND_END): LinkState.DETACH_SENT,
    (LinkState.ATTACH_RECEIVED, Step.SEND_START): LinkState.ATTACHED,
    (LinkState.ATTACH_RECEIVED, Step.RECEIVE_END): LinkState.DETACH_RECEIVED,
    (LinkState.ATTACHED, Step.SEND_END): LinkState.DETACH_SENT,
    (LinkState.ATTACHED, Step.RECEIVE_END): LinkState.DETACH_RECEIVED,
    # the peer gave up before our reply; an attach is sent only so that the detach has a handle.
    (LinkState.DETACH_RECEIVED, Step.SEND_START): LinkState.DETACH_RECEIVED,
    (LinkState.DETACH_RECEIVED, Step.SEND_END): LinkState.DETACHED,
    # A pipelined attach and detach: the peer's attach is still to come.
    (LinkState.DETACH_SENT, Step.RECEIVE_START): LinkState.DETACH_SENT,
    (LinkState.DETACH_SENT, Step.RECEIVE_END): LinkState.DETACHED,
}

# States that are asked for with every delivery: to look a member up in its class costs as much as a call.
CONNECTION_ENDED: Final = ConnectionState.ENDED
SESSION_MAPPED: Final = SessionState.MAPPED
LINK_ATTACHED: Final = LinkState.ATTACHED
