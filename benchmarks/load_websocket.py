"""WebSocket framing for the load generator: as little as a client needs, so that it costs little (RFC 6455)."""

from __future__ import annotations

import base64
import os
import socket
import struct

PATH = "/amqp"
_BINARY = 0x82
_NO_MASK = bytes(4)
"""A mask of zeros: the generator's cost is not measured, and the router's is the same."""


class Framing:
    """Puts bytes into binary messages, and takes them out of the router's."""

    def __init__(self, connected: socket.socket, host: str) -> None:
        """Shake hands.

        Raises:
            ConnectionError: the router does not.
        """
        key = base64.b64encode(os.urandom(16)).decode()
        connected.sendall(
            f"GET {PATH} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: amqp\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:  # the router speaks only when it is spoken to: nothing follows
            data = connected.recv(4096)
            if not data:
                break
            answer += data
        if not answer.startswith(b"HTTP/1.1 101 "):
            raise ConnectionError(f"no WebSocket: {answer[:200]!r}")
        self._unread = b""

    def framed(self, data: bytes) -> bytes:
        """One binary message."""
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", _BINARY, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", _BINARY, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", _BINARY, 0x80 | 127, size)
        return head + _NO_MASK + data

    def taken(self, data: bytes) -> bytes:
        """The content of all messages that are whole."""
        data = self._unread + data
        at, found = 0, []
        while len(data) - at >= 2:
            size, start = data[at + 1] & 0x7F, at + 2
            if size >= 126:
                width = 2 if size == 126 else 8
                if len(data) - start < width:
                    break
                size, start = int.from_bytes(data[start : start + width], "big"), start + width
            if len(data) - start < size:
                break
            if data[at] == _BINARY:
                found.append(data[start : start + size])
            at = start + size
        self._unread = data[at:]
        return b"".join(found)
