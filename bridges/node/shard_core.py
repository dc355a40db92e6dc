"""Which node of several keeps a message: the one whose share of the keys it belongs to (rule J-9). Pure.

Every node of a sharded subscription receives all messages. Each decides alone, from the message only, and so they
agree: one keeps it, the others accept it at once.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from oncewire.wire import DecodeError, Symbol, decode_message

MAX_SHARDS = 64
"""Each receives everything: long before this many the routers are busy with copies that are thrown away."""
PARTITION_KEY = Symbol("x-opt-partition-key")
_FORM = re.compile(r"(\d{1,3})/(\d{1,3})")


@dataclass(frozen=True, slots=True)
class Shard:
    """One share of several.

    Attributes:
        number: from 0.
        count: how many there are.
    """

    number: int
    count: int

    def holds(self, payload: bytes) -> bool:
        """Whether an encoded message belongs to this share."""
        return zlib.crc32(shard_key(payload)) % self.count == self.number

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
