"""HTTP of an edge for operators: health, `/metrics`, `/api/v1/state`, journals, and a reload of its settings."""

from __future__ import annotations

from importlib.metadata import version

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from bridges.doors.gates import Doors
from bridges.doors.http import OperatorDoor, readiness
from bridges.doors.logins import Logins
from bridges.edge.edge import Edge
from bridges.edge.journals_api import JournalsApi
from bridges.edge.metrics import Metrics
from bridges.edge.openapi import openapi_route
from oncewire.cli.errors import CliError
from oncewire.transport.hosts import is_loopback


def http_of(edge: Edge, doors: Doors, logins: Logins | None) -> OperatorDoor:
    """The HTTP side of one edge: serves whoever asks, or those who log in; others than this machine only look."""
    metrics = Metrics(edge.name, doors)

    async def readyz(_request: web.Request) -> web.Response:
        """All parts run, or stand by, and the store answers."""
        return readiness(await edge.waiting_for())

    async def text(_request: web.Request) -> web.Response:
        shown = metrics.text(await edge.parts(), await edge.waiting_for())
        return web.Response(body=shown, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def state(_request: web.Request) -> web.Response:
        return web.json_response(await edge.state())

    async def reload(request: web.Request) -> web.Response:
        """Programs only: no page of another site that an operator looks at can have it done."""
        if "Origin" in request.headers or (logins is None and not is_loopback(request.remote or "")):
            fix = "log in (http.users_file, jwt.*), or ask from the machine of the edge, or send SIGHUP"
            return web.json_response({"error": "this may not be done from here", "fix": fix}, status=403)
        try:
            return web.json_response(await edge.reload())
        except CliError as error:
            return web.json_response({"error": f"{error.what}: {error.why}", "fix": error.fix}, status=409)

    routes = [
        web.get("/readyz", readyz),
        web.get("/metrics", text),
        web.get("/api/v1/state", state),
        web.post("/api/v1/reload", reload),
        *JournalsApi(edge).routes(),
        openapi_route(version("oncewire")),
    ]
    return OperatorDoor(doors, logins, routes)
