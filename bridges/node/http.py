"""HTTP for operators: `/healthz`, `/readyz`, `/metrics`, `/api/v1/state`. Read only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from bridges.node.errors import StorageError
from bridges.node.logins import LoginRefused, Logins
from bridges.node.metrics import Metrics
from bridges.node.node import BridgeNode
from bridges.node.server import Server
from oncewire.transport.accepting import Listener, bound, port_of

SHUTDOWN_TIMEOUT_S = 0.5
"""An orderly stop does not wait for slow scrapers."""
OPEN = frozenset({"/healthz", "/readyz"})
"""What needs no login: whoever starts a node asks it, and has none."""


class HttpServer:
    """The HTTP side of one node."""

    def __init__(self, node: BridgeNode, server: Server, logins: Logins | None = None) -> None:
        """Serve whoever asks, or those who log in."""
        self._node = node
        self._metrics = Metrics(node, server)
        self._gate = server.doors.http
        self._logins = logins
        self._listener: Listener | None = None
        app = web.Application(middlewares=[self._admit])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._text)
        app.router.add_get("/api/v1/state", self._state)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, without TLS if `tls` is None; returns the port.

        Raises:
            StorageError: the address cannot be listened on.
        """
        await self._runner.setup()
        assert self._runner.server is not None
        try:
            self._listener = Listener(await bound(host, port), self._runner.server, tls, self._gate)
        except OSError as error:
            await self._runner.cleanup()
            raise StorageError(
                f"the node cannot serve HTTP on {host}:{port}",
                error.strerror or str(error),
                "give http.host and http.port an address of this machine that is free (0 = any port)",
            ) from None
        return port_of(self._listener)

    async def stop(self) -> None:
        """Stop listening and drop connections."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    @web.middleware
    async def _admit(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """The header of a request is whole; of what needs a login, it has one."""
        self._gate.know(request.protocol)
        if self._logins is not None and request.path not in OPEN:
            try:
                await self._logins.check(request.headers.get("Authorization"), request.remote or "")
            except LoginRefused as refused:
                shown = web.json_response({"error": str(refused), "fix": refused.fix}, status=refused.status)
                for challenge in self._logins.challenges if refused.status == 401 else ():
                    shown.headers.add("WWW-Authenticate", challenge)
                return shown
        return await handler(request)

    async def _healthz(self, _request: web.Request) -> web.Response:
        """The process runs and its event loop turns."""
        return web.json_response({"status": "ok"})

    async def _readyz(self, _request: web.Request) -> web.Response:
        """All subscriptions are attached and all sinks can publish: 200, or 503 and what is missing."""
        missing = self._node.waiting_for()
        return web.json_response({"ready": not missing, "waiting_for": missing}, status=503 if missing else 200)

    async def _text(self, _request: web.Request) -> web.Response:
        text = await asyncio.to_thread(self._metrics.text)  # it reads the files
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(self._node.state))
