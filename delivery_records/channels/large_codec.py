"""LARGE between routers: a part of a large delivery (L-2), as codec.py puts it into a frame."""

from __future__ import annotations

from struct import Struct, unpack_from
from typing import Final

from delivery_records.channels.codec_error import ChannelCodecError
from delivery_records.model.assigned import Assigned
from delivery_records.model.messages import LargePart
from delivery_records.model.parts import Part
from delivery_records.model.tags import MAX_TAG_BYTES

MAX_ATTEMPT: Final = 0xFFFF
"""Failed attempts one MSG or NACK can name; a policy may allow more: the subscriber reads 65535 from then on."""
_LARGE: Final = Struct(">QQBBH")  # publisher epoch, number, part, flags, named
_LARGE_FIRST: Final = Struct(">IHB")  # format, attempt, tag length
_EPOCH: Final = Struct(">Q")
_FLAG_REDELIVERED: Final = 2
ASSIGNED_FLAGS: Final = {Assigned.ANEW: 0, Assigned.AS_HEAD: 8, Assigned.BY_ITS_MAP: 128}
"""In the flags of a MSG and of a LARGE. An older router reads the last one as ANEW."""
_FLAG_OWED: Final = 64

_PART_CODES: Final = {Part.FIRST: 1, Part.MIDDLE: 2, Part.LAST: 3, Part.ABORT: 4}
_PARTS: Final = {code: part for part, code in _PART_CODES.items()}


def large_head(message: LargePart) -> bytes:
    """All of it but the data."""
    flags = _FLAG_REDELIVERED if message.redelivered else 0
    if message.is_owed:
        flags |= _FLAG_OWED
    flags |= ASSIGNED_FLAGS[message.assigned]
    code = _PART_CODES[message.part]
    head = _LARGE.pack(message.publisher_epoch, message.number, code, flags, len(message.to))
    if message.part is Part.FIRST:
        tag = message.tag
        head += _LARGE_FIRST.pack(message.message_format, min(message.attempt, MAX_ATTEMPT), len(tag)) + tag
    return head + b"".join([_EPOCH.pack(epoch) for epoch in message.to])


def read_assigned(flags: int) -> Assigned:
    """What the flags of a MSG or a LARGE say of it."""
    if flags & ASSIGNED_FLAGS[Assigned.BY_ITS_MAP]:
        return Assigned.BY_ITS_MAP
    return Assigned.AS_HEAD if flags & ASSIGNED_FLAGS[Assigned.AS_HEAD] else Assigned.ANEW


def read_large(frame: bytes, at: int) -> LargePart:
    """Read what stands at `at`; the data is all that follows. Raises ChannelCodecError, KeyError or struct.error."""
    publisher, number, code, flags, named = _LARGE.unpack_from(frame, at)
    at += _LARGE.size
    part = _PARTS[code]
    message_format = attempt = 0
    tag = b""
    if part is Part.FIRST:
        message_format, attempt, tag_length = _LARGE_FIRST.unpack_from(frame, at)
        at += _LARGE_FIRST.size
        if tag_length > MAX_TAG_BYTES or at + tag_length > len(frame):
            raise ChannelCodecError(f"a tag of {tag_length} bytes")
        tag = frame[at : at + tag_length]
        at += tag_length
    to: tuple[int, ...] = unpack_from(f">{named}Q", frame, at)
    data = frame[at + named * _EPOCH.size :]
    return LargePart(
        publisher,
        number,
        to,
        part,
        data,
        bool(flags & _FLAG_OWED),
        tag,
        bool(flags & _FLAG_REDELIVERED),
        attempt,
        message_format,
        read_assigned(flags),
    )
