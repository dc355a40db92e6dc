"""Messages of a journal as one answer of bytes, for programs that read much of it: encoded by an edge, decoded there.

First a head: its length, four bytes, and JSON with the identity of the journal, where it stands and the topics of the
page. Then the messages: position, arrival in microseconds since 1970, number of the topic, format, length; the payload.
All numbers are big-endian.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from bridges.journal.model import JournalState, StoredMessage

CONTENT_TYPE = "application/vnd.oncewire.messages"
_LENGTH = struct.Struct(">I")
_MESSAGE = struct.Struct(">QQIII")


@dataclass(frozen=True, slots=True)
class Page:
    """What an answer has.

    Attributes:
        uuid: of the journal.
        trimmed: positions up to it are trimmed.
        last: the newest position.
        messages: in order.
    """

    uuid: str
    trimmed: int
    last: int
    messages: Sequence[StoredMessage]


def encode_page(found: JournalState, messages: Sequence[StoredMessage]) -> bytes:
    """A page as bytes."""
    topics = sorted({message.source for message in messages})
    numbers = {topic: number for number, topic in enumerate(topics)}
    head = {"id": found.uuid, "trimmed": found.trimmed, "last": found.last, "topics": topics}
    encoded = json.dumps(head).encode()
    parts = [_LENGTH.pack(len(encoded)), encoded]
    for each in messages:
        number = numbers[each.source]
        parts += (
            _MESSAGE.pack(each.position, each.arrived_us, number, each.message_format, len(each.payload)),
            each.payload,
        )
    return b"".join(parts)


def decode_page(data: bytes) -> Page:
    """The page of an answer.

    Raises:
        ValueError: it is none.
    """
    try:
        (length,) = _LENGTH.unpack_from(data)
        at = _LENGTH.size + length
        head = json.loads(data[_LENGTH.size : at])
        topics, messages, end = head["topics"], [], len(data)
        while at < end:
            position, arrived, topic, message_format, size = _MESSAGE.unpack_from(data, at)
            at += _MESSAGE.size
            payload = data[at : at + size]
            at += size
            messages.append(StoredMessage(position, arrived, topics[topic], payload, message_format))
        if at != end:
            raise ValueError("a payload is cut off")
        return Page(head["id"], head["trimmed"], head["last"], messages)
    except (struct.error, LookupError, TypeError) as error:
        raise ValueError(str(error)) from error
