"""HTTP for operators of a bridge process: admission, logins, and the handlers that the process brings."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from bridges.doors.gates import Doors
from bridges.doors.logins import LoginRefused, Logins
from oncewire.cli.errors import CliError
from oncewire.transport.accepting import Listener, bound, port_of

SHUTDOWN_TIMEOUT_S = 0.5
"""An orderly stop does not wait for slow scrapers."""
USER = "user"
"""Of a request: who has logged in; it is not there without logins."""
OPEN = frozenset({"/healthz", "/readyz"})
"""What needs no login: whoever starts a process asks it, and has none."""


class OperatorDoor:
    """Serves routes over HTTP; `/healthz` is one of them.

    Args:
        doors: the doors of the process.
        logins: who may log in; None = whoever asks is served.
        routes: beside `/healthz`.
    """

    def __init__(self, doors: Doors, logins: Logins | None, routes: Iterable[web.RouteDef]) -> None:
        """Listen to nobody yet."""
        self._gate = doors.http
        self._logins = logins
        self._listener: Listener | None = None
        app = web.Application(middlewares=[self._admit])
        app.add_routes([web.get("/healthz", _healthz), *routes])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, without TLS if `tls` is None; returns the port.

        Raises:
            CliError: the address cannot be listened on.
        """
        await self._runner.setup()
        assert self._runner.server is not None
        try:
            self._listener = Listener(await bound(host, port), self._runner.server, tls, self._gate)
        except OSError as error:
            await self._runner.cleanup()
            raise CliError(
                f"HTTP cannot be served on {host}:{port}",
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
                request[USER] = await self._logins.check(request.headers.get("Authorization"), request.remote or "")
            except LoginRefused as refused:
                shown = web.json_response({"error": str(refused), "fix": refused.fix}, status=refused.status)
                for challenge in self._logins.challenges if refused.status == 401 else ():
                    shown.headers.add("WWW-Authenticate", challenge)
                return shown
        return await handler(request)


async def _healthz(_request: web.Request) -> web.Response:
    """The process runs and its event loop turns."""
    return web.json_response({"status": "ok"})


def readiness(waiting_for: object) -> web.Response:
    """The answer of `/readyz`: 200 where nothing is missing, else 503 and what is."""
    return web.json_response({"ready": not waiting_for, "waiting_for": waiting_for}, status=503 if waiting_for else 200)
