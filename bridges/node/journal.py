"""The journal of one subscription: what was received and accepted, by dense positions, until a reader has done with it.

The file belongs to one receiver (`ReceiverJournal`), which appends in the transaction that also accepts. Any number of
processes read ranges (`journal_reader.py`) and change its marks (`JournalControl`): who reads, from where, how far it
got.

Positions start at 1, have no gaps and are never used again (J-3); a range is (low, high].
"""

from __future__ import annotations

import math
import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bridges.node.batch_ends import ENDS_TABLE, choose_end
from bridges.node.committed_order import CommittedOrder, keep_isolation
from bridges.node.database import open_database, storage_errors, transaction
from bridges.node.errors import BadRequest, JournalReplaced, OwnedByAnother, RangeNotThere, StorageError
from bridges.node.gaps import GAP_TABLES, note_incarnation
from bridges.node.producers_core import Identity, Judgement, ProducerLedger, ProducerRow
from bridges.node.retention import RETENTION_TABLE, Retention, note_ended, note_unread, read_retention
from oncewire.client.transactions.sequencer import Isolation

VERSION = 2
"""Since 2 producers have a user (J-13); a journal of version 1 becomes one of version 2 when something is received."""
EARLIEST = "earliest"
LATEST = "latest"
DELETE_ROWS = 2_000
"""Rows deleted in one transaction: the receiver waits for it, so it must be short."""
TRIM_RESOLUTION_S = 1
"""Retention forgets with this grain; it bounds the table of trim marks to one row for each such time."""
NOT_RETAINED = -1 << 62
"""When what was dropped was trimmed: before any retention."""
MAX_SOURCES = 256
"""Topics or patterns in one journal; each is a link of the receiver."""
MAX_OPEN_BYTES = 8 << 30
"""As a journal may have by default: a transaction is as large as what is read at once."""
ROW_BYTES = 40
"""What a message costs in the file beside its payload, about; so that empty messages count, too."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS node_journal (
    version INTEGER NOT NULL, uuid TEXT NOT NULL, subscription TEXT NOT NULL,
    last INTEGER NOT NULL, last_bytes INTEGER NOT NULL,       -- newest position; bytes of all positions up to it
    deleted INTEGER NOT NULL, deleted_bytes INTEGER NOT NULL, -- newest position that is not kept any more
    trimmed INTEGER NOT NULL,                                 -- positions up to it are done with
    initial INTEGER, owner TEXT
);
CREATE TABLE IF NOT EXISTS node_sources (id INTEGER PRIMARY KEY, topic TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS node_messages (
    position INTEGER PRIMARY KEY, source INTEGER NOT NULL, arrived INTEGER NOT NULL, total_bytes INTEGER NOT NULL,
    payload BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS node_numbered (
    owner TEXT NOT NULL, producer TEXT NOT NULL, floor INTEGER NOT NULL, seen BLOB NOT NULL,
    PRIMARY KEY (owner, producer)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS node_trims (at INTEGER PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS node_former_owners (owner TEXT PRIMARY KEY) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class JournalMarks:
    """Where a journal stands.

    Attributes:
        uuid: of the file; another file means other positions.
        last: newest position, 0 = none yet.
        deleted: newest position that is not kept any more; readable is (deleted, last].
        trimmed: positions up to it are done with; not less than `deleted`.
        live_bytes: of what is kept, payloads and a share for each row.
        initial: where the first batch of the reader starts; None = not decided yet.
        owner: the query that reads; None = none yet.
    """

    uuid: str
    last: int
    deleted: int
    trimmed: int
    live_bytes: int
    initial: int | None
    owner: str | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message to append.

    Attributes:
        source: the id of its topic, see `ReceiverJournal.source_id`.
        payload: the encoded message.
        identity: None = its producer does not number its messages.
        incarnation: of the topic's subscription; 0 = not reported by the network.
    """

    source: int
    payload: bytes
    identity: Identity | None = None
    incarnation: int = 0


def prepare(connection: sqlite3.Connection, path: Path, subscription: str) -> None:
    """Make the journal's tables if they are not there.

    Raises:
        StorageError: the file is another version's.
        BadRequest: it belongs to another subscription.
    """
    with transaction(connection, path):
        # One statement at a time: executescript would commit first.
        for statement in (*_SCHEMA.split(";\n"), ENDS_TABLE, *GAP_TABLES, RETENTION_TABLE):
            connection.execute(statement)
        row = connection.execute("SELECT version, subscription FROM node_journal").fetchone()
        if row is None:
            connection.execute(
                "INSERT INTO node_journal VALUES (?, ?, ?, 0, 0, 0, 0, 0, NULL, NULL)",
                (VERSION, secrets.token_hex(8), subscription),
            )
            return
        if row[0] == 1:
            connection.execute("INSERT INTO node_numbered SELECT '', producer, floor, seen FROM node_producers")
            connection.execute("DROP TABLE node_producers")
            connection.execute("UPDATE node_journal SET version = ?", (VERSION,))
    if row[0] not in {1, VERSION}:
        raise StorageError(
            f"the journal {path} cannot be used",
            f"it has version {row[0]}, this program knows version {VERSION}",
            "use the version of Oncewire that wrote it",
        )
    if row[1] != subscription:
        raise BadRequest(
            f"the journal {path} cannot be used for subscription {subscription!r}",
            f"it belongs to subscription {row[1]!r}",
            "give each subscription a file of its own",
        )


def read_marks(connection: sqlite3.Connection) -> JournalMarks:
    """The marks at this moment."""
    uuid, last, last_bytes, deleted, deleted_bytes, trimmed, initial, owner = connection.execute(
        "SELECT uuid, last, last_bytes, deleted, deleted_bytes, trimmed, initial, owner FROM node_journal"
    ).fetchone()
    return JournalMarks(uuid, last, deleted, trimmed, last_bytes - deleted_bytes, initial, owner)


def check_uuid(marks: JournalMarks, uuid: str | None, path: Path) -> None:
    """Refuse offsets of another journal; None = the caller has none yet.

    Raises:
        JournalReplaced: they are.
    """
    if uuid is not None and uuid != marks.uuid:
        raise JournalReplaced(
            f"offsets of journal {uuid} cannot be used with {path}",
            f"the file is another journal, {marks.uuid}: the old one was deleted or replaced",
            "restore the old file, or start the query with a new checkpoint (messages in between are lost)",
        )


class ReceiverJournal:
    """The appending end. One for each file; whoever holds the client's journal of the same file holds this, too.

    Args:
        connection: of the client's `SqliteJournal`.
        path: of the file, for errors.
        subscription: whose messages it holds.
        isolation: of what is read from it; None = as the journal has it, see `keep_isolation`.
        max_open_bytes: of messages whose transaction is open (J-12).

    Raises:
        StorageError, BadRequest: see `prepare` and `keep_isolation`.

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
    ) -> None:
        self._connection = connection
        self._path = path
        self._max_open_bytes = max_open_bytes
        prepare(connection, path, subscription)
        self.isolation = keep_isolation(connection, path, subscription, isolation)
        self._ledger = ProducerLedger()
        self._order: CommittedOrder | None = None
        self.reload()

    def reload(self) -> None:
        """Take the state from the file again: after a transaction that was rolled back."""
        with storage_errors(self._path):
            rows = self._connection.execute("SELECT producer, floor, seen, owner FROM node_numbered").fetchall()
            last = self._connection.execute("SELECT last, last_bytes FROM node_journal").fetchone()
            known = self._connection.execute("SELECT source, incarnation FROM node_incarnations").fetchall()
        self._incarnations: dict[int, int] = dict(known)
        self._last, self._last_bytes = int(last[0]), int(last[1])
        try:
            self._ledger = ProducerLedger(ProducerRow(*row) for row in rows)
        except ValueError as error:
            raise StorageError(f"the journal {self._path} cannot be used", str(error), "restore the file") from error
        if self.isolation is Isolation.READ_COMMITTED:
            self._order = CommittedOrder(self._connection, self._path, self._max_open_bytes)

    @property
    def last(self) -> int:
        """The newest position."""
        return self._last

    @property
    def producer_count(self) -> int:
        """Producers that number their messages."""
        return len(self._ledger) if self._order is None else self._order.producer_count

    @property
    def open_bytes(self) -> int:
        """Of messages whose transaction is open."""
        return 0 if self._order is None else self._order.held_bytes

    def live_bytes(self) -> int:
        """Bytes that are kept."""
        with storage_errors(self._path):
            return read_marks(self._connection).live_bytes

    def begin_receiving(self) -> Retention:
        """The subscription is received from now on, whatever ended it before (J-14); what was stored about it."""
        with transaction(self._connection, self._path) as database:
            found = read_retention(database)
            if not found.ended:
                return found
            note_ended(database, "")
            marks = read_marks(database)
            if marks.owner is None and marks.deleted == marks.last:  # no query can miss what was sent meanwhile
                database.execute("DELETE FROM node_incarnations")
                self._incarnations.clear()
        return Retention()

    def end_receiving(self, why: str) -> None:
        """The subscription is not received any more, also after a restart of the node (J-14)."""
        with transaction(self._connection, self._path) as database:
            note_ended(database, why)

    def source_id(self, topic: str) -> int:
        """The number that stands for a topic or pattern in this journal.

        Raises:
            BadRequest: it has too many.
        """
        with transaction(self._connection, self._path) as database:
            row = database.execute("SELECT id FROM node_sources WHERE topic = ?", (topic,)).fetchone()
            if row is not None:
                return int(row[0])
            (count,) = database.execute("SELECT count(*) FROM node_sources").fetchone()
            if count >= MAX_SOURCES:
                raise BadRequest(
                    f"topic {topic!r} cannot be added to {self._path}",
                    f"a journal has {MAX_SOURCES} topics at most",
                    "use a pattern, or another subscription",
                )
            database.execute("INSERT INTO node_sources VALUES (?, ?)", (count, topic))
            return int(count)

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
        with storage_errors(self._path):
            return note_incarnation(self._connection, source, incarnation, self._last, now_us)

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
        rows: list[tuple[int, int, int, int, bytes]] = []
        begun: list[tuple[int, int, int]] = []
        position, total = self._last, self._last_bytes
        for arrival in arrivals:
            if arrival.incarnation and self._incarnations.get(arrival.source) != arrival.incarnation:
                self._incarnations[arrival.source] = arrival.incarnation
                begun.append((arrival.source, arrival.incarnation, position))
            judged, ready = self._judge(arrival, now_us)
            judgements.append(judged)
            for source, payload in ready:
                position += 1
                total += len(payload) + ROW_BYTES
                rows.append((position, source, now_us, total, payload))
        if self._order is not None:
            self._order.save()
        with storage_errors(self._path):
            for source, incarnation, before in begun:
                note_incarnation(self._connection, source, incarnation, before, now_us)
            self._connection.executemany("INSERT INTO node_messages VALUES (?, ?, ?, ?, ?)", rows)
            self._connection.executemany(
                "INSERT OR REPLACE INTO node_numbered VALUES (?, ?, ?, ?)",
                [(row.user, row.producer, row.floor, row.seen) for row in self._ledger.changes()],
            )
            self._connection.execute("UPDATE node_journal SET last = ?, last_bytes = ?", (position, total))
        self._last, self._last_bytes = position, total
        return judgements

    def _judge(self, arrival: Arrival, now_us: int) -> tuple[Judgement, Sequence[tuple[int, bytes]]]:
        """What becomes of a message, and what is appended now."""
        if self._order is not None:
            return self._order.take(arrival.source, arrival.payload, now_us)
        judged = Judgement.NEW if arrival.identity is None else self._ledger.judge(arrival.identity)
        return judged, [(arrival.source, arrival.payload)] if judged is Judgement.NEW else []


class JournalControl:
    """The marks of a journal, for any process that may write the file.

    Do not call it in an event loop that receives into the same journal: its writes wait for the receiver's transaction,
    which ends in that loop.

    Args:
        path: of a journal that exists.
        retention_s: how long messages are kept after they were trimmed.

    Raises:
        StorageError: it cannot be opened, or is no journal.
    """

    def __init__(self, path: Path, retention_s: float = 0.0) -> None:
        if not path.exists():
            raise StorageError(
                f"the journal {path} cannot be opened", "it does not exist", "subscribe first: the receiver makes it"
            )
        self._path = path
        self._retention_s = retention_s
        self._connection = open_database(path)
        with storage_errors(path):
            self._connection.execute(RETENTION_TABLE)  # the file may be of a release without it

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def ended(self) -> str:
        """Why the node does not receive the subscription any more (J-14); empty = it does."""
        with storage_errors(self._path):
            return read_retention(self._connection).ended

    def note_unread(self, unread_s: float) -> None:
        """Nobody has asked for the subscription for so long (J-14)."""
        with transaction(self._connection, self._path) as database:
            note_unread(database, unread_s)

    def marks(self) -> JournalMarks:
        """Where the journal stands."""
        with storage_errors(self._path):
            return read_marks(self._connection)

    def initial_offset(self, start: str | int) -> int:
        """Where the first batch starts: decided by the first call, the same for ever after (J-4).

        A start computed again when batch 0 is repeated would lose or duplicate messages.

        Args:
            start: EARLIEST (the oldest message that is kept), LATEST, or a position.

        Raises:
            BadRequest: `start` is none of these, or not in the journal.
        """
        with transaction(self._connection, self._path) as database:
            marks = read_marks(database)
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
            database.execute("UPDATE node_journal SET initial = ?", (initial,))
            return initial

    def choose_end(self, start: int, stop: int) -> int:
        """Where the batch that begins behind `start` ends: decided by the first call (J-5); see `choose_end`."""
        with transaction(self._connection, self._path) as database:
            return choose_end(database, self._path.stem, start, stop)

    def claim(self, owner: str) -> None:
        """Make the subscription this query's; harmless when it is already (J-6).

        Raises:
            OwnedByAnother: another query has it, or it was released from this one.
        """
        with storage_errors(self._path):
            if read_marks(self._connection).owner == owner:
                return
        with transaction(self._connection, self._path) as database:
            marks = read_marks(database)
            former = database.execute("SELECT 1 FROM node_former_owners WHERE owner = ?", (owner,)).fetchone()
            if former is not None:
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
            database.execute("UPDATE node_journal SET owner = ?", (owner,))

    def release(self) -> None:
        """Take the subscription from its query, so that a new one can start: at the oldest message that is kept."""
        with transaction(self._connection, self._path) as database:
            owner = read_marks(database).owner
            if owner is not None:
                database.execute("INSERT OR IGNORE INTO node_former_owners VALUES (?)", (owner,))
            database.execute("UPDATE node_journal SET owner = NULL, initial = NULL")
            database.execute("DELETE FROM node_ends")  # they were that query's batches

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
        with transaction(self._connection, self._path) as database:
            marks = read_marks(database)
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
            if position <= marks.trimmed:
                return
            if self._retention_s:
                at = math.ceil(now / TRIM_RESOLUTION_S) * TRIM_RESOLUTION_S
                database.execute("INSERT OR REPLACE INTO node_trims VALUES (?, ?)", (at, position))
            database.execute("UPDATE node_journal SET trimmed = ?", (position,))

    def delete_expired(self, now: float) -> bool:
        """Delete some messages whose retention is over; True if there are more: call again."""
        with storage_errors(self._path):
            ends = self._expired_to(now)
            if ends <= read_marks(self._connection).deleted:
                return False
        with transaction(self._connection, self._path) as database:
            marks = read_marks(database)
            stop = min(ends, marks.deleted + DELETE_ROWS)
            if stop <= marks.deleted:
                return False
            (total,) = database.execute("SELECT total_bytes FROM node_messages WHERE position = ?", (stop,)).fetchone()
            database.execute("DELETE FROM node_messages WHERE position <= ?", (stop,))
            database.execute("DELETE FROM node_trims WHERE position <= ?", (stop,))
            database.execute("DELETE FROM node_gaps WHERE position < ?", (stop,))
            database.execute("UPDATE node_journal SET deleted = ?, deleted_bytes = ?", (stop, total))
        return stop < ends

    def drop_unread(self, before: float) -> int:
        """Give up some messages that arrived before a time and that no query has processed (J-15).

        Whoever reads behind them notices it: the range is trimmed. What was kept of earlier ones goes with them.
        Call `delete_expired()` afterwards, and this again if it returned more than 0.

        Args:
            before: seconds since 1970.

        Returns:
            How many.
        """
        before_us = round(before * 1_000_000)
        with storage_errors(self._path):
            oldest = self._connection.execute(
                "SELECT arrived FROM node_messages WHERE position > (SELECT trimmed FROM node_journal)"
                " ORDER BY position LIMIT 1"
            ).fetchone()
        if oldest is None or oldest[0] > before_us:
            return 0
        with transaction(self._connection, self._path) as database:
            trimmed = read_marks(database).trimmed
            (stop,) = database.execute(
                "SELECT max(position) FROM (SELECT position, arrived FROM node_messages WHERE position > ?"
                " ORDER BY position LIMIT ?) WHERE arrived <= ?",
                (trimmed, DELETE_ROWS, before_us),
            ).fetchone()
            if stop is None:
                return 0
            database.execute("INSERT OR REPLACE INTO node_trims VALUES (?, ?)", (NOT_RETAINED, stop))
            database.execute("UPDATE node_journal SET trimmed = ?", (stop,))
        return int(stop) - trimmed

    def _expired_to(self, now: float) -> int:
        """The newest position whose retention is over; 0 = none."""
        if not self._retention_s:
            return read_marks(self._connection).trimmed
        found: int | None = self._connection.execute(
            "SELECT max(position) FROM node_trims WHERE at <= ?", (now - self._retention_s,)
        ).fetchone()[0]
        return found or 0
