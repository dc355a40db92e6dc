"""An outbox as the client's journal: its rows are the publishers' messages, their numbers are the delivery tags.

So a decided row is stored once. A row's number in its topic's stream, the number of the client's message and its
delivery tag are one and the same. The sequence of its identity counts from 1 in the producer's present life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bridges.node.arrow_bodies import StagedRows, decode_rows
from bridges.node.database import open_file
from bridges.node.errors import NodeError, OwnedByAnother, StorageError
from bridges.node.identity import annotate, common_pairs, producer_pair
from bridges.node.outbox import finish_manifests
from bridges.node.outbox_schema import SINKS
from bridges.node.required_rows import load_released, required, save_released
from oncewire.client import (
    Journal,
    JournalCorrupt,
    JournalError,
    JournalOwnerError,
    JournalUnusable,
    Outcome,
    OutcomeKind,
)
from oncewire.client.journal_records import (
    PublisherChanges,
    PublisherState,
    StoredMessage,
    SubscriberChanges,
    SubscriberState,
)
from oncewire.client.process_lock import HeldElsewhere, hold
from oncewire.client.transactions.sequence_header import ProducerId
from oncewire.client.transactions.sequence_set import SequenceSet
from oncewire.store.store import Transaction

CACHED_BODIES = 4
"""Decoded parts that are kept: topics of one sink read the same part one after the other."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of one topic's stream, from one part.

    Attributes:
        first: number of the first.
        payloads: encoded messages, without their identity.
        batch: number of the manifest.
        batch_first: the number of the manifest's first row in this topic.
        batch_stop: the number behind its last one.
        is_atomic: the manifest's rows in this topic are one transaction.
        producer: what `producer_pair` made.
        base: the number at which the producer's present life begins.
    """

    first: int
    payloads: list[bytes]
    batch: int
    batch_first: int
    batch_stop: int
    is_atomic: bool
    producer: bytes
    base: int


class _Topic:
    """A topic's stream, as far as its publisher has got."""

    __slots__ = ("doubted", "floor", "id", "released", "settled", "waits")

    def __init__(
        self,
        topic_id: int,
        floor: int,
        settled: SequenceSet,
        doubted: SequenceSet,
        released: SequenceSet,
        *,
        waits: bool,
    ) -> None:
        self.id = topic_id
        self.floor = floor
        self.settled = settled
        self.doubted = doubted
        self.released = released
        self.waits = waits  # what is released is kept and sent again (O-12)


class OutboxJournal(Journal):
    """The publishing end of an outbox. One for each file.

    Args:
        path: of an outbox that exists.
        sink: its id, which is the container-id to connect with.
        on_progress: called in any thread when rows have got their outcome.

    Raises:
        OwnedByAnother: another process publishes from it.
        StorageError: the file cannot be used.

    Attributes:
        outcomes: rows by the outcome they ended with, since it was opened.
    """

    is_durable = True

    def __init__(self, path: Path, sink: str, on_progress: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._sink = sink
        self._on_progress = on_progress
        self._let_go = _held(path)
        try:
            self._reader = open_file(path, SINKS)
            # A file of its own for the client's transactions: they begin and end in several calls.
            self._file = open_file(path, SINKS)
        except BaseException:
            self._let_go()
            raise
        self._do = self._file.inside()
        self._topics: dict[str, _Topic] = {}
        self._ended: set[str] = set()
        self._bodies: dict[int, StagedRows] = {}
        self._progress = False
        self.outcomes: dict[str, int] = {}

    # --- for the publisher of rows ------------------------------------------------------------------------------------

    def topics_at_work(self) -> list[str]:
        """Topics with rows that have no outcome yet."""
        rows = self._look(lambda do: do.execute("SELECT topic FROM node_topics WHERE assigned > floor"))
        return [row[0] for row in rows]

    def rows_from(self, topic: str, number: int) -> Rows | None:
        """The rows of a topic's stream from a number on, as many as are in one part; None = not decided yet.

        May be called from any thread.
        """
        return self._look(lambda do: self._rows_from(do, topic, number))

    def annotated(self, topic: str, rows: Rows, start: int, stop: int) -> list[bytes]:
        """The rows with the numbers [start, stop) with their identities (O-3, O-10), ready to be sent."""
        before = rows.base - 1  # sequences count from 1
        floor = max(self._topics[topic].floor, rows.base) - before
        last = rows.batch_stop - 1
        begins = rows.batch_first - before if rows.is_atomic else 0
        common = common_pairs(rows.producer, floor, rows.batch)
        return [
            annotate(
                rows.payloads[number - rows.first], common, number - before, is_batch_end=number == last, begins=begins
            )
            for number in range(start, stop)
        ]

    def resends_in_doubt(self) -> bool:
        """See `Publishing`; as the newest commit wants it. May be called from any thread."""
        return bool(self._look(lambda do: do.execute("SELECT resends_in_doubt FROM node_sink"))[0][0])

    def required(self) -> int:
        """See `Publishing`; as the newest commit wants it. May be called from any thread."""
        return self._look(required)

    def has_released(self, topic: str) -> bool:
        """Whether rows of a topic wait for subscriptions (O-12)."""
        return self._topics[topic].released.range_count > 0

    def send_released(self, topic: str) -> None:
        """O-12: the session that released rows has ended; the topic's next publisher sends them again."""
        self._ended.add(topic)

    def _rows_from(self, do: Transaction, topic: str, number: int) -> Rows | None:
        found = do.execute(
            "SELECT part, first, node_part_topics.rows, manifest, topic FROM node_part_topics"
            " JOIN node_parts ON node_parts.id = part"
            " WHERE topic = (SELECT id FROM node_topics WHERE topic = ?) AND first <= ?"
            " ORDER BY first DESC LIMIT 1",
            (topic, number),
        )
        if not found or number >= found[0][1] + found[0][2]:
            return None
        part, first, count, manifest, topic_id = found[0]
        ((batch_first, batch_stop, is_atomic, base, born_ms, uuid),) = do.execute(
            "SELECT first, stop, is_atomic, base, born_ms, uuid FROM node_sink, node_spans"
            " JOIN node_manifests ON number = manifest JOIN node_topics ON node_topics.id = node_spans.topic"
            " WHERE manifest = ? AND node_spans.topic = ?",
            (manifest, topic_id),
        )
        # With the uuid: a new file numbers its rows from 1 again, and they must not be mistaken for the old ones.
        producer = producer_pair(str(ProducerId(f"{self._sink}/{topic_id}/{uuid}", born_ms)))
        payloads = self._body(do, part).of(topic)
        if len(payloads) != count:
            raise JournalCorrupt(
                f"the outbox {self._path} cannot be used",
                f"part {part} has {len(payloads)} rows for topic {topic!r}, {count} were counted",
                "restore the file",
            )
        return Rows(first, payloads, manifest, batch_first, batch_stop, bool(is_atomic), producer, base)

    def _body(self, do: Transaction, part: int) -> StagedRows:
        found = self._bodies.get(part)
        if found is None:
            ((body,),) = do.execute("SELECT body FROM node_bodies WHERE part = ?", (part,))
            found = decode_rows(body)
            while len(self._bodies) >= CACHED_BODIES:
                del self._bodies[next(iter(self._bodies))]
            self._bodies[part] = found
        return found

    # --- the client's journal -----------------------------------------------------------------------------------------

    def bind(self, container_id: str) -> None:
        """Serve the sink's own container only; see Journal."""
        if container_id != self._sink:
            raise JournalOwnerError(
                f"the outbox {self._path} cannot be used by container-id {container_id!r}",
                f"its messages are known to the network under {self._sink!r}",
                f"connect with container_id={self._sink!r}",
            )

    def open_publisher(self, link_name: str) -> PublisherState:
        """Read a topic's stream; see Journal. The link's name is the topic."""
        return self._run(lambda: self._open_publisher(link_name))

    def _open_publisher(self, topic: str) -> PublisherState:
        found = self._do.execute(
            "SELECT id, floor, settled, doubted, next_number, exposed_before, session FROM node_topics WHERE topic = ?",
            (topic,),
        )
        if not found:
            raise JournalUnusable(
                f"no publisher for topic {topic!r} can be opened",
                f"no batch of sink {self._sink} writes to it",
                "commit a batch first",
            )
        topic_id, floor, settled, doubted, next_number, exposed_before, session = found[0]
        released = load_released(self._do, topic_id)
        self.keeps_released = required(self._do) > 0
        if topic in self._ended:
            exposed_before, session = floor, 0
            released = self._begin_anew(topic_id, topic, floor)
        # Behind what waits only what was sent is of this session.
        stop_before = min(next_number, exposed_before) if released.range_count else next_number
        known = self._topics[topic] = _Topic(
            topic_id,
            floor,
            SequenceSet.from_text(settled),
            SequenceSet.from_text(doubted),
            released,
            waits=self.keeps_released,
        )
        messages: list[StoredMessage] = []
        number = floor
        while number < stop_before:
            rows = self.rows_from(topic, number)
            assert rows is not None, "what was handed to the publisher is in a manifest"
            stop = min(stop_before, rows.first + len(rows.payloads))
            payloads = self.annotated(topic, rows, number, stop)
            messages += [
                StoredMessage(n, payload, n in known.doubted)
                for n, payload in zip(range(number, stop), payloads, strict=True)
                if n not in known.settled and n not in released
            ]
            number = stop
        return PublisherState(next_number, exposed_before, session, tuple(messages))

    def _begin_anew(self, topic_id: int, topic: str, floor: int) -> SequenceSet:
        """O-12: the new session has sent nothing of what waited."""
        self.begin()
        self._do.execute("UPDATE node_topics SET exposed_before = ?, session = 0 WHERE id = ?", (floor, topic_id))
        save_released(self._do, topic_id, SequenceSet())
        self.commit()
        self._ended.discard(topic)
        return SequenceSet()

    def open_subscriber(self, link_name: str) -> SubscriberState:
        """An outbox has no subscribers."""
        raise self._no_subscriber(link_name)

    def write_subscriber(self, link_name: str, changes: SubscriberChanges) -> None:
        """An outbox has no subscribers."""
        raise self._no_subscriber(link_name)

    def _no_subscriber(self, link_name: str) -> JournalError:
        return JournalUnusable(
            f"the subscriber {link_name!r} cannot be kept in {self._path}",
            "it is an outbox",
            "give the subscriber a journal of its own",
        )

    def begin(self) -> None:
        """Start a transaction; see Journal."""
        self._run(self._file.file.begin)

    def write_publisher(self, link_name: str, changes: PublisherChanges) -> None:
        """Add a publisher's changes; see Journal. Messages are there already; every outcome is final here."""
        self._run(lambda: self._write_publisher(link_name, changes))

    def _write_publisher(self, topic: str, changes: PublisherChanges) -> None:
        known = self._topics[topic]
        waits = False
        for first, last, outcome in _runs(changes.decided):
            if known.waits and outcome.kind is OutcomeKind.RELEASED:
                known.released.add(first, last)
                waits = True
                continue
            known.settled.add(first, last)
            self._count(known.id, range(first, last + 1), outcome)
        if waits:
            self._progress = True
            save_released(self._do, known.id, known.released)
        for number in changes.doubted:
            known.doubted.add(number, number)
        before = known.floor
        known.floor = known.settled.first_missing(known.floor)
        known.settled.remove_below(known.floor)
        known.doubted.remove_below(known.floor)
        self._do.execute(
            "UPDATE node_topics SET next_number = ?, exposed_before = ?, session = ?, floor = ?, settled = ?,"
            " doubted = ? WHERE id = ?",
            (
                changes.next_number,
                changes.exposed_before,
                changes.session,
                known.floor,
                known.settled.to_text(),
                known.doubted.to_text(),
                known.id,
            ),
        )
        if known.floor > before:
            finish_manifests(self._do)
            self._progress = True

    def _count(self, topic_id: int, numbers: range, outcome: Outcome) -> None:
        self.outcomes[outcome.kind.value] = self.outcomes.get(outcome.kind.value, 0) + len(numbers)
        if not outcome.is_accepted:
            self._do.write_many(
                "UPDATE node_manifests SET not_accepted = not_accepted + 1 WHERE number ="
                " (SELECT manifest FROM node_spans WHERE topic = ? AND first <= ? AND stop > ?)",
                [(topic_id, number, number) for number in numbers],
            )

    def commit(self) -> None:
        """Make the transaction durable; see Journal."""
        self._run(self._file.file.commit)
        if self._progress:
            self._progress = False
            self._on_progress()

    def rollback(self) -> None:
        """Drop the transaction; see Journal. The publishers have failed: open the outbox again."""
        with suppress(StorageError), self._file.using():  # closing it has dropped the transaction
            self._file.file.rollback()

    def close(self) -> None:
        """Let go of the file; see Journal."""
        self._file.close()
        self._reader.close()
        self._let_go()

    def _look(self, work: Callable[[Transaction], T]) -> T:
        """Read beside a transaction, in any thread."""
        with _journal_errors(self._path), self._reader.looking() as do:
            return work(do)

    def _run(self, work: Callable[[], T]) -> T:
        with _journal_errors(self._path), self._file.using():
            return work()


def _runs(decided: Sequence[tuple[int, Outcome]]) -> Iterator[tuple[int, int, Outcome]]:
    """Consecutive rows with one outcome: first, last and it."""
    if not decided:
        return
    first, outcome = decided[0]
    last = first
    for number, each in decided[1:]:
        if each is not outcome or number != last + 1:
            yield first, last, outcome
            first, outcome = number, each
        last = number
    yield first, last, outcome


@contextmanager
def _journal_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file into those of a client's journal."""
    try:
        yield
    except StorageError as error:
        raise JournalUnusable(error.what, error.why, error.fix) from error
    except (NodeError, ValueError) as error:
        raise JournalCorrupt(f"the outbox {path} cannot be used", str(error), "restore the file") from error


def _held(path: Path) -> Callable[[], None]:
    """Hold PATH.lock as long as this process lives; returns what lets go of it.

    Raises:
        OwnedByAnother: another process, or another part of this one, holds it.
        StorageError: it cannot be made.
    """
    try:
        return hold(path.with_name(path.name + ".lock"))
    except HeldElsewhere as error:
        raise OwnedByAnother(f"{path} cannot be used", f"{error.owner} is using it", "stop it first") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise StorageError(f"{path} cannot be used", why, "put the file on a local disk") from error
