"""HTTP for operators of a node: `/healthz`, `/readyz`, `/metrics`, `/api/v1/state`. Read only."""

from __future__ import annotations

import asyncio

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from bridges.doors.http import OperatorDoor, readiness
from bridges.doors.logins import Logins
from bridges.node.metrics import Metrics
from bridges.node.node import BridgeNode
from bridges.node.server import Server


def http_of(node: BridgeNode, server: Server, logins: Logins | None = None) -> OperatorDoor:
    """The HTTP side of one node: serves whoever asks, or those who log in."""
    metrics = Metrics(node, server)

    async def readyz(_request: web.Request) -> web.Response:
        """All subscriptions are attached and all sinks can publish."""
        return readiness(node.waiting_for())

    async def text(_request: web.Request) -> web.Response:
        shown = await asyncio.to_thread(metrics.text)  # it reads the files
        return web.Response(body=shown, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def state(_request: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(node.state))

    routes = [web.get("/readyz", readyz), web.get("/metrics", text), web.get("/api/v1/state", state)]
    return OperatorDoor(server.doors, logins, routes)
