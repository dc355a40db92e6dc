"""The sink of the format `amqp`: tasks stage rows at the bridge node, the commit decides the batch and publishes it.

Nothing leaves before the commit (O-1). The first commit of a batch decides what the batch is, for ever (O-2): when
Spark runs it again, with other rows or in another order, the rows that are stored count (`bridges.node.outbox`). So
`commit` may be called any number of times, and `abort` has nothing to undo (O-6).

What `deliveryGuarantee` means here:

* **exactly-once**: each batch is published as it was first decided, with identities that stay the same however often
  rows are sent. Every subscription gets each row once: from the network, or, where the network had forgotten a session,
  by the identity.
* **at-least-once**: a batch that a later run of the query computes again is published again, as computed. Nothing is
  lost, rows may come twice, and a checkpoint may be set back or restored from a copy.
* **at-most-once**: as exactly-once, but rows that may have been delivered in a session that the network forgot are
  given up, not sent again: a subscriber that knows nothing of identities never sees a row twice.
"""

from __future__ import annotations

import logging
import secrets
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from bridges.node.errors import BadRequest, BatchForgotten, NodeError
from bridges.node.interface import Node
from bridges.node.model import StagedPart, Writer
from bridges.spark.options import UNNAMED, SinkOptions, open_node, sink_options, unnamed_sink
from bridges.spark.schema import check_columns
from bridges.spark.spark_calls import called_by_spark
from bridges.spark.staging import Attempt, check_sink, commit_batch, stage_batches, writer_of

logger = logging.getLogger("oncewire.spark")

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
"""What Spark passes to its tasks about their batch; a run id is new for each start of a query."""
BATCH_WRITES = "batch-writes"
"""In place of a query id: all batch writes to a sink that name no query are one writer, which no stream may share."""
_BATCH_BITS = 62
"""Of the number of an unnamed write, which has no order: with a thousand of them known two are never the same."""


@dataclass
class StagedMessage(WriterCommitMessage):  # type: ignore[misc]  # pyspark has no types for us
    """What a task sends to the commit; the commit runs in another process and knows nothing else.

    Attributes:
        sink: its id.
        query, run: of the query.
        part: what was staged.
    """

    sink: str
    query: str
    run: str
    part: StagedPart


@called_by_spark
class AmqpStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark has no types for us
    """Writes the batches of a streaming query. Spark makes one for each batch and another one for its commit.

    Args:
        options: from Spark; see options.py.
        schema: of the rows, a StructType.

    Raises:
        BadRequest: options or columns cannot be used.
    """

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        self._options = sink_options(options)
        _check(self._options, schema)

    def open_node(self) -> Node:
        """The node, for one call; nothing is open between calls."""
        return open_node(self._options)

    def write(self, iterator: Iterator[Any]) -> StagedMessage:
        """Stage the rows of one attempt of a task. Spark may run several at the same time; one is committed."""
        context = _task_context()
        batch, query, run = (_reported(context, name) for name in (BATCH_ID, QUERY_ID, RUN_ID))
        sink = self._options.sink_id or query
        attempt = Attempt(
            sink,
            writer_of(self._options, query, run),
            int(batch),
            context.partitionId(),
            f"{run}.{context.taskAttemptId()}",
        )
        with self.open_node() as node:
            part = stage_batches(node, attempt, self._options, iterator)
        return StagedMessage(sink, query, run, part)

    def commit(self, messages: Sequence[StagedMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Decide the batch, and wait until it is published (`commitMode`). Called again after a crash."""
        staged = [message for message in messages if message is not None]
        first = staged[0]  # Spark runs one task at least, for an empty batch, too
        writer = writer_of(self._options, first.query, first.run)
        with self.open_node() as node:
            commit_batch(node, self._options, first.sink, writer, batchId, [message.part for message in staged])

    def abort(self, messages: Sequence[StagedMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """O-6: a commit that failed half-way may have decided the batch. What lost goes with a later one."""


@called_by_spark
class AmqpBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark has no types for us
    """Writes a DataFrame that is no stream, as one batch of the sink `sinkId`.

    With `batchId` a job that runs again changes nothing, if its first run came as far as its commit. Without, the time
    is the batch's number, and each job is published. Without `sinkId` the batch stands alone (O-13): its number is
    drawn at random when the driver makes this writer, so attempts of tasks and stages belong to it, and each job is
    another one.

    Args:
        options: from Spark; see options.py.
        schema: of the rows, a StructType.
        overwrite: what was published cannot be replaced.

    Raises:
        BadRequest: options, columns or save mode cannot be used.
    """

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        if overwrite:
            raise BadRequest(
                "mode overwrite cannot be used", "what was published cannot be taken back", "use mode append"
            )
        # Made once for a job, and sent to its tasks and its commit.
        self._options = sink_options(options, is_stream=False)
        _check(self._options, schema)
        self._run = uuid.uuid4().hex
        self._is_unnamed = self._options.sink_id is None
        given = self._options.batch_id
        if self._is_unnamed:
            self._batch = secrets.randbits(_BATCH_BITS)
        else:
            self._batch = int(time.time() * 1000) if given is None else given

    @property
    def _writer(self) -> Writer:
        if self._is_unnamed:
            return Writer(UNNAMED, self._run, stands_alone=True)
        return writer_of(self._options, self._query, self._run)

    @property
    def _query(self) -> str:
        return UNNAMED if self._is_unnamed else self._options.query_id or BATCH_WRITES

    @property
    def _sink(self) -> str:
        return self._options.sink_id or unnamed_sink(self._options)

    def write(self, iterator: Iterator[Any]) -> StagedMessage:
        """Stage the rows of one attempt of a task."""
        context = _task_context()
        name = f"{self._run}.{context.taskAttemptId()}"
        attempt = Attempt(self._sink, self._writer, self._batch, context.partitionId(), name)
        with open_node(self._options) as node:
            part = stage_batches(node, attempt, self._options, iterator)
        return StagedMessage(self._sink, self._query, self._run, part)

    def commit(self, messages: Sequence[StagedMessage | None]) -> None:
        """Decide the batch, and wait until it is published (`commitMode`)."""
        parts = [message.part for message in messages if message is not None]
        with open_node(self._options) as node:
            try:
                commit_batch(node, self._options, self._sink, self._writer, self._batch, parts)
            except BatchForgotten as error:
                raise BatchForgotten(error.what, error.why, "give a larger batchId") from None

    def abort(self, messages: Sequence[StagedMessage | None]) -> None:
        """Free the room of an unnamed write: nobody runs it again. Else do nothing: see AmqpStreamWriter.abort."""
        if not self._is_unnamed:
            return
        try:
            with open_node(self._options) as node:
                node.discard(self._sink, self._writer, self._batch)
        except NodeError as error:  # the job's own error says more
            logger.warning("rows of a write that failed stay at the node for a day: %s", error)


def _check(options: SinkOptions, schema: Any) -> None:
    check_sink(options)
    types = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    check_columns(types, has_topic=options.topic is not None)


def _task_context() -> Any:
    context = TaskContext.get()
    assert context is not None, "Spark calls write() within a task"
    return context


def _reported(context: Any, name: str) -> str:
    value = context.getLocalProperty(name)
    if value is None:
        raise BadRequest(
            "the batch cannot be written",
            f"Spark does not report {name}",
            "use writeStream.format('amqp') for streams and write.format('amqp') for others",
        )
    return str(value)
