"""Joins the logs of several routers to one timeline: lines of both forms in, entries in the order of their times out.

Nothing is read ahead but one entry of each log. A line that no router wrote (a traceback, another program's) stays with
the entry before it.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

ATTACHED_LINES = 1000
"""Foreign lines kept with one entry; what follows stays at its place as an entry of its own."""
_TEXT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) (debug|info|warning|error|critical) (\S+)((?: \w+=.*)?)")
_FIELD = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|[^ ]*)')
_KNOWN = ("time", "level", "event", "router")


@dataclass(slots=True)
class LogEntry:
    """One event of one log, and the foreign lines behind it."""

    at: datetime
    level: str
    event: str
    """Empty for lines that belong to no event."""
    router: str
    source: str
    """The log it is from."""
    fields: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def as_text(self) -> str:
        """One line, and the foreign lines below it, indented."""
        words = [_stamp(self.at), _word(self.router or self.source)]
        if self.event:
            words += [_word(self.level), _word(self.event)]
            words += [f"{key}={_word(value)}" for key, value in self.fields.items() if key != "traceback"]
        traceback = str(self.fields.get("traceback", ""))
        below = [*traceback.splitlines(), *self.lines]
        return "\n".join([" ".join(words), *("    " + _shown(line) for line in below)])

    def as_data(self) -> dict[str, Any]:
        """One JSON-able object."""
        data: dict[str, Any] = {"time": _stamp(self.at), "router": self.router, "source": self.source}
        if self.event:
            data |= {"level": self.level, "event": self.event, "fields": self.fields}
        if self.lines:
            data["lines"] = self.lines
        return data


def parse(line: str, source: str) -> LogEntry | None:
    """The event of a line, in one of the router's two forms; None for a foreign line."""
    if line.startswith("{"):
        try:
            data = json.loads(line, parse_constant=str)
        except (ValueError, RecursionError):
            return None
        if not isinstance(data, dict):
            return None
        time, level, event = str(data.get("time", "")), str(data.get("level", "")), data.get("event")
        fields = {str(key): value for key, value in data.items() if key not in _KNOWN}
        router = str(data.get("router", ""))
    else:
        found = _TEXT.fullmatch(line)
        if found is None:
            return None
        time, level, event, rest = found.groups()
        fields = {key: _value(text) for key, text in _FIELD.findall(rest)}
        router = str(fields.pop("router", ""))
    at = parse_time(time)
    if at is None or not isinstance(event, str) or not event:
        return None
    return LogEntry(at, level, event, router, source, fields)


def parse_time(text: str) -> datetime | None:
    """A time as logs have it (RFC 3339), None for anything else. Without a zone it is UTC."""
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # the latter: a zone that leads out of the calendar
        return None


def entries(lines: Iterable[str], source: str) -> Iterator[LogEntry]:
    """The entries of one log, in its order."""
    current: LogEntry | None = None
    before: list[str] = []
    for raw in lines:
        line = raw.rstrip("\r\n")
        found = parse(line, source)
        if found is None:
            if current is None:
                if len(before) < ATTACHED_LINES:
                    before.append(line)
            elif len(current.lines) < ATTACHED_LINES:
                current.lines.append(line)
            else:
                yield current
                current = LogEntry(current.at, "", "", current.router, source, lines=[line])
            continue
        if current is not None:
            yield current
        elif before:
            yield LogEntry(found.at, "", "", found.router, source, lines=before)
        current = found
    if current is not None:
        yield current
    elif before:
        yield LogEntry(datetime.min.replace(tzinfo=UTC), "", "", "", source, lines=before)


def merged(logs: Iterable[tuple[str, Iterable[str]]]) -> Iterator[LogEntry]:
    """All entries of several logs, by time; entries of one log keep their order.

    Args:
        logs: the name of each log, and its lines.
    """
    numbered = (_ordered(number, entries(lines, source)) for number, (source, lines) in enumerate(logs))
    for _, _, _, entry in heapq.merge(*numbered, key=lambda item: item[:3]):
        yield entry


def _ordered(number: int, found: Iterator[LogEntry]) -> Iterator[tuple[datetime, int, int, LogEntry]]:
    """A clock that was set back, or threads, must not spoil the merge: time never goes back within a log."""
    latest = datetime.min.replace(tzinfo=UTC)
    for place, entry in enumerate(found):
        latest = max(latest, entry.at)
        yield latest, number, place, entry


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds") if at.year > 1 else "-"


def _value(text: str) -> object:
    if not text.startswith('"'):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _word(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if text and text.isprintable() and not any(c in text for c in ' "=') else json.dumps(text)


def _shown(line: str) -> str:
    """A line without what a terminal would obey, or no file can hold."""
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in line)
