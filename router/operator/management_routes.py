"""Management over HTTP: `/api/v1/management/...`, JSON in and out. Every change needs its operation's role."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

from aiohttp import web

from router.operator.access import AccessDenied, Route, caller_of, refusal
from router.operator.arguments import ManagementError
from router.operator.schema import TYPES, as_data
from router.operator.service import MAX_ROWS, Management, type_named
from topology.inspector.schema.model import READER

PREFIX = "/api/v1/management"
MAX_BODY_BYTES = 64 * 1024
"""Arguments are short; lists of names the longest."""
_Answer: TypeAlias = Callable[[web.Request], Awaitable[dict[str, object]]]


def management_routes(management: Management) -> Iterable[Route]:
    """All routes. Reading needs READER; what changes something asks for more when it is known what."""
    routes = _Routes(management)
    entity = f"{PREFIX}/{{type:{'|'.join(TYPES)}}}/{{name}}"
    for method, path, answer in (
        ("GET", f"{PREFIX}/schema", routes.schema),
        ("GET", f"{PREFIX}/{{type}}", routes.query),
        ("GET", f"{PREFIX}/{{type}}/{{name}}", routes.read),
        ("PUT", entity, routes.update),
        ("DELETE", entity, routes.delete),
        ("POST", f"{entity}/{{operation}}", routes.operate),
    ):
        yield Route(method, path, _answering(answer), READER)


class _Routes:
    def __init__(self, management: Management) -> None:
        self._management = management

    async def schema(self, _request: web.Request) -> dict[str, object]:
        return as_data()

    async def query(self, request: web.Request) -> dict[str, object]:
        numbers = {"offset": 0, "limit": MAX_ROWS}
        for name, value in request.query.items():
            if name not in numbers or not value.isascii() or not value.isdigit() or len(value) > 9:
                raise ManagementError(
                    400, f"{name} = {value} cannot be used", f"offset is 0 or more, limit 1 to {MAX_ROWS}"
                )
            numbers[name] = int(value)
        rows, total = await self._management.query(request.match_info["type"], numbers["offset"], numbers["limit"])
        return {"items": rows, "total": total}

    async def read(self, request: web.Request) -> dict[str, object]:
        return await self._management.read(request.match_info["type"], request.match_info["name"])

    async def update(self, request: web.Request) -> dict[str, object]:
        name, given = request.match_info["name"], await _given(request)
        return await self._management.update(request.match_info["type"], name, given, caller_of(request))

    async def delete(self, request: web.Request) -> dict[str, object]:
        name, given = request.match_info["name"], await _given(request)
        return await self._management.delete(request.match_info["type"], name, given, caller_of(request))

    async def operate(self, request: web.Request) -> dict[str, object]:
        name, given = request.match_info["name"], await _given(request)
        type_name, operation = type_named(request.match_info["type"]).name, request.match_info["operation"]
        return await self._management.operate(type_name, name, operation, given, caller_of(request))


async def _given(request: web.Request) -> Mapping[object, object]:
    """The JSON object of a request; an empty body gives nothing."""
    body = await request.content.read(MAX_BODY_BYTES + 1)
    while len(body) <= MAX_BODY_BYTES and not request.content.at_eof():
        body += await request.content.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise ManagementError(413, f"the request is longer than {MAX_BODY_BYTES} bytes", "send less")
    try:
        given = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        raise ManagementError(400, "the request is not JSON", "send one JSON object with the arguments") from None
    if not isinstance(given, dict):
        raise ManagementError(400, "the request is no JSON object", "send one JSON object with the arguments")
    return given


def _answering(answer: _Answer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return web.json_response(await answer(request))
        except (ManagementError, AccessDenied) as refused:
            return refusal(refused.status, str(refused), refused.fix)

    return handle
