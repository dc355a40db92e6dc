"""Messages of journals on AMQP links: the addresses, what is kept of a message, and what a reader gets."""

from __future__ import annotations

from bridges.journal.model import KeyOf, NewMessage, StoredMessage
from oncewire.store.errors import InvalidRequest, PayloadTooLarge
from oncewire.store.rules_core import check_name
from oncewire.wire import DecodeError, Timestamp, ULong, decode_message, vocabulary
from oncewire.wire.annotations import replace_annotations
from oncewire.wire.encoding import encode, encode_string, encode_symbol

PREFIX = "journal://"
MAX_MESSAGE_BYTES = 16 << 20
"""As much as routers take (C-6); a message beyond it is rejected (J-16)."""
_DROPPED = (vocabulary.STREAM_OFFSET.encode(), vocabulary.JOURNAL_PREFIX)
_US_PER_MS = 1000
_OFFSET = encode_symbol(vocabulary.STREAM_OFFSET)
_TIME = encode_symbol(vocabulary.JOURNAL_TIME)
_TOPIC = encode_symbol(vocabulary.JOURNAL_TOPIC)


def journal_of(address: str | None) -> str:
    """The name in ``journal://NAME``.

    Raises:
        InvalidRequest: it is no such address.
    """
    if address is None or not address.startswith(PREFIX):
        fix = "attach to a journal by its name"
        raise InvalidRequest(f"{address!r} is no journal", f"an address here is {PREFIX}NAME", fix)
    name = address.removeprefix(PREFIX)
    check_name("journal", name)
    return name


def new_message(payload: bytes, message_format: int, key_of: KeyOf | None) -> NewMessage:
    """What is kept of a message that came.

    Raises:
        PayloadTooLarge: it is over MAX_MESSAGE_BYTES.
        InvalidRequest: a compacted journal cannot read its key.
    """
    if len(payload) > MAX_MESSAGE_BYTES:
        raise PayloadTooLarge(
            "the message was not stored",
            f"it has {len(payload)} bytes, and a journal takes {MAX_MESSAGE_BYTES}",
            "store its content elsewhere and publish its address",
        )
    key = None if key_of is None or message_format else _key(payload, key_of)
    return NewMessage(payload, message_format, key)


def _key(payload: bytes, key_of: KeyOf) -> str | None:
    try:
        properties = decode_message(payload).properties
    except DecodeError as error:
        why = f"its journal is compacted by {key_of.value}, and it cannot be decoded: {error}"
        raise InvalidRequest("the message was not stored", why, "send an AMQP message") from error
    if properties is None:
        return None
    found = properties.subject if key_of is KeyOf.SUBJECT else properties.group_id
    return None if found is None else str(found)


def message_of(message: StoredMessage) -> bytes:
    """The message that a reader gets: as it came, and its position, time and topic as message annotations."""
    if message.message_format:
        return message.payload
    added = (
        _OFFSET
        + encode(ULong(message.position))
        + _TIME
        + encode(Timestamp(message.arrived_us // _US_PER_MS))
        + (_TOPIC + encode_string(message.source) if message.source else b"")
    )
    return replace_annotations(message.payload, _DROPPED, added, 2 + bool(message.source))
