"""What an application hands to `send()`, as an encoded AMQP message."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from oncewire.client.errors import MessageTooLarge, UsageError
from oncewire.wire import BodyKind, Message, Properties, WireError, decode_message, encode_data_message, encode_message


class Encodable(Protocol):
    """An object that encodes itself as an AMQP message, such as `proton.Message`; proton is never imported here."""

    def encode(self) -> bytes | bytearray:
        """The whole message, sections and all."""


Body: TypeAlias = bytes | bytearray | memoryview | str | Message | Encodable
"""bytes: one data section. str: an amqp-value string. Message: as it is. Else what encodes itself. A dict, a number or
None is none of these, for the type checker and at run time: a publisher with a codec takes them."""


def encode_body(
    body: Body, properties: Properties | None = None, application_properties: dict[str, object] | None = None
) -> bytes:
    """Encode what was given to `send()`.

    Raises:
        UsageError: it is nothing that can be sent, or a value in it has no AMQP type.
    """
    try:
        if isinstance(body, (bytes, bytearray, memoryview)):
            return encode_data_message(body, properties=properties, application_properties=application_properties)
        if isinstance(body, str):
            return encode_message(
                Message(
                    body, BodyKind.VALUE, properties=properties, application_properties=application_properties or {}
                )
            )
    except WireError as error:
        raise _not_sendable(str(error)) from error
    if properties is not None or application_properties:
        raise _not_sendable("properties can be given beside bytes or a string only, a message has its own")
    if isinstance(body, Message):
        try:
            return encode_message(body)
        except WireError as error:
            raise _not_sendable(str(error)) from error
    return _encoded_by_itself(body)


def _encoded_by_itself(body: Encodable) -> bytes:
    """What an object of another library makes of itself, if that is a message: a router would end the connection."""
    encode = getattr(body, "encode", None)
    try:
        encoded = encode() if callable(encode) else None
    except TypeError as error:  # it encodes something else, and wants arguments
        raise _not_sendable(f"an object of the type {type(body).__name__} is no message: {error}") from None
    if not isinstance(encoded, (bytes, bytearray)):  # proton.Message gives a bytearray
        raise _not_sendable(f"an object of the type {type(body).__name__} is no message")
    try:
        decode_message(bytes(encoded))
    except WireError as error:
        raise _not_sendable(f"what a {type(body).__name__} encodes is no AMQP message: {error}") from error
    return bytes(encoded)


def check_size(payload: bytes, limit: int, router_name: str) -> None:
    """Compare an encoded message with what the router takes; `limit` is in bytes, 0 = none.

    Raises:
        MessageTooLarge: it is larger.
    """
    if limit and len(payload) > limit:
        raise MessageTooLarge(
            f"a message of {len(payload)} bytes cannot be sent",
            f"{router_name} takes {limit} bytes at most",
            "send less at once, or raise max_message_size of the routers",
        )


def _not_sendable(why: str) -> UsageError:
    return UsageError(
        "the message cannot be sent",
        why,
        "give bytes, a string, an oncewire.wire.Message or a proton.Message; open the publisher with codec= for others",
    )
