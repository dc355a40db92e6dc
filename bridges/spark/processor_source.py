"""The format of processors for Spark: `processor_reader.py` and the sink behind Spark's interface.

Spark calls a reader in several processes, and never reports which ends when: nothing is opened before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from bridges.node.interface import Node
from bridges.spark.options import SourceOptions, open_node, source_options
from bridges.spark.processor_join_core import InputJournal, Join, input_journals
from bridges.spark.processor_reader import AttemptReader, Task, columns_of, read_task
from bridges.spark.source import QUERY_ID
from bridges.spark.spark_calls import called_by_spark, end_quietly

if TYPE_CHECKING:
    from bridges.spark.processor_sink import ProcessorStreamWriter

FORMAT = "oncewire-processor"
INPUTS_OPTION = "processor.inputs"
JOIN_OPTION = "processor.join"
MAX_STEPS_OPTION = "processor.maxsteps"
TASKS_OPTION = "processor.tasks"
OWN_OPTIONS = (INPUTS_OPTION, JOIN_OPTION, MAX_STEPS_OPTION, TASKS_OPTION)


@dataclass
class _Share(InputPartition):  # type: ignore[misc]  # pyspark is Any to mypy
    """One task's share of a batch."""

    task: Task


@called_by_spark
class ProcessorFormat(DataSource):  # type: ignore[misc]
    """See `processor.py`, which gives the options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> str:
        """The columns of an attempt."""
        journals = _journals(_lowered(self.options))
        return ", ".join(f"{name} {kind}" for name, kind in columns_of(len(journals)))

    def streamReader(self, schema: Any) -> ProcessorStreamReader:  # noqa: N802  # Spark's names, here and below
        """For `readStream`."""
        return ProcessorStreamReader(_lowered(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> ProcessorStreamWriter:  # noqa: N802
        """For `writeStream`."""
        from bridges.spark.processor_sink import ProcessorStreamWriter

        return ProcessorStreamWriter(self.options)


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _journals(options: Mapping[str, str]) -> tuple[InputJournal, ...]:
    join = options.get(JOIN_OPTION)
    return input_journals(
        options["subscription"], options[INPUTS_OPTION].split("\n"), None if join is None else Join(join)
    )


@called_by_spark
class ProcessorStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Offsets are the places of the processor's journals."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._tasks = int(options[TASKS_OPTION])
        self._max_steps = int(options[MAX_STEPS_OPTION])
        self._target: list[int] | None = None
        self._opened: tuple[Node, AttemptReader] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def _reader(self) -> AttemptReader:
        if self._opened is None:
            self._opened = self._open()
        return self._opened[1]

    def _open(self) -> tuple[Node, AttemptReader]:
        journals = _journals(self._options)
        node = self._new_node(journals)
        options = self._source_options(journals)
        reader = AttemptReader(
            node,
            self._options["subscription"],
            journals,
            fails_at_gaps=options.fail_on_data_loss,
            isolation=options.isolation,
            guarantee=options.guarantee,
        )
        return node, reader

    def _new_node(self, journals: Sequence[InputJournal]) -> Node:
        return open_node(self._source_options(journals))

    def _source_options(self, journals: Sequence[InputJournal]) -> SourceOptions:
        given = {name: value for name, value in self._options.items() if name not in OWN_OPTIONS}
        return source_options({**given, "subscribe": ",".join(journals[0].topics)})

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's names, here and below
        """Constant for the life of the subscriptions."""
        return self._reader.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What a batch may have at most."""
        return ReadMaxRows(self._max_steps)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Messages that come later do not count for this run."""
        self._target = self._reader.newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Decides the next attempt, durably, before Spark writes it down."""
        if isinstance(limit, ReadMaxRows):
            steps = int(limit.max_rows)
        else:
            assert isinstance(limit, ReadAllAvailable), limit
            steps = self._max_steps
        return self._reader.next_end(start, steps, self._target)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[_Share]:
        """The tasks of a batch."""
        return [_Share(task) for task in self._reader.tasks(start, end, self._tasks)]

    def read(self, partition: _Share) -> Iterator[Any]:
        """The rows of a task, in an executor."""
        context = TaskContext.get()
        assert context is not None
        query = str(context.getLocalProperty(QUERY_ID))
        journals = _journals(self._options)
        with ExitStack() as open_nodes:
            nodes = [open_nodes.enter_context(self._new_node(journals)) for _ in journals]
            is_first = context.attemptNumber() == 0
            yield from read_task(nodes, journals, partition.task, query, is_first_attempt=is_first)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not repeat what lies before."""
        self._reader.finished(end)

    def stop(self) -> None:
        """Spark calls it only where the driver ends in order; the process ends by itself otherwise."""
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None
        end_quietly()
