"""Errors as AMQP sends them on a detach, a close or a rejected state; for links of clients and of other routers."""

from __future__ import annotations

from collections.abc import Mapping

from oncewire.wire import AmqpError, Fields, Symbol


def amqp_error(condition: str, description: str, info: Mapping[str, object] | None = None) -> AmqpError | None:
    """An error for detach, close or rejected; None for an empty condition."""
    if not condition:
        return None
    fields: Fields | None = {Symbol(key): value for key, value in info.items()} if info else None
    return AmqpError(Symbol(condition), description or None, fields)
