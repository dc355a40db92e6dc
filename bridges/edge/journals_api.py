"""Journals over HTTP: their numbers, ranges of their messages; trim, seek and delete for who may (`http.rules`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from bridges.doors.http import USER
from bridges.doors.rules import ANONYMOUS, allows
from bridges.edge.edge import Edge
from bridges.edge.events import EdgeEvent
from bridges.edge.settings import RULES
from bridges.edge.supervisor import Shown
from bridges.journal import cursors, log
from bridges.journal.errors import PositionAhead, PositionTrimmed, unknown_cursor
from bridges.journal.model import JournalState, Place, Start, StoredMessage
from bridges.journal.pages import CONTENT_TYPE, encode_page
from bridges.journal.shapes import before, body_of, journal_words, message_words, reader_words
from bridges.journal.start_core import parse_text
from bridges.workqueue.cli_shapes import iso
from oncewire.settings.parsers import duration
from oncewire.store.errors import EdgeError, InvalidRequest, LimitReached, UnknownName
from oncewire.store.open_store import until_set
from oncewire.store.rules_core import to_s
from oncewire.store.store import Transaction
from oncewire.transport.hosts import is_loopback

PATH = "/api/v1/journals"
COUNT = 100
MAX_COUNT = 1000
"""Messages of one answer: those who write to a SQLite store wait while they are read."""
MAX_PAGE = 10_000
"""Messages of one page, whose payloads nobody decodes here."""
MAX_ANSWER_BYTES = 4 << 20
"""Of bodies in one answer; the message that reaches it is the last one."""
MAX_WAIT_S = 60.0
"""Of a long poll: proxies end what is silent for longer."""
MAX_WAITING = 64
"""Long polls at a time: each keeps one of the connections that operators need, too."""
KINDS: Mapping[type[EdgeError], int] = {
    UnknownName: 404,
    PositionTrimmed: 410,
    PositionAhead: 416,
    InvalidRequest: 400,
    LimitReached: 429,
}
"""The first kind that an error is of names its status; all else is 503: the store does not answer."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")


class Refused(Exception):
    """This caller may not do this.

    Attributes:
        fix: what can be done about it.
    """

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.fix = fix


class JournalsApi:
    """Answers requests about the journals of an edge's store.

    Args:
        edge: with the store.
    """

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._waiting = 0

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        one = PATH + "/{name}"
        return [
            web.get(PATH, _answered(self.index)),
            web.get(one, _answered(self.show)),
            web.get(one + "/messages", _answered(self.messages)),
            web.get(one + "/messages/{position}/body", _answered(self.body)),
            web.get(one + "/pages", _answered(self.page)),
            web.post(one + "/trim", _answered(self.trim)),
            web.delete(one, _answered(self.delete)),
            web.put(one + "/readers", _answered(self.seek)),
            web.delete(one + "/readers", _answered(self.forget)),
        ]

    async def _do(self, job: Callable[[Transaction], T]) -> T:
        return await self._edge.store.transact(job)

    # --- rights -------------------------------------------------------------------------------------------------------

    def _name(self, request: web.Request, right: str) -> str:
        """The journal of a request whose caller has this right.

        Raises:
            Refused: it has not.
        """
        name, user = request.match_info["name"], request.get(USER, "")
        rules = self._edge.settings.values[RULES]
        if right == "manage" and "Origin" in request.headers:  # a page of another site that an operator looks at
            raise Refused("this may not be done by a page", "use a program, such as curl or `oncewire journal`")
        if rules and not allows(rules, right, user, name):
            why = f"no rule of {RULES} lets {user or ANONYMOUS} {right} journal {name!r}"
            if right == "manage":
                self._edge.log.event(EdgeEvent.MANAGEMENT_REFUSED, why=why, peer=request.remote)
            raise Refused(why, f'add {{users = ["{user or ANONYMOUS}"], {right} = ["{name}"]}} to {RULES} of the edge')
        # The host is ours too, or a page whose name was bound to this machine asks.
        is_here = is_loopback(request.remote or "") and is_loopback(request.url.host or "")
        if not rules and not user and not is_here:
            why = "journals are for who has logged in, or asks from the machine of the edge"
            raise Refused(why, f"log in (http.users_file, jwt.*), or let {RULES} allow {ANONYMOUS}")
        return name

    def _log(self, request: web.Request, doing: str, name: str, given: str = "") -> None:
        by = request.get(USER, "") or request.remote
        self._edge.log.event(EdgeEvent.MANAGEMENT_DONE, doing=doing, name=name, given=given, by=by)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def index(self, _request: web.Request) -> web.StreamResponse:
        """All journals in numbers, as `/api/v1/state` has those of the settings."""
        parts = {part.name: part for part in await self._edge.parts() if part.kind == "journal"}

        def look(do: Transaction) -> list[dict[str, Any]]:
            return [{**_words(do, each), **_running(parts.get(each.name))} for each in log.journals(do)]

        return web.json_response({"journals": await self._do(look)})

    async def show(self, request: web.Request) -> web.StreamResponse:
        """One journal, with its readers."""
        name = self._name(request, "read")
        parts = {part.name: part for part in await self._edge.parts() if part.kind == "journal"}

        def look(do: Transaction) -> dict[str, Any]:
            found = log.state(do, name)
            readers = [reader_words(found, reader, each) for reader, each in cursors.cursors(do, found).items()]
            return {**_words(do, found), "readers": readers}

        return web.json_response({**await self._do(look), **_running(parts.get(name))})

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """A range of messages; with `wait` it waits for the first one."""
        name, query = self._name(request, "read"), request.query
        begin = parse_text(query.get("from", Place.FIRST.value))
        count = _number(query.get("count", str(COUNT)), 1, MAX_COUNT, "count")
        wait_s = _wait(query.get("wait", "0"))
        after = await self._do(lambda do: log.resolve(do, log.state(do, name), begin))
        found, messages = await self._read(name, after, count)
        if not messages and wait_s:
            found, messages = await self._wait(name, after, count, wait_s)
        words = {
            "journal": name,
            "id": found.uuid,
            "first": found.trimmed + 1,
            "last": found.last,
            "messages": [message_words(each) for each in messages],
            "next": 1 + (messages[-1].position if messages else after),
        }
        return web.json_response(words)

    async def _read(self, name: str, after: int, count: int) -> tuple[JournalState, list[StoredMessage]]:
        return await self._do(lambda do: log.read(do, name, after, count, MAX_ANSWER_BYTES))

    async def _wait(self, name: str, after: int, count: int, wait_s: float) -> tuple[JournalState, list[StoredMessage]]:
        if self._waiting >= MAX_WAITING:
            why = f"{MAX_WAITING} requests wait already"
            raise LimitReached("nothing was waited for", why, "ask again without wait, or later")
        self._waiting += 1
        loop = asyncio.get_running_loop()
        end, store = loop.time() + wait_s, self._edge.store
        try:
            await store.listen()
            with store.waiting(log.notice_of(name)) as changed:
                while True:
                    changed.clear()
                    found, messages = await self._read(name, after, count)
                    if messages or loop.time() >= end:
                        return found, messages
                    await until_set(changed, end - loop.time())
        finally:
            self._waiting -= 1

    async def page(self, request: web.Request) -> web.StreamResponse:
        """A range of messages as they are stored, for programs that read much (pages.py)."""
        name, query = self._name(request, "read"), request.query
        begin = parse_text(query.get("from", Place.FIRST.value))
        count = _number(query.get("count", str(MAX_PAGE)), 1, MAX_PAGE, "count")

        def look(do: Transaction) -> tuple[JournalState, list[StoredMessage]]:
            after = log.resolve(do, log.state(do, name), begin)
            return log.read(do, name, after, count, MAX_ANSWER_BYTES)

        return web.Response(body=encode_page(*await self._do(look)), content_type=CONTENT_TYPE)

    async def body(self, request: web.Request) -> web.StreamResponse:
        """The body of one message as it was sent; no browser takes it for a page."""
        name = self._name(request, "read")
        position = _number(request.match_info["position"], 1, 1 << 62, "the position")

        def look(do: Transaction) -> list[StoredMessage]:
            after = log.resolve(do, log.state(do, name), position)
            return log.read(do, name, after, 1, 1)[1]

        messages = await self._do(look)
        if not messages or messages[0].position != position:
            fix = f"read {PATH}/{name}/messages to see which positions there are"
            raise InvalidRequest(f"journal {name!r} has no message {position}", "it has not come, or was replaced", fix)
        message = messages[0]
        headers = {
            "X-Oncewire-Position": str(position),
            "X-Oncewire-Stored-At": iso(to_s(message.arrived_us)),
            "X-Content-Type-Options": "nosniff",
            "Content-Disposition": "attachment",
        }
        return web.Response(body=body_of(message)[0], content_type="application/octet-stream", headers=headers)

    # --- managing -----------------------------------------------------------------------------------------------------

    async def trim(self, request: web.Request) -> web.StreamResponse:
        """Delete what is before a start."""
        name = self._name(request, "manage")
        text, start = await _start(request)
        end = await self._do(lambda do: before(do, log.state(do, name), start))
        while True:
            found = await self._do(lambda do: log.trim(do, name, end))
            if found.trimmed >= end:
                break
        self._log(request, "trim", name, text)
        return web.json_response(journal_words(found, None))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """Delete a journal; its messages go in portions."""
        name = self._name(request, "manage")
        await self._do(lambda do: log.delete(do, name))
        self._log(request, "delete", name)
        while await self._do(log.clear_remains):
            pass
        return web.json_response({"journal": name, "deleted": True})

    async def seek(self, request: web.Request) -> web.StreamResponse:
        """Move a reader's cursor, which is made if there is none."""
        name, reader = self._name(request, "manage"), _reader(request)
        text, start = await _start(request)
        cursor = await self._do(lambda do: cursors.seek(do, name, reader, start))
        self._log(request, f"seek {reader}", name, text)
        return web.json_response({"journal": name, "reader": reader, "next": cursor.low + 1})

    async def forget(self, request: web.Request) -> web.StreamResponse:
        """Delete a reader's cursor."""
        name, reader = self._name(request, "manage"), _reader(request)

        def remove(do: Transaction) -> None:
            if not cursors.delete_cursor(do, name, reader):
                raise unknown_cursor(name, reader)

        await self._do(remove)
        self._log(request, f"delete reader {reader}", name)
        return web.json_response({"journal": name, "reader": reader, "deleted": True})


def _words(do: Transaction, found: JournalState) -> dict[str, Any]:
    """A journal in numbers, and the edge that receives for it, or did last."""
    return {**journal_words(found, log.oldest_s(do, found)), "owner": log.owner(do, found)}


def _running(part: Shown | None) -> dict[str, Any]:
    """What this edge does for a journal; nothing where its settings do not have it."""
    return {"state": None, "rate": None} if part is None else {"state": part.state, "rate": part.rate}


def _answered(handler: Handler) -> Handler:
    return partial(_answer, handler)


async def _answer(handler: Handler, request: web.Request) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as refused:
        return web.json_response({"error": str(refused), "fix": refused.fix}, status=403)
    except EdgeError as error:
        status = next((status for kind, status in KINDS.items() if isinstance(error, kind)), 503)
        return web.json_response({"error": f"{error.what}: {error.why}", "fix": error.fix}, status=status)


def _number(text: str, low: int, high: int, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        fix = f"give a number from {low} to {high}"
        raise InvalidRequest("the request cannot be answered", f"{what} is {text[:40]!r}", fix)
    return int(text)


def _wait(text: str) -> float:
    try:
        return 0.0 if text == "0" else float(duration(0, MAX_WAIT_S)(text))
    except ValueError:
        fix = f"give a time of at most {MAX_WAIT_S:g}s, such as 10s"
        raise InvalidRequest("the request cannot be answered", f"wait is {text[:40]!r}", fix) from None


def _reader(request: web.Request) -> str:
    reader = request.query.get("reader", "")
    if not 0 < len(reader) <= cursors.MAX_READER:
        fix = "give ?reader=, as GET of the journal shows it"
        raise InvalidRequest("the request cannot be answered", f"it names no reader of 1 to {cursors.MAX_READER}", fix)
    return reader


async def _start(request: web.Request) -> tuple[str, Start]:
    """The start that the content of a request has, which is JSON."""
    try:
        text = json.loads(await request.read())["start"]
        return str(text), parse_text(str(text))
    except (ValueError, TypeError, LookupError) as error:
        if isinstance(error, InvalidRequest):
            raise
        fix = 'send {"start": "first"}; a start is first, last, next, a position or a time'
        raise InvalidRequest("the request cannot be answered", "its content has no start", fix) from None
