"""Where other routers connect: one TCP listener, and one for other workers, for all incarnations of this process."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial

from oncewire.transport.accepting import Listener, port_of
from oncewire.transport.gate import ListenerGate
from router.peers.neighbours import Neighbours
from router.process.listening import listen, listen_at
from router.settings.config import RouterConfig

LOOPBACK = "localhost"
"""As which the Unix socket counts: only this machine can connect."""


class _Refusal(asyncio.Protocol):
    """There is no incarnation to link with: the dialer tries again."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class NeighbourListener:
    """Listens for other routers and hands them to the incarnation that lives."""

    def __init__(self, config: RouterConfig, tls: ssl.SSLContext | None, gate: ListenerGate) -> None:
        self.neighbours: Neighbours | None = None
        """Of the incarnation that lives now."""
        self._config = config
        self._tls = tls
        self._gate = gate
        self._servers: list[Listener] = []

    async def listen(self) -> int | None:
        """Open the listeners; returns the port of TCP, None where the settings want none.

        Raises:
            CliError: the address cannot be listened on.
        """
        host, port, worker = self._config.inter_router_host, self._config.inter_router_port, self._config.worker
        if worker is not None:
            self._servers.append(listen_at(worker.links_path(worker.number), partial(self._make, LOOPBACK), self._gate))
        if not host:
            return None
        server = await listen(partial(self._make, host), host, port, "--inter-router-port", self._tls, self._gate)
        self._servers.append(server)
        return port_of(server)

    def stop_listening(self) -> None:
        """Take no more connections."""
        while self._servers:
            self._servers.pop().close()

    def _make(self, host: str) -> asyncio.Protocol:
        if self.neighbours is None:
            return _Refusal()
        connection = self.neighbours.incoming(host)
        connection.on_known = self._gate.know
        return connection
