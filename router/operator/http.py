"""HTTP for operators: health, metrics, state, inspector and management; each route says which role it needs."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from oncewire.cli.errors import CliError
from oncewire.transport.accepting import Listener, port_of
from oncewire.transport.gate import ListenerGate
from router.operator.access import Access, Handler, Route, add_routes, is_from_worker, refusal
from router.operator.metrics import Metrics
from router.operator.status import Status
from router.operator.worker_front import WorkerFront
from router.process.listening import listen, listen_at
from router.process.logs import EventLog
from topology.inspector.schema.model import Role

_LOG = web.AppKey("log", EventLog)
SHUTDOWN_TIMEOUT_S = 0.5
"""An orderly stop does not wait for slow scrapers."""
KEPT = 4
"""A page that took 5 ms to make is given for the next 20 ms: readers without end have a fifth of the loop."""
KEEPALIVE_S = 75.0
"""Between requests, and for the header of the next one: longer than scrapers wait, who so keep their connections."""


@web.middleware
async def _say_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What aiohttp refuses by itself, and our own faults, are reported as every other error."""
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        answer = refusal(405, f"{request.path} knows no {request.method}", f"it knows {allowed}")
        answer.headers["Allow"] = allowed
        return answer
    except web.HTTPNotFound:
        return refusal(404, f"there is nothing at {request.path}", "management.md and inspector.md name what there is")
    except ConnectionError:  # nobody reads this; it is no fault of ours
        return refusal(400, "the request ended before it was whole", "send it again")
    except web.HTTPClientError as error:
        return refusal(error.status, error.reason, "management.md and inspector.md say what each path takes")
    except web.HTTPException:
        raise
    except Exception as error:  # noqa: BLE001  (a fault of ours ends one request)
        request.app[_LOG].internal_error(error, f"{request.method} {request.path}")
        return refusal(500, "internal error", "see the router's log")


class _Page:
    """What takes long to make is made again only after a time: reading it again and again takes a part of the loop."""

    __slots__ = ("_made", "_make", "_until")

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._made = b""
        self._until = 0.0

    def get(self) -> bytes:
        """The page, as it was not long ago."""
        began = time.monotonic()
        if began >= self._until:
            self._made = self._make()
            ended = time.monotonic()
            self._until = ended + KEPT * (ended - began)
        return self._made


class HttpServer:
    """The HTTP side of one router process."""

    def __init__(
        self,
        status: Status,
        access: Access,
        log: EventLog,
        routes: Iterable[Route] = (),
        tls: ssl.SSLContext | None = None,
        gate: ListenerGate | None = None,
        front: WorkerFront | None = None,
        more_metrics: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        """Serve.

        Args:
            status: what this router reports about itself.
            access: who may do what.
            log: gets the faults.
            routes: further routes (inspector, management).
            tls: None = without TLS.
            gate: who is admitted; None = everybody.
            front: speaks for all workers, to all but them; None = this router speaks for itself alone.
            more_metrics: makes metrics to be served behind the router's own.
        """
        self._front = front
        self._more_metrics = more_metrics
        self._gate = gate
        self._status = status
        self._text_of_now = _Page(Metrics(status).text)
        self._state_of_now = _Page(lambda: json.dumps(status.tables()).encode())
        app = web.Application(middlewares=[self._note_request, _say_as_json])
        app[_LOG] = log
        own = (
            Route("GET", "/healthz", self._healthz, None),
            Route("GET", "/readyz", self._readyz, None),
            Route("GET", "/metrics", self._text, Role.VIEWER),
            Route("GET", "/api/v1/state", self._state, Role.VIEWER),
        )
        add_routes(app, access, (*own, *routes))
        self._tls = tls
        self._servers: list[Listener] = []
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S, keepalive_timeout=KEEPALIVE_S
        )

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            CliError: the address cannot be listened on.
        """
        try:
            # Not a site of aiohttp's: that has no limits for TLS handshakes.
            server = await listen(await self._made(), host, port, "--http-port", self._tls, self._gate)
        except CliError:
            await self._runner.cleanup()
            raise
        self._servers.append(server)
        return port_of(server)

    async def start_at(self, path: str) -> None:
        """Listen on the Unix socket of a worker."""
        self._servers.append(listen_at(path, await self._made()))

    async def _made(self) -> web.Server:
        if self._runner.server is None:
            await self._runner.setup()
        assert self._runner.server is not None
        return self._runner.server

    async def stop(self) -> None:
        """Stop listening and drop connections."""
        for server in self._servers:
            server.close()
        await self._runner.cleanup()

    @web.middleware
    async def _note_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The header of a request is whole."""
        if self._gate is not None:
            self._gate.know(request.protocol)
        return await handler(request)

    def _for_all(self, request: web.Request) -> WorkerFront | None:
        return None if is_from_worker(request) else self._front

    async def _healthz(self, request: web.Request) -> web.Response:
        """The process runs and its event loop turns."""
        front = self._for_all(request)
        if front is not None:
            return await front.healthz()
        return web.json_response({"status": "ok"})

    async def _readyz(self, request: web.Request) -> web.Response:
        """Clients are welcome: 200, or 503 and what is missing."""
        front = self._for_all(request)
        if front is not None:
            return await front.readyz()
        missing = self._status.waiting_for()
        return web.json_response({"ready": not missing, "waiting_for": missing}, status=503 if missing else 200)

    async def _text(self, request: web.Request) -> web.Response:
        front = self._for_all(request)
        if front is not None:
            body = await front.metrics()
        else:
            body = self._text_of_now.get() + (b"" if self._more_metrics is None else await self._more_metrics())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response(body=self._state_of_now.get())
