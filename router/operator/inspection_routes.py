"""The inspector's routes with their roles: the page, its files, and the API behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from oncewire.transport.admission_core import group_of
from router.operator.access import AccessDenied, Route, caller_of, refusal
from router.operator.queue_rights import QueueRights
from topology.inspector.api import Inspector
from topology.inspector.page import serving
from topology.inspector.queues_api import QueuesApi
from topology.inspector.schema.model import READER, Role
from topology.inspector.source import Rights


def rights_of(request: web.Request) -> Rights:
    """What whoever asks may do beside looking; inside a route that asks for a role."""
    caller = caller_of(request)
    whose = f"user {caller.user}" if caller.user else group_of(caller.peer)
    return Rights(manage=caller.role >= Role.OPERATOR, bodies=caller.role >= Role.ADMIN, caller=whose)


def inspection_routes(inspector: Inspector, queues: QueuesApi, rights: QueueRights) -> Iterable[Route]:
    """Everything of the inspector is for viewers; single parts of answers, and what changes something, need more."""
    for path, handler in queues.reads:
        yield Route("GET", path, handler, READER)
    for path, handler in queues.changes:
        yield Route("POST", path, _replaying(handler, rights), READER)
    for route in inspector.routes():
        yield Route("GET", route.path, route.handler, READER)
    yield Route("GET", "/", serving.page, READER)
    yield Route("GET", "/inspector", serving.page, READER)
    yield Route("GET", serving.LOGIN, serving.login, Role.OPERATOR, asks_again=True)
    yield Route("GET", f"{serving.PREFIX}{{name:.+}}", serving.file, READER)


def _replaying(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], rights: QueueRights
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Replay an item for those who may."""

    async def replay(request: web.Request) -> web.StreamResponse:
        caller, queue = caller_of(request), request.match_info["queue"]
        try:
            rights.require_replay(caller, queue)
        except AccessDenied as denied:
            return refusal(denied.status, str(denied), denied.fix)
        answer = await handler(request)
        if answer.status == web.HTTPOk.status_code:
            rights.replayed(caller, queue, request.match_info["number"])
        return answer

    return replay
