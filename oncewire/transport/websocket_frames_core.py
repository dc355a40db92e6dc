"""The frames of a client's WebSocket (RFC 6455), passed on as they come: a pure core.

A library that reads WebSockets keeps a message until it is whole. AMQP has no use for that, and what it keeps would be
counted nowhere (C-6). So each piece of a binary message that has come is made a message of its own.
"""

from __future__ import annotations

PIECE_BYTES = 32 * 1024
"""Payload of the longest message that is handed on."""
FRAMES_IN_A_TURN = 256
"""Most frames and pieces that are handed on at once: a millisecond or two, however short they are. One read of a socket
may hold forty thousand."""
UNREAD_BYTES = "oncewire_unread_bytes"
"""What `get_extra_info` of a transport calls the bytes that have come, and that its protocol was not given yet."""
PROTOCOL_ERROR = b"\xf0\x80\0\0\0\0"
"""A frame with reserved bits, at which every reader ends the connection with code 1002 (5.2)."""
TEXT = b"\x81\x80\0\0\0\0"
"""An empty text message, in the place of one that is not taken."""
_FINAL, _RESERVED, _OPCODE, _MASKED = 0x80, 0x70, 0x0F, 0x80
_CONTINUATION, _TEXT, _BINARY, _CONTROL = 0, 1, 2, 8
_KEY_BYTES = 4
_HEADER_BYTES = 14
"""The longest header."""
_SHORT = 125
"""The longest payload that one byte says, and that a control frame may have."""
_LENGTH_BYTES = {126: 2, 127: 8}
"""By what stands in the place of a short length (5.2)."""


class FramesAsTheyCome:
    """One connection's frames."""

    __slots__ = ("_header", "_in_message", "_is_data", "_is_over", "_key", "_left", "_rest", "passed_on")

    def __init__(self) -> None:
        """Begin behind the handshake."""
        self.passed_on = 0
        """Bytes of binary messages that were handed on."""
        self._header = b""
        """What has come of a frame's header."""
        self._left = 0
        """Bytes of the frame's payload that have not come."""
        self._key = b""
        self._is_data = False
        self._in_message = False
        """A message was begun, and its last frame not yet."""
        self._is_over = False
        self._rest = b""
        """What has come, and waits for the next call of `take`."""

    @property
    def has_more(self) -> bool:
        """Whether `take` has left something, which it takes when it is called again."""
        return bool(self._rest)

    def take(self, data: bytes) -> bytes:
        """What to hand on for these bytes: whole frames, and parts of control frames, which are short.

        Of many short ones it takes `FRAMES_IN_A_TURN`, and keeps the rest for the next call. After what the RFC does
        not allow a frame is handed on that ends the connection, and nothing behind it.
        """
        if self._rest:
            data = self._rest + data
            self._rest = b""
        pieces: list[bytes] = []
        at, end = 0, len(data)
        while at < end and not self._is_over:
            if len(pieces) >= 2 * FRAMES_IN_A_TURN:  # a header and a payload each
                self._rest = data[at:]
                break
            if self._left:
                payload = data[at : min(end, at + self._left, at + PIECE_BYTES)]
                at += len(payload)
                pieces.append(self._piece(payload) if self._is_data else payload)
                self._left -= len(payload)
                continue
            had = len(self._header)
            header = self._header + data[at : at + _HEADER_BYTES - had]
            size = _header_bytes(header)
            if len(header) < size:
                self._header = header
                at += len(header) - had
                continue
            at += size - had
            self._header = b""
            pieces.append(self._begin(header[:size]))
        return b"".join(pieces)

    def _begin(self, header: bytes) -> bytes:
        first, opcode = header[0], header[0] & _OPCODE
        self._left, is_masked = _length(header), header[1] & _MASKED
        is_refused = first & _RESERVED or not is_masked or self._left >> 63  # 5.1: a client masks all its frames
        if opcode >= _CONTROL:
            fits = first & _FINAL and self._left <= _SHORT  # 5.5
        else:
            fits = opcode <= _BINARY and self._in_message == (opcode == _CONTINUATION)  # 5.4
        if is_refused or not fits:
            return self._end(PROTOCOL_ERROR)
        if opcode >= _CONTROL:
            self._is_data = False
            return header
        if opcode == _TEXT:
            return self._end(TEXT)
        self._in_message = not first & _FINAL
        self._is_data = True
        self._key = header[len(header) - _KEY_BYTES :]
        return b"" if self._left else _header(0) + self._key

    def _piece(self, payload: bytes) -> bytes:
        """A message of its own, and the key as the next piece needs it."""
        self.passed_on += len(payload)
        key, turned = self._key, len(payload) % _KEY_BYTES
        self._key = key[turned:] + key[:turned]
        return _header(len(payload)) + key + payload

    def _end(self, last: bytes) -> bytes:
        self._is_over = True
        return last


def _header_bytes(header: bytes) -> int:
    """The length of a frame's header, as far as it can be known."""
    if len(header) == 1:
        return 2
    masked = header[1] & _MASKED
    return 2 + _LENGTH_BYTES.get(header[1] & ~_MASKED, 0) + (_KEY_BYTES if masked else 0)


def _length(header: bytes) -> int:
    """The length of its payload, of a whole header."""
    short = header[1] & ~_MASKED
    size = _LENGTH_BYTES.get(short, 0)
    return int.from_bytes(header[2 : 2 + size]) if size else short


def _header(length: int) -> bytes:
    """Of a whole binary message, without the key."""
    first = _FINAL | _BINARY
    if length <= _SHORT:
        return bytes((first, _MASKED | length))
    return bytes((first, _MASKED | 126)) + length.to_bytes(2)
