"""A query's life without a JVM: the planner and the tasks of the source, driven as Spark drives them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from bridges.spark.options import SourceOptions, source_options
from bridges.spark.reading import BatchPlanner, Limits, Range, read_range
from bridges.spark.sharded_planner import Planner
from tests.spark.offline_node import OfflineNode

SUB = "billing"


def options(**given: str) -> SourceOptions:
    """Options of a stream; `maxOffsetsPerTrigger=...` and so on."""
    base = {"amqp.urls": "amqp://127.0.0.1:1", "bridge.folder": "/none", "subscribe": "orders", "subscription": SUB}
    return source_options({**base, **given})


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Query:
    """One query's life as Spark lives it: offsets are written down first, as text; then tasks; then the commit."""

    planner: Planner

    def __init__(self, node: OfflineNode, query: str = "query-1", **given: str) -> None:
        self.begin(options(**given), [node], query)

    def begin(self, chosen: SourceOptions, nodes: Sequence[OfflineNode], query: str) -> None:
        """The first start, with one node or several."""
        self.options = chosen
        self.nodes = nodes
        self.query = query
        self.clock = Clock()
        self.log: list[str] = []
        self.committed = 0
        self.start_over()

    def start_over(self) -> None:
        """The driver dies and is started again."""
        (node,) = self.nodes
        self.planner = BatchPlanner(self.options, node, self.clock)

    def place(self, batch: int) -> dict[str, Any]:
        """The end of a batch; -1 is the beginning."""
        if batch < 0:
            return self.planner.initial().for_spark()
        found: dict[str, Any] = json.loads(self.log[batch])
        return found

    def plan(self, limits: Limits | None = None) -> bool:
        """Write down the next batch, if there is one."""
        chosen = limits or Limits(self.options.max_rows, self.options.max_bytes, self.options.min_rows)
        start = self.place(len(self.log) - 1)
        end = self.planner.latest(start, chosen)
        if json.dumps(end) == json.dumps(start):
            return False
        self.log.append(json.dumps(end))
        return True

    def ranges(self, batch: int) -> list[Range]:
        """Spark says what it has committed, then asks for the tasks."""
        if batch and self.committed >= batch:
            self.planner.done(self.place(batch - 1))
        return self.planner.ranges(self.place(batch - 1), self.place(batch))

    def read(self, ranges: list[Range], *, first: bool = True) -> list[str]:
        """Run the tasks."""
        each = self.options.shards()
        return [
            value
            for part in ranges
            for value in read(self.nodes[part.shard], each[part.shard], part, self.query, first=first)
        ]

    def run(self, batch: int | None = None) -> list[str]:
        """A whole batch: the next one, or one again; nothing if there is none."""
        if batch is None:
            if len(self.log) == self.committed and not self.plan():
                return []
            batch = len(self.log) - 1
        rows = self.read(self.ranges(batch))
        self.committed = batch + 1
        return rows


def read(
    node: OfflineNode, chosen: SourceOptions, part: Range, query: str | None, *, first: bool = True
) -> Iterator[str]:
    for batch in read_range(chosen, node, part, query=query, is_first_attempt=first):
        for value in batch.column("value").to_pylist():
            yield value.decode()


def numbers(start: int, stop: int) -> list[str]:
    return [str(number) for number in range(start, stop)]
