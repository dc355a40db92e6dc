"""The HTTP API as an OpenAPI description, made of the one schema: what GET /api/v1/openapi.json answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache

from aiohttp import web

from router.operator.access import Route
from router.operator.management_routes import PREFIX as MANAGEMENT
from router.operator.schema import TYPES
from topology.inspector.parameters_core import MAX_SECONDS, MAX_TEXT
from topology.inspector.queues import ENDINGS
from topology.inspector.rates_core import POINTS
from topology.inspector.rows_core import COLLECTIONS, MAX_ROWS, MEASURED, WAITS
from topology.inspector.schema.model import READER, Attribute, EntityType, Type

PATH = "/api/v1/openapi.json"
VERSION = "3.1.0"
Json = dict[str, object]

_TYPES: Mapping[Type, Json] = {
    Type.TEXT: {"type": "string"},
    Type.INTEGER: {"type": "integer"},
    Type.NUMBER: {"type": "number"},
    Type.BOOLEAN: {"type": "boolean"},
    Type.LIST: {"type": "array", "items": {"type": "string"}},
    Type.MAP: {"type": "object"},
}
_READING = (400, 401, 403, 429, 503)
"""Refusals of what reads: parameters, logins and roles, too many at once, no lease in etcd."""
_NAMED = (*_READING, 404)
"""The same where a name may be that of nothing."""
_CHANGING = (*_NAMED, 405, 409, 413, 415, 504)
"""Refusals of what changes something."""
_NETWORK: Json = {"name": "network", "in": "query", "schema": {"type": "boolean"}}


def openapi_routes(version: str) -> tuple[Route, ...]:
    """The one route; `version` is that of Oncewire. The description is made when it is first asked for."""
    text = cache(lambda: json.dumps(document(version)))

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(text=text())

    return (Route("GET", PATH, answer, READER),)


def document(version: str) -> Json:
    """The description; `version` is that of Oncewire."""
    return {
        "openapi": VERSION,
        "info": {"title": "Oncewire router", "version": version},
        "paths": {**_health(), **_inspector(), **_queues(), **_management()},
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error", "fix"],
                    "properties": {"error": {"type": "string"}, "fix": {"type": "string"}},
                }
            },
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
        "security": [{}, {"basic": []}],
    }


def _answers(refusals: Iterable[int], required: Iterable[str] = ()) -> Json:
    good: Json = {"type": "object", "required": list(required)}
    content = _as_json({"$ref": "#/components/schemas/Error"})
    found: Json = {str(each): {"description": "refused", "content": content} for each in refusals}
    if "400" in found:  # a request line or a header that is too long never gets to a route
        found["400"] = {"description": "refused", "content": {**content, "text/plain": {"schema": {"type": "string"}}}}
    return {"200": {"description": "done", "content": _as_json(good)}, **found}


def _as_json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _get(
    summary: str, refusals: Iterable[int] = _READING, parameters: Iterable[Json] = (), required: Iterable[str] = ()
) -> Json:
    found: Json = {"summary": summary, "responses": _answers(refusals, required)}
    if parameters:
        found["parameters"] = list(parameters)
    return {"get": found}


def _in_path(name: str, **schema: object) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, **schema}}


def _in_query(name: str, **schema: object) -> Json:
    return {"name": name, "in": "query", "schema": schema}


def _health() -> Json:
    text: Json = {"200": {"description": "metrics", "content": {"text/plain": {"schema": {"type": "string"}}}}}
    metrics = _get("Metrics for Prometheus.")
    metrics["get"] = {"summary": "Metrics for Prometheus.", "responses": {**_answers(_READING), **text}}
    ready = {"description": "not ready, and what is missing", "content": _as_json({"type": "object"})}
    return {
        "/healthz": _get("Whether the process runs.", (), (), ("status",)),
        "/readyz": {
            "get": {"summary": "Whether clients are accepted.", "responses": {**_answers((), ("ready",)), "503": ready}}
        },
        "/metrics": metrics,
        "/api/v1/state": _get("All state machines of this router."),
        PATH: _get("This description.", _READING, (), ("openapi", "paths")),
    }


def _inspector() -> Json:
    limit = _in_query("limit", type="integer", minimum=1, maximum=MAX_ROWS)
    texts = [_in_query(name, type="string", maxLength=MAX_TEXT) for name in ("topic", "router", "q")]
    page: list[Json] = [limit, _in_query("cursor", type="string"), *texts, _NETWORK, _in_query("own", type="boolean")]
    waits = [*page, _in_query("min_s", type="number", minimum=0, maximum=MAX_SECONDS)]
    found: Json = {
        f"/api/v1/{table}": _get(
            f"A page of {table}.", _READING, waits if table == WAITS else page, ("items", "next", "total")
        )
        for table in COLLECTIONS
    }
    found |= {
        f"/api/v1/rates/{table}": _get(
            f"Rates of {table} in the last five minutes.",
            _READING,
            [*texts, _NETWORK, _in_query("points", type="integer", minimum=1, maximum=POINTS)],
            ("items", "point_s", "points"),
        )
        for table in MEASURED
    }
    return found | {
        "/api/v1/overview": _get("This router, and what the caller may do.", _READING, [_NETWORK], ("can",)),
        "/api/v1/deliveries/{tag}": _get(
            "Where a delivery is, by its tag in hex.",
            _NAMED,
            [_in_path("tag"), _in_query("publisher", type="string"), _NETWORK],
            ("found",),
        ),
        "/api/v1/holders": _get(
            "State of deliveries at subscriptions of this router.",
            _READING,
            [_in_query("of", type="string")],
            ("holders",),
        ),
        "/api/v1/events": _get(
            "What happened last.",
            _READING,
            [_in_query("after", type="integer", minimum=0), limit, _NETWORK],
            ("items",),
        ),
    }


def _queues() -> Json:
    queue, number = _in_path("queue", maxLength=128), _in_path("number")
    entries = [
        queue,
        _in_query("ending", type="string", enum=list(ENDINGS)),
        _in_query("cursor", type="string"),
        _in_query("limit", type="integer", minimum=1, maximum=MAX_ROWS),
    ]
    replay: Json = {
        "summary": "Put an ended item into its queue again.",
        "parameters": [queue, number],
        "requestBody": {"content": _as_json({"type": "object", "maxProperties": 0})},
        "responses": _answers(_CHANGING),
    }
    return {
        "/api/v1/queues": _get("Work queues in numbers.", _NAMED),
        "/api/v1/queues/{queue}/entries": _get("What ended.", _NAMED, entries),
        "/api/v1/queues/{queue}/entries/{number}": _get("One item.", _NAMED, [queue, number]),
        "/api/v1/queues/{queue}/entries/{number}/replay": {"post": replay},
        "/api/v1/journals": _get("Journals in numbers.", _NAMED),
        "/api/v1/journals/{journal}": _get(
            "One journal and its readers.", _NAMED, [_in_path("journal", maxLength=128)]
        ),
    }


# --- management -------------------------------------------------------------------------------------------------------


def _management() -> Json:
    numbers = [_in_query("offset", type="integer", minimum=0), _in_query("limit", type="integer", minimum=1)]
    found: Json = {f"{MANAGEMENT}/schema": _get("Types, attributes, operations and settings.", required=("types",))}
    for entity in TYPES.values():
        path = f"{MANAGEMENT}/{entity.name}"
        found[path] = _get(entity.meaning, _NAMED, numbers, ("items", "total"))
        found[f"{path}/{{name}}"] = _entity(entity)
        for operation in entity.operations:
            found[f"{path}/{{name}}/{operation.name}"] = {"post": _change(operation.meaning, operation.arguments)}
    return found


def _entity(entity: EntityType) -> Json:
    found = _get(f"One {entity.name}, by {entity.naming}.", _NAMED, [_in_path("name")])
    if entity.settable:
        found["put"] = _change("Change it.", entity.settable)
    if entity.delete is not None:
        found["delete"] = _change(entity.delete.meaning, entity.delete.arguments)
    return found


def _change(summary: str, arguments: Iterable[Attribute]) -> Json:
    given = list(arguments)
    body: Json = {
        "type": "object",
        "additionalProperties": False,
        "properties": {each.name: _attribute(each) for each in given},
        "required": [each.name for each in given if each.is_required],
    }
    return {
        "summary": summary,
        "parameters": [_in_path("name")],
        "requestBody": {"content": _as_json(body), "required": True},
        "responses": _answers(_CHANGING),
    }


def _attribute(attribute: Attribute) -> Json:
    found: Json = {**_TYPES[attribute.type], "description": attribute.meaning}
    if attribute.choices:
        found["enum"] = list(attribute.choices)
    if attribute.low is not None:
        found |= {"minimum": attribute.low, "maximum": attribute.high}
    return found
