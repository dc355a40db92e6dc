"""Which node of several keeps a message of a sharded subscription (rule J-9). Pure.

By topic: each node is subscribed to topics of its own, and keeps what it receives. By key: every node receives all
messages, and each decides alone, from the message only; so they agree, one keeps it, and the others accept it at once.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from enum import Enum

from oncewire.wire import DecodeError, decode_message
from oncewire.wire.vocabulary import PARTITION_KEY

MAX_SHARDS = 64
"""Each receives everything: long before this many the routers are busy with copies that are discarded."""
_FORM = re.compile(r"(\d{1,3})/(\d{1,3})")


_MARK = str(PARTITION_KEY).encode()
_DESCRIBED = b"\x00\x53"
_HEADER, _MESSAGE_ANNOTATIONS, _PROPERTIES, _APPLICATION_PROPERTIES, _DATA = 0x70, 0x72, 0x73, 0x74, 0x75
_FIELDS_BEFORE_GROUP_ID = 10
_FIXED_WIDTH = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
"""Octets of a value by the first half of its constructor (1.2)."""
_NULL = 0x40


class ShardBy(Enum):
    """What messages are shared out by."""

    KEY = "key"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Shard:
    """One share of several.

    Attributes:
        number: from 0.
        count: how many there are.
        by: what messages are shared out by.
    """

    number: int
    count: int
    by: ShardBy = ShardBy.KEY

    def holds(self, payload: bytes) -> bool:
        """Whether a node with this share keeps an encoded message that it receives."""
        return self.by is ShardBy.TOPIC or zlib.crc32(shard_key(payload)) % self.count == self.number

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def parse_shard(text: str) -> Shard:
    """A share as it is written: NUMBER/COUNT, such as 0/2.

    Raises:
        ValueError: it is no share.
    """
    match = _FORM.fullmatch(text)
    if match is None or not 2 <= int(match[2]) <= MAX_SHARDS or int(match[1]) >= int(match[2]):
        raise ValueError(f"{text!r} is no shard")
    return Shard(int(match[1]), int(match[2]))


def shard_key(payload: bytes) -> bytes:
    """What a message is shared out by: its key, else its body; nothing where it has neither or cannot be decoded.

    The key is what Spark's column `key` has: group-id, else the annotation x-opt-partition-key.
    """
    try:
        found = _fast_key(payload)
    except (IndexError, UnicodeDecodeError):
        found = None
    return _any_key(payload) if found is None else found


def _any_key(payload: bytes) -> bytes:
    try:
        message = decode_message(payload)
    except DecodeError:
        return b""
    if message.properties is not None and message.properties.group_id is not None:
        return message.properties.group_id.encode()
    annotated = message.annotations.get(PARTITION_KEY)
    return _octets(message.body) if annotated is None else _octets(annotated)


def _octets(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int):
        return b""
    return str(value).encode()


def _fast_key(payload: bytes) -> bytes | None:
    """The same for the usual message, taken from its octets (3.2): a node does this for all that it receives.

    Returns:
        None: something is not as usual, `_any_key` knows.

    Raises:
        IndexError, UnicodeDecodeError: the same.
    """
    if _MARK in payload:
        return None
    pos = 0
    while _HEADER <= payload[pos + 2] <= _MESSAGE_ANNOTATIONS:
        pos = _section_end(payload, pos)
    if payload[pos + 2] == _PROPERTIES:
        key = _group_id(payload, pos)
        if key is None or key:
            return key
        pos = _section_end(payload, pos)
    if payload[pos + 2] == _APPLICATION_PROPERTIES:
        pos = _section_end(payload, pos)
    if payload[pos : pos + 3] != b"\x00\x53\x75":
        return None
    form = payload[pos + 3]
    start = pos + 5 if form == 0xA0 else pos + 8
    size = payload[pos + 4] if form == 0xA0 else int.from_bytes(payload[pos + 4 : pos + 8], "big")
    return payload[start:] if form in (0xA0, 0xB0) and start + size == len(payload) else None


def _section_end(payload: bytes, pos: int) -> int:
    """Where a section ends that is a list or a map."""
    form = payload[pos + 3]
    if payload[pos : pos + 2] != _DESCRIBED:
        raise IndexError
    if form in (0xC0, 0xC1):
        return pos + 5 + payload[pos + 4]
    if form in (0xD0, 0xD1):
        return pos + 8 + int.from_bytes(payload[pos + 4 : pos + 8], "big")
    if form == 0x45:
        return pos + 4
    raise IndexError


def _group_id(payload: bytes, pos: int) -> bytes | None:
    """The field of the properties; empty = there is none, None = something is not as usual."""
    end = _section_end(payload, pos)
    form = payload[pos + 3]
    if form == 0x45:
        return b""
    count, at = payload[pos + 5], pos + 6
    if form == 0xD0:
        count, at = int.from_bytes(payload[pos + 8 : pos + 12], "big"), pos + 12
    if count <= _FIELDS_BEFORE_GROUP_ID:
        return b""
    for _ in range(_FIELDS_BEFORE_GROUP_ID):
        at = _value_end(payload, at)
    if payload[at] == _NULL:
        return b""
    start = at + 2 if payload[at] == 0xA1 else at + 5
    stop = _value_end(payload, at)
    # An empty key is a key, too: the long way distinguishes it from none.
    if payload[at] not in (0xA1, 0xB1) or stop > end or start == stop:
        return None
    payload[start:stop].decode()
    return payload[start:stop]


def _value_end(payload: bytes, at: int) -> int:
    """Where a value ends that is neither a list, a map, an array nor described."""
    half = payload[at] >> 4
    if half in _FIXED_WIDTH:
        return at + 1 + _FIXED_WIDTH[half]
    if half == 0xA:
        return at + 2 + payload[at + 1]
    if half == 0xB:
        return at + 5 + int.from_bytes(payload[at + 1 : at + 5], "big")
    raise IndexError
