"""The readers of subscriptions as Spark calls them. What they do is in reading.py; here is which process does what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bridges.spark.options import SourceOptions, open_node
from bridges.spark.planned_reader import PlannedReader
from bridges.spark.reading import Range, plan_batch_read, read_range
from bridges.spark.sharded_planner import Planner, open_planner
from bridges.spark.spark_calls import called_by_spark

QUERY_ID = "sql.streaming.queryId"
"""What Spark calls it in the properties of a task: the same for a checkpoint, whenever it is started."""


@called_by_spark
class AmqpStreamReader(PlannedReader[SourceOptions, Planner]):
    """Reads a subscription batch by batch."""

    def _open(self) -> Planner:
        return open_planner(self._options, time.monotonic)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where batch 0 begins."""
        return self._planner.initial().for_spark()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, as Arrow batches. The query becomes the subscription's owner."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        is_first = context is None or context.attemptNumber() == 0
        part: Range = partition.value
        options = self._options.shards()[part.shard]
        with open_node(options) as node:
            yield from read_range(options, node, part, query=query, is_first_attempt=is_first)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing up to `end` is asked for again."""
        self._planner.done(end)


@called_by_spark
class AmqpBatchReader(DataSourceReader):  # type: ignore[misc]  # untyped base
    """Reads what a subscription's journal holds, and changes nothing.

    Args:
        options: of the source.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """What the tasks read."""
        found = []
        for number, options in enumerate(self._options.shards()):
            with open_node(options) as node:
                found += [replace(part, shard=number) for part in plan_batch_read(options, node)]
        return [InputPartition(part) for part in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, as Arrow batches."""
        if partition.value is None:  # what Spark makes of no partitions
            return
        part: Range = partition.value
        options = self._options.shards()[part.shard]
        with open_node(options) as node:
            yield from read_range(options, node, part, query=None)
