"""Where other routers connect: one TCP listener for all incarnations of this process."""

from __future__ import annotations

import asyncio
import ssl

from router.admission import ListenerGate
from router.config import RouterConfig
from router.listening import Listener, listen, port_of
from router.peers.neighbours import Neighbours


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
        self._server: Listener | None = None

    async def listen(self) -> int:
        """Open the listener; returns the port.

        Raises:
            CliError: the address cannot be listened on.
        """
        host, port = self._config.inter_router_host, self._config.inter_router_port
        self._server = await listen(self._make, host, port, "--inter-router-port", self._tls, self._gate)
        return port_of(self._server)

    def stop_listening(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _make(self) -> asyncio.Protocol:
        if self.neighbours is None:
            return _Refusal()
        connection = self.neighbours.incoming()
        connection.on_known = self._gate.know
        return connection
