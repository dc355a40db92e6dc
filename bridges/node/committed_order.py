"""Keeps the messages of open transactions out of a journal until they are decided (J-12).

A subscription of the level `read_committed` has a waiting room beside its journal, in the same file. A message that is
pending waits there. The message that commits its transaction moves all of it to the end of the journal at once; a
rollback deletes it. What stands alone, or is not numbered by its producer, is appended at once and waits for nobody.
The sequencer (`oncewire.client.transactions`) decides; its state is stored in the transaction that accepts.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bridges.node.database import storage_errors, transaction
from bridges.node.errors import BadRequest, StorageError
from bridges.node.producers_core import MAX_PRODUCERS, Judgement
from oncewire.client.transactions.sequence_header import Flag, HeaderError, ProducerId, SequenceHeader, read_header
from oncewire.client.transactions.sequencer import Isolation, Outcome, Sequencer
from oncewire.client.transactions.sequencer_state import JournalHole, Reread, StateError
from oncewire.wire import DecodeError, Symbol, read_annotations, vocabulary

_TABLES = (
    "CREATE TABLE IF NOT EXISTS node_isolation (level TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS node_sequencer (fed INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS node_sequences (
        owner TEXT NOT NULL, producer TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (owner, producer)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS node_waiting (
        place INTEGER PRIMARY KEY, owner TEXT NOT NULL, producer TEXT NOT NULL, sequence INTEGER NOT NULL,
        source INTEGER NOT NULL, payload BLOB NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS node_waiting_producer ON node_waiting (owner, producer, sequence)",
)
_FROM_VERSION_1 = (
    "INSERT INTO node_sequences SELECT '', producer, state FROM node_sequenced",
    "INSERT INTO node_waiting SELECT place, '', producer, sequence, source, payload FROM node_pending",
    "DROP TABLE node_sequenced",
    "DROP TABLE node_pending",
)
"""What was kept without a user stays so, and users continue it (SQ-9)."""
_REFUSED = {Outcome.REFUSED_CROWDED: Judgement.TOO_MANY_PRODUCERS, Outcome.REFUSED_TANGLED: Judgement.TOO_MANY_GAPS}
_ROLLBACKS = frozenset({Outcome.ROLLED_BACK, Outcome.ROLLED_BACK_NOTHING})
_MARK = vocabulary.PRODUCER.encode()

Released = tuple[int, bytes]
"""A message that belongs into the journal now: the number of its topic, and the encoded message."""


def keep_isolation(connection: sqlite3.Connection, path: Path, subscription: str, level: Isolation | None) -> Isolation:
    """Give a new journal its level, or refuse another one than it has; returns the level.

    A journal whose level changed would hold pending messages that nobody decides about.

    Args:
        connection: of the journal, whose tables are there.
        path: of the journal, for errors.
        subscription: its name, for errors.
        level: as asked for; None = as the journal has it, `read_uncommitted` if it is new.

    Raises:
        BadRequest: the journal has another level.
        StorageError: it cannot be read or written.
    """
    with transaction(connection, path) as database:
        for statement in _TABLES:
            database.execute(statement)
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'node_sequenced'").fetchone() is not None:
            for statement in _FROM_VERSION_1:
                database.execute(statement)
        row = database.execute("SELECT level FROM node_isolation").fetchone()
        if row is None:
            (last,) = database.execute("SELECT last FROM node_journal").fetchone()
            known = Isolation.READ_UNCOMMITTED if last or level is None else level
            database.execute("INSERT INTO node_isolation VALUES (?)", (known.value,))
            database.execute("INSERT INTO node_sequencer VALUES (0)")
        else:
            known = Isolation(row[0])
    if level not in {None, known}:
        assert level is not None
        raise BadRequest(
            f"subscription {subscription!r} cannot be received with isolation level {level.value}",
            f"its journal {path} has the level {known.value}",
            "use that level, or a subscription with another name",
        )
    return known


class CommittedOrder:
    """The waiting room of one journal. Use it inside the transaction that is open on the connection.

    When that transaction is rolled back make a new one, which takes its state from the file.

    Args:
        connection: of the journal.
        path: of the journal, for errors.
        max_bytes: of pending messages.

    Raises:
        StorageError: what is stored cannot be read.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, max_bytes: int) -> None:
        self._connection = connection
        self._path = path
        self._max_bytes = max_bytes
        self._sequencer: Sequencer[Released] = Sequencer(ring_messages=0, max_producers=MAX_PRODUCERS)
        with storage_errors(path):
            (fed,) = connection.execute("SELECT fed FROM node_sequencer").fetchone()
            states = connection.execute("SELECT producer, owner, state FROM node_sequences").fetchall()
            held = connection.execute("SELECT owner, sum(length(payload)) FROM node_waiting GROUP BY owner").fetchall()
        self._held = Counter({str(user): int(size) for user, size in held})
        try:
            # No horizons: no producer is ever forgotten here, as with J-2, so a new one is never refused.
            self._sequencer.restore(fed, {}, ((_producer_of(name, user), state) for name, user, state in states))
        except StateError as error:
            raise StorageError(f"the journal {path} cannot be used", str(error), "restore the file") from error

    @property
    def producer_count(self) -> int:
        """Producers that number their messages."""
        return len(self._sequencer.producers)

    @property
    def held_bytes(self) -> int:
        """Of messages whose transaction is open."""
        return self._held.total()

    def take(self, source: int, payload: bytes, now_us: int) -> tuple[Judgement, list[Released]]:
        """Judge a message; returns also what belongs into the journal now, in this order.

        Raises:
            StorageError: too much is pending, or the file cannot be used.
        """
        try:
            header = header_of(payload)
        except HeaderError:
            return Judgement.MALFORMED_HEADER, []
        if header is None:
            return Judgement.NEW, [(source, payload)]
        place = self._sequencer.position + 1
        with storage_errors(self._path):
            return self._feed(place, header, (source, payload), now_us / 1_000_000)

    def _feed(
        self, place: int, header: SequenceHeader, message: Released, now: float
    ) -> tuple[Judgement, list[Released]]:
        waits = header.flag in {Flag.CONTINUE, Flag.LAST}
        if waits and not self._has_room(header, len(message[1])):
            return Judgement.TOO_MUCH_PENDING, []
        if waits:  # also the last one: when it commits, it is read back with the others
            self._keep(place, header, message)
        step = self._sequencer.feed(place, header, message, now)
        if step.continues:
            self._hand_over(header.producer)
        if waits and (step.outcome is Outcome.DUPLICATE or step.outcome.is_refusal):
            self._delete("place = ?", place)
        released: list[Released] = []
        for effect in step.effects:
            if isinstance(effect, Reread):
                released += self._read_back(effect)
            else:
                released += [placed.message for placed in effect.messages]
                if waits:
                    self._delete("place = ?", place)
        if step.outcome in _ROLLBACKS:
            self._delete(
                "owner = ? AND producer = ? AND sequence BETWEEN ? AND ?",
                *(header.producer.user, str(header.producer), header.begins, header.sequence),
            )
        if step.outcome.is_refusal:
            return _REFUSED[step.outcome], []
        return Judgement.DUPLICATE if step.outcome is Outcome.DUPLICATE else Judgement.NEW, released

    def _has_room(self, header: SequenceHeader, size: int) -> bool:
        """Whether another message of its user may wait. Without users all publishers wait instead, as one.

        Raises:
            StorageError: of that.
        """
        user = header.producer.user
        if self._held[user] + size <= self._max_bytes:
            return True
        if user:
            return False
        raise StorageError(
            f"the journal {self._path} takes no more messages of open transactions",
            f"{self._held[user]} bytes of them wait for their ends, {self._max_bytes} may",
            "raise max_journal_bytes, or end the transactions with smaller ones",
        )

    def _keep(self, place: int, header: SequenceHeader, message: Released) -> None:
        source, payload = message
        self._held[header.producer.user] += len(payload)
        self._connection.execute(
            "INSERT INTO node_waiting VALUES (?, ?, ?, ?, ?, ?)",
            (place, header.producer.user, str(header.producer), header.sequence, source, payload),
        )

    def _read_back(self, reread: Reread[Released]) -> list[Released]:
        found = []
        for place, source, payload in self._waiting(reread):
            if reread.wants(header_of(payload)):
                found.append((source, payload))
                self._delete("place = ?", place)
        try:
            reread.finish()
        except JournalHole as error:
            raise StorageError(f"the journal {self._path} cannot be used", str(error), "restore the file") from error
        return found

    def _waiting(self, reread: Reread[Released]) -> Iterator[tuple[int, int, bytes]]:
        rows: list[tuple[int, int, bytes]] = self._connection.execute(
            "SELECT place, source, payload FROM node_waiting WHERE owner = ? AND producer = ?"
            " AND place BETWEEN ? AND ? ORDER BY place",
            (reread.producer.user, str(reread.producer), reread.first_position, reread.last_position),
        ).fetchall()
        return iter(rows)

    def _hand_over(self, producer: ProducerId) -> None:
        """What waits of a producer without user is the user's now (SQ-9)."""
        whose = "owner = '' AND producer = ?"
        (size,) = self._connection.execute(
            f"SELECT coalesce(sum(length(payload)), 0) FROM node_waiting WHERE {whose}",  # noqa: S608  # our texts
            (str(producer),),
        ).fetchone()
        self._connection.execute(
            f"UPDATE node_waiting SET owner = ? WHERE {whose}",  # noqa: S608
            (producer.user, str(producer)),
        )
        self._held[""] -= int(size)
        self._held[producer.user] += int(size)

    def _delete(self, condition: str, *values: object) -> None:
        sizes = self._connection.execute(
            f"SELECT owner, sum(length(payload)) FROM node_waiting WHERE {condition} GROUP BY owner",  # noqa: S608
            values,
        ).fetchall()
        self._connection.execute(f"DELETE FROM node_waiting WHERE {condition}", values)  # noqa: S608
        for user, size in sizes:
            self._held[user] -= int(size)

    def save(self) -> None:
        """Store what has changed, in the open transaction.

        Raises:
            StorageError: it cannot be written.
        """
        with storage_errors(self._path):
            for producer, state in self._sequencer.changes().items():
                assert state is not None  # nobody is forgotten
                self._connection.execute(
                    "INSERT OR REPLACE INTO node_sequences VALUES (?, ?, ?)", (producer.user, str(producer), state)
                )
            self._connection.execute("UPDATE node_sequencer SET fed = ?", (self._sequencer.position,))
        self._sequencer.saved()


def header_of(payload: bytes) -> SequenceHeader | None:
    """The header of an encoded message, None if it has none.

    Raises:
        HeaderError: it has one that is malformed.
    """
    if _MARK not in payload:  # the usual case of other publishers: nothing is decoded
        return None
    try:
        annotations = read_annotations(payload)
    except DecodeError:
        return None
    return read_header({key: value for key, value in annotations.items() if isinstance(key, Symbol)})


def _producer_of(text: str, user: str) -> ProducerId:
    name, _, born = text.rpartition("@")
    return ProducerId(name, int(born), user)
