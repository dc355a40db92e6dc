"""Errors of the edge as AMQP errors."""

from __future__ import annotations

from oncewire.store.errors import EdgeError, InvalidRequest, LimitReached, LinkStolen, PayloadTooLarge, UnknownName
from oncewire.wire import INTERNAL_ERROR, NOT_FOUND, RESOURCE_LIMIT_EXCEEDED, STOLEN, AmqpError, Symbol

DECODE_ERROR = Symbol("amqp:decode-error")
PRECONDITION_FAILED = Symbol("amqp:precondition-failed")
MESSAGE_TOO_LARGE = Symbol("amqp:link:message-size-exceeded")
CONDITIONS: tuple[tuple[type[EdgeError], str], ...] = (
    (UnknownName, NOT_FOUND),
    (PayloadTooLarge, MESSAGE_TOO_LARGE),
    (LinkStolen, STOLEN),
    (LimitReached, RESOURCE_LIMIT_EXCEEDED),
    (InvalidRequest, PRECONDITION_FAILED),
)
"""The first kind that an error is of names its condition; all else is `amqp:internal-error`."""


def error_of(error: EdgeError) -> AmqpError:
    """The AMQP error that says the same."""
    condition = next((condition for kind, condition in CONDITIONS if isinstance(error, kind)), INTERNAL_ERROR)
    return AmqpError(Symbol(condition), str(error))
