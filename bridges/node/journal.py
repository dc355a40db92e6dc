"""The journal of one subscription: what was received and accepted, by dense positions, until a reader has done with it.

The file belongs to one receiver (`ReceiverJournal`), which appends in the transaction that also accepts. Any number of
processes read ranges (`journal_reader.py`) and change its marks (`JournalControl`): who reads, from where, how far it
got. Messages and positions are those of a journal of the edge (`bridges.journal`), in a store that has only this one.

Positions start at 1, have no gaps and are never used again (J-3); a range is (low, high].
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

from bridges.journal import log
from bridges.journal.model import ROW_BYTES as ROW_BYTES  # noqa: PLC0414  # what a message costs here, too
from bridges.journal.model import NewMessage
from bridges.node.batch_ends import choose_end
from bridges.node.committed_order import CommittedOrder
from bridges.node.database import adopted, storage_errors
from bridges.node.errors import BadRequest, OwnedByAnother, RangeNotThere, StorageError
from bridges.node.gaps import note_incarnation
from bridges.node.journal_reader import JournalReader
from bridges.node.journal_tables import FEATURES, begin, journal_of, marks_of
from bridges.node.producers_core import Identity, Judgement, ProducerLedger, ProducerRow
from bridges.node.retention import Retention, note_ended, note_unread, read_retention
from bridges.node.shard_core import Shard
from oncewire.client.isolation import Isolation
from oncewire.store.rules_core import to_us
from oncewire.store.store import Transaction

EARLIEST = "earliest"
LATEST = "latest"
TRIM_RESOLUTION_S = 1
"""Retention forgets with this grain; it bounds the table of trim marks to one row for each such time."""
NOT_RETAINED = -1 << 62
"""When what was dropped was trimmed: before any retention."""
MAX_SOURCES = 256
"""Topics or patterns in one journal; each is a link of the receiver."""
MAX_OPEN_BYTES = 8 << 30
"""As a journal may have by default: a transaction is as large as what is read at once."""
_PUT_NUMBERED = """INSERT INTO node_numbered VALUES (?, ?, ?, ?)
ON CONFLICT (owner, producer) DO UPDATE SET floor = excluded.floor, seen = excluded.seen"""
_PUT_TRIM = "INSERT INTO node_trims VALUES (?, ?) ON CONFLICT (at) DO UPDATE SET position = excluded.position"


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message to append.

    Attributes:
        source: the number of its topic, see `ReceiverJournal.source_id`.
        payload: the encoded message.
        identity: None = its producer does not number its messages.
        incarnation: of the topic's subscription; 0 = not reported by the network.
    """

    source: int
    payload: bytes
    identity: Identity | None = None
    incarnation: int = 0
    message_format: ClassVar[int] = 0
    key: ClassVar[None] = None


class ReceiverJournal:
    """The appending end. One for each file; whoever holds the client's journal of the same file holds this, too.

    Args:
        connection: of the client's `SqliteJournal`.
        path: of the file, for errors.
        subscription: whose messages it holds.
        isolation: of what is read from it; None = as the journal has it, `read_uncommitted` if it is new.
        max_open_bytes: of messages whose transaction is open (J-12).
        shard: which messages it keeps (J-9); None = all.

    Raises:
        StorageError: the file cannot be used, or an earlier version of Oncewire made it.
        BadRequest: see `begin`.

    Attributes:
        isolation: the level it has.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        subscription: str,
        isolation: Isolation | None = None,
        max_open_bytes: int = MAX_OPEN_BYTES,
        shard: Shard | None = None,
    ) -> None:
        self._file = adopted(connection, path, *FEATURES)
        self._path = path
        self._max_open_bytes = max_open_bytes
        with self._file.transaction() as do:
            self.isolation = begin(do, path, subscription, isolation, shard)
        self._ledger = ProducerLedger()
        self._order: CommittedOrder | None = None
        self.reload()

    def reload(self) -> None:
        """Take the state from the file again: after a transaction that was rolled back."""
        with self._file.looking() as do:
            rows = do.execute("SELECT producer, floor, seen, owner FROM node_numbered")
            self._found = journal_of(do, self._path)
            self._topics = log.topics(do, self._found)
            self._incarnations: dict[int, int] = dict(do.execute("SELECT source, incarnation FROM node_incarnations"))
            try:
                self._ledger = ProducerLedger(ProducerRow(*row) for row in rows)
            except ValueError as error:
                what = f"the journal {self._path} cannot be used"
                raise StorageError(what, str(error), "restore the file") from error
            if self.isolation is Isolation.READ_COMMITTED:
                self._order = CommittedOrder(do, self._path, self._max_open_bytes)

    @property
    def last(self) -> int:
        """The newest position."""
        return self._found.last

    @property
    def producer_count(self) -> int:
        """Producers that number their messages."""
        return len(self._ledger) if self._order is None else self._order.producer_count

    @property
    def open_bytes(self) -> int:
        """Of messages whose transaction is open."""
        return 0 if self._order is None else self._order.held_bytes

    def begin_receiving(self) -> Retention:
        """The subscription is received from now on, whatever ended it before (J-14); what was stored about it."""
        with self._file.transaction() as do:
            found = read_retention(do)
            if not found.ended:
                return found
            note_ended(do, "")
            marks = marks_of(do, journal_of(do, self._path))
            if marks.owner is None and marks.deleted == marks.last:  # no query can miss what was sent meanwhile
                do.execute("DELETE FROM node_incarnations")
                self._incarnations.clear()
        return Retention()

    def end_receiving(self, why: str) -> None:
        """The subscription is not received any more, also after a restart of the node (J-14)."""
        with self._file.transaction() as do:
            note_ended(do, why)

    def source_id(self, topic: str) -> int:
        """The number that stands for a topic or pattern in this journal.

        Raises:
            BadRequest: it has too many.
        """
        if topic not in self._topics.values() and len(self._topics) >= MAX_SOURCES:
            raise BadRequest(
                f"topic {topic!r} cannot be added to {self._path}",
                f"a journal has {MAX_SOURCES} topics at most",
                "use a pattern, or another subscription",
            )
        with self._file.transaction() as do:
            number = log.source_number(do, self._found, topic)
        self._topics[number] = topic
        return number

    def begin_incarnation(self, source: int, incarnation: int, now_us: int) -> bool:
        """A topic's subscription is confirmed. Call it inside the transaction that is open on the connection.

        Args:
            source: the topic's number.
            incarnation: of its subscription; 0 = not reported by the network.
            now_us: microseconds since 1970.

        Returns:
            Whether messages are missing before the next one: see gaps.py.
        """
        if incarnation in (0, self._incarnations.get(source)):
            return False
        self._incarnations[source] = incarnation
        with storage_errors():
            do = self._file.inside()
            return note_incarnation(do, source, self._topics[source], incarnation, (self._found.last, now_us))

    def append(self, arrivals: Sequence[Arrival], now_us: int) -> list[Judgement]:
        """Add messages inside the transaction that is open on the connection (J-1, J-2, J-8, J-12).

        When that transaction is rolled back, call `reload()` before anything else.

        Args:
            arrivals: in order.
            now_us: the time of arrival, microseconds since 1970.

        Returns:
            What became of each. Only NEW ones were added, or wait for the end of their transaction; DUPLICATE ones are
            to be accepted, others rejected.
        """
        judgements: list[Judgement] = []
        ready: list[tuple[int, Arrival | NewMessage]] = []
        begun: list[tuple[int, int, int]] = []
        with storage_errors():
            do = self._file.inside(now_us / 1_000_000)
            for arrival in arrivals:
                source = arrival.source
                if arrival.incarnation and self._incarnations.get(source) != arrival.incarnation:
                    self._incarnations[source] = arrival.incarnation
                    begun.append((source, arrival.incarnation, self._found.last + len(ready)))
                if self._order is not None:
                    judged, released = self._order.take(source, arrival.payload, now_us)
                    ready += released
                else:
                    judged = Judgement.NEW if arrival.identity is None else self._ledger.judge(arrival.identity)
                    if judged is Judgement.NEW:
                        ready.append((source, arrival))
                judgements.append(judged)
            if self._order is not None:
                self._order.save()
            for source, incarnation, before in begun:
                note_incarnation(do, source, self._topics[source], incarnation, (before, now_us))
            changes = self._ledger.changes()
            if changes:
                do.write_many(_PUT_NUMBERED, [(row.user, row.producer, row.floor, row.seen) for row in changes])
            for source, together in groupby(ready, itemgetter(0)):
                _, self._found = log.append_to(do, self._found, [message for _, message in together], source)
        return judgements


class JournalControl(JournalReader):
    """The marks of a journal, and its ranges, for any process that may write the file.

    Do not call it in an event loop that receives into the same journal: its writes wait for the receiver's transaction,
    which ends in that loop.

    Args:
        path: of a journal that exists.
        retention_s: how long messages are kept after they were trimmed.

    Raises:
        StorageError: it cannot be opened, or is no journal.
    """

    def __init__(self, path: Path, retention_s: float = 0.0) -> None:
        super().__init__(path)
        self._retention_s = retention_s

    def ended(self) -> str:
        """Why the node does not receive the subscription any more (J-14); empty = it does."""
        with self._file.looking() as do:
            return read_retention(do).ended

    def note_unread(self, unread_s: float) -> None:
        """Nobody has asked for the subscription for so long (J-14)."""
        with self._file.transaction() as do:
            note_unread(do, unread_s)

    def initial_offset(self, start: str | int) -> int:
        """Where the first batch starts: decided by the first call, the same for ever after (J-4).

        A start computed again when batch 0 is repeated would lose or duplicate messages.

        Args:
            start: EARLIEST (the oldest message that is kept), LATEST, or a position.

        Raises:
            BadRequest: `start` is none of these, or not in the journal.
        """
        with self._file.transaction() as do:
            marks = self._marks(do)
            if marks.initial is not None:
                return marks.initial
            if start == EARLIEST:
                initial = marks.deleted
            elif start == LATEST:
                initial = marks.last
            elif isinstance(start, int) and marks.deleted <= start <= marks.last:
                initial = start
            else:
                raise BadRequest(
                    f"a query cannot start at {start!r}",
                    f"the journal holds the positions after {marks.deleted} up to {marks.last}",
                    f"give {EARLIEST}, {LATEST} or one of these positions",
                )
            do.execute("UPDATE node_subscription SET initial = ?", (initial,))
            return initial

    def choose_end(self, start: int, stop: int) -> int:
        """Where the batch that begins behind `start` ends: decided by the first call (J-5); see `choose_end`."""
        with self._file.transaction() as do:
            marks = self._marks(do)
            return choose_end(do, self._path.stem, (start, stop), (marks.deleted, marks.last))

    def claim(self, owner: str) -> None:
        """Make the subscription this query's; harmless when it is already (J-6).

        Raises:
            OwnedByAnother: another query has it, or it was released from this one.
        """
        if self.marks().owner == owner:
            return
        with self._file.transaction() as do:
            marks = self._marks(do)
            if do.execute("SELECT 1 FROM node_former_owners WHERE owner = ?", (owner,)):
                raise OwnedByAnother(
                    f"subscription {self._path.stem!r} cannot be read with this checkpoint",
                    f"it was taken from query {owner} (`oncewire bridge release`)",
                    "start with a new checkpoint and another subscription",
                )
            if marks.owner is not None and marks.owner != owner:
                raise OwnedByAnother(
                    f"subscription {self._path.stem!r} cannot be read with this checkpoint",
                    f"query {marks.owner} reads this subscription: two would each get only a part",
                    "start with that query's checkpoint, or give each query its own subscription; if that checkpoint"
                    f" is lost, run `oncewire bridge release NODE {self._path.stem} --keep`, then start again",
                )
            do.execute("UPDATE node_subscription SET query = ?", (owner,))

    def release(self) -> None:
        """Take the subscription from its query, so that a new one can start: at the oldest message that is kept."""
        with self._file.transaction() as do:
            owner = self._marks(do).owner
            if owner is not None:
                do.execute("INSERT INTO node_former_owners VALUES (?) ON CONFLICT (owner) DO NOTHING", (owner,))
            do.execute("UPDATE node_subscription SET query = NULL, initial = NULL, released = 0")
            do.execute("DELETE FROM node_ends")  # they were that query's batches

    def trim(self, position: int, now: float, *, owner: str | None = None) -> None:
        """Everything up to a position is done with (J-7). Going back changes nothing.

        Call `delete_expired()` afterwards.

        Args:
            position: of the last message that is done with.
            now: the time, seconds since 1970.
            owner: the query; None = the caller does not know (Spark does not pass it to its source).

        Raises:
            OwnedByAnother: the subscription is another query's.
            RangeNotThere: there is no such position yet.
        """
        with self._file.transaction() as do:
            marks = self._marks(do)
            if owner is not None and marks.owner is not None and owner != marks.owner:
                raise OwnedByAnother(
                    f"query {owner} cannot trim {self._path}",
                    f"query {marks.owner} reads this subscription",
                    "give each query a subscription of its own",
                )
            if position > marks.last:
                raise RangeNotThere(
                    f"{self._path} cannot be trimmed to {position}",
                    f"its newest position is {marks.last}",
                    "use offsets that this journal gave",
                )
            if position > marks.released:
                do.execute("UPDATE node_subscription SET released = ?", (position,))
            if position <= marks.trimmed:
                return
            if self._retention_s:
                at = math.ceil(now / TRIM_RESOLUTION_S) * TRIM_RESOLUTION_S
                do.execute(_PUT_TRIM, (at, position))
            do.execute("UPDATE node_subscription SET trimmed = ?", (position,))

    def delete_expired(self, now: float) -> bool:
        """Delete some messages whose retention is over; True if there are more: call again."""
        with self._file.looking() as do:
            ends = self._expired_to(do, now)
            if ends <= self._marks(do).deleted:
                return False
        with self._file.transaction() as do:
            deleted = log.trim(do, self._journal(do).name, ends).trimmed
            do.execute("DELETE FROM node_trims WHERE position <= ?", (deleted,))
            do.execute("DELETE FROM node_gaps WHERE position < ?", (deleted,))
        return deleted < ends

    def drop_unread(self, before: float) -> int:
        """Give up messages that arrived before a time and that no query has processed (J-15).

        Whoever reads behind them notices it: the range is trimmed. What was kept of earlier ones goes with them.
        Call `delete_expired()` afterwards.

        Args:
            before: seconds since 1970.

        Returns:
            How many.
        """
        with self._file.looking() as do:
            stop = log.before_time(do, self._journal(do), to_us(before) + 1)
            if stop <= self._marks(do).trimmed:
                return 0
        with self._file.transaction() as do:
            trimmed = self._marks(do).trimmed
            if stop <= trimmed:
                return 0
            do.execute(_PUT_TRIM, (NOT_RETAINED, stop))
            do.execute("UPDATE node_subscription SET trimmed = ?", (stop,))
        return stop - trimmed

    def _expired_to(self, do: Transaction, now: float) -> int:
        """The newest position whose retention is over; 0 = none."""
        if not self._retention_s:
            return self._marks(do).trimmed
        ((found,),) = do.execute("SELECT max(position) FROM node_trims WHERE at <= ?", (now - self._retention_s,))
        return found or 0
