"""Protocol headers and frames (AMQP 1.0 part 2, sections 2.2 and 2.3, and part 5.3.1).

``FrameParser`` cuts the byte stream into frames; it copies nothing that arrives whole and never holds more than one
frame that is not complete. ``encode_frame`` puts a frame header in front of a performative and its payload.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from oncewire.wire.errors import FRAMING_ERROR, LocalProtocolError, RemoteProtocolError

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
PROTOCOL_HEADER_SIZE = 8
TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""How an alert and a handshake of TLS begin: what arrives where only one of both sides speaks TLS."""

AMQP_FRAME = 0
SASL_FRAME = 1

FRAME_HEADER_SIZE = 8
# 2.3.1: DOFF counts 4-byte words and the fixed header is 2 of them.
MIN_DATA_OFFSET = 2
# 2.8.19 MIN-MAX-FRAME-SIZE: every peer takes frames of this size.
MIN_MAX_FRAME_SIZE = 512
# 5.3.1 allows 512 bytes, but bearer tokens are larger and common brokers take them; still small enough to hold for
# every peer that has not said who it is.
MAX_SASL_FRAME_SIZE = 8192

# channel, frame type, buffer, where the frame body starts in it, where it ends
Frame: TypeAlias = tuple[int, int, bytes, int, int]

_HEADER = struct.Struct(">IBBH")

# 2.4.5: an empty frame keeps the connection alive.
HEARTBEAT_FRAME = _HEADER.pack(FRAME_HEADER_SIZE, MIN_DATA_OFFSET, AMQP_FRAME, 0)


class FrameParser:
    """Cuts received bytes into protocol headers and frames.

    Feed bytes, then call ``next_header`` while a protocol header is due, else ``next_frame`` until it returns None.
    Whoever reads the stream knows which of the two is due. After an error the stream is lost: feed no more.

    Attributes:
        max_frame_size: largest frame in bytes that is accepted; may be changed between frames.
        buf, pos: the bytes at hand, and where the next frame starts in them; for the short way of the hot path.
    """

    __slots__ = ("_partial", "_wanted", "buf", "max_frame_size", "pos")

    def __init__(self, max_frame_size: int = MIN_MAX_FRAME_SIZE) -> None:
        self.max_frame_size = max_frame_size
        self.buf = b""
        self.pos = 0
        # Bytes of one incomplete frame, and how many there must be before it is worth looking again.
        self._partial = bytearray()
        self._wanted = 0

    @property
    def buffered(self) -> int:
        """Number of bytes fed and not yet handed out."""
        return len(self.buf) - self.pos + len(self._partial)

    def clear(self) -> None:
        """The stream has ended: what came in part is nothing."""
        self.buf, self.pos = b"", 0
        self._partial = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received bytes. Take all complete frames out before feeding again."""
        if self.pos < len(self.buf):  # not all was taken out, or the rest is an incomplete frame
            self._partial += self.buf[self.pos :]
            self.buf = b""
            self.pos = 0
        if not self._partial:
            self.buf = data
            self.pos = 0
        elif len(self._partial) + len(data) < self._wanted:
            self._partial += data
        else:
            self.buf = b"".join((self._partial, data))
            self.pos = 0
            self._partial = bytearray()
            self._wanted = 0

    def _wait_for(self, size: int) -> None:
        if not self._partial:  # else the size was noted when the bytes went there
            self._wanted = size

    def next_header(self) -> bytes | None:
        """Return the next 8 bytes as a protocol header (2.2), or None while it is incomplete.

        The caller compares it with ``AMQP_HEADER`` and ``SASL_HEADER``: other protocol ids and versions are legal.

        Raises:
            RemoteProtocolError: framing-error; the peer does not speak AMQP. Answer with our own header, then close.
        """
        start = self.pos
        header = self.buf[start : start + PROTOCOL_HEADER_SIZE]
        if header[:4] != AMQP_HEADER[:4][: len(header)]:
            if header.startswith(TLS_RECORDS):
                reported = "the peer speaks TLS, and this side does not: write amqps:// for TLS"
                raise RemoteProtocolError(FRAMING_ERROR, reported)
            raise RemoteProtocolError(FRAMING_ERROR, "the peer does not speak AMQP: no protocol header was sent")
        if len(header) < PROTOCOL_HEADER_SIZE:
            self._wait_for(PROTOCOL_HEADER_SIZE)
            return None
        self.pos = start + PROTOCOL_HEADER_SIZE
        return header

    def next_frame(self) -> Frame | None:
        """Return the next frame, or None while it is incomplete.

        A frame with an empty body (start = end) only says that the peer lives (2.4.5).

        Raises:
            RemoteProtocolError: framing-error; close the connection with it.
        """
        buf = self.buf
        pos = self.pos
        left = len(buf) - pos
        if left < FRAME_HEADER_SIZE:
            self._wait_for(FRAME_HEADER_SIZE)
            return None
        size, data_offset, frame_type, channel = _HEADER.unpack_from(buf, pos)
        if size > self.max_frame_size or size < FRAME_HEADER_SIZE:
            raise RemoteProtocolError(
                FRAMING_ERROR,
                f"a frame of {size} bytes is not between {FRAME_HEADER_SIZE} and {self.max_frame_size} bytes",
            )
        body = 4 * data_offset
        if body > size or data_offset < MIN_DATA_OFFSET:
            raise RemoteProtocolError(FRAMING_ERROR, f"data offset {data_offset} in a frame of {size} bytes")
        if frame_type > SASL_FRAME:
            raise RemoteProtocolError(FRAMING_ERROR, f"frame type {frame_type} is neither AMQP nor SASL")
        if left < size:
            self._wait_for(size)
            return None
        end = pos + size
        self.pos = end
        return channel, frame_type, buf, pos + body, end


def encode_frame(
    channel: int, performative: bytes, payload: bytes | memoryview = b"", frame_type: int = AMQP_FRAME
) -> bytes:
    """Return one frame: header, performative, payload. The caller keeps it within the peer's max-frame-size.

    Raises:
        LocalProtocolError: the channel or the size does not fit its field.
    """
    size = FRAME_HEADER_SIZE + len(performative) + len(payload)
    try:
        return _HEADER.pack(size, MIN_DATA_OFFSET, frame_type, channel) + performative + payload
    except struct.error:
        raise LocalProtocolError(f"no frame header for channel {channel} and {size} bytes") from None
