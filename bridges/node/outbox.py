"""The outbox of one sink: what batches staged and decided, until it is published. One SQLite file.

Tasks stage parts; a commit turns some of them into the batch's manifest. The first manifest of a batch wins for ever
(O-2): when a batch is run again, with other rows or in another order, its stored rows are the ones that count. In the
same transaction each row gets its number in the stream of its topic, which is its identity on the wire (O-3). What is
not in a manifest never leaves (O-1).

Any process may stage and commit; one process at a time publishes (`outbox_journal.py`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bridges.node.database import open_file
from bridges.node.errors import BadRequest, BatchForgotten, Fenced, OutboxFull, OwnedByAnother, PartMissing, TooLarge
from bridges.node.model import AS_USUAL, MAX_OUTBOX_BYTES, SINK_PATTERN, Manifest, Publishing, StagedPart, Writer
from bridges.node.outbox_schema import SINKS
from bridges.node.required_rows import set_required
from bridges.node.snapshots import choose_snapshot
from bridges.node.staged_parts import delete_abandoned, delete_parts, staged_and_decided
from oncewire.client.transactions.sequencer import PRODUCER_RETENTION_S
from oncewire.store.store import Transaction

KEPT_MANIFESTS = 1_000
"""Published batches that are still known. A query repeats its last batch only; Spark itself keeps 100."""
KEPT_RUNS = 1_000
"""Runs whose epoch is known. An older one that comes back is a new run: it fences others, and can lose nothing."""
NEW_LIFE_AFTER_S = PRODUCER_RETENTION_S / 2
"""A topic without rows for so long becomes a new producer: readers may forget the old one (SQ-6)."""
MAX_TOPICS = 256
"""Topics of one sink: each is a link of the publisher."""
_TOPIC_BYTES = 255


@dataclass(frozen=True, slots=True)
class OutboxMarks:
    """Where an outbox stands."""

    uuid: str
    query: str | None
    epoch: int
    manifests: int
    waiting_manifests: int
    waiting_bytes: int
    staged_bytes: int


class Outbox:
    """The staging and deciding end.

    Args:
        path: made if it does not exist.
        sink: its id.
        max_bytes: of decided and unpublished parts, and of staged ones.
        clock: returns the time of day in seconds.

    Raises:
        BadRequest: the id cannot be used, or the file is another sink's.
        StorageError: the file cannot be used.
    """

    def __init__(
        self, path: Path, sink: str, *, max_bytes: int = MAX_OUTBOX_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        if not SINK_PATTERN.fullmatch(sink):
            raise BadRequest(
                f"{sink!r} cannot be a sink's id",
                "it has 1 to 100 of A-Z a-z 0-9 _ . - and starts with a letter or digit",
                "choose another sinkId",
            )
        self.path = path
        self.sink = sink
        self._max_bytes = max_bytes
        self._clock = clock
        self._last_writer: Writer | None = None
        self._file = open_file(path, SINKS)
        try:
            self._prepare()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _prepare(self) -> None:
        with self._file.transaction() as do:
            if not do.execute("SELECT 1 FROM node_sink"):
                do.execute(
                    "INSERT INTO node_sink (uuid, sink, generation, epoch, next_manifest) VALUES (?, ?, 0, 0, 0)",
                    (secrets.token_hex(8), self.sink),
                )
            ((owner,),) = do.execute("SELECT sink FROM node_sink")
        if owner != self.sink:
            raise BadRequest(
                f"the outbox {self.path} cannot be used for sink {self.sink!r}",
                f"it belongs to sink {owner!r}",
                "give each sink a file of its own",
            )

    def choose_snapshot(self, start: str, stop: str) -> str:
        """Where a processor's attempt that begins at `start` ends, for good; see `choose_snapshot`."""
        with self._file.transaction() as do:
            return choose_snapshot(do, self.sink, start, stop)

    # --- staging ------------------------------------------------------------------------------------------------------

    def stage(
        self, writer: Writer, batch: int, part: StagedPart, chunk: int, topics: Mapping[str, int], body: bytes
    ) -> bool:
        """Store one chunk of an attempt. The same chunk again replaces it.

        Args:
            writer: who stages.
            batch: the query's number of the batch.
            part: partition and attempt; `chunks` and `rows` are not looked at.
            chunk: which of the attempt's bodies this is.
            topics: how many rows go to each topic.
            body: the rows, see `arrow_bodies.py`.

        Returns:
            False: the batch is decided already, nothing was stored and nothing more need be staged.

        Raises:
            OwnedByAnother, Fenced: the writer may not write to this sink (any more).
            OutboxFull: too much waits to be published; try again later.
            TooLarge: too much is staged for one batch.
            BadRequest: a topic cannot be used.
        """
        _check_topics(topics)
        self._register(writer)
        with self._file.transaction() as do:
            generation = self._admit(do, writer)
            if self._find(do, generation, batch) is not None:
                return False
            self._check_room(do, len(body))
            key = (generation, batch, part.partition, part.attempt, chunk)
            old = do.execute(
                "SELECT id FROM node_parts WHERE (generation, batch, partition, attempt, chunk) = (?, ?, ?, ?, ?)", key
            )
            if old:
                delete_parts(do, "id = ?", old[0])
            rows = sum(topics.values())
            ((part_id,),) = do.execute(
                "INSERT INTO node_parts (generation, batch, partition, attempt, chunk, rows, bytes, staged_ms)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
                (*key, rows, len(body), self._now_ms() if writer.stands_alone else 0),
            )
            do.execute("INSERT INTO node_bodies VALUES (?, ?)", (part_id, body))
            for topic, count in topics.items():
                topic_id = self._topic_id(do, topic)
                do.execute(
                    "INSERT INTO node_part_topics (part, topic, rows) VALUES (?, ?, ?)", (part_id, topic_id, count)
                )
        return True

    def _check_room(self, do: Transaction, size: int) -> None:
        """O-11."""
        waiting, staged = staged_and_decided(do)
        if waiting >= self._max_bytes:
            raise OutboxFull(
                f"nothing can be staged for sink {self.sink}",
                f"{waiting} bytes wait to be published",
                "wait: subscribers are slow or disconnected; `oncewire inspect` shows which",
            )
        if staged + size > self._max_bytes:
            raise TooLarge(
                f"a batch for sink {self.sink} is too large",
                f"{staged + size} bytes would be staged, {self._max_bytes} are allowed",
                "make batches smaller (maxOffsetsPerTrigger), or raise the node's outbox.max_bytes",
            )

    # --- deciding -----------------------------------------------------------------------------------------------------

    def commit(
        self, writer: Writer, batch: int, parts: Sequence[StagedPart], publishing: Publishing = AS_USUAL
    ) -> Manifest:
        """Decide what a batch is; the first decision stays. One transaction, durable when it returns.

        Args:
            writer: who commits.
            batch: the query's number of the batch.
            parts: the attempts that count, in the order to publish; none = an empty batch.
            publishing: how; of a batch that is decided already, `is_atomic` stays as it was.

        Returns:
            The manifest that is stored, which may be an earlier one.

        Raises:
            OwnedByAnother, Fenced: the writer may not write to this sink (any more).
            PartMissing: a part is not there: the batch must be run again.
            BatchForgotten: a later batch was decided, and this one is not known.
        """
        self._register(writer)
        with self._file.transaction() as do:
            generation = self._admit(do, writer)
            do.execute("UPDATE node_sink SET resends_in_doubt = ?", (publishing.resends_in_doubt,))
            set_required(do, publishing.require)
            known = self._find(do, generation, batch)
            if known is not None:  # O-2
                return known
            ((newest,),) = do.execute("SELECT max(batch) FROM node_manifests WHERE generation = ?", (generation,))
            if newest is not None and newest > batch and not writer.stands_alone:  # O-9
                raise BatchForgotten(
                    f"batch {batch} of sink {self.sink} cannot be decided",
                    f"batch {newest} was decided before, and nothing is known of batch {batch}",
                    "the checkpoint is older than the outbox: restore the newest checkpoint",
                )
            staged = [row for part in parts for row in self._chunks_of(do, generation, batch, part)]
            number = self._write_manifest(do, generation, batch, writer.run, publishing.is_atomic, staged)
            # What lost: attempts of this batch that are in no manifest, and of any before it if there is an order.
            lost = "batch = ?" if writer.stands_alone else "batch <= ?"
            delete_parts(do, f"manifest IS NULL AND generation = ? AND {lost}", (generation, batch))
            if writer.stands_alone:
                delete_abandoned(do, self._now_ms())
            finish_manifests(do)
            manifest = self._find(do, generation, batch)
        assert manifest is not None
        assert manifest.number == number
        return replace(manifest, is_first=True)

    def _chunks_of(self, do: Transaction, generation: int, batch: int, part: StagedPart) -> list[tuple[int, int]]:
        """(id, rows) of a part's chunks, in order."""
        found: list[tuple[int, int]] = do.execute(
            "SELECT id, rows FROM node_parts WHERE (generation, batch, partition, attempt) = (?, ?, ?, ?)"
            " ORDER BY chunk",
            (generation, batch, part.partition, part.attempt),
        )
        rows = sum(row[1] for row in found)
        if len(found) != part.chunks or rows != part.rows:
            raise PartMissing(
                f"batch {batch} of sink {self.sink} cannot be decided",
                f"attempt {part.attempt} of partition {part.partition} has {len(found)} chunks with {rows} rows here, "
                f"the commit names {part.chunks} with {part.rows}",
                "run the batch again: start the query from its checkpoint",
            )
        return found

    def _write_manifest(
        self, do: Transaction, generation: int, batch: int, run: str, is_atomic: bool, staged: Sequence[tuple[int, int]]
    ) -> int:
        ((number,),) = do.execute("SELECT next_manifest FROM node_sink")
        do.execute("UPDATE node_sink SET next_manifest = ?", (number + 1,))
        do.execute(
            "INSERT INTO node_manifests (number, generation, batch, run, rows, is_atomic) VALUES (?, ?, ?, ?, ?, ?)",
            (number, generation, batch, run, sum(rows for _, rows in staged), is_atomic),
        )
        firsts: dict[int, int] = {}
        ends: dict[int, int] = {}
        for part_id, _ in staged:
            do.execute("UPDATE node_parts SET manifest = ? WHERE id = ?", (number, part_id))
            for topic, rows in do.execute("SELECT topic, rows FROM node_part_topics WHERE part = ?", (part_id,)):
                if topic not in ends:
                    ((ends[topic],),) = do.execute("SELECT assigned FROM node_topics WHERE id = ?", (topic,))
                    firsts[topic] = ends[topic]
                do.execute(
                    "UPDATE node_part_topics SET first = ? WHERE part = ? AND topic = ?", (ends[topic], part_id, topic)
                )
                ends[topic] += rows
        for topic, stop in ends.items():
            self._keep_alive(do, topic)
            do.execute("UPDATE node_topics SET assigned = ? WHERE id = ?", (stop, topic))
            do.execute("INSERT INTO node_spans VALUES (?, ?, ?, ?)", (number, topic, firsts[topic], stop))
        do.execute("DELETE FROM node_manifests WHERE is_done = 1 AND number < ?", (number - KEPT_MANIFESTS,))
        return int(number)

    def _keep_alive(self, do: Transaction, topic: int) -> None:
        """Note that a topic gets rows now; after a long silence it becomes a new producer, if nothing is in flight."""
        now_ms = self._now_ms()
        ((assigned, floor, born_ms, decided_ms),) = do.execute(
            "SELECT assigned, floor, born_ms, decided_ms FROM node_topics WHERE id = ?", (topic,)
        )
        is_new = born_ms == 0
        was_silent = now_ms - decided_ms > NEW_LIFE_AFTER_S * 1000 and floor == assigned
        if is_new or was_silent:
            do.execute(
                "UPDATE node_topics SET base = ?, born_ms = ? WHERE id = ?", (assigned, max(now_ms, born_ms + 1), topic)
            )
        do.execute("UPDATE node_topics SET decided_ms = ? WHERE id = ?", (now_ms, topic))

    def discard(self, writer: Writer, batch: int) -> None:
        """Delete what is only staged of a batch that stands alone: its job has failed (O-13). A decision stays.

        Raises:
            OwnedByAnother: the writer may not write to this sink.
        """
        assert writer.stands_alone, "another batch may be run again (O-6)"
        with self._file.transaction() as do:
            generation = self._admit(do, writer)
            delete_parts(do, "manifest IS NULL AND generation = ? AND batch = ?", (generation, batch))

    def delete_abandoned(self) -> None:
        """Delete what was staged by writes that stand alone, and will not be committed (O-13)."""
        with self._file.transaction() as do:
            delete_abandoned(do, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    # --- asking -------------------------------------------------------------------------------------------------------

    def manifest(self, number: int) -> Manifest | None:
        """A manifest by its number; None = not decided, or long ago."""
        with self._file.looking() as do:
            return self._find_where(do, "number = ?", (number,))

    def marks(self) -> OutboxMarks:
        """Where the outbox stands."""
        with self._file.looking() as do:
            ((uuid, query, epoch, manifests),) = do.execute("SELECT uuid, query, epoch, next_manifest FROM node_sink")
            ((waiting,),) = do.execute("SELECT count(*) FROM node_manifests WHERE is_done = 0")
            waiting_bytes, staged_bytes = staged_and_decided(do)
        return OutboxMarks(uuid, query, epoch, manifests, waiting, waiting_bytes, staged_bytes)

    def _find(self, do: Transaction, generation: int, batch: int) -> Manifest | None:
        return self._find_where(do, "generation = ? AND batch = ?", (generation, batch))

    @staticmethod
    def _find_where(do: Transaction, condition: str, values: tuple[object, ...]) -> Manifest | None:
        found = do.execute(
            f"SELECT number, batch, rows, is_done, not_accepted FROM node_manifests WHERE {condition}",  # noqa: S608  # ours
            values,
        )
        return next((Manifest(row[0], row[1], row[2], False, bool(row[3]), row[4]) for row in found), None)

    # --- who may write ------------------------------------------------------------------------------------------------

    def _register(self, writer: Writer) -> None:
        """Let a run in for good, before a request of it that may fail: it is older than runs that come later."""
        if writer != self._last_writer and not writer.stands_alone:
            with self._file.transaction() as do:
                self._admit(do, writer)
            self._last_writer = writer

    def _admit(self, do: Transaction, writer: Writer) -> int:
        """Let the sink's query in, with its newest run unless it stands alone (O-4, O-5); returns the generation."""
        ((owner, generation, epoch),) = do.execute("SELECT query, generation, epoch FROM node_sink")
        if owner != writer.query:
            if owner is not None:
                self._check_takeover(do, writer, owner)
                do.execute("INSERT INTO node_former_queries VALUES (?) ON CONFLICT (query) DO NOTHING", (owner,))
                do.execute("DELETE FROM node_runs")
                delete_parts(do, "manifest IS NULL", ())
                generation += 1
            do.execute("UPDATE node_sink SET query = ?, generation = ?", (writer.query, generation))
        if writer.stands_alone:  # O-13
            return int(generation)
        known = do.execute("SELECT epoch FROM node_runs WHERE run = ?", (writer.run,))
        if not known:
            epoch += 1
            if writer.repeats:
                delete_parts(do, "manifest IS NULL", ())
                generation += 1
            do.execute("UPDATE node_sink SET epoch = ?, generation = ?", (epoch, generation))
            do.execute("INSERT INTO node_runs VALUES (?, ?)", (writer.run, epoch))
            do.execute("DELETE FROM node_runs WHERE epoch <= ?", (epoch - KEPT_RUNS,))
        elif known != [(epoch,)]:
            raise Fenced(
                f"run {writer.run} cannot write to sink {self.sink}",
                f"a newer run of the query has taken over (epoch {epoch}, this one has {known[0][0]})",
                "nothing: this process is the one that should end",
            )
        return int(generation)

    def _check_takeover(self, do: Transaction, writer: Writer, owner: str) -> None:
        former = do.execute("SELECT 1 FROM node_former_queries WHERE query = ?", (writer.query,))
        what = f"query {writer.query} cannot write to sink {self.sink}"
        if former:
            raise OwnedByAnother(
                what,
                f"query {owner} has taken the sink over from it",
                "start with a new checkpoint, or with another sinkId",
            )
        if not writer.takeover:
            raise OwnedByAnother(
                what,
                f"query {owner} writes to it: batches of two queries with the same numbers would be taken for one",
                "give each query its own sinkId; if the old checkpoint is lost, set takeover=true",
            )

    def _topic_id(self, do: Transaction, topic: str) -> int:
        known = do.execute("SELECT id FROM node_topics WHERE topic = ?", (topic,))
        if known:
            return int(known[0][0])
        ((count,),) = do.execute("SELECT count(*) FROM node_topics")
        if count >= MAX_TOPICS:
            raise BadRequest(
                f"topic {topic!r} cannot be added to sink {self.sink}",
                f"a sink has {MAX_TOPICS} topics at most",
                "write to fewer topics, or use several sinks",
            )
        do.execute("INSERT INTO node_topics (id, topic) VALUES (?, ?)", (count, topic))
        return int(count)


def _check_topics(topics: Mapping[str, int]) -> None:
    for topic, rows in topics.items():
        if not topic or len(topic.encode()) > _TOPIC_BYTES or "|" in topic:
            raise BadRequest(
                f"{topic!r} is no topic", f"a topic has 1 to {_TOPIC_BYTES} bytes and no '|'", "choose another"
            )
        if rows <= 0:
            raise BadRequest(f"{rows} rows cannot go to topic {topic!r}", "there must be some", "leave the topic out")


def finish_manifests(do: Transaction) -> list[int]:
    """Mark the manifests whose rows all have an outcome (O-7); their parts are not needed any more.

    Returns:
        Their numbers.
    """
    done: list[int] = [
        row[0]
        for row in do.execute(
            "SELECT number FROM node_manifests WHERE is_done = 0 AND NOT EXISTS"
            " (SELECT 1 FROM node_spans JOIN node_topics ON node_topics.id = node_spans.topic"
            " WHERE node_spans.manifest = number AND node_spans.stop > node_topics.floor)"
        )
    ]
    for number in done:
        do.execute("UPDATE node_manifests SET is_done = 1 WHERE number = ?", (number,))
        do.execute("DELETE FROM node_spans WHERE manifest = ?", (number,))
        delete_parts(do, "manifest = ?", (number,))
    return done
