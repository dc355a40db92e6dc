"""The readers of journals as Spark calls them; what they do is in journal_reading.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from bridges.spark.edge_client import EdgeClient
from bridges.spark.journal_options import JournalOptions
from bridges.spark.journal_reading import JournalPlanner, plan_journal_read, read_journal
from bridges.spark.planned_reader import PlannedReader
from bridges.spark.spark_calls import called_by_spark


@called_by_spark
class JournalStreamReader(PlannedReader[JournalOptions, JournalPlanner]):
    """Reads journals batch by batch."""

    def _open(self) -> JournalPlanner:
        return JournalPlanner(self._options, EdgeClient(self._options.edge), time.monotonic)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where batch 0 begins, unless it was planned before."""
        return self._planner.initial()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, as Arrow batches."""
        with EdgeClient(self._options.edge) as client:
            yield from read_journal(self._options, client, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept for a query, so there is nothing to give up."""


@called_by_spark
class JournalBatchReader(DataSourceReader):  # type: ignore[misc]  # untyped base
    """Reads what journals hold.

    Args:
        options: of the source.
    """

    def __init__(self, options: JournalOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """What the tasks read."""
        with EdgeClient(self._options.edge) as client:
            return [InputPartition(part) for part in plan_journal_read(self._options, client)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, as Arrow batches."""
        if partition.value is None:  # what Spark makes of no partitions
            return
        with EdgeClient(self._options.edge) as client:
            yield from read_journal(self._options, client, partition.value)
