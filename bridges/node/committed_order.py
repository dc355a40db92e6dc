"""Keeps the messages of open transactions out of a journal until they are decided (J-12).

A subscription of the level `read_committed` has a waiting room beside its journal, in the same file. A message that is
pending waits there. The message that commits its transaction moves all of it to the end of the journal at once; a
rollback deletes it. What stands alone, or is not numbered by its producer, is appended at once and waits for nobody.
The sequencer (`oncewire.client.transactions`) decides; its state is stored in the transaction that accepts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bridges.journal.model import NewMessage
from bridges.node.errors import StorageError
from bridges.node.producers_core import MAX_PRODUCERS, Judgement
from oncewire.client.transactions.sequence_header import Flag, HeaderError, ProducerId, SequenceHeader, read_header
from oncewire.client.transactions.sequencer import Outcome, Sequencer
from oncewire.client.transactions.sequencer_state import JournalHole, Reread, StateError
from oncewire.store.store import Transaction
from oncewire.wire import DecodeError, Symbol, read_annotations, vocabulary

WAITING_TABLES = (
    """CREATE TABLE node_sequences (
        owner TEXT NOT NULL, producer TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (owner, producer))""",
    """CREATE TABLE node_waiting (
        place /*whole*/ PRIMARY KEY, owner TEXT NOT NULL, producer TEXT NOT NULL, sequence BIGINT NOT NULL,
        source BIGINT NOT NULL, payload /*bytes*/ NOT NULL)""",
    "CREATE INDEX node_waiting_producer ON node_waiting (owner, producer, sequence)",
)
_PUT_STATE = """INSERT INTO node_sequences VALUES (?, ?, ?)
ON CONFLICT (owner, producer) DO UPDATE SET state = excluded.state"""
_REFUSED = {Outcome.REFUSED_CROWDED: Judgement.TOO_MANY_PRODUCERS, Outcome.REFUSED_TANGLED: Judgement.TOO_MANY_GAPS}
_ROLLBACKS = frozenset({Outcome.ROLLED_BACK, Outcome.ROLLED_BACK_NOTHING})
_MARK = vocabulary.PRODUCER.encode()

Released = tuple[int, NewMessage]
"""A message that belongs into the journal now, and the number of its topic."""


class CommittedOrder:
    """The waiting room of one journal. Use it inside the transaction that is open.

    When that transaction is rolled back make a new one, which takes its state from the file.

    Args:
        do: what is done inside the transaction.
        path: of the journal, for errors.
        max_bytes: of pending messages.

    Raises:
        StorageError: what is stored cannot be read.
    """

    def __init__(self, do: Transaction, path: Path, max_bytes: int) -> None:
        self._do = do
        self._path = path
        self._max_bytes = max_bytes
        self._sequencer: Sequencer[Released] = Sequencer(ring_messages=0, max_producers=MAX_PRODUCERS)
        ((fed,),) = do.execute("SELECT fed FROM node_subscription")
        states = do.execute("SELECT producer, owner, state FROM node_sequences")
        held = do.execute("SELECT owner, sum(length(payload)) FROM node_waiting GROUP BY owner")
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
            return Judgement.NEW, [(source, NewMessage(payload))]
        place = self._sequencer.position + 1
        return self._feed(place, header, (source, NewMessage(payload)), now_us / 1_000_000)

    def _feed(
        self, place: int, header: SequenceHeader, message: Released, now: float
    ) -> tuple[Judgement, list[Released]]:
        waits = header.flag in {Flag.CONTINUE, Flag.LAST}
        if waits and not self._has_room(header, len(message[1].payload)):
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
        source, payload = message[0], message[1].payload
        self._held[header.producer.user] += len(payload)
        self._do.execute(
            "INSERT INTO node_waiting VALUES (?, ?, ?, ?, ?, ?)",
            (place, header.producer.user, str(header.producer), header.sequence, source, payload),
        )

    def _read_back(self, reread: Reread[Released]) -> list[Released]:
        found = []
        for place, source, payload in self._waiting(reread):
            if reread.wants(header_of(payload)):
                found.append((source, NewMessage(payload)))
                self._delete("place = ?", place)
        try:
            reread.finish()
        except JournalHole as error:
            raise StorageError(f"the journal {self._path} cannot be used", str(error), "restore the file") from error
        return found

    def _waiting(self, reread: Reread[Released]) -> Iterator[tuple[int, int, bytes]]:
        rows: list[tuple[int, int, bytes]] = self._do.execute(
            "SELECT place, source, payload FROM node_waiting WHERE owner = ? AND producer = ?"
            " AND place BETWEEN ? AND ? ORDER BY place",
            (reread.producer.user, str(reread.producer), reread.first_position, reread.last_position),
        )
        return iter(rows)

    def _hand_over(self, producer: ProducerId) -> None:
        """What waits of a producer without user is the user's now (SQ-9)."""
        whose = "owner = '' AND producer = ?"
        ((size,),) = self._do.execute(
            f"SELECT coalesce(sum(length(payload)), 0) FROM node_waiting WHERE {whose}",  # noqa: S608  # our texts
            (str(producer),),
        )
        self._do.execute(
            f"UPDATE node_waiting SET owner = ? WHERE {whose}",  # noqa: S608
            (producer.user, str(producer)),
        )
        self._held[""] -= int(size)
        self._held[producer.user] += int(size)

    def _delete(self, condition: str, *values: object) -> None:
        sizes = self._do.execute(
            f"SELECT owner, sum(length(payload)) FROM node_waiting WHERE {condition} GROUP BY owner",  # noqa: S608
            values,
        )
        self._do.execute(f"DELETE FROM node_waiting WHERE {condition}", values)  # noqa: S608
        for user, size in sizes:
            self._held[user] -= int(size)

    def save(self) -> None:
        """Store what has changed, in the open transaction."""
        for producer, state in self._sequencer.changes().items():
            assert state is not None  # nobody is forgotten
            self._do.execute(_PUT_STATE, (producer.user, str(producer), state))
        self._do.execute("UPDATE node_subscription SET fed = ?", (self._sequencer.position,))
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
