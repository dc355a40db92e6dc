"""What stream readers have in common: they answer Spark's questions about offsets with a planner, and respect limits.

The driver keeps one reader in a process of its own for as long as the query runs; another copy is made for each batch
and sent to the tasks, which call `read` alone. So nothing is opened before a method needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from bridges.spark.journal_options import JournalOptions
from bridges.spark.journal_reading import JournalPlanner
from bridges.spark.options import SourceOptions
from bridges.spark.reading import Limits
from bridges.spark.sharded_planner import Planner
from bridges.spark.spark_calls import called_by_spark, end_quietly

S = TypeVar("S", bound=SourceOptions | JournalOptions)
P = TypeVar("P", bound=Planner | JournalPlanner)


@called_by_spark
class PlannedReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[S, P]):  # type: ignore[misc]  # untyped bases
    """See the module; a subclass opens the planner and reads.

    Args:
        options: of the source.
    """

    def __init__(self, options: S) -> None:
        self._options = options
        self._opened: P | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def _open(self) -> P:
        raise NotImplementedError

    @property
    def _planner(self) -> P:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's names, here and below
        """One of the limits that are set: Spark gives it back, and `latestOffset` adds the others."""
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_rows is not None:
            return ReadMinRows(options.min_rows)
        return ReadAllAvailable()

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

    def stop(self) -> None:
        """Spark calls it only where the driver ends in order; the process ends by itself otherwise."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        end_quietly()


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
