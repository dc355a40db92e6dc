"""Answers for the whole network: asks all routers, and joins what they know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from topology.inspector.asking import StateCaller, TlsOf, ask_each, ask_others
from topology.inspector.merging_core import OWN_TABLES, histories, merged, of_routers
from topology.inspector.parameters_core import MAX_PAIRS, PageRequest, tag_of
from topology.inspector.rows_core import WAITS, InputError, Row
from topology.inspector.source import OtherRouter, Source

PREFIX = "/api/v1"
NETWORK_ROWS = 100
"""Rows of each router in a reply of rows that each has for itself: 100 routers make 10,000."""
MAX_QUESTIONS = 8
"""Concurrent requests with network=true: each makes a request to up to a hundred routers."""
ELSEWHERE = "elsewhere"
"""State of a subscription at another router, before that router was asked."""

OWN_COUNTS = ("windows", "joining", "connections", "waiting_publishers", "delayed_1s", "stuck_10s", "held_10s")
"""Counts of an overview that are those of one router; the others are of the whole network already."""


class BusyError(Exception):
    """Too many requests with network=true are running."""


class NetworkTables:
    """Tables, rates, events and waits of all routers."""

    def __init__(self, source: Source, tls: TlsOf, page: Callable[[str, PageRequest], Row]) -> None:
        """Ask nobody yet.

        Args:
            source: the router.
            tls: what other routers are asked with over https.
            page: makes a page of this router alone.
        """
        self._source = source
        self._tls = tls
        self._page = page
        self._questions = 0

    @contextmanager
    def asking_all(self) -> Iterator[None]:
        """Counts one more request to all routers.

        Raises:
            BusyError: there are as many as are allowed.
        """
        if self._questions >= MAX_QUESTIONS:
            raise BusyError
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1

    async def page(self, table: str, asked: PageRequest, query: Mapping[str, str], caller: StateCaller) -> Row:
        """A page of a table, as all routers know it.

        Raises:
            InputError: rows that each router has for itself have no pages.
        """
        if table == WAITS or table in OWN_TABLES:
            return await self._own_rows(table, asked, query, caller)
        page = self._page(table, asked)
        answers, missing = await self._ask(table, {**query, "own": "true"}, caller)
        others = [row for answer in answers for row in rows_of(answer)]
        return {**page, "items": merged(table, rows_of(page), others), "missing": missing}

    async def rates(self, table: str, own: Row, query: Mapping[str, str], caller: StateCaller) -> Row:
        """The rates of a table's rows at all routers; `own` are those of this one."""
        answers, missing = await self._ask(f"rates/{table}", query, caller)
        return {**own, "items": histories(table, [rows_of(own), *map(rows_of, answers)]), "missing": missing}

    async def overview(self, own: Row, caller: StateCaller) -> Row:
        """The overview of this router, in which the counts of single routers are added up."""
        answers, missing = await self._ask("overview", {}, caller)
        counts = {**_map_of(own)}
        for answer in answers:
            counts |= {name: counts[name] + _map_of(answer).get(name, 0) for name in OWN_COUNTS}
        return {**own, "counts": counts, "missing": missing}

    async def events(self, own: list[Row], limit: int, caller: StateCaller) -> Row:
        """The newest events of all routers, oldest first; `own` are those of this one."""
        me = str(self._source.overview()["router"])
        answers, missing = await self._ask("events", {"limit": str(limit)}, caller)
        items: list[Row] = []
        for answer in ({"router": me, "items": own}, *answers):
            router = str(answer.get("router"))
            items += [{**row, "key": f"{router} {row.get('key')}", "router": router} for row in rows_of(answer)]
        items.sort(key=lambda row: str(row.get("time")))
        return {"items": items, "missing": missing}

    async def _ask(
        self, path: str, query: Mapping[str, str], caller: StateCaller
    ) -> tuple[list[dict[str, Any]], list[Row]]:
        asked = {name: value for name, value in query.items() if name != "network"}
        return await ask_others(self._source.others(), f"{PREFIX}/{path}", asked, caller, self._tls())

    # --- rows that each router has for itself -------------------------------------------------------------------------

    async def _own_rows(self, table: str, asked: PageRequest, query: Mapping[str, str], caller: StateCaller) -> Row:
        if asked.cursor is not None:
            raise InputError(
                f"{table} of the whole network have no pages", "leave cursor out; limit is for each router"
            )
        limit = min(asked.limit, NETWORK_ROWS)
        own = self._page(table, PageRequest(limit, None, asked.wanted, asked.min_s))
        answers, missing = await self._ask(table, {**query, "limit": str(limit)}, caller)
        total = whole(own) + sum(map(whole, answers))
        if table == WAITS:
            items = [row for answer in (own, *answers) for row in rows_of(answer)]
            items.sort(key=age, reverse=True)
            await self._ask_holders(items, caller)
        else:
            items = of_routers(row for answer in (own, *answers) for row in rows_of(answer))
        return {"items": items, "next": None, "total": total, "applied": self._source.applied(), "missing": missing}

    async def _ask_holders(self, items: list[Row], caller: StateCaller) -> None:
        """Replaces `elsewhere` by the state from the router of each subscription, as far as one request has room."""
        unknown: dict[str, list[tuple[Row, str, str]]] = {}
        for row in items:
            for each in rows_of(row, "waiting_for"):
                if each.get("state") == ELSEWHERE:
                    asked = unknown.setdefault(str(each.get("rid")), [])
                    asked.append((each, str(row.get("oldest_tag")), str(each.get("key"))))
        questions: list[tuple[OtherRouter, dict[str, str]]] = []
        known: dict[str, str] = {}
        for other in self._source.others():
            pairs = unknown.pop(other.rid, [])[:MAX_PAIRS]
            if pairs and other.http:
                questions.append((other, {"of": ",".join(f"{tag}.{key}" for _, tag, key in pairs)}))
        answers, _ = await ask_each(questions, f"{PREFIX}/holders", caller, self._tls())
        for answer in answers:
            holders = answer.get("holders")
            if isinstance(holders, dict):
                known |= {str(pair): state for pair, state in holders.items() if isinstance(state, str)}
        for row in items:
            for each in rows_of(row, "waiting_for"):
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


def _map_of(overview: dict[str, Any] | Row) -> dict[str, int]:
    counts = overview.get("counts")
    return counts if isinstance(counts, dict) else {}


def age(row: Row) -> float:
    """How long a wait lasts."""
    found = row.get("oldest_s")
    return float(found) if isinstance(found, int | float) else 0.0


def rows_of(answer: dict[str, Any] | Row, name: str = "items") -> list[Row]:
    """The valid rows of another router's reply."""
    rows = answer.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def whole(answer: dict[str, Any] | Row) -> int:
    """How many rows a reply is a part of."""
    total = answer.get("total")
    return total if isinstance(total, int) else 0
