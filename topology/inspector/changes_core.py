"""What a watcher has of each table, and what it gets next: only changes, merged.

A watcher that reads slowly is asked about later, and then gets what has become of each row, not what it was meanwhile.
Ages alone make no change: readers let them grow by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from topology.inspector.rows_core import MAX_ROWS, Filter, Head, Row
from topology.inspector.schema.catalogue import names_that
from topology.inspector.schema.model import Aging

MAX_MARKS = 20_000
"""Changed rows noted for one watcher; for more, a new snapshot is less work."""
MAX_PUTS = 500
"""Rows of one message; the rest is in the next."""
GROWING = names_that(Aging.GROWS)
SHRINKING = names_that(Aging.SHRINKS)
_AGES = GROWING | SHRINKING
_SECONDS_LEFT = "lease_left_s"


class Rows(Protocol):
    """Looks rows up by key."""

    def head(self, table: str, key: str) -> Head | None:
        """One row's head, None when there is no such row."""
        ...

    def row(self, table: str, key: str) -> Row | None:
        """One row, None when there is no such row."""
        ...


@dataclass(slots=True)
class Changes:
    """What changed in one table."""

    put: list[Row] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """True when there are changes."""
        return bool(self.put or self.delete)


class Shown:
    """Rows of one table as a watcher has them."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Iterable[Row]) -> None:
        """The watcher was sent these rows."""
        self._rows = {str(row["key"]): _lasting(row) for row in rows}

    def compare(self, rows: Sequence[Row], most: int) -> Changes:
        """Changes from the rows shown to `rows`, at most `most` of them; these then count as shown."""
        changes = Changes()
        for row in rows:
            if len(changes.put) == most:
                break
            self._show(row, changes)
        gone = self._rows.keys() - {str(row["key"]) for row in rows}
        for key in gone:
            self._drop(key, changes)
        return changes

    def _show(self, row: Row, changes: Changes) -> None:
        key, lasting = str(row["key"]), _lasting(row)
        if self._rows.get(key) != lasting:
            self._rows[key] = lasting
            changes.put.append(row)

    def _drop(self, key: str, changes: Changes) -> None:
        del self._rows[key]
        changes.delete.append(key)


class ShownAttachments(Shown):
    """The same for tables of any size: compares only rows of the snapshot and rows noted as changed."""

    __slots__ = ("_marks", "_table", "_wanted")

    def __init__(self, table: str, wanted: Filter, rows: Iterable[Row]) -> None:
        """The watcher was sent the first rows of `table` that are wanted."""
        super().__init__(rows)
        self._table = table
        self._wanted = wanted
        self._marks: dict[str, Head | None] = {}

    def mark(self, key: str, before: Head | None) -> bool:
        """Notes a changed row; False when there are too many."""
        self._marks.setdefault(key, before)
        return len(self._marks) <= MAX_MARKS

    def changes(self, source: Rows, most: int) -> Changes:
        """The changes that the watcher gets now."""
        changes = Changes()
        while self._marks and len(changes.put) < most:
            key = next(iter(self._marks))
            self._look(source, key, self._marks.pop(key), changes)
        for key in list(self._rows):
            if len(changes.put) >= most:
                break
            row = source.row(self._table, key)
            if row is None:
                self._drop(key, changes)
            else:
                self._show(row, changes)
        return changes

    def _look(self, source: Rows, key: str, before: Head | None, changes: Changes) -> None:
        head = source.head(self._table, key)
        row = source.row(self._table, key) if head is not None and self._wanted.wants(head) else None
        if row is not None:
            if key in self._rows or len(self._rows) < MAX_ROWS:
                self._show(row, changes)
            else:
                changes.put.append(row)
        elif key in self._rows:
            self._drop(key, changes)
        elif before is not None and self._wanted.wants(before):
            changes.delete.append(key)


def _lasting(value: Row) -> Row:
    """A row without attributes that change with time."""
    lasting: Row = {}
    for name, part in value.items():
        if name in _AGES:
            continue
        if name == _SECONDS_LEFT and isinstance(part, float):
            lasting[name] = int(part)
        elif isinstance(part, dict):
            lasting[name] = _lasting(part)
        elif isinstance(part, list):
            lasting[name] = [_lasting(each) if isinstance(each, dict) else each for each in part]
        else:
            lasting[name] = part
    return lasting
