"""Messages of journals on AMQP links: the addresses, what is kept of a message, and what a reader gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bridges.journal.model import KeyOf, NewMessage, StoredMessage
from oncewire.store.errors import InvalidRequest, PayloadTooLarge
from oncewire.store.rules_core import check_name
from oncewire.wire import DecodeError, Timestamp, decode_message, vocabulary
from oncewire.wire.annotations import add_annotations
from oncewire.wire.encoding import encode, encode_string, encode_symbol

PREFIX = "journal://"
MAX_MESSAGE_BYTES = 16 << 20
"""As much as routers take (C-6); a message beyond it is rejected (J-16)."""
_DROPPED = (vocabulary.STREAM_OFFSET.encode(), vocabulary.JOURNAL_PREFIX)
_US_PER_MS = 1000
_OFFSET = encode_symbol(vocabulary.STREAM_OFFSET)
_LONG, _SHORT, _MOST_OF_A_BYTE = b"\x80", b"\x53", 255
"""Forms of a ulong (1.6.3): `encode` makes an object of a message's position first, which costs more than all else."""
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


def readable(messages: Iterable[StoredMessage]) -> Iterator[bytes]:
    """Yield messages as a reader gets them: as they came, and position, time and topic as message annotations.

    One without these is of another format, or malformed in front of its body: a client that sent to the journal itself.
    """
    count, behind, of = 0, b"", (-1, "")
    for position, arrived, source, payload, message_format in messages:
        if message_format:
            yield payload
            continue
        if of != (arrived, source):  # those of one append have the same
            of = arrived, source
            topic = _TOPIC + encode_string(source) if source else b""
            behind, count = _TIME + encode(Timestamp(arrived // _US_PER_MS)) + topic, 2 + bool(source)
        offset = _LONG + position.to_bytes(8, "big") if position > _MOST_OF_A_BYTE else _SHORT + bytes((position,))
        try:
            yield add_annotations(payload, _DROPPED, _OFFSET + offset + behind, count)
        except DecodeError:
            yield payload
