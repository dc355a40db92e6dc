"""HTTP for operators: `/healthz`, `/readyz`, `/metrics`, `/api/v1/state`. Read only, without login."""

from __future__ import annotations

import asyncio

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from bridges.node.errors import StorageError
from bridges.node.metrics import Metrics
from bridges.node.node import BridgeNode
from bridges.node.server import Server

SHUTDOWN_TIMEOUT_S = 0.5
"""An orderly stop does not wait for slow scrapers."""


class HttpServer:
    """The HTTP side of one node."""

    def __init__(self, node: BridgeNode, server: Server) -> None:
        self._node = node
        self._metrics = Metrics(node, server)
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._text)
        app.router.add_get("/api/v1/state", self._state)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            StorageError: the address cannot be listened on.
        """
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise StorageError(
                f"the node cannot serve HTTP on {host}:{port}",
                error.strerror or str(error),
                "give http.host and http.port an address of this machine that is free (0 = any port)",
            ) from None
        found: int = self._runner.addresses[0][1]
        return found

    async def stop(self) -> None:
        """Stop listening and drop connections."""
        await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        """The process runs and its event loop turns."""
        return web.json_response({"status": "ok"})

    async def _readyz(self, _request: web.Request) -> web.Response:
        """All subscriptions are attached and all sinks can publish: 200, or 503 and what is missing."""
        missing = self._node.waiting_for()
        return web.json_response(
            {"ready": not missing, "waiting_for": missing}, status=503 if missing else 200
        )

    async def _text(self, _request: web.Request) -> web.Response:
        text = await asyncio.to_thread(self._metrics.text)  # it reads the files
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(self._node.state))
