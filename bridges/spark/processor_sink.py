"""The sink of a processor for Spark: the sink of the format `amqp`, with rows that are encoded messages already.

Outputs and errors of a batch are one manifest: either both are published or neither. A batch of nothing is an empty
manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark import TaskContext

from bridges.spark.options import sink_options
from bridges.spark.sink import BATCH_ID, QUERY_ID, RUN_ID, AmqpStreamWriter, StagedMessage
from bridges.spark.spark_calls import called_by_spark
from bridges.spark.staging import Attempt, Staging, check_sink, writer_of


@called_by_spark
class ProcessorStreamWriter(AmqpStreamWriter):
    """Stages what comes of an attempt; the rest is as in `AmqpStreamWriter`.

    Args:
        options: of the sink; `sinkId` is the processor's name.

    Raises:
        BadRequest: they cannot be used.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = sink_options(options)
        check_sink(self._options)

    def write(self, iterator: Iterator[Any]) -> StagedMessage:
        """Stage the rows of one attempt of a task: columns topic and payload."""
        context = TaskContext.get()
        assert context is not None
        batch, query, run = (str(context.getLocalProperty(name)) for name in (BATCH_ID, QUERY_ID, RUN_ID))
        sink = self._options.sink_id
        assert sink is not None
        name = f"{run}.{context.taskAttemptId()}"
        attempt = Attempt(sink, writer_of(self._options, query, run), int(batch), context.partitionId(), name)
        with self.open_node() as node:
            staging = Staging(node, attempt, self._options.stage_timeout_s)
            for rows in iterator:
                if staging.is_needed:  # else only read to the end: Spark wants its rows taken
                    staging.add(rows.column("topic").to_pylist(), rows.column("payload").to_pylist())
            return StagedMessage(sink, query, run, staging.finish())
