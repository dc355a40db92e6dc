"""Joins what all routers say of the same rows: one knows that a subscription is there, another how it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from topology.inspector.rows_core import (
    CHANNELS,
    CONNECTIONS,
    LINKS,
    NEIGHBOURS,
    PUBLISHERS,
    ROUTERS,
    SUBSCRIPTIONS,
    TOPICS,
    Row,
)

OWN_TABLES = (CHANNELS, NEIGHBOURS, CONNECTIONS)
"""Each router has rows of its own."""
_ADDED = ("published_rate", "delivered_rate", "waiting")
"""Of a topic: each router has a part."""
_SLOWEST = ("accepted_p50_s", "accepted_p99_s")
"""Of a topic: that of the router where it takes longest."""
_MEASURED = {ROUTERS: (*_ADDED[:2], *_SLOWEST), LINKS: ("bytes_rate",)}
"""What only the router itself, or the two ends of a link, know; the rest is as the router that was asked sees it."""


def is_own(table: str, row: Row, rid: str) -> bool:
    """Whether the router with this rid knows something of the row that others do not."""
    if table in (SUBSCRIPTIONS, PUBLISHERS):
        return row.get("rid") == rid
    if table == ROUTERS:
        return row.get("key") == rid
    if table == LINKS:
        return row.get("from_rid") == rid
    if table == TOPICS:
        return any(row.get(name) for name in (*_ADDED, *_SLOWEST))
    return True


def merged(table: str, rows: Sequence[Row], others: Iterable[Row]) -> list[Row]:
    """Rows of the router that was asked, with what the others know of them; their own order."""
    known: dict[str, list[Row]] = {}
    for other in others:
        known.setdefault(str(other.get("key")), []).append(other)
    return [_with(table, row, known.get(str(row["key"]), [])) for row in rows]


def _with(table: str, row: Row, others: list[Row]) -> Row:
    if not others:
        return row
    if table == TOPICS:
        return {
            **row,
            **{name: _sum(_numbers(name, row, others)) for name in _ADDED},
            **{name: max(_numbers(name, row, others), default=None) for name in _SLOWEST},
        }
    if table in _MEASURED:
        found = others[0]
        return {**row, **{name: found.get(name) for name in _MEASURED[table] if row.get(name) is None}}
    # The rid is that of this very row: a router of before may still answer for one that has moved on.
    return next((other for other in others if other.get("rid") == row.get("rid")), row)


def _numbers(name: str, row: Row, others: Iterable[Row]) -> list[float]:
    return [value for each in (row, *others) if isinstance(value := each.get(name), int | float)]


def _sum(values: Iterable[float]) -> float:
    return round(sum(values), 3)


def histories(table: str, answers: Iterable[Iterable[Row]]) -> list[Row]:
    """The points of all routers: those of a topic are added up, of others one router has them."""
    found: dict[str, Row] = {}
    for items in answers:
        for item in items:
            key = str(item.get("key"))
            known = found.get(key)
            if known is None:
                found[key] = item
            elif table == TOPICS:
                found[key] = {**known, **{name: _added(known[name], item.get(name)) for name in known if name != "key"}}
    return list(found.values())


def _added(known: Any, more: Any) -> Any:
    if isinstance(known, list) and isinstance(more, list) and len(known) == len(more):
        return [round(a + b, 3) for a, b in zip(known, more, strict=True)]
    if isinstance(known, int | float) and isinstance(more, int | float):
        return max(known, more)
    return known if known is not None else more


def of_routers(rows: Iterable[Row]) -> list[Row]:
    """Rows that each router has for itself, beside each other: with keys that are unique in the network."""
    return [{**row, "key": f"{row.get('at') or row.get('router')} {row.get('key')}"} for row in rows]
