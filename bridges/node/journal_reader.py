"""Ranges of a journal, for any number of reading processes.

No transaction is open between two chunks: it would keep SQLite from cleaning up its write-ahead log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bridges.journal import log
from bridges.journal.model import JournalState
from bridges.node.database import open_file
from bridges.node.errors import (
    BadRequest,
    JournalReplaced,
    OwnedByAnother,
    RangeHole,
    RangeNotThere,
    RangeTrimmed,
    StorageError,
)
from bridges.node.gaps import Gap, gaps_within
from bridges.node.journal_tables import FEATURES, JournalMarks, journal_of, marks_of
from bridges.node.model import Chunk
from oncewire.store.store import Transaction

CHUNK_ROWS = 8_192
CHUNK_BYTES = 8 << 20
"""A chunk ends at the first of both: large enough for Arrow to be fast, small enough for any client's memory."""


class JournalReader:
    """What a journal has, for any process.

    Raises:
        StorageError: it does not exist or is no journal.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            raise StorageError(
                f"the journal {path} cannot be opened", "it does not exist", "subscribe first: the receiver makes it"
            )
        self._file = open_file(path, *FEATURES)
        self._topics: dict[int, str] = {}

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _journal(self, do: Transaction) -> JournalState:
        return journal_of(do, self._path)

    def _marks(self, do: Transaction) -> JournalMarks:
        return marks_of(do, self._journal(do))

    def marks(self) -> JournalMarks:
        """Where the journal stands."""
        with self._file.looking() as do:
            return self._marks(do)

    def topics(self) -> list[str]:
        """What the journal's receiver subscribes to."""
        with self._file.looking() as do:
            return [topic for _, topic in sorted(log.topics(do, self._journal(do)).items())]

    def gaps(self, low: int, high: int) -> tuple[Gap, ...]:
        """Where messages are missing before a message of (low, high], the oldest first; some of them if many (J-8)."""
        with self._file.looking() as do:
            return gaps_within(do, low, high)

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
        with self._file.looking() as do:
            return max(low + 1, log.end_within(do, self._journal(do), low, high, high - low, max_bytes))

    def read(self, low: int, high: int, *, uuid: str | None = None, owner: str | None = None) -> Iterator[Chunk]:
        """The messages of (low, high], in order, every one of them (J-3).

        Args:
            low, high: positions.
            uuid: of the journal the positions come from; None = the caller has none yet.
            owner: the query that reads; it must have claimed the journal.

        Raises:
            JournalReplaced, OwnedByAnother: it is not for this caller.
            RangeTrimmed, RangeNotThere, RangeHole: not all messages are there; none is missing silently.
        """
        marks = self.marks()
        if uuid is not None and uuid != marks.uuid:
            raise JournalReplaced(
                f"offsets of journal {uuid} cannot be used with {self._path}",
                f"the file is another journal, {marks.uuid}: the old one was deleted or replaced",
                "restore the old file, or start the query with a new checkpoint (messages in between are lost)",
            )
        if owner is not None and marks.owner not in {None, owner}:
            raise OwnedByAnother(
                f"subscription {self._path.stem!r} cannot be read with this checkpoint",
                f"query {marks.owner} reads this subscription",
                "give each query a subscription of its own",
            )
        self._check_bounds(marks, low, high)
        while low < high:
            with self._file.looking() as do:
                found = self._journal(do)
                stop = max(low + 1, log.end_within(do, found, low, high, CHUNK_ROWS, CHUNK_BYTES))
                rows = log.columns(do, found, low, stop)
            if len(rows) != stop - low:
                self._check_bounds(self.marks(), low, high)  # trimmed in between?
                raise RangeHole(
                    f"({low}, {stop}] of {self._path} cannot be read",
                    f"it holds {len(rows)} messages of {stop - low}",
                    "the journal is damaged: restore it, or start the query with failOnDataLoss=false",
                )
            arrived, sources, payloads = zip(*rows, strict=True)
            yield Chunk(low + 1, self._names(sources), list(arrived), list(payloads))
            low = stop

    def _names(self, sources: tuple[int, ...]) -> list[str]:
        if not self._topics.keys() >= set(sources):
            with self._file.looking() as do:
                self._topics = log.topics(do, self._journal(do))
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
