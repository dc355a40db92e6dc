"""A WebSocket (RFC 6455) in the place of a peer's TCP connection; a test says how what it sends is split."""

from __future__ import annotations

import base64
import secrets
import socket
from urllib.parse import urlsplit

BINARY, CLOSE = 0x2, 0x8
_FINAL, _MASKED, _NO_MASK = 0x80, 0x80, bytes(4)
_SHORT, _LONGER, _LONGEST = 125, 126, 127


class WebSocket:
    """The client's end, open for AMQP."""

    def __init__(self, http: str, deadline_s: float, split: int | None = None) -> None:
        """Connect.

        Args:
            http: the router's HTTP side.
            deadline_s: for each read.
            split: bytes of the messages that we send; None: each write is one message.
        """
        self._split = split
        address = urlsplit(http)
        self._socket = socket.create_connection((address.hostname, address.port), timeout=deadline_s)
        self._buffer = b""
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        self._socket.sendall(
            f"GET /amqp HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: amqp\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        assert b" 101 " in head.splitlines()[0], head
        assert b"sec-websocket-protocol: amqp" in head.lower().splitlines(), "the binding's sub-protocol"

    def _more(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the router closed without a close")
        return data

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += self._more()
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def sendall(self, data: bytes) -> None:
        """Send these bytes as binary messages, masked with zeros."""
        size = self._split or len(data)
        for start in range(0, len(data), size):
            part = data[start : start + size]
            if len(part) <= _SHORT:
                length = bytes([_MASKED | len(part)])
            else:
                length = bytes([_MASKED | _LONGEST]) + len(part).to_bytes(8)
            self._socket.sendall(bytes([_FINAL | BINARY]) + length + _NO_MASK + part)

    def recv(self, _: int) -> bytes:
        """The next message; empty when the router closes."""
        first, length = self._take(2)
        if length >= _LONGER:
            length = int.from_bytes(self._take(2 if length == _LONGER else 8))
        found = self._take(length)
        if first == _FINAL | CLOSE:
            return b""
        assert first == _FINAL | BINARY, "AMQP is in binary messages"
        return found

    def getsockname(self) -> tuple[str, int]:
        """Our end."""
        host, port = self._socket.getsockname()
        return host, port

    def fileno(self) -> int:
        """Of the TCP connection."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the TCP connection without a word."""
        self._socket.close()
