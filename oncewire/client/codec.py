"""From an application's values to bodies and back: the seam, and what uses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, TypeAlias

from oncewire.client.errors import BodyNotDecoded, UsageError
from oncewire.wire import Message, Properties


class Codec(Protocol):
    """How an application's values are written into bodies."""

    @property
    def content_type(self) -> str:
        """The media type that each message states in its properties, such as `application/json`."""

    def encode(self, value: object) -> bytes:
        """The body of a value.

        Raises:
            TypeError, ValueError: the value has none. The text goes into the error that `send` raises.
        """

    def decode(self, body: bytes) -> object:
        """The value of a body.

        Raises:
            TypeError, ValueError: the body is none of this codec's. The text goes into `BodyNotDecoded`.
        """


CodecSource: TypeAlias = Codec | type[object]
"""A codec; or a dataclass or a model of pydantic, for bodies in JSON; or `dict` or `list` for any JSON."""


def codec_of(source: CodecSource | None) -> Codec | None:
    """What `codec=` means.

    Raises:
        UsageError: it is neither a codec nor a class that JSON can be read into.
    """
    if source is None:
        return None
    if isinstance(source, type):
        from oncewire.client.json_codec import JsonCodec

        return JsonCodec(source)
    if all(hasattr(source, name) for name in ("content_type", "encode", "decode")):
        return source
    raise UsageError(
        f"codec={source!r} cannot be used",
        "a codec has content_type, encode and decode",
        "give a dataclass, a model of pydantic, dict for any JSON, or an object with these three",
    )


def encoded(codec: Codec, value: object, properties: Properties | None) -> tuple[bytes, Properties]:
    """Body and properties of a message; content-type is that of the codec unless the caller has stated another.

    Raises:
        UsageError: the codec cannot encode the value.
    """
    try:
        body = codec.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"a {type(value).__name__} cannot be sent as {codec.content_type}",
            str(error),
            "send what the codec of this publisher encodes, or a Message, which is sent as it is",
        ) from error
    properties = properties or Properties()
    if properties.content_type is None:
        properties = replace(properties, content_type=codec.content_type)
    return body, properties


def decoded(codec: Codec, message: Message) -> object:
    """The value in a message.

    Raises:
        BodyNotDecoded: its content-type is another, or its body cannot be decoded.
    """
    stated = message.properties.content_type if message.properties is not None else None
    if stated is not None and media_type(stated) != media_type(codec.content_type):
        raise not_decoded(codec, f"its content-type is {stated}")
    body = message.body.encode() if isinstance(message.body, str) else message.body
    if not isinstance(body, bytes):
        raise not_decoded(codec, f"its body is a {type(body).__name__}, neither bytes nor a string")
    try:
        return codec.decode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise not_decoded(codec, str(error)) from error


def media_type(text: str) -> str:
    """Without parameters such as charset."""
    return text.partition(";")[0].strip().lower()


def not_decoded(codec: Codec, why: str) -> BodyNotDecoded:
    """The error of a body."""
    return BodyNotDecoded(
        f"the body of a message is not {codec.content_type} as the codec reads it",
        why,
        "reject the message, or read its `body`; let publisher and reader use the same codec",
    )
