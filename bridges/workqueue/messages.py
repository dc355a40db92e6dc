"""Encodes what an application publishes."""

from __future__ import annotations

from bridges.workqueue.errors import InvalidRequest
from bridges.workqueue.items import Json, NewMessage, encode
from oncewire.client import UsageError
from oncewire.client.bodies import Body, encode_body
from oncewire.wire import Message


def new_message(topic: str, body: Body | Json) -> NewMessage:
    """Return a message for a topic.

    Args:
        topic: where it goes.
        body: bytes, an ``oncewire.wire.Message`` or a ``proton.Message``; any other value becomes JSON.

    Raises:
        InvalidRequest: it can be none of these.
    """
    is_message = isinstance(body, Message) or (not isinstance(body, str) and hasattr(body, "encode"))
    try:
        return NewMessage(topic, encode_body(body if is_message else encode(body)))
    except UsageError as error:
        raise InvalidRequest(error.what, error.why, error.fix) from error
