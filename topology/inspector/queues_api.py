"""The inspector's API over an edge's store: queues in numbers, what ended, one item, its replay; journals."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from topology.inspector.parameters_core import check_names, limit_of
from topology.inspector.queues import ENDINGS, NO_STORE, QueueReader
from topology.inspector.rows_core import InputError, Row
from topology.inspector.source import RightsOf

PREFIX = "/api/v1/queues"
JOURNALS = "/api/v1/journals"
MAX_NAME = 128
"""Characters of the name of a queue or journal, as these have it."""
MAX_NUMBER_DIGITS = 18
"""Any number of so many digits fits a database's integer."""
MAX_BODY_BYTES = 4_096
"""A replay has no arguments but perhaps an empty object."""
MAX_CURSOR = 64
"""Characters of a cursor: two numbers."""

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class QueuesApi:
    """Handlers for routes; which role each needs is for whoever adds the routes.

    Args:
        reader: the store; None = the router has none, and every request gets that answer.
        rights_of: what whoever asks may see.
    """

    def __init__(self, reader: QueueReader | None, rights_of: RightsOf) -> None:
        self._reader = reader
        self._rights_of = rights_of

    @property
    def reads(self) -> tuple[tuple[str, Answer], ...]:
        """Paths of GET with their handlers."""
        entry = f"{PREFIX}/{{queue}}/entries"
        return (
            (PREFIX, self._answering(self._queues)),
            (entry, self._answering(self._entries)),
            (f"{entry}/{{number}}", self._answering(self._entry)),
            (JOURNALS, self._answering(self._journals)),
            (f"{JOURNALS}/{{journal}}", self._answering(self._journal)),
        )

    @property
    def changes(self) -> tuple[tuple[str, Answer], ...]:
        """Paths of POST with their handlers: they change something."""
        return ((f"{PREFIX}/{{queue}}/entries/{{number}}/replay", self._answering(self._replay)),)

    async def close(self) -> None:
        """Release the store."""
        if self._reader is not None:
            await self._reader.close()

    async def _queues(self, reader: QueueReader, request: web.Request) -> Row:
        check_names(request.query, frozenset())
        items = await reader.queues()
        return {"items": items, "total": len(items), "outbox": await reader.outbox()}

    async def _journals(self, reader: QueueReader, request: web.Request) -> Row:
        check_names(request.query, frozenset())
        items = await reader.journals()
        return {"items": items, "total": len(items)}

    async def _journal(self, reader: QueueReader, request: web.Request) -> Row:
        check_names(request.query, frozenset())
        return await reader.journal(_name_of(request, "journal"))

    async def _entries(self, reader: QueueReader, request: web.Request) -> Row:
        check_names(request.query, frozenset({"ending", "limit", "cursor"}))
        ending, cursor = request.query.get("ending") or None, request.query.get("cursor") or None
        if ending is not None and ending not in ENDINGS:
            raise InputError(f"{ending!r} is no ending", f"give one of {', '.join(ENDINGS)}")
        if cursor is not None and len(cursor) > MAX_CURSOR:
            raise InputError("the cursor cannot be read", "give the `next` of the page before")
        return await reader.entries(_name_of(request, "queue"), ending, limit_of(request.query), cursor)

    async def _entry(self, reader: QueueReader, request: web.Request) -> Row:
        check_names(request.query, frozenset())
        with_payload = self._rights_of(request).bodies
        return await reader.entry(_name_of(request, "queue"), _number_of(request), with_payload=with_payload)

    async def _replay(self, reader: QueueReader, request: web.Request) -> Row:
        check_names(request.query, frozenset())
        body = await request.content.read(MAX_BODY_BYTES)
        try:
            given = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError):
            given = None
        if given != {}:
            raise InputError("a replay has no arguments", "send an empty JSON object")
        return await reader.replay(_name_of(request, "queue"), _number_of(request))

    def _answering(self, answer: Callable[[QueueReader, web.Request], Awaitable[Row]]) -> Answer:
        async def handle(request: web.Request) -> web.StreamResponse:
            if self._reader is None:
                return _refused(*NO_STORE)
            try:
                return web.json_response(await answer(self._reader, request))
            except InputError as error:
                return _refused(400, str(error), error.fix)
            except Exception as error:
                refusal = self._reader.refusal_of(error)
                if refusal is None:
                    raise
                return _refused(*refusal)

        return handle


def _name_of(request: web.Request, kind: str) -> str:
    name = request.match_info[kind]
    if not 0 < len(name) <= MAX_NAME:
        raise InputError(f"that is no name of a {kind}", f"a name has 1 to {MAX_NAME} characters")
    return name


def _number_of(request: web.Request) -> int:
    text = request.match_info["number"]
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_NUMBER_DIGITS):
        raise InputError(f"{text[:40]!r} is no number of an entry", "give the `entry` of an ended item")
    return int(text)


def _refused(status: int, error: str, fix: str) -> web.Response:
    return web.json_response({"error": error, "fix": fix}, status=status)
