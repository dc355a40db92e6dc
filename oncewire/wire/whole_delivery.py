"""The way of a delivery that fits one frame, as most do: off the wire and onto it, without a ``Transfer``.

Frames of one link that follow each other differ in delivery-id, tag and payload, and perhaps in their size. So what
they have in common is kept from the frame before: read, it is compared as a whole; written, it is not encoded again.
A frame of any other form is left to the generic way, which decides what it was: the two can differ in speed only.
"""

from __future__ import annotations

import struct
from typing import Final

from oncewire.wire.frames import AMQP_FRAME, FRAME_HEADER_SIZE, MIN_DATA_OFFSET, FrameParser
from oncewire.wire.hot_codec import MAX_FAST_TAG, TRANSFER_TAILS

# A delivery in one frame, by the fields behind its tag: (number of fields, settled, message-format). One that says
# who settles first (rcv-settle-mode, 2.7.5) is rare, and goes the way of any transfer.
_WHOLE_TAILS: Final = {
    octets: (count, settled is True, message_format or 0)
    for octets, (count, message_format, settled, more, mode) in TRANSFER_TAILS.items()
    if not more and mode is None
}
# Descriptor and constructor of a transfer as one number.
_TRANSFER_START: Final = 0x005314C0
_FRAME_KIND: Final = MIN_DATA_OFFSET << 8 | AMQP_FRAME

# Frame size, data offset and type, channel; then start, size and count of the transfer, handle 0, delivery-id,
# constructor and size of the tag. Behind any other handle the last four are a byte further on.
_unpack_to_tag: Final = struct.Struct(">IHHIBBBBIBB").unpack_from
_unpack_id_and_tag: Final = struct.Struct(">BIBB").unpack_from
_unpack_uint: Final = struct.Struct(">I").unpack_from
_ID_AT: Final = FRAME_HEADER_SIZE + 8
_SIZE_BYTES: Final = 4
# With handle 0, an empty tag (2.8.7 has no minimum) and nothing behind it.
_SHORTEST_WHOLE: Final = FRAME_HEADER_SIZE + 14
_BINARY: Final = 0xA0

# No frame starts so: one of 4 GB.
_NO_FRAME: Final = b"\xff\xff\xff\xff\xff"


class WholeDeliveries:
    """Takes deliveries off a parser that came in one frame, one at a time.

    Attributes:
        channel, handle: of the delivery taken last, as the peer numbers them.
        delivery_id, tag, settled, message_format, payload: of the same.
    """

    __slots__ = (
        "_head",
        "_id_high",
        "_kind",
        "_low_at",
        "_size",
        "_tag_size",
        "_tail",
        "_tail_size",
        "channel",
        "delivery_id",
        "handle",
        "message_format",
        "payload",
        "settled",
        "tag",
    )

    def __init__(self) -> None:
        self.channel = 0
        self.handle = 0
        self.delivery_id = 0
        self.tag = b""
        self.settled = False
        self.message_format = 0
        self.payload = b""
        # The frame before: all of it up to the last octet of the delivery-id, the same without its size, where that
        # octet is, the octets of the id above it; then the size of the tag, and what stands behind it.
        self._head = _NO_FRAME
        self._kind = _NO_FRAME
        self._size = 0
        self._low_at = _SIZE_BYTES
        self._id_high = 0
        self._tag_size = 0
        self._tail = b""
        self._tail_size = 0

    def take(self, parser: FrameParser) -> bool:
        """Take the next frame if it is there and holds a delivery that ends in it, in its usual form.

        Returns:
            False = nothing was taken: ask ``parser.next_frame``, which also knows what is wrong.
        """
        buf = parser.buf
        pos = parser.pos
        size = self._size
        if buf[pos : pos + self._low_at] != self._head:
            if buf[pos + _SIZE_BYTES : pos + self._low_at] != self._kind:
                return self._take_other(parser)
            size = _unpack_uint(buf, pos)[0]
            if size > parser.max_frame_size:
                return False
        low = pos + self._low_at
        first = low + 3
        behind = first + self._tag_size
        stop = behind + self._tail_size
        end = pos + size
        if (
            end > len(buf)
            or stop > end
            or buf[low + 1] != _BINARY
            or buf[low + 2] != self._tag_size
            or buf[behind:stop] != self._tail
        ):
            return self._take_other(parser)
        parser.pos = end
        self.delivery_id = self._id_high + buf[low]
        self.tag = buf[first:behind]
        self.payload = buf[stop:end]
        return True

    def _take_other(self, parser: FrameParser) -> bool:
        """Take a frame that is not like the one before, and remember it."""
        buf = parser.buf
        pos = parser.pos
        left = len(buf) - pos
        if left < _SHORTEST_WHOLE:
            return False
        size, kind, channel, start, fields, count, code, uint, delivery_id, binary, tag_size = _unpack_to_tag(buf, pos)
        if start != _TRANSFER_START or kind != _FRAME_KIND or size > left or size > parser.max_frame_size:
            return False
        handle = 0
        first = pos + 22
        if code == 0x52 and size > _SHORTEST_WHOLE:
            handle = uint
            first = pos + 23
            uint, delivery_id, binary, tag_size = _unpack_id_and_tag(buf, pos + _ID_AT)
        elif code != 0x43:
            return False
        behind = first + tag_size
        stop = pos + 13 + fields
        end = pos + size
        if uint != 0x70 or binary != _BINARY or behind > stop or stop > end or tag_size > MAX_FAST_TAG:
            return False
        tail = _WHOLE_TAILS.get(buf[behind:stop])
        if tail is None or tail[0] != count:
            return False
        parser.pos = end
        self.channel, self.handle, self.delivery_id = channel, handle, delivery_id
        _, self.settled, self.message_format = tail
        self.tag = buf[first:behind]
        self.payload = buf[stop:end]
        self._head = buf[pos : first - 3]
        self._kind = buf[pos + _SIZE_BYTES : first - 3]
        self._size, self._tag_size, self._id_high = size, tag_size, delivery_id & 0xFFFFFF00
        self._low_at = first - 3 - pos
        self._tail, self._tail_size = buf[behind:stop], stop - behind
        return True


MAX_WHOLE_HANDLE: Final = 0xFF
# The same fields behind the frame's size, two of them as one number where that is possible.
_pack_with_handle_0: Final = struct.Struct(">HHIHH").pack
_pack_with_handle: Final = struct.Struct(">HHIHHB").pack
_pack_uint: Final = struct.Struct(">I").pack
_UNSETTLED_TAIL: Final = b"\x43\x42"
_SETTLED_TAIL: Final = b"\x43\x41"
# Up to the tag, and the two fields of a byte behind it.
_WHOLE_HEAD: Final = FRAME_HEADER_SIZE + 16
_OCTETS: Final = tuple(bytes((number,)) for number in range(256))


class WholeDeliveryWriter:
    """Writes deliveries in one frame, with message-format 0, for one session."""

    __slots__ = ("_channel", "_handle", "_head", "_id_high", "_kind", "_size", "_size_octets", "_tag_head", "_tag_size")

    def __init__(self, channel: int) -> None:
        self._channel = channel
        # Of the frame before: its size; what stands between that and the delivery-id, and with the upper octets of it.
        self._size = -1
        self._size_octets = b""
        self._handle = -1
        self._tag_size = -1
        self._id_high = -1
        self._kind = b""
        self._head = b""
        self._tag_head = b""

    def write(self, out: list[bytes], handle: int, delivery_id: int, tag: bytes, settled: bool, payload: bytes) -> None:
        """Append the pieces of a frame to ``out``, which are joined only once, with all that goes out.

        ``handle`` is at most ``MAX_WHOLE_HANDLE`` and ``tag`` has at most 32 bytes.
        """
        tag_size = len(tag)
        if handle != self._handle or tag_size != self._tag_size:
            self._begin(handle, tag_size)
        size = _WHOLE_HEAD + tag_size + len(payload)
        if handle:
            size += 1
        if size != self._size:
            self._size = size
            self._size_octets = _pack_uint(size)
        high = delivery_id >> 8
        if high != self._id_high:
            self._id_high = high
            self._head = self._kind + _pack_uint(delivery_id)[:3]
        out.append(self._size_octets)
        out.append(self._head)
        out.append(_OCTETS[delivery_id & 0xFF])
        out.append(self._tag_head)
        out.append(tag)
        out.append(_SETTLED_TAIL if settled else _UNSETTLED_TAIL)
        out.append(payload)

    def _begin(self, handle: int, tag_size: int) -> None:
        """Frames of another link, or with tags of another size, follow."""
        self._handle, self._tag_size = handle, tag_size
        fields = (tag_size + 11) << 8 | 5
        if handle:
            uint = 0x5200 | handle
            self._kind = _pack_with_handle(_FRAME_KIND, self._channel, _TRANSFER_START, fields + 0x100, uint, 0x70)
        else:
            self._kind = _pack_with_handle_0(_FRAME_KIND, self._channel, _TRANSFER_START, fields, 0x4370)
        self._id_high = -1
        self._tag_head = bytes((_BINARY, tag_size))
