"""The HTTP of an edge as an OpenAPI description: what GET /api/v1/openapi.json answers."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from bridges.edge.journals_api import MAX_COUNT, MAX_PAGE
from bridges.edge.journals_api import PATH as JOURNALS
from bridges.journal.cursors import MAX_READER
from bridges.journal.pages import CONTENT_TYPE
from oncewire.store.rules_core import MAX_NAME

PATH = "/api/v1/openapi.json"
VERSION = "3.1.0"
MOST_DIGITS = 19
Json = dict[str, object]

_ALL = (400, 401, 403, 503)
"""Refusals of every request: its parameters, logins and rights; a store that does not answer."""
_NAMED = (*_ALL, 404)
_POSITIONED = (*_NAMED, 410, 416, 429)
"""The same where a position may be trimmed or ahead, or too many wait."""


def openapi_route(version: str) -> web.RouteDef:
    """The route; `version` is that of Oncewire."""
    described = document(version)

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(described)

    return web.get(PATH, answer)


def document(version: str) -> Json:
    """The description; `version` is that of Oncewire."""
    return {
        "openapi": VERSION,
        "info": {"title": "Oncewire edge", "version": version},
        "paths": {**_process(), **_journals()},
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error", "fix"],
                    "properties": {"error": {"type": "string"}, "fix": {"type": "string"}},
                }
            },
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


# --- words ------------------------------------------------------------------------------------------------------------


def _does(
    summary: str,
    refusals: Iterable[int] = _ALL,
    parameters: Iterable[Json] = (),
    required: Iterable[str] = (),
    content: str = "",
) -> Json:
    """One operation; with a type of content it answers no JSON."""
    good = _content(content, {"type": "string"}) if content else _json({"type": "object", "required": list(required)})
    refused = _json({"$ref": "#/components/schemas/Error"})
    answers: Json = {str(each): {"description": "refused", "content": refused} for each in refusals}
    if answers:  # a request line or a header that cannot be read never gets to a route
        answers["400"] = {
            "description": "refused",
            "content": {**refused, **_content("text/plain", {"type": "string"})},
        }
    found: Json = {"summary": summary, "responses": {"200": {"description": "done", "content": good}, **answers}}
    if parameters:
        found["parameters"] = list(parameters)
    return found


def _content(kind: str, schema: Json) -> Json:
    return {kind: {"schema": schema}}


def _json(schema: Json) -> Json:
    return _content("application/json", schema)


def _in_path(name: str, **schema: object) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, **schema}}


def _in_query(name: str, *, required: bool = False, **schema: object) -> Json:
    return {"name": name, "in": "query", "required": required, "schema": schema}


# --- paths ------------------------------------------------------------------------------------------------------------


def _process() -> Json:
    ready = _does("Whether the store answers, and each part runs or stands by.", (), (), ("ready",))
    missing = {"description": "not ready, and what is missing", "content": _json({"type": "object"})}
    return {
        "/healthz": {"get": _does("Whether the process runs.", (), (), ("status",))},
        "/readyz": {"get": {**ready, "responses": {**_answers_of(ready), "503": missing}}},
        "/metrics": {"get": _does("Metrics for Prometheus.", content="text/plain")},
        "/api/v1/state": {"get": _does("What the edge runs, and how each part is.", _ALL, (), ("parts", "ready"))},
        "/api/v1/reload": {"post": _does("Read the settings again.", (*_ALL, 409))},
        PATH: {"get": _does("This description.", _ALL, (), ("paths",))},
    }


def _answers_of(operation: Json) -> Json:
    answers = operation["responses"]
    assert isinstance(answers, dict)
    return answers


def _journals() -> Json:
    name = _in_path("name", maxLength=MAX_NAME)
    begin = _in_query("from", type="string", description="first, last, next, a position or a time")
    reader = _in_query("reader", required=True, type="string", minLength=1, maxLength=MAX_READER)
    start: Json = {
        "required": True,
        "content": _json({"type": "object", "required": ["start"], "properties": {"start": {"type": "string"}}}),
    }
    one = f"{JOURNALS}/{{name}}"
    range_of = [name, begin, _in_query("count", type="integer", minimum=1, maximum=MAX_COUNT)]
    page_of = [name, begin, _in_query("count", type="integer", minimum=1, maximum=MAX_PAGE)]
    wait = _in_query("wait", type="string", description="a time such as 10s: how long to wait for the first message")
    position = _in_path("position", pattern="^[0-9]+$", maxLength=MOST_DIGITS)
    return {
        JOURNALS: {"get": _does("All journals in numbers.", _ALL, (), ("journals",))},
        one: {
            "get": _does("One journal, with its readers.", _NAMED, [name], ("journal", "readers")),
            "delete": _does("Delete it.", _NAMED, [name], ("deleted",)),
        },
        f"{one}/messages": {"get": _does("A range of messages.", _POSITIONED, [*range_of, wait], ("messages", "next"))},
        f"{one}/messages/{{position}}/body": {
            "get": _does("The body of one message.", _POSITIONED, [name, position], content="application/octet-stream")
        },
        f"{one}/pages": {
            "get": _does("A range of messages as they are stored.", _POSITIONED, page_of, content=CONTENT_TYPE)
        },
        f"{one}/trim": {"post": {**_does("Delete what is before a start.", _POSITIONED, [name]), "requestBody": start}},
        f"{one}/readers": {
            "put": {**_does("Move a reader's cursor.", _POSITIONED, [name, reader]), "requestBody": start},
            "delete": _does("Delete a reader's cursor.", _NAMED, [name, reader], ("deleted",)),
        },
    }
