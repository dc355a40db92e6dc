"""The inspector's tables on a terminal: as many columns as fit, the most important ones; names are not folded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from topology.inspector.rows_core import Row
from topology.inspector.schema.catalogue import SHOWN, columns_of
from topology.inspector.schema.model import Attribute, Column, Unit, columns_in
from topology.inspector.schema.states import REASONS, WORDS, word_of

STUCK_S = 10.0
"""Who has waited for so long gets a hint how to go on."""
GAP = 2
"""Spaces between columns."""
WIDE = 500
"""Width of output that is not a terminal: the two longest names and an address fit."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_STATES = frozenset({"state", "phase"})


def console() -> Console:
    """The console. In a pipe it is wide: grep would not find a folded name."""
    found = Console()
    if not found.is_terminal:
        found.width = WIDE
    return found


def harmless(value: Any) -> Any:
    """The same without control characters: clients choose their names."""
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
        parts.append(table_of(columns_of(name), rows, width) if rows else Text(f"no {name}"))
    total = document.get("total", len(rows))
    if total > len(rows):
        parts.append(Text(f"{len(rows)} of {total}; more with --limit", style="dim"))
    parts += _missing(document)
    return Group(*parts)


def table_of(known: Iterable[tuple[str, Column]], rows: Sequence[Row], width: int) -> Table:
    """Rows as a table; columns are left out until it fits `width`, as far as their ranks allow."""
    columns = dict(known)
    cells = {shown: [cell(shown, row.get(shown)) for row in rows] for shown in columns}
    columns = {shown: each for shown, each in columns.items() if not each.is_optional or any(cells[shown])}
    widths = {shown: max(len(each.title), *map(len, cells[shown])) for shown, each in columns.items()}
    while sum(widths[each] + GAP for each in columns) - GAP > width and any(each.rank for each in columns.values()):
        del columns[max(columns, key=lambda shown: columns[shown].rank)]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for shown, column in columns.items():
        numeric = all(isinstance(row.get(shown), int | float | None) for row in rows)
        folds = shown in ("fields", "text", next(iter(columns)))
        table.add_column(column.title, justify="right" if numeric else "left", no_wrap=not folds, overflow="fold")
    for at in range(len(rows)):
        table.add_row(*(Text(cells[each][at]) for each in columns))
    return table


def cell(name: str, value: object) -> str:
    """One value as text; empty for an unknown value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if name in _STATES:
        return word_of(value)
    if name.endswith("_s") and isinstance(value, int | float):
        is_short = name.startswith("accepted_") and value < 1
        return f"{1000 * value:.0f} ms" if is_short else age(float(value))
    if name.endswith("_rate") and isinstance(value, int | float):
        return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    if isinstance(value, dict):
        return " ".join(f"{key}={part}" for key, part in value.items() if part != "")
    return str(value)


def age(seconds: float) -> str:
    """A duration as text."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h" if seconds < _DAY else f"{seconds / _DAY:.1f} d"


# --- overview and waits -----------------------------------------------------------------------------------------------


def _overview(document: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    reply = document["overview"]
    counts = reply["counts"]
    missing = reply["waiting_for"]
    draining = reply["draining"]
    state = WORDS["ready"].word if reply["ready"] else f"{WORDS['not-ready'].word}: waits for {', '.join(missing)}"
    if draining:
        state = f"{WORDS['draining'].word}, {age(draining['left_s'])} left"
    yield _pairs(
        {
            "router": f"{reply['router']}  {reply['version']}, up {age(reply['uptime_s'])}",
            "state": state,
            "lease": f"{reply['lease_left_s']} s left, revision {reply['applied']}, incarnation {reply['rid'] or '-'}",
            "network": ", ".join(
                _counted(counts[f"{noun}s"], noun) for noun in ("router", "link", "topic", "subscription", "publisher")
            ),
            "here": f"{_counted(counts['connections'], 'connection')}, {_counted(counts['windows'], 'window')}; "
            f"waiting publishers: {counts['waiting_publishers']}, longer than 1 s: {counts['delayed_1s']}, "
            f"longer than 10 s: {counts['stuck_10s']}; "
            f"subscriptions that gave no credit for 10 s: {counts['held_10s']}",
        }
    )
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
        where = f" of the virtual host {row['vhost']}" if row.get("vhost") else ""
        line.append(f" at {row['router']}, {row['topic']}{where}: window {_window(row)}, ")
        since = f"the oldest since {'over ' if row.get('oldest_is_older') else ''}{cell('oldest_s', row['oldest_s'])}"
        line.append(since, style=_urgency(row["oldest_s"]))
        yield line
        yield from (Text("  " + why) for why in _why(row))
        whose = (("peer", "client"), ("user", "user"))
        client = "".join(f", {what} {row[name]}" for name, what in whose if row.get(name))
        yield Text(f"  tag {row['oldest_tag']}{client}", style="dim")


def _window(row: Row) -> str:
    """Used of granted."""
    return f"{row['unsettled']} of {row['granted']} used"


def _why(row: Row) -> Iterator[str]:
    reason = str(row["reason"])
    if reason != "subscriptions":
        yield REASONS.get(reason, reason)
        return
    holders = row["waiting_for"]
    assert isinstance(holders, list)
    for each in holders:
        yield f"waits for {_holder(each)}"
        if each["since_s"] is not None and each["since_s"] > STUCK_S and each.get("ends_with"):
            yield f"  its owner: {each['owner']}; if nobody needs it any more: {each['ends_with']}"
    count = row["waiting_for_count"]
    assert isinstance(count, int)
    if count > len(holders):
        yield f"and {count - len(holders)} more" if holders else f"waits for {count} subscriptions"


def _holder(each: Mapping[str, Any]) -> str:
    since = "" if each["since_s"] is None else f", {age(each['since_s'])}"
    return f"{each['subscription']} at {each['router']} ({word_of(each['state'])}{since})"


def _urgency(value: object) -> str:
    seconds = float(value) if isinstance(value, int | float) else 0.0
    return "red" if seconds > 10 else "yellow" if seconds > 1 else ""


def _missing(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    for each in document.get("missing") or ():
        yield Text(f"no reply from router {each['router']}: {each['why']}", style="yellow")


# --- a delivery -------------------------------------------------------------------------------------------------------


def _delivery(document: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    found = document["found"]
    yield from _answer(document)
    untraced: dict[str, None] = {}
    for record in found:
        yield Text(f"{record['role']} at router {record['router']}", style="bold")
        shown = [each for each in SHOWN["delivery"].attributes if each.column is not None and record.get(each.name)]
        yield _pairs({_title(each): _value(each, record[each.name]) for each in shown if not each.parts})
        for each in shown:
            if each.parts:
                yield table_of(columns_in(each.parts), record[each.name], width)
        if record["rules_off"]:
            untraced[record["rules_off"]] = None
        yield Text()
    yield from _missing(document)
    yield from (Text(why, style="dim") for why in untraced)


def _answer(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    """What has become of it, before anything else."""
    answer = document["answer"]
    yield Text(answer["text"], style="bold")
    yield from (Text(f"  {_holder(each)}") for each in answer["waiting_for"])
    yield Text()


def _title(attribute: Attribute) -> str:
    return "" if attribute.column is None else attribute.column.title


def _value(attribute: Attribute, value: object) -> str:
    return f"{value} bytes" if attribute.unit is Unit.BYTES else cell(attribute.name, value)


def _pairs(pairs: Mapping[str, str]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(name, Text(value))
    return table
