"""Many clients at little cost: blocking sockets that send prepared frames and count the frames that come back.

They speak AMQP by bytes, without an engine, as the hostile clients of abusers.py do.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from abusers import opened
from harness import BenchmarkError

BEGIN, ATTACH, FLOW, TRANSFER, DETACH, CLOSE = 0x11, 0x12, 0x13, 0x14, 0x16, 0x18
"""Descriptors of performatives (AMQP 2.7), the byte behind the constructor of a small descriptor."""
EMPTY_FRAME = bytes((0, 0, 0, 8, 2, 0, 0, 0))
AT_ONCE = 500
"""Clients that open before the answers of all are awaited: fewer than the router lets wait for their open."""
READ_BYTES = 1 << 18
DEADLINE_S = 1800.0
"""A hundred thousand attaches need some minutes, and more on a busy machine."""


class RawClient:
    """One connection; `counts` has how many frames of each performative came."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.counts: dict[int, int] = {}
        self._unread = bytearray()
        self._header_left = 8

    def send(self, data: bytes) -> None:
        """Write all of it."""
        self.socket.sendall(data)

    def read(self) -> None:
        """Take what has come, and wait for it if nothing has.

        Raises:
            BenchmarkError: the router closed or detached.
        """
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise BenchmarkError("the router ended a connection")
        buffer = self._unread
        buffer += data
        at = self._header_left
        while at + 4 <= len(buffer):
            size = int.from_bytes(buffer[at : at + 4], "big")
            if at + size > len(buffer):
                break
            if size > 10:
                kind = buffer[at + 10]
                self.counts[kind] = self.counts.get(kind, 0) + 1
                if kind in (DETACH, CLOSE):
                    raise BenchmarkError(f"the router refused: {bytes(buffer[at : at + size])!r}")
            at += size
            self._header_left = 0
        if not self._header_left:
            del buffer[:at]

    def close(self) -> None:
        """End the connection at once."""
        self.socket.close()


def connected(url: str, count: int, name: str) -> list[RawClient]:
    """So many clients, each with an open connection and a session; their container-ids are `name`-0 and so on."""
    address = urlsplit(url).netloc or url
    clients: list[RawClient] = []
    while len(clients) < count:
        group = [RawClient(address) for _ in range(min(AT_ONCE, count - len(clients)))]
        for number, each in enumerate(group, len(clients)):
            each.send(opened(f"{name}-{number}"))
        wait_for(group, lambda each: each.counts.get(BEGIN, 0) == 1)
        clients += group
    return clients


def wait_for(clients: Iterable[RawClient], is_done: Callable[[RawClient], bool]) -> None:
    """Read until each of them is done.

    Raises:
        BenchmarkError: it took more than DEADLINE_S, or the router ended one.
    """
    ends = time.monotonic() + DEADLINE_S
    with selectors.DefaultSelector() as selector:
        for each in clients:
            if not is_done(each):
                selector.register(each.socket, selectors.EVENT_READ, each)
        while selector.get_map():
            if time.monotonic() > ends:
                raise BenchmarkError(f"{len(selector.get_map())} clients got no answer in {DEADLINE_S:g} s")
            for key, _ in selector.select(1.0):
                key.data.read()
                if is_done(key.data):
                    selector.unregister(key.data.socket)
