"""What the sink does with a node: stage a task's rows, decide a batch, wait until it is published. No Spark here."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridges.node.arrow_bodies import MAX_STAGED_ROWS, encode_rows
from bridges.node.errors import BadRequest, NodeError
from bridges.node.frames import MAX_BODY_BYTES
from bridges.node.interface import Commit, Node
from bridges.node.model import Publishing, StagedPart, Writer
from bridges.spark.option_values import MAX_TOKENS, MAX_TOPIC_BYTES, CommitMode, Guarantee, is_pattern
from bridges.spark.options import SinkOptions
from bridges.spark.schema import encode_rows_of

logger = logging.getLogger("oncewire.bridge")

CHUNK_BYTES = 8 << 20
"""Rows of a task are staged when there are so many: little memory in the task, few transactions at the node."""
MAX_ROW_BYTES = MAX_BODY_BYTES - (1 << 20)
"""One row must fit into one body; the rest is for what Arrow and the topics add."""
ASK_S = 10.0
"""How often a batch that waits for subscribers logs what it waits for."""


class NotPublished(NodeError):
    """A batch is decided and durable, and not published within the time given."""

    code: ClassVar[str] = "not-published"
    is_temporary: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one task.

    Attributes:
        sink: where it writes.
        writer: the query's run.
        batch: the query's number of the batch.
        partition: of the batch.
        name: no other attempt has it.
    """

    sink: str
    writer: Writer
    batch: int
    partition: int
    name: str


def writer_of(options: SinkOptions, query: str, run: str) -> Writer:
    """Who writes, in the node's terms.

    Exactly-once and at-most-once keep to what an earlier run has decided. At-least-once does not: each run of the query
    publishes what it computes, so a checkpoint may be set back or restored from a copy.
    """
    return Writer(query, run, options.takeover, repeats=options.guarantee is Guarantee.AT_LEAST_ONCE)


def publishing_of(options: SinkOptions) -> Publishing:
    """How rows are published, in the node's terms; see `deliveryGuarantee` in sink.py."""
    return Publishing(
        resends_in_doubt=options.guarantee is not Guarantee.AT_MOST_ONCE,
        is_atomic=options.atomic_batches,
        require=options.require,
    )


def check_sink(options: SinkOptions) -> None:
    """Refuse options that cannot work together.

    Raises:
        BadRequest: they cannot.
    """
    if options.commit_mode is CommitMode.STAGED and options.bridge.is_embedded:
        raise BadRequest(
            "commitMode=staged cannot be used with an embedded bridge node",
            "its process ends with the commit, and staged rows would not be published",
            "use commitMode=published, or run a bridge node (`oncewire bridge node`) and set `bridge` to its address",
        )


# --- staging ----------------------------------------------------------------------------------------------------------


class Staging:
    """Collects the rows of an attempt and stages them in bodies.

    Args:
        node: where.
        attempt: whose rows.
        patience_s: how long to wait while the outbox is full.
    """

    def __init__(self, node: Node, attempt: Attempt, patience_s: float) -> None:
        self._node = node
        self._attempt = attempt
        self._patience_s = patience_s
        self._topics: list[str] = []
        self._payloads: list[bytes] = []
        self._bytes = 0
        self._chunks = 0
        self._rows = 0
        self.is_needed = True
        """False = the batch was decided before: what else there is need not be computed."""

    def add(self, topics: Sequence[str], payloads: Sequence[bytes]) -> None:
        """Take rows; errors as `Node.stage`."""
        size = sum(map(len, payloads))
        if self._bytes + size <= CHUNK_BYTES and len(self._payloads) + len(payloads) <= MAX_STAGED_ROWS:
            self._topics += topics
            self._payloads += payloads
            self._bytes += size
            return
        for topic, payload in zip(topics, payloads, strict=True):
            is_full = self._bytes + len(payload) > CHUNK_BYTES or len(self._payloads) == MAX_STAGED_ROWS
            if is_full and self._payloads:
                self._stage()
            self._topics.append(topic)
            self._payloads.append(payload)
            self._bytes += len(payload)

    def finish(self) -> StagedPart:
        """Stage the rest; returns what the commit has to name."""
        if self._payloads:
            self._stage()
        return StagedPart(self._attempt.partition, self._attempt.name, self._chunks, self._rows)

    def _stage(self) -> None:
        if self.is_needed:
            who = self._attempt
            self.is_needed = self._node.stage(
                who.sink,
                who.writer,
                who.batch,
                who.partition,
                who.name,
                self._chunks,
                encode_rows(self._topics, self._payloads),
                patience_s=self._patience_s,
            )
        self._chunks += 1
        self._rows += len(self._payloads)
        self._topics, self._payloads, self._bytes = [], [], 0


def stage_batches(node: Node, attempt: Attempt, options: SinkOptions, batches: Iterable[Any]) -> StagedPart:
    """Stage the rows of an attempt.

    Args:
        node: where.
        attempt: whose rows.
        options: of the sink.
        batches: record batches whose columns `schema.check_columns` has passed.

    Raises:
        BadRequest: a row cannot be published; the error names it.
        OwnedByAnother, Fenced, OutboxFull, TooLarge, NodeUnavailable: see `Node.stage`.
    """
    staging = Staging(node, attempt, options.stage_timeout_s)
    row = 0
    for batch in batches:
        if staging.is_needed:  # else only read to the end: Spark wants its rows taken
            staging.add(*_encoded(batch, options.topic, attempt, row))
        row += batch.num_rows
    return staging.finish()


def _encoded(batch: Any, topic: str | None, attempt: Attempt, first_row: int) -> tuple[list[str], list[bytes]]:
    try:
        topics, payloads = encode_rows_of(batch, topic)
        _check_rows(topics, payloads)
    except BadRequest as error:
        row = _first_bad_row(batch, topic)
        raise BadRequest(
            f"row {first_row + row} of partition {attempt.partition} in batch {attempt.batch} cannot be published "
            f"by sink {attempt.sink}",
            error.why,
            error.fix,
        ) from None
    return topics, payloads


def _first_bad_row(batch: Any, topic: str | None) -> int:
    for row in range(batch.num_rows):
        try:
            _check_rows(*encode_rows_of(batch.slice(row, 1), topic))
        except BadRequest:
            return row
    raise AssertionError("rows that cannot be published together can be published alone")


def _check_rows(topics: Sequence[str], payloads: Sequence[bytes]) -> None:
    """Refuse what no router would accept: once decided it would block the sink."""
    for topic in set(topics):
        fault = _topic_fault(topic)
        if fault:
            raise BadRequest("a row cannot be published", f"{topic!r} is no topic: {fault}", "name one topic")
    largest = max(map(len, payloads), default=0)
    if largest > MAX_ROW_BYTES:
        raise BadRequest(
            "a row cannot be published",
            f"the message has {largest} bytes, {MAX_ROW_BYTES} are allowed",
            "send less in one message",
        )


def _topic_fault(topic: str) -> str:
    if not 0 < len(topic.encode()) <= MAX_TOPIC_BYTES:
        return f"it has 1 to {MAX_TOPIC_BYTES} bytes"
    if "|" in topic:
        return "it has no '|'"
    if is_pattern(topic):
        return "it is a pattern"
    if len(re.split(r"[./]", topic)) > MAX_TOKENS:
        return f"it has {MAX_TOKENS} parts at most"
    return ""


# --- deciding and publishing ------------------------------------------------------------------------------------------


def commit_batch(
    node: Node, options: SinkOptions, sink: str, writer: Writer, batch: int, parts: Sequence[StagedPart]
) -> Commit:
    """Decide a batch, and wait until it is published if the options say so. May be called again for the same batch.

    Args:
        node: where its rows are staged.
        options: of the sink.
        sink: its id.
        writer: who commits.
        batch: the query's number of the batch.
        parts: the attempts that count.

    Raises:
        NotPublished: `publishTimeout` is over; the batch is decided, and continues when the query is started again.
        OwnedByAnother, Fenced, PartMissing, BatchForgotten, NodeUnavailable: see `Outbox.commit`.
    """
    ordered = sorted((part for part in parts if part.chunks), key=lambda part: part.partition)
    waits = options.commit_mode is CommitMode.PUBLISHED
    timeout_s = options.publish_timeout_s
    ends_at = None if timeout_s is None else time.monotonic() + timeout_s
    found = node.commit(
        sink, writer, batch, ordered, _wait_s(ends_at) if waits else 0.0, publishing=publishing_of(options)
    )
    said = ""
    while waits and not found.is_done:
        if ends_at is not None and time.monotonic() >= ends_at:
            raise NotPublished(
                f"batch {batch} of sink {sink} is not published within publishTimeout ({timeout_s:g} s)",
                found.trouble or "subscribers have not accepted all of it",
                "start the query again, it resumes where it was; `oncewire inspect` shows slow subscribers",
            )
        why = found.trouble or "subscribers have not accepted all of it yet"
        if why != said:
            logger.warning("batch %d of sink %s waits to be published: %s", batch, sink, why)
            said = why
        found = node.wait_done(sink, found.number, _wait_s(ends_at))
    if found.not_accepted:
        logger.warning(
            "%d rows of batch %d of sink %s were not accepted: rejected, abandoned, or their topic has no subscription",
            found.not_accepted,
            batch,
            sink,
        )
    return found


def _wait_s(ends_at: float | None) -> float:
    return ASK_S if ends_at is None else max(0.0, min(ASK_S, ends_at - time.monotonic()))
