"""HTTP for operators: `/healthz`, `/readyz`, `/metrics`, `/api/v1/state`, `/drain`; without login."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from router.listener import cannot_listen
from router.metrics import Metrics
from router.status import Status

SHUTDOWN_TIMEOUT_S = 0.5
"""An orderly stop does not wait for slow scrapers."""


class HttpServer:
    """The HTTP side of one router process."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._metrics = Metrics(status)
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._text)
        app.router.add_get("/api/v1/state", self._state)
        app.router.add_post("/drain", self._drain)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            CliError: the address cannot be listened on.
        """
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise cannot_listen(error, host, port, "--http-port") from None
        found = self._runner.addresses[0][1]
        assert isinstance(found, int)
        return found

    async def stop(self) -> None:
        """Stop listening and drop connections."""
        await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        """The process runs and its event loop turns."""
        return web.json_response({"status": "ok"})

    async def _readyz(self, _request: web.Request) -> web.Response:
        """Clients are welcome: 200, or 503 and what is missing."""
        missing = self._status.waiting_for()
        return web.json_response(
            {"ready": not missing, "waiting_for": missing}, status=503 if missing else 200
        )

    async def _text(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _drain(self, request: web.Request) -> web.Response:
        """K-8a: drain and stop. 202 and how long it may take; asked again it changes nothing.

        JSON is asked for because no browser sends that for a page of another site without asking first.
        """
        if not self._status.may_drain(request.remote or ""):
            text = "only this machine may; send the process SIGTERM, or set http.drain = always"
            return web.json_response({"error": text}, status=403)
        if request.content_type != "application/json":
            return web.json_response({"error": "send Content-Type: application/json"}, status=415)
        if self._status.draining() is None:
            self._status.drain()
        return web.json_response({"draining": self._status.draining()}, status=202)

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response(self._status.tables())
