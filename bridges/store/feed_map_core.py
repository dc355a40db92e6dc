"""The map of a subscription as few rows of a table, for a subscription may have thousands of deliveries open. Pure.

A row has deliveries that came in one transaction, in order of arrival: a run of tags that follow each other as numbers
and have one outcome, and behind it further runs. The deliveries of a publisher are one run, as routers number them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Entry = tuple[bytes, str | None]
"""Tag, and outcome as text."""
ROW_TAGS = 256
"""Deliveries of one row: it is written anew when some of them are settled, at most 15 kB."""


class MapRow(NamedTuple):
    """One row, without the name of the feed.

    Attributes:
        tag: of the oldest delivery; no two rows have the same.
        run: so many deliveries have this tag and those that follow it.
        outcome: of the run.
        rest: further runs: None, or a JSON list of [tag in hex, count, outcome].
    """

    tag: bytes
    run: int
    outcome: str | None
    rest: str | None


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What to do with rows, in this order.

    Attributes:
        gone: tags of rows to delete.
        changed: rows, each with the tag of the row that it replaces.
        added: new rows, in order.
    """

    gone: Sequence[bytes]
    changed: Sequence[tuple[MapRow, bytes]]
    added: Sequence[MapRow]


class _Group:
    """What one row has. Compared by identity."""

    __slots__ = ("entries", "stored")

    def __init__(self, entries: dict[bytes, str | None], stored: bytes) -> None:
        self.entries = entries
        self.stored = stored  # the tag under which its row stands


def entries_of(row: MapRow) -> Iterator[Entry]:
    """Yield a row's deliveries in order."""
    runs = [] if row.rest is None else json.loads(row.rest)
    for first, count, outcome in [(row.tag.hex(), row.run, row.outcome), *runs]:
        tag = bytes.fromhex(first)
        number = int.from_bytes(tag, "big")
        for following in range(number, number + count):
            yield following.to_bytes(len(tag), "big"), outcome


def row_of(deliveries: Mapping[bytes, str | None]) -> MapRow:
    """Return the row of deliveries, of which there is one at least."""
    tags, outcomes = list(deliveries), set(deliveries.values())
    if len(outcomes) == 1 and _is_run(tags):
        return MapRow(tags[0], len(tags), outcomes.pop(), None)
    return _row_of_runs(deliveries.items())


def _is_run(tags: Sequence[bytes]) -> bool:
    """Whether tags, no two the same, follow each other as numbers: those in order whose ends are so far apart."""
    apart = int.from_bytes(tags[-1], "big") - int.from_bytes(tags[0], "big")
    return apart == len(tags) - 1 and len(set(map(len, tags))) == 1 and list(tags) == sorted(tags)


def _row_of_runs(entries: Iterable[Entry]) -> MapRow:
    firsts: list[Entry] = []
    counts: list[int] = []
    size = 0
    following = -1
    current: str | None = None
    for entry in entries:
        tag, outcome = entry
        number = int.from_bytes(tag, "big")
        if number == following and outcome == current and len(tag) == size:
            counts[-1] += 1
        else:
            size, current = len(tag), outcome
            firsts.append(entry)
            counts.append(1)
        following = number + 1
    others = [(tag.hex(), count, outcome) for (tag, outcome), count in zip(firsts[1:], counts[1:], strict=True)]
    return MapRow(firsts[0][0], counts[0], firsts[0][1], json.dumps(others) if others else None)


class FeedMap:
    """The map of a subscription, as the store has it.

    Args:
        rows: that are there.
    """

    def __init__(self, rows: Iterable[MapRow] = ()) -> None:
        self._groups: dict[bytes, _Group] = {}
        for row in rows:
            self._join(dict(entries_of(row)), row.tag)

    def _join(self, entries: dict[bytes, str | None], tag: bytes) -> None:
        self._groups.update(dict.fromkeys(entries, _Group(entries, tag)))

    def change(self, entries: Iterable[Entry], forgotten: Iterable[bytes]) -> RowChanges:
        """Forget deliveries, then give others their outcome: those that are there keep their place."""
        groups = self._groups
        touched: dict[_Group, None] = {}
        for tag in forgotten:
            group = groups.pop(tag, None)
            if group is not None:
                del group.entries[tag]
                touched[group] = None
        new = dict(entries)
        if not groups.keys().isdisjoint(new):
            for tag in [tag for tag in new if tag in groups]:
                group = groups[tag]
                group.entries[tag] = new.pop(tag)
                touched[group] = None
        gone = [group.stored for group in touched if not group.entries]
        changed: list[tuple[MapRow, bytes]] = []
        for group in touched:
            if group.entries:
                row = row_of(group.entries)
                changed.append((row, group.stored))
                group.stored = row.tag
        return RowChanges(gone, changed, self._added(new))

    def _added(self, new: dict[bytes, str | None]) -> list[MapRow]:
        added = []
        entries = list(new.items())
        for start in range(0, len(entries), ROW_TAGS):
            some = dict(entries[start : start + ROW_TAGS])
            added.append(row_of(some))
            self._join(some, added[-1].tag)
        return added
