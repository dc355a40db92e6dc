"""The inspector's HTTP API: overview, tables in pages, deliveries, events. See docs/inspector-api.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiohttp import web

from delivery_records.topics import TopicError, check_pattern
from topology.inspector.asking import TlsOf, ask_each, ask_others, no_tls
from topology.inspector.events_core import EventRing
from topology.inspector.paging_core import page_of
from topology.inspector.parameters_core import (
    DELIVERY_PARAMETERS,
    EVENT_PARAMETERS,
    HOLDER_PARAMETERS,
    MAX_PAIRS,
    PAGE_PARAMETERS,
    WAIT_PARAMETERS,
    PageRequest,
    after_of,
    check_names,
    flag,
    limit_of,
    page_request,
    pairs_of,
    tag_of,
)
from topology.inspector.rows_core import COLLECTIONS, WAITS, InputError, Row
from topology.inspector.source import OtherRouter, RightsOf, Source
from topology.inspector.watching import MAX_WATCHERS, Watchers

PREFIX = "/api/v1"
NETWORK_ROWS = 100
"""Rows of each router in a reply for the whole network: 100 routers make 10,000."""
ELSEWHERE = "elsewhere"
"""State of a subscription at another router, before that router was asked."""
TAGS_FOLLOWED = 4
"""Deliveries looked up at other routers for one publisher's tag, when no publisher is named."""

MAX_QUESTIONS = 8
"""Concurrent requests with network=true: each makes a request to up to a hundred routers."""


class BusyError(Exception):
    """Too many requests with network=true are running."""


Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class InspectorRoute:
    """One route: GET, for the role viewer."""

    path: str
    handler: Handler


class Inspector:
    """The API of one router."""

    def __init__(self, source: Source, events: EventRing, rights_of: RightsOf, tls: TlsOf = no_tls) -> None:
        """Collects nothing yet.

        Args:
            source: the router.
            events: its last events.
            rights_of: rights of the sender of a request.
            tls: what other routers are asked with over https.
        """
        self._tls = tls
        self.watchers = Watchers(source, events)
        self._source = source
        self._events = events
        self._rights_of = rights_of
        self._questions = 0

    def routes(self) -> Iterable[InspectorRoute]:
        """All routes of the API."""
        yield InspectorRoute(f"{PREFIX}/overview", _answering(self._overview))
        yield InspectorRoute(f"{PREFIX}/deliveries/{{tag}}", _answering(self._deliveries))
        yield InspectorRoute(f"{PREFIX}/holders", _answering(self._holders))
        yield InspectorRoute(f"{PREFIX}/events", _answering(self._recent))
        yield InspectorRoute(f"{PREFIX}/watch", self._watch)
        yield InspectorRoute(f"{PREFIX}/{{table:{'|'.join(COLLECTIONS)}}}", _answering(self._table))

    # --- the router and its tables ------------------------------------------------------------------------------------

    async def _overview(self, request: web.Request) -> Row:
        check_names(request.query, frozenset())
        rights = self._rights_of(request)
        return {**self._source.overview(), "can": rights.as_row()}

    async def _table(self, request: web.Request) -> Row:
        table = request.match_info["table"]
        asked = page_request(request.query, WAIT_PARAMETERS if table == WAITS else PAGE_PARAMETERS)
        if asked.wanted.topic:
            try:
                check_pattern(asked.wanted.topic)
            except TopicError as error:
                raise InputError(str(error), "give the topic as a publisher or subscriber names it") from None
        if asked.is_network:
            with self._asking_all():
                return await self._waits_of_all(request, asked)
        return self._page(table, asked)

    @contextmanager
    def _asking_all(self) -> Iterator[None]:
        """Counts one more request with network=true."""
        if self._questions >= MAX_QUESTIONS:
            raise BusyError
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1

    def _page(self, table: str, asked: PageRequest) -> Row:
        page = page_of(self._source.heads(table), asked.wanted, asked.cursor, asked.limit)
        items = self._source.rows(table, page.heads)
        following = page.next
        if asked.min_s:
            kept = [row for row in items if _age(row) >= asked.min_s]
            # The longest waits come first: after one that is too short all others are too short.
            following = following if len(kept) == len(items) else None
            items = kept
        return {"items": items, "next": following, "total": page.total, "applied": self._source.applied()}

    async def _waits_of_all(self, request: web.Request, asked: PageRequest) -> Row:
        if asked.cursor is not None:
            raise InputError("waits of the whole network have no pages", "leave cursor out; limit is for each router")
        limit = min(asked.limit, NETWORK_ROWS)
        own = self._page(WAITS, PageRequest(limit, None, asked.wanted, asked.min_s))
        query = {name: value for name, value in request.query.items() if name not in ("network", "limit")}
        query["limit"] = str(limit)
        answers, missing = await ask_others(
            self._source.others(), f"{PREFIX}/{WAITS}", query, request.headers.get("Authorization"), self._tls()
        )
        items, total = _rows_of(own), _whole(own)
        for answer in answers:
            items += _rows_of(answer)
            total += _whole(answer)
        items.sort(key=_age, reverse=True)
        await self._ask_holders(items, request.headers.get("Authorization"))
        return {
            "items": items, "next": None, "total": total, "applied": self._source.applied(), "missing": missing,
        }  # fmt: skip

    async def _ask_holders(self, items: list[Row], authorization: str | None) -> None:
        """Replaces `elsewhere` by the state from the router of each subscription, as far as one request has room."""
        unknown: dict[str, list[tuple[Row, str, str]]] = {}
        for row in items:
            for each in _rows_of(row, "waiting_for"):
                if each.get("state") == ELSEWHERE:
                    asked = unknown.setdefault(str(each.get("rid")), [])
                    asked.append((each, str(row.get("oldest_tag")), str(each.get("key"))))
        questions: list[tuple[OtherRouter, dict[str, str]]] = []
        known: dict[str, str] = {}
        for other in self._source.others():
            pairs = unknown.pop(other.rid, [])[:MAX_PAIRS]
            if pairs and other.http:
                questions.append((other, {"of": ",".join(f"{tag}.{key}" for _, tag, key in pairs)}))
        answers, _ = await ask_each(questions, f"{PREFIX}/holders", authorization, self._tls())
        for answer in answers:
            holders = answer.get("holders")
            if isinstance(holders, dict):
                known |= {str(pair): state for pair, state in holders.items() if isinstance(state, str)}
        for row in items:
            for each in _rows_of(row, "waiting_for"):
                each["state"] = self._holder_of(row, each, known)

    def _holder_of(self, row: Row, each: Row, known: dict[str, str]) -> object:
        tag, key = str(row.get("oldest_tag")), str(each.get("key"))
        if each.get("state") != ELSEWHERE:
            return each.get("state")
        return known.get(f"{tag}.{key}") or self._own_holder(tag, key) or ELSEWHERE

    def _own_holder(self, tag: str, key: str) -> str | None:
        try:
            return self._source.holder(tag_of(tag), key)
        except InputError:
            return None  # another router's reply is invalid

    async def _holders(self, request: web.Request) -> Row:
        check_names(request.query, HOLDER_PARAMETERS)
        return {
            "holders": {f"{tag.hex()}.{key}": self._source.holder(tag, key) for tag, key in pairs_of(request.query)}
        }

    # --- deliveries ---------------------------------------------------------------------------------------------------

    async def _deliveries(self, request: web.Request) -> Row:
        check_names(request.query, DELIVERY_PARAMETERS)
        tag = tag_of(request.match_info["tag"])
        publisher = request.query.get("publisher", "")
        is_network = flag(request.query, "network")
        with self._asking_all() if is_network else nullcontext():
            return await self._followed(request, tag, publisher, is_network)

    async def _followed(self, request: web.Request, tag: bytes, publisher: str, is_network: bool) -> Row:
        found, missing = await self._find(request, tag, publisher, is_network)
        if not publisher:
            # Only the ingress knows a publisher's own tag; the other routers know the network tag.
            others = {str(row["network_tag"]) for row in found} - {tag.hex()}
            for each in sorted(others)[:TAGS_FOLLOWED]:
                more, unheard = await self._find(request, bytes.fromhex(each), "", is_network)
                found = _merged(found, more)
                missing = unheard or missing
        answer: Row = {"tag": tag.hex(), "found": found}
        if is_network:
            answer["missing"] = missing
        return answer

    async def _find(
        self, request: web.Request, tag: bytes, publisher: str, is_network: bool
    ) -> tuple[list[Row], list[Row]]:
        with_bodies = self._rights_of(request).bodies
        found = self._source.deliveries(tag, publisher, with_bodies)
        if not is_network:
            return found, []
        query = {"publisher": publisher} if publisher else {}
        answers, missing = await ask_others(
            self._source.others(), f"{PREFIX}/deliveries/{tag.hex()}", query, request.headers.get("Authorization"),
            self._tls(),
        )
        for answer in answers:
            rows = _rows_of(answer, "found")
            if not with_bodies:  # the others see this router, perhaps on their own machine, as the caller
                rows = [{**row, "first_bytes": None} for row in rows]
            found = _merged(found, rows)
        return found, missing

    # --- events and changes -------------------------------------------------------------------------------------------

    async def _recent(self, request: web.Request) -> Row:
        check_names(request.query, EVENT_PARAMETERS)
        page = self._events.after(after_of(request.query), limit_of(request.query))
        return {"items": page.items, "next": page.next, "dropped": page.dropped}

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if not web.WebSocketResponse().can_prepare(request).ok:
            return _refused(400, "this is for WebSockets", f"ask for the tables below {PREFIX}/ one by one, or upgrade")
        if self.watchers.is_full:
            return _refused(503, f"{MAX_WATCHERS} watch this router already", "try another router, or later")
        return await self.watchers.serve(request, self._rights_of(request))


def _answering(answer: Callable[[web.Request], Awaitable[Row]]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return web.json_response(await answer(request))
        except InputError as error:
            return _refused(400, str(error), error.fix)
        except BusyError:
            return _refused(
                503, f"{MAX_QUESTIONS} questions to all routers are under way here", "ask another router, or later"
            )

    return handle


def _refused(status: int, error: str, fix: str) -> web.Response:
    return web.json_response({"error": error, "fix": fix}, status=status)


def _age(row: Row) -> float:
    age = row.get("oldest_s")
    return float(age) if isinstance(age, int | float) else 0.0


def _rows_of(answer: dict[str, Any] | Row, name: str = "items") -> list[Row]:
    """The valid rows of another router's reply."""
    rows = answer.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _whole(answer: dict[str, Any] | Row) -> int:
    total = answer.get("total")
    return total if isinstance(total, int) else 0


def _merged(found: list[Row], more: list[Row]) -> list[Row]:
    """Records of both, each once."""
    known = {_identity(row) for row in found}
    return [*found, *(row for row in more if _identity(row) not in known)]


def _identity(row: Row) -> tuple[str, str, str]:
    return str(row.get("rid")), str(row.get("role")), str(row.get("network_tag"))
