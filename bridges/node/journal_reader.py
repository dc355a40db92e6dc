"""Ranges of a journal, for any number of reading processes.

Read transactions are short: a long one keeps SQLite from cleaning up its write-ahead log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bridges.node.database import open_database, storage_errors
from bridges.node.errors import BadRequest, OwnedByAnother, RangeHole, RangeNotThere, RangeTrimmed, StorageError
from bridges.node.gaps import Gap, gaps_within
from bridges.node.journal import JournalMarks, check_uuid, read_marks

CHUNK_ROWS = 8_192
CHUNK_BYTES = 8 << 20
"""A chunk ends at the first of both: large enough for Arrow to be fast, small enough for any client's memory."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive messages; the lists are columns of equal length.

    Attributes:
        first: position of the first message.
        topics: what was subscribed to, for each message.
        arrived: microseconds since 1970.
        payloads: the encoded messages.
    """

    first: int
    topics: list[str]
    arrived: list[int]
    payloads: list[bytes]


class JournalReader:
    """A read-only view of a journal's file.

    Raises:
        StorageError: it does not exist or is no journal.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            raise StorageError(
                f"the journal {path} cannot be opened", "it does not exist", "subscribe first: the receiver makes it"
            )
        self._connection: sqlite3.Connection = open_database(path, read_only=True)
        self._topics: dict[int, str] = {}

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def marks(self) -> JournalMarks:
        """Where the journal stands."""
        with storage_errors(self._path):
            return read_marks(self._connection)

    def topics(self) -> list[str]:
        """What the journal's receiver subscribes to."""
        with storage_errors(self._path):
            rows = self._connection.execute("SELECT topic FROM node_sources ORDER BY id").fetchall()
        return [row[0] for row in rows]

    def gaps(self, low: int, high: int) -> tuple[Gap, ...]:
        """Where messages are missing before a message of (low, high], the oldest first; some of them if many (J-8)."""
        with storage_errors(self._path):
            return gaps_within(self._connection, low, high)

    def end_within(self, low: int, *, max_rows: int | None = None, max_bytes: int | None = None) -> int:
        """Where a range that starts behind `low` must end to keep to limits; at least one message if there is one.

        Args:
            low: the range's start.
            max_rows: None = any number.
            max_bytes: of payloads and a share for each row; None = any number. One larger message comes alone.

        Raises:
            RangeTrimmed, RangeNotThere: the range cannot start there.
        """
        marks = self.marks()
        self._check_bounds(marks, low, marks.last)
        high = marks.last if max_rows is None else min(marks.last, low + max(1, max_rows))
        if max_bytes is None or high <= low:
            return high
        with storage_errors(self._path):
            return self._cut(low, high, max_bytes)

    def read(self, low: int, high: int, *, uuid: str | None = None, owner: str | None = None) -> Iterator[Chunk]:
        """The messages of (low, high], in order, every one of them (J-3).

        Args:
            low, high: positions.
            uuid: of the journal the positions come from.
            owner: the query that reads; it must have claimed the journal.

        Raises:
            JournalReplaced, OwnedByAnother: it is not for this caller.
            RangeTrimmed, RangeNotThere, RangeHole: not all messages are there; none is missing silently.
        """
        marks = self.marks()
        check_uuid(marks, uuid, self._path)
        if owner is not None and marks.owner not in {None, owner}:
            raise OwnedByAnother(
                f"subscription {self._path.stem!r} cannot be read with this checkpoint",
                f"query {marks.owner} reads this subscription",
                "give each query a subscription of its own",
            )
        self._check_bounds(marks, low, high)
        while low < high:
            with storage_errors(self._path):
                stop = self._cut(low, min(high, low + CHUNK_ROWS), CHUNK_BYTES)
                rows = self._connection.execute(
                    "SELECT source, arrived, payload FROM node_messages"
                    " WHERE position > ? AND position <= ? ORDER BY position",
                    (low, stop),
                ).fetchall()
            if len(rows) != stop - low:
                self._check_bounds(self.marks(), low, high)  # trimmed in between?
                raise RangeHole(
                    f"({low}, {stop}] of {self._path} cannot be read",
                    f"it holds {len(rows)} messages of {stop - low}",
                    "the journal is damaged: restore it, or start the query with failOnDataLoss=false",
                )
            sources, arrived, payloads = zip(*rows, strict=True)
            yield Chunk(low + 1, self._names(sources), list(arrived), list(payloads))
            low = stop

    def _cut(self, low: int, high: int, max_bytes: int) -> int:
        """The end of the longest range from `low` up to `high` that has at most so many bytes; at least one message.

        Bytes only grow with positions, so a binary search over the primary key finds it.
        """
        limit = self._bytes_before(low) + max_bytes
        if self._bytes_at(high) <= limit:
            return high
        good, bad = low + 1, high
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._bytes_at(middle) <= limit:
                good = middle
            else:
                bad = middle
        return good

    def _bytes_before(self, position: int) -> int:
        row = self._connection.execute(
            "SELECT total_bytes FROM node_messages WHERE position = ?", (position,)
        ).fetchone()
        if row is not None:
            return int(row[0])
        (deleted,) = self._connection.execute("SELECT deleted_bytes FROM node_journal").fetchone()
        return int(deleted)

    def _bytes_at(self, position: int) -> int:
        row = self._connection.execute(
            "SELECT total_bytes FROM node_messages WHERE position = ?", (position,)
        ).fetchone()
        if row is None:
            marks = read_marks(self._connection)
            self._check_bounds(marks, position - 1, position)
            raise RangeHole(
                f"position {position} of {self._path} cannot be read",
                "it is not there",
                "the journal is damaged: restore it, or start the query with failOnDataLoss=false",
            )
        return int(row[0])

    def _names(self, sources: tuple[int, ...]) -> list[str]:
        if any(source not in self._topics for source in set(sources)):
            with storage_errors(self._path):
                self._topics = dict(self._connection.execute("SELECT id, topic FROM node_sources"))
        return [self._topics[source] for source in sources]

    def _check_bounds(self, marks: JournalMarks, low: int, high: int) -> None:
        if not 0 <= low <= high:
            if low > high and low > marks.last:
                raise self._not_there(low, marks)
            raise BadRequest(f"({low}, {high}] is no range", "it must go upwards from 0", "give two positions")
        if low < marks.deleted:
            raise RangeTrimmed(
                f"({low}, {high}] of {self._path} cannot be read",
                f"everything up to {marks.deleted} was trimmed",
                "use a larger retention, or start the query with failOnDataLoss=false",
            )
        if high > marks.last:
            raise self._not_there(high, marks)

    def _not_there(self, position: int, marks: JournalMarks) -> RangeNotThere:
        return RangeNotThere(
            f"position {position} of {self._path} cannot be read",
            f"the newest is {marks.last}: the journal is older than the offsets",
            "restore the newest copy of the file; accepted messages are missing from this one",
        )
