"""The last events of a router: a ring buffer with sequence numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from topology.inspector.rows_core import Row

EVENTS_KEPT = 1_000
"""Some minutes of a busy router, and less than 1 MB."""
EXACT = 2**53
"""Larger numbers are sent as text: a browser would round them."""
MAX_TEXT = 500
"""Characters of one field that are shown: names and reasons, no tracebacks."""


class Event(NamedTuple):
    """One line of the log."""

    seq: int
    time: float
    """Seconds since 1970, UTC."""
    level: str
    event: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events, oldest first."""

    items: list[Row]
    next: int
    """Ask for those after it."""
    dropped: int
    """Requested events that are already deleted."""


class EventRing:
    """Keeps the newest events. Adding is one append; events are formatted when they are read."""

    __slots__ = ("_ring", "last")

    def __init__(self) -> None:
        self._ring: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.last = 0
        """Number of the newest event."""

    def add(self, time: float, level: str, event: str, fields: Mapping[str, object]) -> None:
        """Keep one more event.

        Args:
            time: seconds since 1970, UTC.
            level: as in the log.
            event: its name.
            fields: kept as they are; the caller does not change them any more.
        """
        self.last += 1
        self._ring.append(Event(self.last, time, level, event, fields))

    def after(self, seq: int | None, limit: int) -> EventPage:
        """Events after number `seq`, oldest first; None: the newest ones."""
        if seq is None:
            seq = max(0, self.last - min(limit, len(self._ring)))
        first = self.last - len(self._ring) + 1
        start = max(seq + 1, first)
        stop = min(start + limit, self.last + 1)
        items = [as_row(self._ring[number - first]) for number in range(start, stop)]
        return EventPage(items, max(stop - 1, min(seq, self.last)), max(0, start - seq - 1) if items else 0)


def as_row(event: Event) -> Row:
    """An event as JSON."""
    time = datetime.fromtimestamp(event.time, UTC).isoformat(timespec="milliseconds")
    return {
        "key": str(event.seq),
        "seq": event.seq,
        "time": time.replace("+00:00", "Z"),
        "level": event.level,
        "event": event.event,
        "fields": {name: _plain(value) for name, value in event.fields.items()},
    }


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) <= EXACT):
        return value
    return (value.hex() if isinstance(value, bytes) else str(value))[:MAX_TEXT]
