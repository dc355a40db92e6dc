"""The readers of journals as Spark calls them; what they do is in journal_reading.py.

As in source.py, the driver keeps one reader in a process of its own, and copies go to the tasks: nothing is opened
before a method needs it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from bridges.spark.edge_client import EdgeClient
from bridges.spark.journal_options import JournalOptions
from bridges.spark.journal_reading import JournalPlanner, plan_journal_read, read_journal
from bridges.spark.plain_errors import errors_first
from bridges.spark.source import default_limit, limits_of


@errors_first
class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # untyped base
    """Reads journals batch by batch.

    Args:
        options: of the source.
    """

    def __init__(self, options: JournalOptions) -> None:
        self._options = options
        self._opened: JournalPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def _planner(self) -> JournalPlanner:
        if self._opened is None:
            self._opened = JournalPlanner(self._options, EdgeClient(self._options.edge), time.monotonic)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's names, here and below
        """Where batch 0 begins, unless it was planned before."""
        return self._planner.initial()

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
        """The newest messages, for Spark's progress."""
        return self._planner.newest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What the tasks of a batch read."""
        return [InputPartition(part) for part in self._planner.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, as Arrow batches."""
        with EdgeClient(self._options.edge) as client:
            yield from read_journal(self._options, client, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept for a query, so there is nothing to give up."""

    def stop(self) -> None:
        """Spark calls it only where the driver ends in order; the process ends by itself otherwise."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


@errors_first
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
