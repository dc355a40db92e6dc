"""A processor without a JVM: the real reader, step, journals and outbox, driven in the order of Spark's engine.

The order is the one of Spark's MicroBatchExecution: the source says where the batch ends, the offset log is written,
the batch before is committed to the source, tasks run, the sink commits, the commit log is written. A life can end at
each point in between. What Spark itself does is in test_processor.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridges.node.arrow_bodies import encode_rows
from bridges.node.embedded import EmbeddedNode
from bridges.node.journal import Arrival, ReceiverJournal
from bridges.node.model import NodeSettings, StagedPart, Subscription, Writer
from bridges.node.outbox_journal import OutboxJournal
from bridges.node.storage import Storage
from bridges.spark.option_values import Guarantee
from bridges.spark.processor_core import Input, Step, attempt
from bridges.spark.processor_join_core import Join, input_journals
from bridges.spark.processor_reader import AttemptReader, Offset, Task, read_task
from bridges.spark.processor_rows import inputs_in
from oncewire.client import SqliteJournal
from oncewire.client.delivery_hash import delivery_hash
from oncewire.client.isolation import Isolation
from oncewire.wire import Message, Symbol, decode_message, encode_data_message

NAME = "p"
QUERY = "query"
POINTS = ("begun", "chosen", "logged", "running", "staged", "decided", "done")
"""Where a life can end, in the order of a batch."""


RETENTION_S = 3600.0


class Killed(BaseException):
    """The end of a life."""


class LocalNode(EmbeddedNode):
    """An embedded node that does not connect: its journals are filled by the test."""

    def subscribe(self, subscription: str, topics: Any, isolation: Isolation | None = None) -> str:
        return self._files.journal(subscription).marks().uuid

    def status(self) -> dict[str, Any]:
        """As a node that keeps what was released."""
        names = self._files.subscriptions()
        return {"subscriptions": {name: {"retention_s": RETENTION_S} for name in names}}


@dataclass
class Checkpoint:
    """Spark's offset log and commit log."""

    offsets: list[tuple[Offset, Offset]] = field(default_factory=list)
    commits: int = 0

    def lose(self, batches: int) -> None:
        """As after a power failure: the newest files are gone."""
        kept = max(0, len(self.offsets) - batches)
        del self.offsets[kept:]
        self.commits = min(self.commits, kept)


class World:
    """Journals, outbox and checkpoint of one processor, which outlive its lives."""

    def __init__(self, folder: Path, step: Step, inputs: tuple[str, ...], join: Join | None) -> None:
        self.folder = folder
        self.step = step
        self.journals = input_journals(NAME, inputs, join)
        self.checkpoint = Checkpoint()
        self.guarantee = Guarantee.EXACTLY_ONCE
        self.storage = Storage(folder)
        self._nodes: list[LocalNode] = []
        self.runs = 0
        self.skipped = 0
        for journal in self.journals:
            self._with_journal(journal.subscription, lambda _: None)

    def close(self) -> None:
        for node in self._nodes:
            node.close()
        self.storage.close()

    def arrive(self, topic: str, *bodies: bytes) -> None:
        """Messages are received and accepted."""
        (journal,) = [each for each in self.journals if topic in each.topics]

        def append(receiver: ReceiverJournal) -> None:
            source = receiver.source_id(topic)
            with receiver._file.transaction():
                receiver.append([Arrival(source, encode_data_message(body)) for body in bodies], 1)

        self._with_journal(journal.subscription, append)

    def _with_journal(self, subscription: str, use: Callable[[ReceiverJournal], None]) -> None:
        path = self.storage.journal_path(subscription)
        with closing(SqliteJournal(path)) as client:
            use(ReceiverJournal(client.connection, path, subscription))

    def new_reader(self) -> AttemptReader:
        """As a process has that has just been started."""
        return AttemptReader(self.new_node(), NAME, self.journals, guarantee=self.guarantee)

    def new_node(self) -> LocalNode:
        """As a process opens it."""
        keeps = RETENTION_S if self.guarantee is Guarantee.AT_MOST_ONCE else 0.0
        defaults = Subscription("", "", (), retention_s=keeps)
        self._nodes.append(LocalNode(NodeSettings("node", self.folder, (), defaults=defaults)))
        return self._nodes[-1]

    def live(self, point: str = "", *, steps: int | None = None, tasks: int = 2) -> int:
        """Start, and go on until nothing is left; or until the point is reached, and be killed there.

        Returns:
            The number of batches that were done.
        """
        self.runs += 1
        life = _Life(self, point, steps, tasks)
        done = 0
        while life.batch():
            done += 1
        return done

    def decided(self, topic: str) -> list[Message]:
        """Everything that is to be published to a topic, in order."""
        found: list[Message] = []
        with closing(OutboxJournal(self.storage.outbox_path(NAME), NAME)) as outbox:
            while True:
                rows = outbox.rows_from(topic, len(found))
                if rows is None:
                    return found
                found += [decode_message(payload) for payload in rows.payloads]

    def hash_of(self, **positions: int) -> str:
        """The delivery hash, worked out from processor and positions alone."""
        marks = {topic: each.subscription for each in self.journals for topic in each.topics}
        uuids = {topic: self.storage.journal(marks[topic]).marks().uuid for topic in positions}
        places = {topic: f"{uuids[topic]}:{position}" for topic, position in positions.items()}
        return delivery_hash(NAME, places)


def hash_in(message: Message) -> object:
    """The hash that an output carries."""
    return message.annotations[Symbol("x-opt-topic-delivery-hash")]


class _Life:
    """One process of Spark, from start to end."""

    def __init__(self, world: World, point: str, steps: int | None, tasks: int) -> None:
        self._world = world
        self._point = point
        self._steps = steps
        self._tasks = tasks
        self._reader = world.new_reader()
        self._writer = Writer(QUERY, f"run-{world.runs}")

    def _reach(self, point: str) -> None:
        if point == self._point:
            raise Killed(point)

    def batch(self) -> bool:
        """One batch; False = there was nothing for it."""
        log = self._world.checkpoint
        self._reach("begun")
        number = log.commits
        if number == len(log.offsets):
            start: Offset = log.offsets[-1][1] if log.offsets else self._reader.initial()
            stop: Offset = self._reader.next_end(start, self._steps)
            if stop == start:
                return False
            self._reach("chosen")
            log.offsets.append((start, stop))
        start, stop = log.offsets[number]
        self._reach("logged")
        if number:
            self._reader.finished(log.offsets[number - 1][1])
        parts = self._run(number, self._reader.tasks(start, stop, self._tasks))
        self._reach("staged")
        self._world.storage.outbox(NAME).commit(self._writer, number, parts)
        self._reach("decided")
        log.commits = number + 1
        self._reach("done")
        return True

    def _run(self, number: int, tasks: list[Task]) -> list[StagedPart]:
        parts = []
        for partition, task in enumerate(tasks):
            if partition:
                self._reach("running")
            rows = [row for inputs in self._inputs(task) for row in attempt(self._world.step, inputs, number)]
            published = [(row.topic, row.payload) for row in rows if row.topic is not None and row.payload is not None]
            if published:
                part = StagedPart(partition, uuid.uuid4().hex, 1, len(published))
                topics, payloads = map(list, zip(*published, strict=True))
                counts = {topic: topics.count(topic) for topic in topics}
                body = encode_rows(topics, payloads)
                if not self._world.storage.outbox(NAME).stage(self._writer, number, part, 0, counts, body):
                    self._world.skipped += 1
                parts.append(part)
        return parts

    def _inputs(self, task: Task) -> list[list[Input]]:
        """The inputs of each step of a task."""
        journals = self._world.journals
        nodes = [self._world.new_node() for _ in journals]
        batches = read_task(nodes, journals, task, QUERY)
        return [inputs for batch in batches for inputs in inputs_in(batch, len(journals))]
