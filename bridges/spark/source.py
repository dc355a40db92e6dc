"""The readers as Spark calls them. What they do is in reading.py; here is only which process asks for what.

The driver keeps one `AmqpStreamReader` in a process of its own for as long as the query runs; another copy is made for
each batch and sent to the tasks, which call `read` alone. So nothing is opened before a method needs it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from bridges.spark.journal_options import JournalOptions
from bridges.spark.options import SourceOptions, open_node
from bridges.spark.plain_errors import errors_first
from bridges.spark.reading import Limits, Range, plan_batch_read, read_range
from bridges.spark.sharded_planner import Planner, open_planner

QUERY_ID = "sql.streaming.queryId"
"""What Spark calls it in the properties of a task: the same for a checkpoint, whenever it is started."""


@errors_first
class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # untyped base
    """Reads a subscription batch by batch.

    Args:
        options: of the source.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def _planner(self) -> Planner:
        if self._opened is None:
            self._opened = open_planner(self._options, time.monotonic)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's names, here and below
        """Where batch 0 begins."""
        return self._planner.initial().for_spark()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of the limits that are set: Spark gives it back, and `latestOffset` adds the others."""
        return default_limit(self._options)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; `start` where there is nothing to read now."""
        return self._planner.latest(start, limits_of(self._options, limit))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is all that is read."""
        self._planner.fix_target()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The newest message, for Spark's progress."""
        return self._planner.newest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What the tasks of a batch read."""
        return [InputPartition(part) for part in self._planner.ranges(start, end)]

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

    def stop(self) -> None:
        """Spark calls it only where the driver ends in order; the process ends by itself otherwise."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


@errors_first
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


def default_limit(options: SourceOptions | JournalOptions) -> ReadLimit:
    """One of the limits that are set, for Spark."""
    if options.max_rows is not None:
        return ReadMaxRows(options.max_rows)
    if options.max_bytes is not None:
        return ReadMaxBytes(options.max_bytes)
    if options.min_rows is not None:
        return ReadMinRows(options.min_rows)
    return ReadAllAvailable()


def limits_of(options: SourceOptions | JournalOptions, given: ReadLimit) -> Limits:
    """The limits of a batch: Spark's take precedence over the options; "all" means that no option counts."""
    if isinstance(given, ReadAllAvailable):
        return Limits()
    max_rows, max_bytes, min_rows = options.max_rows, options.max_bytes, options.min_rows
    if isinstance(given, ReadMaxRows):
        max_rows = given.max_rows
    elif isinstance(given, ReadMaxBytes):
        max_bytes = given.max_bytes
    elif isinstance(given, ReadMinRows):
        min_rows = given.min_rows
    return Limits(max_rows, max_bytes, min_rows)
