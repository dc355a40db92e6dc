"""The inspector's HTTP API: overview, tables in pages, deliveries, events. See docs/inspector-api.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from aiohttp import web

from delivery_records.model.topics import TopicError, check_pattern
from topology.inspector.answers_core import answer_of
from topology.inspector.asking import StateCaller, TlsOf, ask_others, no_tls, nobody
from topology.inspector.events_core import EventRing
from topology.inspector.merging_core import is_own
from topology.inspector.network_tables import (
    MAX_QUESTIONS,
    NETWORK_ROWS,
    PREFIX,
    BusyError,
    NetworkTables,
    age,
    rows_of,
)
from topology.inspector.paging_core import page_of
from topology.inspector.parameters_core import (
    DELIVERY_PARAMETERS,
    EVENT_PARAMETERS,
    HOLDER_PARAMETERS,
    OVERVIEW_PARAMETERS,
    PAGE_PARAMETERS,
    RATE_PARAMETERS,
    WAIT_PARAMETERS,
    PageRequest,
    after_of,
    check_names,
    flag,
    limit_of,
    page_request,
    pairs_of,
    points_of,
    tag_of,
)
from topology.inspector.rates_core import POINT_S
from topology.inspector.rows_core import COLLECTIONS, MAX_ROWS, MEASURED, WAITS, InputError, Row
from topology.inspector.source import RightsOf, Source
from topology.inspector.watching import Watchers

TAGS_FOLLOWED = 4
"""Deliveries looked up at other routers for one publisher's tag, when no publisher is named."""
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class InspectorRoute:
    """One route: GET, for the role viewer."""

    path: str
    handler: Handler


class Inspector:
    """The API of one router."""

    def __init__(
        self,
        source: Source,
        events: EventRing,
        rights_of: RightsOf,
        tls: TlsOf = no_tls,
        caller_of: Callable[[web.Request], StateCaller] = lambda _request: nobody,
    ) -> None:
        """Collects nothing yet.

        Args:
            source: the router.
            events: its last events.
            rights_of: rights of the sender of a request.
            tls: what other routers are asked with over https.
            caller_of: states to other routers who sends a request.
        """
        self._tls = tls
        self._caller_of = caller_of
        self.watchers = Watchers(source, events)
        self._source = source
        self._events = events
        self._rights_of = rights_of
        self._network = NetworkTables(source, tls, self._page)

    def routes(self) -> Iterable[InspectorRoute]:
        """All routes of the API."""
        yield InspectorRoute(f"{PREFIX}/overview", _answering(self._overview))
        yield InspectorRoute(f"{PREFIX}/deliveries/{{tag}}", _answering(self._deliveries))
        yield InspectorRoute(f"{PREFIX}/holders", _answering(self._holders))
        yield InspectorRoute(f"{PREFIX}/events", _answering(self._recent))
        yield InspectorRoute(f"{PREFIX}/watch", self._watch)
        yield InspectorRoute(f"{PREFIX}/rates/{{table:{'|'.join(MEASURED)}}}", _answering(self._rates))
        yield InspectorRoute(f"{PREFIX}/{{table:{'|'.join(COLLECTIONS)}}}", _answering(self._table))

    # --- the router and its tables ------------------------------------------------------------------------------------

    async def _overview(self, request: web.Request) -> Row:
        check_names(request.query, OVERVIEW_PARAMETERS)
        own = {**self._source.overview(), "can": self._rights_of(request).as_row()}
        if not flag(request.query, "network"):
            return own
        with self._network.asking_all():
            return await self._network.overview(own, self._caller_of(request))

    async def _table(self, request: web.Request) -> Row:
        table = request.match_info["table"]
        asked = page_request(request.query, WAIT_PARAMETERS if table == WAITS else PAGE_PARAMETERS)
        _check_topic(asked)
        if asked.is_network:
            with self._network.asking_all():
                return await self._network.page(table, asked, request.query, self._caller_of(request))
        return self._page(table, asked)

    def _page(self, table: str, asked: PageRequest) -> Row:
        page = page_of(self._source.heads(table), asked.wanted, asked.cursor, asked.limit)
        items = self._source.rows(table, page.heads)
        following = page.next
        if asked.min_s:
            kept = [row for row in items if age(row) >= asked.min_s]
            # The longest waits come first: after one that is too short all others are too short.
            following = following if len(kept) == len(items) else None
            items = kept
        if asked.is_own:
            rid = self._source.rid()
            items = [row for row in items if is_own(table, row, rid)]
        return {"items": items, "next": following, "total": page.total, "applied": self._source.applied()}

    async def _rates(self, request: web.Request) -> Row:
        table = request.match_info["table"]
        asked = page_request(request.query, RATE_PARAMETERS)
        _check_topic(asked)
        own = self._own_rates(table, asked, points_of(request.query))
        if not asked.is_network:
            return own
        with self._network.asking_all():
            return await self._network.rates(table, own, request.query, self._caller_of(request))

    def _own_rates(self, table: str, asked: PageRequest, points: int) -> Row:
        source = self._source
        measured = source.measured(table)
        heads = [head for head in source.heads(table) if head.key in measured and asked.wanted.wants(head)]
        rows = source.rows(table, heads[:MAX_ROWS])
        names = [name for name in ("accepted_p50_s", "accepted_p99_s") if rows and name in rows[0]]
        items: list[Row] = [
            {"key": row["key"], **source.history(table, str(row["key"]), points), **{name: row[name] for name in names}}
            for row in rows
        ]
        return {"items": items, "point_s": POINT_S, "points": points, "age_s": round(source.measured_s(), 1)}

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
        with self._network.asking_all() if is_network else nullcontext():
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
        answer: Row = {"tag": tag.hex(), "answer": answer_of(found), "found": found}
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
            self._source.others(), f"{PREFIX}/deliveries/{tag.hex()}", query, self._caller_of(request), self._tls()
        )
        for answer in answers:
            rows = rows_of(answer, "found")
            if not with_bodies:  # the others see this router, perhaps on their own machine, as the caller
                rows = [{**row, "first_bytes": None} for row in rows]
            found = _merged(found, rows)
        return found, missing

    # --- events and changes -------------------------------------------------------------------------------------------

    async def _recent(self, request: web.Request) -> Row:
        check_names(request.query, EVENT_PARAMETERS)
        after, limit = after_of(request.query), limit_of(request.query)
        if flag(request.query, "network"):
            if after is not None:
                raise InputError("events of the whole network have no numbers", "leave after out: the newest come")
            limit = min(limit, NETWORK_ROWS)
            own = self._events.after(None, limit).items
            with self._network.asking_all():
                return await self._network.events(own, limit, self._caller_of(request))
        page = self._events.after(after, limit)
        router = self._source.overview()["router"]
        return {"router": router, "items": page.items, "next": page.next, "dropped": page.dropped}

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if not web.WebSocketResponse().can_prepare(request).ok:
            return _refused(400, "this is for WebSockets", f"ask for the tables below {PREFIX}/ one by one, or upgrade")
        rights = self._rights_of(request)
        why = self.watchers.refuses(rights)
        if why:
            return _refused(503, why, "try another router, or later")
        return await self.watchers.serve(request, rights)


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


def _check_topic(asked: PageRequest) -> None:
    """Refuses what is no topic or pattern.

    Raises:
        InputError: it is none.
    """
    if asked.wanted.topic:
        try:
            check_pattern(asked.wanted.topic)
        except TopicError as error:
            raise InputError(str(error), "give the topic as a publisher or subscriber names it") from None


def _refused(status: int, error: str, fix: str) -> web.Response:
    return web.json_response({"error": error, "fix": fix}, status=status)


def _merged(found: list[Row], more: list[Row]) -> list[Row]:
    """Records of both, each once."""
    known = {_identity(row) for row in found}
    return [*found, *(row for row in more if _identity(row) not in known)]


def _identity(row: Row) -> tuple[str, str, str]:
    return str(row.get("rid")), str(row.get("role")), str(row.get("network_tag"))
