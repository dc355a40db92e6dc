"""HTTP for operators: health, metrics, state, inspector and management; each route says which role it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from router.listener import cannot_listen
from router.management.access import Access, Role, Route, add_routes, refusal
from router.metrics import Metrics
from router.status import Status

SHUTDOWN_TIMEOUT_S = 0.5
"""An orderly stop does not wait for slow scrapers."""
API = "/api/"


@web.middleware
async def _refusals_in_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """What aiohttp itself refuses below API is told as everything else there."""
    try:
        return await handler(request)
    except web.HTTPClientError as error:
        if not request.path.startswith(API):
            raise
        fix = "docs/inspector.md and docs/management.md name the paths and what each takes"
        told = refusal(error.status, f"{request.method} {request.path[:200]}: {error.reason}", fix)
        if "Allow" in error.headers:
            told.headers["Allow"] = error.headers["Allow"]
        return told


class HttpServer:
    """The HTTP side of one router process."""

    def __init__(self, status: Status, access: Access, routes: Iterable[Route] = ()) -> None:
        """Serve.

        Args:
            status: what this router tells of itself.
            access: who may do what.
            routes: further routes (inspector, management).
        """
        self._status = status
        self._metrics = Metrics(status)
        app = web.Application(middlewares=[_refusals_in_json])
        own = (
            Route("GET", "/healthz", self._healthz, None),
            Route("GET", "/readyz", self._readyz, None),
            Route("GET", "/metrics", self._text, Role.VIEWER),
            Route("GET", "/api/v1/state", self._state, Role.VIEWER),
        )
        add_routes(app, access, (*own, *routes))
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

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response(self._status.tables())
