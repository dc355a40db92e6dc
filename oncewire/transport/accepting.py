"""Accepts connections of listening sockets, as far as a gate admits them.

Connections are accepted here and not by the event loop's own server: that knows a connection's address only behind its
TLS handshake, takes all that wait in one turn, and has no place to refuse one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from oncewire.transport.tls import HANDSHAKE_S, SHUTDOWN_S

BACKLOG = 1024
"""After a failover thousands of clients connect at once."""
ACCEPTS_PER_TURN = 4
"""In one turn of the event loop, some 1 ms: others have theirs in between. The rest waits in the backlog."""
EXHAUSTED_PAUSE_S = 0.1
"""Where no descriptor or memory is left nothing is accepted for so long: trying on would take all of a processor."""

AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]


class Gate(Protocol):
    """Who is admitted."""

    def admits(self, accepted: socket.socket, host: str) -> bool:
        """Whether a connection from this address may stay; else it is closed at once."""
        ...

    def connecting(self, accepted: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        """This protocol will serve a connection that was admitted, behind the TLS handshake where there is one."""

    def on_exhausted(self, error: OSError) -> None:
        """Nothing can be accepted just now."""


class OpenGate:
    """Lets everybody in."""

    def admits(self, _accepted: socket.socket, _host: str) -> bool:
        """See `Gate`."""
        return True

    def connecting(self, accepted: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        """See `Gate`."""

    def on_exhausted(self, error: OSError) -> None:
        """See `Gate`."""


class Listener:
    """One listening address: accepts connections, as far as a gate lets them in."""

    def __init__(
        self,
        sockets: list[socket.socket],
        factory: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None,
        gate: Gate,
    ) -> None:
        """Accept from now on; see `listen`."""
        self.sockets = sockets
        self._factory = factory
        self._tls = tls
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._watch()

    def close(self) -> None:
        """Accept no more; connections that were accepted go on."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._again is not None:
            self._again.cancel()
        for each in self.sockets:
            self._loop.remove_reader(each)
            each.close()

    def _watch(self) -> None:
        self._again = None
        for each in self.sockets:
            self._loop.add_reader(each, self._accept, each)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:  # EMFILE, ENFILE, ENOBUFS, ENOMEM: it would be tried again without end
                self._gate.on_exhausted(error)
                for each in self.sockets:
                    self._loop.remove_reader(each)
                self._again = self._loop.call_later(EXHAUSTED_PAUSE_S, self._watch)
                return
            accepted.setblocking(False)
            if not self._gate.admits(accepted, str(address[0]) if address else ""):
                accepted.close()
                continue
            task = self._loop.create_task(self._connect(accepted))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        loop, tls, protocol = self._loop, self._tls, self._factory()
        self._gate.connecting(accepted, protocol)
        try:
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is None:
                await loop.connect_accepted_socket(lambda: protocol, accepted)
            else:
                await loop.connect_accepted_socket(
                    lambda: protocol,
                    accepted,
                    ssl=tls,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
        except OSError:
            return  # it has ended meanwhile, or its handshake has failed, which `tls` knows of


async def bound(host: str, port: int, *, is_shared: bool = False) -> list[socket.socket]:
    """Sockets that listen on all addresses of the host.

    Raises:
        OSError: one cannot be listened on.
    """
    loop = asyncio.get_running_loop()
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in await addresses(loop, host, port):
            each = new_socket(family, kind, protocol)
            sockets.append(each)
            if is_shared:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.bind(address)
            each.listen(BACKLOG)
            each.setblocking(False)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


async def addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> Iterable[AddressInfo]:
    """All that a name stands for."""
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return dict.fromkeys(found)


def new_socket(family: int, kind: int, protocol: int) -> socket.socket:
    """One that may take an address which a program of before still holds in the kernel."""
    found = socket.socket(family, kind, protocol)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return found


def bound_at(path: str) -> socket.socket:
    """A Unix socket that listens."""
    each = socket.socket(socket.AF_UNIX)
    try:
        each.bind(path)
        each.listen(BACKLOG)
        each.setblocking(False)
    except OSError:
        each.close()
        raise
    return each


def port_of(server: Listener) -> int:
    """The port a listener got."""
    port = server.sockets[0].getsockname()[1]
    assert isinstance(port, int)
    return port
