"""Documents of `oncewire inspect`: once, or again after each change (`--watch`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topology.inspector.ask_cli import PREFIX, Api
from topology.inspector.changes_core import GROWING, SHRINKING
from topology.inspector.events_core import EVENTS_KEPT
from topology.inspector.rows_core import EVENTS, MAX_ROWS, OF_ATTACHMENTS, OVERVIEW, WAITS, Row
from topology.inspector.schema.catalogue import STORED

POLL_S = 1.0
"""For documents without a WebSocket: deliveries, the whole network, filtered tables."""
OVERVIEW_WAITS = 20
"""Waits shown with the overview, the longest."""
DELIVERY = "delivery"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command shows."""

    name: str
    """A table, or `overview`, `delivery`, `events`."""
    tag: str = ""
    publisher: str = ""
    topic: str = ""
    router: str = ""
    match: str = ""
    network: bool = False
    most: int | None = None
    """Rows; None = all."""

    @property
    def filters(self) -> dict[str, str]:
        """As query parameters."""
        given = {"topic": self.topic, "router": self.router, "q": self.match}
        return {name: value for name, value in given.items() if value}

    @property
    def is_reported(self) -> bool:
        """Whether the WebSocket has its changes."""
        if self.name == DELIVERY or self.name in STORED or self.network or self.match:
            return False
        return not self.filters or self.name in OF_ATTACHMENTS


async def document_of(api: Api, wanted: Wanted) -> dict[str, Any]:
    """One JSON document with everything requested.

    Raises:
        CliError: no router answers, or it refuses.
    """
    if wanted.name == OVERVIEW:
        overview = await api.get(f"{PREFIX}/overview")
        waits = await _waits(api, wanted, OVERVIEW_WAITS)
        return {"overview": overview, **waits}
    if wanted.name == DELIVERY:
        query = {"publisher": wanted.publisher} if wanted.publisher else {}
        return await api.get(
            f"{PREFIX}/deliveries/{wanted.tag}", query | ({"network": "true"} if wanted.network else {})
        )
    if wanted.name == EVENTS:
        return await _events(api, wanted)
    if wanted.name == WAITS:
        return await _waits(api, wanted, wanted.most)
    if wanted.name in STORED:
        rows = [row for row in (await api.get(f"{PREFIX}/{wanted.name}"))["items"] if wanted.match in row["key"]]
        return {wanted.name: rows[: wanted.most], "total": len(rows)}
    network = {"network": "true"} if wanted.network else {}
    answer = await api.table(wanted.name, {**wanted.filters, **network}, wanted.most)
    found = {wanted.name: answer["items"], "total": answer["total"], "applied": answer["applied"]}
    return found | ({"missing": answer["missing"]} if wanted.network else {})


async def _waits(api: Api, wanted: Wanted, most: int | None) -> dict[str, Any]:
    if wanted.network:
        query = {**wanted.filters, "network": "true", "limit": str(min(most or MAX_ROWS, MAX_ROWS))}
        answer = await api.get(f"{PREFIX}/{WAITS}", query)
        found = {"missing": answer["missing"]}
    else:
        answer = await api.table(WAITS, wanted.filters, most)
        found = {}
    return {WAITS: answer["items"], "total": answer["total"], "applied": answer["applied"], **found}


async def _events(api: Api, wanted: Wanted) -> dict[str, Any]:
    most = min(wanted.most or EVENTS_KEPT, EVENTS_KEPT)
    if wanted.network:
        answer = await api.get(f"{PREFIX}/events", {"network": "true", "limit": str(min(MAX_ROWS, most))})
        return {EVENTS: answer["items"][-most:], "missing": answer["missing"]}
    newest = await api.get(f"{PREFIX}/events", {"limit": "1"})
    after = max(0, newest["next"] - most)
    items: list[Row] = []
    while len(items) < most:
        page = await api.get(f"{PREFIX}/events", {"after": str(after), "limit": str(min(MAX_ROWS, most - len(items)))})
        items += page["items"]
        after = page["next"]
        if not page["items"]:
            break
    return {EVENTS: items, "next": after}


async def documents_of(api: Api, wanted: Wanted, *, with_ages: bool) -> AsyncGenerator[dict[str, Any], None]:
    """The same after each change, and each second with new ages if these are wanted.

    Raises:
        CliError: see `document_of`; also when the router ends.
    """
    if not wanted.is_reported:
        while True:
            yield await document_of(api, wanted)
            await asyncio.sleep(POLL_S)
    tables = [OVERVIEW, WAITS] if wanted.name == OVERVIEW else [wanted.name]
    wish = {"tables": tables, "topic": wanted.topic or None, "router": wanted.router or None}
    shown = Followed(tables, wanted)
    changed = asyncio.Event()

    async def read() -> None:
        async for message in api.watch(wish):
            if shown.take(message):
                changed.set()

    reading = asyncio.ensure_future(read())
    try:
        while True:
            waiting = asyncio.ensure_future(changed.wait())
            pause = POLL_S if with_ages and shown.is_complete else None
            await asyncio.wait({reading, waiting}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if reading.done():
                await reading
            changed.clear()
            yield shown.document()
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


class Followed:
    """The tables of a watch, updated by its messages."""

    def __init__(self, tables: list[str], wanted: Wanted) -> None:
        self._tables = tables
        self._wanted = wanted
        self._rows: dict[str, dict[str, Row]] = {}
        self._totals: dict[str, int] = {}
        self._heard: dict[tuple[str, str], float] = {}
        """When each row arrived: its ages have grown since then."""
        self._applied = 0

    @property
    def is_complete(self) -> bool:
        """True when all tables have arrived."""
        return len(self._rows) == len(self._tables)

    def take(self, message: Mapping[str, Any]) -> bool:
        """Applies a message of the router; True when all tables have arrived and something has changed."""
        self._applied = message["applied"]
        if message["type"] == "snapshot":
            if message["table"] not in self._tables:
                return False
            self._rows[message["table"]] = {}
            self._change(message["table"], {"put": message["items"], "delete": []})
            self._totals[message["table"]] = message["total"]
        else:
            for table, changes in message["tables"].items():
                self._change(table, changes)
        return self.is_complete

    def _change(self, table: str, changes: Mapping[str, Any]) -> None:
        rows = self._rows.get(table)
        if rows is None:
            return
        total = self._totals.setdefault(table, 0)
        for row in changes["put"]:
            key = str(row["key"])
            total += key not in rows
            rows[key] = row
            self._heard[table, key] = time.monotonic()
        for key in changes["delete"]:
            total -= rows.pop(key, None) is not None
            self._heard.pop((table, key), None)
        self._totals[table] = total
        if table == EVENTS:
            for key in list(rows)[:-EVENTS_KEPT]:
                del rows[key]
                del self._heard[table, key]

    def document(self) -> dict[str, Any]:
        """What `document_of` would return now; rows that are not shown are only counted."""
        name = self._wanted.name
        if name == OVERVIEW:
            waits = self._sorted(WAITS)[:OVERVIEW_WAITS]
            return {"overview": self._sorted(OVERVIEW)[0], WAITS: waits, "applied": self._applied}
        rows = self._sorted(name)
        most = self._wanted.most
        if name == EVENTS:
            return {EVENTS: rows[-(most or EVENTS_KEPT) :], "next": rows[-1]["seq"] if rows else 0}
        return {name: rows[:most], "total": self._totals[name], "applied": self._applied}

    def _sorted(self, table: str) -> list[Row]:
        if table == EVENTS:
            return list(self._rows[table].values())
        now = time.monotonic()
        rows = [aged(row, now - self._heard[table, key]) for key, row in self._rows[table].items()]
        if table == WAITS:
            return sorted(rows, key=lambda row: -float(str(row["oldest_s"])))
        return sorted(rows, key=lambda row: [str(row.get(name, "")) for name in _ORDER])


_ORDER = ("name", "id", "from", "to", "key")


def aged(row: Row, by_s: float) -> Row:
    """A row some seconds later, with new ages."""
    grown: Row = {}
    for name, value in row.items():
        if name in GROWING and isinstance(value, int | float):
            grown[name] = value + by_s
        elif name in SHRINKING and isinstance(value, int | float):
            grown[name] = max(0.0, value - by_s)
        elif name == "waiting_for" and isinstance(value, Sequence) and not isinstance(value, str):
            grown[name] = [aged(each, by_s) if isinstance(each, dict) else each for each in value]
        else:
            grown[name] = value
    return grown
