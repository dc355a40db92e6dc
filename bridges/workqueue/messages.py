"""Encodes what an application publishes."""

from __future__ import annotations

from bridges.store.outbox import NewMessage
from bridges.workqueue.items import Json, encode
from oncewire.client import UsageError
from oncewire.client.bodies import Body, encode_body
from oncewire.client.codec import CodecSource, codec_of, encoded
from oncewire.store.errors import InvalidRequest
from oncewire.wire import Message


def new_message(topic: str, body: Body | Json, codec: CodecSource | None = None) -> NewMessage:
    """Return a message for a topic.

    Args:
        topic: where it goes.
        body: bytes, an ``oncewire.wire.Message`` or a ``proton.Message``; any other value becomes JSON.
        codec: encodes the body instead: a dataclass, a model of pydantic, or a ``Codec``.

    Raises:
        InvalidRequest: it can be none of these.
    """
    if codec is not None and not isinstance(body, Message):
        return _by_codec(topic, body, codec)
    is_message = isinstance(body, Message) or (not isinstance(body, str) and hasattr(body, "encode"))
    try:
        return NewMessage(topic, encode_body(body if is_message else encode(body)))
    except UsageError as error:
        raise InvalidRequest(error.what, error.why, error.fix) from error


def _by_codec(topic: str, value: object, source: CodecSource) -> NewMessage:
    try:
        codec = codec_of(source)
        assert codec is not None, "one was given"
        body, properties = encoded(codec, value, None)
        return NewMessage(topic, encode_body(body, properties))
    except UsageError as error:
        raise InvalidRequest(error.what, error.why, error.fix) from error
