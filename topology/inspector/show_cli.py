"""The inspector's tables on a terminal: as many columns as fit, the most telling ones first; names are not folded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from topology.inspector.rows_core import Row

GAP = 2
"""Spaces between columns."""
WIDE = 500
"""Columns of output that goes to no terminal: the two longest names and an address fit."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


class Column(NamedTuple):
    """One column of a table. Where not all fit, those of the highest rank are left out; rank 0 stays."""

    name: str
    title: str
    rank: int


_COLUMNS: Mapping[str, Sequence[Column]] = {
    "routers": (
        Column("id", "router", 0), Column("state", "state", 0), Column("subscriptions", "subs", 1),
        Column("publishers", "pubs", 1), Column("next_hop", "via", 2), Column("distance", "cost", 2),
        Column("http", "http", 3), Column("amqp", "amqp", 4), Column("version", "version", 5), Column("key", "rid", 6),
    ),
    "links": (
        Column("from", "from", 0), Column("to", "to", 0), Column("cost", "cost", 0), Column("state", "state", 1),
        Column("on_best_path", "on a best path", 2),
    ),
    "topics": (
        Column("name", "topic", 0), Column("publishers", "pubs", 0), Column("subscriptions", "subs", 0),
        Column("waiting", "waiting", 1), Column("is_pattern", "pattern", 2),
    ),
    "subscriptions": (
        Column("name", "subscription", 0), Column("topic", "topic", 1), Column("router", "router", 0),
        Column("state", "state", 0), Column("lag", "lag", 2), Column("held", "held", 3), Column("credit", "credit", 4),
        Column("expires_in_s", "ends in", 2), Column("joins_behind", "joins behind", 3), Column("mode", "mode", 5),
        Column("epoch", "epoch", 6), Column("timeout_s", "timeout", 7), Column("peer", "peer", 8),
        Column("incarnation", "incarnation", 9),
    ),
    "publishers": (
        Column("name", "publisher", 0), Column("topic", "topic", 1), Column("router", "router", 0),
        Column("state", "state", 0), Column("unsettled", "unsettled", 1), Column("told", "told", 3),
        Column("unreceived", "unreceived", 3), Column("credit", "credit", 2), Column("bytes", "bytes", 4),
        Column("expires_in_s", "ends in", 4), Column("session", "session", 6), Column("epoch", "epoch", 6),
        Column("peer", "peer", 7),
    ),
    "channels": (
        Column("router", "router", 0), Column("state", "state", 0), Column("generation", "generation", 2),
        Column("sent", "sent", 1), Column("received", "received", 1), Column("waiting", "waiting", 1),
        Column("rid", "rid", 3),
    ),
    "neighbours": (
        Column("router", "router", 0), Column("cost", "cost", 0), Column("waiting_bytes", "waiting bytes", 1),
        Column("dropped_frames", "dropped", 1), Column("bytes_in", "bytes in", 2), Column("bytes_out", "bytes out", 2),
        Column("rid", "rid", 3),
    ),
    "connections": (
        Column("container_id", "container", 0), Column("peer", "peer", 0), Column("links", "links", 1),
        Column("publishers", "pubs", 1), Column("subscriptions", "subs", 1),
    ),
    "waits": (
        Column("publisher", "publisher", 0), Column("oldest_s", "since", 0), Column("unsettled", "unsettled", 1),
        Column("topic", "topic", 2), Column("router", "router", 2), Column("credit", "credit", 4),
        Column("oldest_tag", "tag", 5),
    ),
    "events": (
        Column("time", "time", 0), Column("level", "level", 1), Column("event", "event", 0),
        Column("fields", "fields", 0),
    ),
}  # fmt: skip

_REASONS = {
    "publisher-repeats": "its publisher has announced it and not sent it again",
    "publisher-settles": "accepted; its publisher has not settled",
    "publisher-proves": "its publisher's link has not shown life",
    "publisher-away": "done everywhere; its publisher is disconnected",
}
_HOLDERS = {
    "in-doubt": "has it",
    "held": "no credit",
    "again": "wants it again",
    "detached": "disconnected",
    "orphaned": "disconnected, its router has stopped",
    "elsewhere": "",
    "unreachable": "no path to its router",
    "underway": "has not arrived there",
}


def console() -> Console:
    """Where output goes; what reads it in a pipe is a program such as grep, and a folded name is found by none."""
    found = Console()
    if not found.is_terminal:
        found.width = WIDE
    return found


def harmless(value: Any) -> Any:
    """The same with no text that a terminal obeys: names are what clients call themselves."""
    if isinstance(value, str):
        return value if value.isprintable() else json.dumps(value)
    if isinstance(value, Mapping):
        return {harmless(name): harmless(each) for name, each in value.items()}
    return [harmless(each) for each in value] if isinstance(value, list) else value


def shown(name: str, document: Mapping[str, Any], width: int) -> RenderableType:
    """A document of `oncewire inspect` as text."""
    document = harmless(document)
    if name == "overview":
        return Group(*_overview(document, width))
    if name == "delivery":
        return Group(*_delivery(document, width))
    rows: Sequence[Row] = document[name]
    parts: list[RenderableType] = []
    if name == "waits":
        parts += _waits(rows)
    else:
        parts.append(table_of(name, rows, width) if rows else Text(f"no {name}"))
    total = document.get("total", len(rows))
    if total > len(rows):
        parts.append(Text(f"{len(rows)} of {total}; more with --limit", style="dim"))
    parts += _missing(document)
    return Group(*parts)


def table_of(name: str, rows: Sequence[Row], width: int) -> Table:
    """Rows as a table no wider than `width`, if leaving out columns can do that."""
    columns = list(_COLUMNS[name])
    cells = {column.name: [cell(column.name, row.get(column.name)) for row in rows] for column in columns}
    columns = [column for column in columns if column.rank < 2 or any(cells[column.name])]
    widths = {c.name: max(len(c.title), *(len(text) for text in cells[c.name])) for c in columns}
    while sum(widths[c.name] + GAP for c in columns) - GAP > width and any(c.rank for c in columns):
        columns.remove(max(columns, key=lambda column: column.rank))
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in columns:
        numeric = all(isinstance(row.get(column.name), int | float | None) for row in rows)
        folds = column.name in ("fields", columns[0].name)
        table.add_column(
            column.title, justify="right" if numeric else "left", no_wrap=not folds, overflow="fold"
        )
    for at in range(len(rows)):
        table.add_row(*(Text(cells[column.name][at]) for column in columns))
    return table


def cell(name: str, value: object) -> str:
    """One value for people; nothing for what is not known here."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if name.endswith("_s") and isinstance(value, int | float):
        return age(float(value))
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    if isinstance(value, dict):
        return " ".join(f"{key}={part}" for key, part in value.items())
    return str(value)


def age(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h" if seconds < _DAY else f"{seconds / _DAY:.1f} d"


# --- overview and waits -----------------------------------------------------------------------------------------------


def _overview(document: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    told = document["overview"]
    counts = told["counts"]
    missing = told["waiting_for"]
    draining = told["draining"]
    state = "ready" if told["ready"] else f"waits for {', '.join(missing)}"
    if draining:
        state = f"drains, {age(draining['left_s'])} left"
    yield _pairs(
        {
            "router": f"{told['router']}  {told['version']}, up {age(told['uptime_s'])}",
            "state": state,
            "lease": f"{told['lease_left_s']} s left, revision {told['applied']}, incarnation {told['rid'] or '-'}",
            "network": ", ".join(
                _counted(counts[f"{noun}s"], noun) for noun in ("router", "link", "topic", "subscription", "publisher")
            ),
            "here": f"{_counted(counts['connections'], 'connection')}, {_counted(counts['windows'], 'window')}; "
            f"waiting publishers: {counts['waiting_publishers']}, longer than 1 s: {counts['delayed_1s']}, "
            f"longer than 10 s: {counts['stuck_10s']}; "
            # A router of the previous release does not count them.
            f"subscriptions that gave no credit for 10 s: {counts.get('held_10s', '-')}",
        }
    )  # fmt: skip
    yield Text()
    yield from _waits(document["waits"])
    yield from _missing(document)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _waits(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """One paragraph for each: who waits, since when, for whom."""
    if not rows:
        yield Text("no publisher waits")
    for row in rows:
        line = Text()
        line.append(str(row["publisher"]), style="bold")
        line.append(f" at {row['router']}, {row['topic']}: {row['unsettled']} unsettled, ")
        since = f"the oldest since {'over ' if row.get('oldest_is_older') else ''}{cell('oldest_s', row['oldest_s'])}"
        line.append(since, style=_urgency(row["oldest_s"]))
        yield line
        yield from (Text("  " + why) for why in _why(row))
        yield Text(f"  tag {row['oldest_tag']}", style="dim")


def _why(row: Row) -> Iterator[str]:
    reason = str(row["reason"])
    if reason != "subscriptions":
        yield _REASONS.get(reason, reason)
        return
    holders = row["waiting_for"]
    assert isinstance(holders, list)
    for each in holders:
        yield f"waits for {_holder(each)}"
    count = row["waiting_for_count"]
    assert isinstance(count, int)
    if count > len(holders):
        yield f"and {count - len(holders)} more" if holders else f"waits for {count} subscriptions"


def _holder(each: Mapping[str, Any]) -> str:
    state = _HOLDERS.get(each["state"], each["state"])
    details = ", ".join(part for part in (state, age(each["since_s"])) if part)
    return f"{each['subscription']} at {each['router']} ({details})"


def _urgency(value: object) -> str:
    seconds = float(value) if isinstance(value, int | float) else 0.0
    return "red" if seconds > 10 else "yellow" if seconds > 1 else ""


def _missing(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    for each in document.get("missing") or ():
        yield Text(f"no reply from router {each['router']}: {each['why']}", style="yellow")


# --- a delivery -------------------------------------------------------------------------------------------------------


def _delivery(document: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    found = document["found"]
    if not found:
        yield Text(f"no record of {document['tag']}: it is settled everywhere here, or was never here")
    for record in found:
        yield Text(f"{record['role']} at router {record['router']}", style="bold")
        yield _pairs(_fields_of(record))
        holders = [
            {"name": each["name"], "state": each["state"], "detail": each["detail"], "since_s": each["since_s"]}
            for each in record["local_subscriptions"]
        ] + [
            {
                "name": f"router {each['router']}", "state": each["state"], "since_s": each["since_s"],
                "detail": f"{each['owing']} of {each['subscriptions']} subscriptions pending",
            }
            for each in record["other_routers"]
        ]  # fmt: skip
        if holders:
            yield _plain_table(("name", "state", "detail", "since_s"), holders)
        if record["rules"]:
            yield _plain_table(("at_s", "rule", "text"), record["rules"])
        elif record["rules_off"]:
            yield Text(record["rules_off"], style="dim")
        yield Text()
    yield from _missing(document)


def _fields_of(record: Mapping[str, Any]) -> dict[str, str]:
    fields = {
        "publisher": record["publisher"], "its tag": record["publisher_tag"], "network tag": record["network_tag"],
        "topic": record["topic"], "state": record["state"],
        "size": None if record["size"] is None else f"{record['size']} bytes", "sha-256": record["digest"],
        "arrived": None if record["arrived_s"] is None else f"{age(record['arrived_s'])} ago",
    }  # fmt: skip
    return {name: str(value) for name, value in fields.items() if value not in (None, "")}


def _pairs(pairs: Mapping[str, str]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(name, Text(value))
    return table


def _plain_table(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for name in names:
        table.add_column(name.removesuffix("_s"), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(name, row.get(name))) for name in names))
    return table
