"""Errors of the wire engine, and the error conditions of AMQP 1.0 (part 2, sections 2.8.15 to 2.8.18).

Two faults must never be mixed up: what our own caller did wrong (``LocalProtocolError``: fix the calling code) and
what the peer sent (``RemoteProtocolError``: answer with its condition and close, end or detach as the section says).
"""

from __future__ import annotations

from oncewire.wire.types import Symbol

# 2.8.15 amqp-error
INTERNAL_ERROR = Symbol("amqp:internal-error")
NOT_FOUND = Symbol("amqp:not-found")
UNAUTHORIZED_ACCESS = Symbol("amqp:unauthorized-access")
DECODE_ERROR = Symbol("amqp:decode-error")
RESOURCE_LIMIT_EXCEEDED = Symbol("amqp:resource-limit-exceeded")
NOT_ALLOWED = Symbol("amqp:not-allowed")
INVALID_FIELD = Symbol("amqp:invalid-field")
NOT_IMPLEMENTED = Symbol("amqp:not-implemented")
RESOURCE_LOCKED = Symbol("amqp:resource-locked")
PRECONDITION_FAILED = Symbol("amqp:precondition-failed")
RESOURCE_DELETED = Symbol("amqp:resource-deleted")
ILLEGAL_STATE = Symbol("amqp:illegal-state")
FRAME_SIZE_TOO_SMALL = Symbol("amqp:frame-size-too-small")

# 2.8.16 connection-error
CONNECTION_FORCED = Symbol("amqp:connection:forced")
FRAMING_ERROR = Symbol("amqp:connection:framing-error")
CONNECTION_REDIRECT = Symbol("amqp:connection:redirect")

# 2.8.17 session-error
WINDOW_VIOLATION = Symbol("amqp:session:window-violation")
ERRANT_LINK = Symbol("amqp:session:errant-link")
HANDLE_IN_USE = Symbol("amqp:session:handle-in-use")
UNATTACHED_HANDLE = Symbol("amqp:session:unattached-handle")

# 2.8.18 link-error
DETACH_FORCED = Symbol("amqp:link:detach-forced")
TRANSFER_LIMIT_EXCEEDED = Symbol("amqp:link:transfer-limit-exceeded")
MESSAGE_SIZE_EXCEEDED = Symbol("amqp:link:message-size-exceeded")
LINK_REDIRECT = Symbol("amqp:link:redirect")
STOLEN = Symbol("amqp:link:stolen")

# a publisher presented unsettled deliveries of a session nobody knows any more.
SESSION_EXPIRED = Symbol("oncewire:session-expired")


class WireError(Exception):
    """Base of all errors of ``oncewire.wire``."""


class LocalProtocolError(WireError):
    """Our own caller asked for something that AMQP or the present state forbids; nothing was sent."""


class StateError(LocalProtocolError):
    """The connection, session or link is not in a state for this command: not yet there, ending, or gone."""


class CreditError(LocalProtocolError):
    """The peer has granted no credit for one more delivery: keep it until the next ``LinkFlow``."""


class LimitError(LocalProtocolError):
    """A number, frame or message is over a limit that the peer has set or AMQP sets."""


class RemoteProtocolError(WireError):
    """The peer broke the protocol.

    Attributes:
        condition: the AMQP error condition to answer with.
        description: one English sentence for the peer and the log.
    """

    def __init__(self, condition: Symbol, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


class DecodeError(RemoteProtocolError):
    """Bytes that are not a legal AMQP encoding, or not of the type the place calls for (``amqp:decode-error``)."""

    def __init__(self, description: str) -> None:
        super().__init__(DECODE_ERROR, description)
