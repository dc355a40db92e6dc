"""ANNOTATIONS between routers: what *modified* has added to a delivery (E-4b), as codec.py puts it into a frame."""

from __future__ import annotations

from struct import Struct
from typing import Final

from delivery_records.channels.codec_error import ChannelCodecError
from delivery_records.model.messages import Annotations, FormerAnnotations

_HEAD: Final = Struct(">QQQBH")  # publisher epoch, subscription epoch, number, to an egress, pairs
_SIZES: Final = Struct(">HH")  # of a key and its value: all of them are ANNOTATIONS_BYTES at most


def annotations_payload(message: Annotations | FormerAnnotations) -> bytes:
    """All of it."""
    is_former = isinstance(message, FormerAnnotations)
    added = message.added
    named = message.publisher_epoch, message.subscription_epoch, message.number
    parts = [_HEAD.pack(*named, is_former, len(added))]
    for key, value in added.items():
        parts += (_SIZES.pack(len(key), len(value)), key, value)
    return b"".join(parts)


def read_annotations(frame: bytes, at: int) -> tuple[Annotations | FormerAnnotations, int]:
    """Read what stands at `at`. Raises ChannelCodecError or struct.error."""
    publisher, subscription, number, is_former, count = _HEAD.unpack_from(frame, at)
    at += _HEAD.size
    added: dict[bytes, bytes] = {}
    for _ in range(count):
        key_size, value_size = _SIZES.unpack_from(frame, at)
        at += _SIZES.size
        value_at = at + key_size
        end = value_at + value_size
        if end > len(frame):
            raise ChannelCodecError(f"annotations of {end - at} bytes do not fit in {len(frame) - at} bytes")
        added[frame[at:value_at]] = frame[value_at:end]
        at = end
    kind = FormerAnnotations if is_former else Annotations
    return kind(publisher, subscription, number, added), at
