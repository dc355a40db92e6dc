"""Messages for clients (AMQP 1.0 part 3.2), and the byte-level helpers of ``annotations`` for routers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from oncewire.wire.annotations import (
    APPLICATION_PROPERTIES_CODE,
    DATA_CODE,
    DELIVERY_ANNOTATIONS_CODE,
    FOOTER_CODE,
    HEADER_CODE,
    MESSAGE_ANNOTATIONS_CODE,
    PROPERTIES_CODE,
    SEQUENCE_CODE,
    VALUE_CODE,
    mark_in_doubt,
    mark_redelivered,
    read_annotations,
    read_section_code,
    set_delivery_count,
    splice_annotations,
    topic_annotations,
)
from oncewire.wire.decoding import DecodeBudget, read_value
from oncewire.wire.encoding import binary_head, encode
from oncewire.wire.errors import DecodeError, LocalProtocolError
from oncewire.wire.field_codec import (
    BINARY,
    BOOLEAN,
    STRING,
    SYMBOL,
    UBYTE,
    UINT,
    Composite,
    Field,
    Kind,
    build,
    encode_fields,
)
from oncewire.wire.types import Symbol, Timestamp, ULong

__all__ = [
    "BodyKind",
    "Header",
    "Message",
    "Properties",
    "decode_message",
    "encode_data_message",
    "encode_message",
    "mark_in_doubt",
    "mark_redelivered",
    "read_annotations",
    "set_delivery_count",
    "splice_annotations",
    "topic_annotations",
]

# Values one received message may consist of. Routers never decode messages; a client that does so wanted this one,
# so the bound is only there to keep memory within some 64 bytes x this number.
MAX_MESSAGE_VALUES = 1 << 22


class BodyKind(Enum):
    """The three forms of a body (3.2.6 to 3.2.8)."""

    DATA = "data"
    SEQUENCE = "sequence"
    VALUE = "value"


@dataclass(slots=True)
class Header:
    """3.2.1. ``ttl`` is in milliseconds."""

    durable: bool = False
    priority: int = 4
    ttl: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


@dataclass(slots=True)
class Properties:
    """3.2.4. A plain ``int`` as message id or correlation id is a ulong; times are milliseconds since 1970, UTC."""

    message_id: int | UUID | bytes | str | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: int | UUID | bytes | str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


@dataclass(slots=True)
class Message:
    """A message as an application sees it.

    Attributes:
        body: ``bytes`` for ``BodyKind.DATA`` (several data sections are joined), a list for ``BodyKind.SEQUENCE``
            (several are joined), any value of the codec for ``BodyKind.VALUE``. None, of that kind, where a message
            that was decoded has no body.
        kind: the form of the body.
        header, properties: None if the message has no such section.
        application_properties: the application's own, keys are strings.
        annotations: message annotations, keys are symbols; routers put the ``x-opt-topic-`` ones there.
        delivery_annotations: for the next hop only, keys are symbols.
        footer: what follows the body, keys are symbols.
    """

    body: object
    kind: BodyKind = BodyKind.DATA
    header: Header | None = None
    properties: Properties | None = None
    application_properties: dict[str, object] = field(default_factory=dict)
    annotations: dict[Symbol, object] = field(default_factory=dict)
    delivery_annotations: dict[Symbol, object] = field(default_factory=dict)
    footer: dict[Symbol, object] = field(default_factory=dict)


# --- fields of header and properties ----------------------------------------------------------------------------------


def _write_message_id(value: object) -> bytes:
    if isinstance(value, bool) or not isinstance(value, (int, UUID, bytes, str)):
        raise LocalProtocolError(f"a message id is a ulong, uuid, binary or string, not {value!r}")
    return encode(ULong(value) if isinstance(value, int) else str(value) if isinstance(value, str) else value)


def _convert_message_id(value: object) -> object:
    if isinstance(value, Symbol) or not isinstance(value, (ULong, UUID, bytes, str)):
        raise DecodeError(f"a {type(value).__name__} is no message id")
    return value


def _write_timestamp(value: object) -> bytes:
    if not isinstance(value, int):
        raise LocalProtocolError(f"{value!r} is no number of milliseconds")
    return encode(Timestamp(value))


def _convert_timestamp(value: object) -> object:
    if not isinstance(value, Timestamp):
        raise DecodeError(f"a {type(value).__name__} is no timestamp")
    return value


_MESSAGE_ID = Kind(_write_message_id, _convert_message_id)
_TIMESTAMP = Kind(_write_timestamp, _convert_timestamp)

_HEADER = Composite(
    HEADER_CODE,
    "amqp:header:list",
    Header,
    (
        Field("durable", BOOLEAN, False),
        Field("priority", UBYTE, 4),
        Field("ttl", UINT),
        Field("first_acquirer", BOOLEAN, False),
        Field("delivery_count", UINT, 0),
    ),
)
_PROPERTIES = Composite(
    PROPERTIES_CODE,
    "amqp:properties:list",
    Properties,
    (
        Field("message_id", _MESSAGE_ID),
        Field("user_id", BINARY),
        Field("to", STRING),
        Field("subject", STRING),
        Field("reply_to", STRING),
        Field("correlation_id", _MESSAGE_ID),
        Field("content_type", SYMBOL),
        Field("content_encoding", SYMBOL),
        Field("absolute_expiry_time", _TIMESTAMP),
        Field("creation_time", _TIMESTAMP),
        Field("group_id", STRING),
        Field("group_sequence", UINT),
        Field("reply_to_group_id", STRING),
    ),
)


# --- encoding ---------------------------------------------------------------------------------------------------------


def _section(code: int, octets: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + octets


def _symbol_map(code: int, entries: dict[Symbol, object]) -> bytes:
    """A section that is a map with symbol keys; nothing if it is empty."""
    if not entries:
        return b""
    return _section(code, encode({Symbol(key): value for key, value in entries.items()}))


def _data(body: bytes | bytearray | memoryview) -> tuple[bytes, bytes | bytearray | memoryview]:
    """A data section in pieces: a large body is copied once, into the whole message."""
    if isinstance(body, memoryview) and (not body.contiguous or body.itemsize > 1):
        body = bytes(body)
    return b"\x00\x53\x75" + binary_head(len(body)), body


def _body(message: Message) -> Sequence[bytes | bytearray | memoryview]:
    body = message.body
    if message.kind is BodyKind.VALUE:
        return (_section(VALUE_CODE, encode(body)),)
    if message.kind is BodyKind.SEQUENCE:
        if not isinstance(body, (list, tuple)):
            raise LocalProtocolError(f"the body of a sequence message is a list, not a {type(body).__name__}")
        return (_section(SEQUENCE_CODE, encode(body)),)
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise LocalProtocolError(
            f"the body of a data message is bytes, not {type(body).__name__}: encode it, or choose BodyKind.VALUE"
        )
    return _data(body)


def encode_message(message: Message) -> bytes:
    """Encode a message (message-format 0).

    Raises:
        LocalProtocolError: the body does not fit its kind, or a value has no AMQP type.
    """
    parts: list[bytes | bytearray | memoryview] = []
    if message.header is not None:
        parts.append(encode_fields(_HEADER, message.header))
    parts.append(_symbol_map(DELIVERY_ANNOTATIONS_CODE, message.delivery_annotations))
    parts.append(_symbol_map(MESSAGE_ANNOTATIONS_CODE, message.annotations))
    if message.properties is not None:
        parts.append(encode_fields(_PROPERTIES, message.properties))
    if message.application_properties:
        entries = {str(key): value for key, value in message.application_properties.items()}
        parts.append(_section(APPLICATION_PROPERTIES_CODE, encode(entries)))
    parts += _body(message)
    parts.append(_symbol_map(FOOTER_CODE, message.footer))
    return b"".join(parts)


def encode_data_message(
    body: bytes | bytearray | memoryview,
    *,
    properties: Properties | None = None,
    application_properties: dict[str, object] | None = None,
    annotations: dict[Symbol, object] | None = None,
    header: Header | None = None,
) -> bytes:
    """Encode a message whose body is one data section.

    Raises:
        LocalProtocolError: a value has no AMQP type.
    """
    if properties is None and header is None and not application_properties and not annotations:
        return b"".join(_data(body))
    return encode_message(
        Message(
            body,
            header=header,
            properties=properties,
            application_properties=application_properties or {},
            annotations=annotations or {},
        )
    )


# --- decoding ---------------------------------------------------------------------------------------------------------


def _as_map(value: object, what: str) -> dict[object, object]:
    if not isinstance(value, dict):
        raise DecodeError(f"the {what} of the message are not a map")
    return value


def _symbol_keys(value: object, what: str) -> dict[Symbol, object]:
    entries: dict[Symbol, object] = {}
    for key, item in _as_map(value, what).items():
        if isinstance(key, Symbol):
            entries[key] = item
        elif not isinstance(key, ULong):  # ulong keys are reserved (3.2.10) and mean nothing yet
            raise DecodeError(f"the {what} of the message have a key that is no symbol")
    return entries


def _string_keys(value: object, what: str) -> dict[str, object]:
    entries = _as_map(value, what)
    if not all(isinstance(key, str) for key in entries):
        raise DecodeError(f"the {what} of the message have a key that is no string")
    return {str(key): item for key, item in entries.items()}


def decode_message(encoded: bytes | bytearray | memoryview) -> Message:
    """Decode a message (message-format 0).

    Routers look at the sections before the bare message alone, so publishers may have got *accepted* for a
    message without a body, or with the sections of the bare message out of order: its meaning is clear, and it is
    decoded, too.

    Raises:
        DecodeError: malformed, a section is there twice, or there is none.
    """
    data = bytes(encoded)  # no copy if it is bytes already
    message = Message(None)
    budget = DecodeBudget(MAX_MESSAGE_VALUES)
    bodies: list[object] = []
    kind = BodyKind.VALUE
    pos = 0
    seen = {HEADER_CODE - 1}
    while pos < len(data):
        code, pos = read_section_code(data, pos)
        value, pos = read_value(data, pos, len(data), budget)
        # I-1b: what lies before the bare message counts there only, for nobody looked for it behind.
        misplaced = code < PROPERTIES_CODE and code < max(seen)
        if misplaced or (code in seen and code not in (DATA_CODE, SEQUENCE_CODE)):  # 3.2: these two may come again
            raise DecodeError("the sections of the message are out of order, or one of them is there twice")
        seen.add(code)
        if code in _BODY_KINDS:
            if bodies and kind is not _BODY_KINDS[code]:
                raise DecodeError("the message has bodies of two kinds")
            kind = _BODY_KINDS[code]
            bodies.append(value)
        else:
            _set_section(message, code, value)
    if not data:
        raise DecodeError("the message has no section")
    message.kind = kind
    message.body = _join_bodies(kind, bodies) if bodies else None
    return message


_BODY_KINDS = {DATA_CODE: BodyKind.DATA, SEQUENCE_CODE: BodyKind.SEQUENCE, VALUE_CODE: BodyKind.VALUE}


def _set_section(message: Message, code: int, value: object) -> None:
    if code == HEADER_CODE:
        header = build(_HEADER, value)
        assert isinstance(header, Header)
        message.header = header
    elif code == DELIVERY_ANNOTATIONS_CODE:
        message.delivery_annotations = _symbol_keys(value, "delivery annotations")
    elif code == MESSAGE_ANNOTATIONS_CODE:
        message.annotations = _symbol_keys(value, "message annotations")
    elif code == PROPERTIES_CODE:
        properties = build(_PROPERTIES, value)
        assert isinstance(properties, Properties)
        message.properties = properties
    elif code == APPLICATION_PROPERTIES_CODE:
        message.application_properties = _string_keys(value, "application properties")
    else:
        message.footer = _symbol_keys(value, "footer entries")


def _join_bodies(kind: BodyKind, bodies: list[object]) -> object:
    if kind is BodyKind.VALUE:
        return bodies[0]
    if kind is BodyKind.SEQUENCE:
        joined: list[object] = []
        for sequence in bodies:
            if not isinstance(sequence, list):
                raise DecodeError("a sequence section of the message is not a list")
            joined += sequence
        return joined
    chunks: list[bytes] = []
    for chunk in bodies:
        if not isinstance(chunk, bytes):
            raise DecodeError("a data section of the message is not binary")
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
