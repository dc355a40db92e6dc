"""Processors: a function between topics, exactly once. Cues' algorithm over Structured Streaming (docs/cues.md).

* CU-1 Where an attempt ends is on the node's disk before the function sees a message. Each repeat ends there, too.
* CU-2 Which of several inputs is read next is decided when a message is accepted, and never again.
* CU-3 The delivery hash is made of processor and positions alone: no repeat changes it, no other delivery has it.
* CU-4 Outputs and errors of a batch are one decision, taken once; what a repeat computes afterwards is dropped.
* CU-5 A handled error is delivered, as a message or as nothing; any other stops the query and the messages come again.
* CU-6 Recovery is a start of the query: it may end anywhere, any number of times, and changes nothing.

    from bridges.spark.processor import processor

    def invoice(delivery):
        return b"%s paid by %s" % (delivery["orders"].body, delivery["payments"].body)

    processor(
        spark, inputs=["orders", "payments"], fn=invoice, output="invoices", error="bad-orders", join="zip",
        name="invoices", checkpoint="/data/checkpoints/invoices", options={"bridge": "tcp://node:7072", ...},
    ).run_forever()
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException

from bridges.node.errors import BadRequest
from bridges.spark.options import OPTIONS, Side, sink_options, source_options
from bridges.spark.processor_core import Function, Step
from bridges.spark.processor_join_core import Join, input_journals
from bridges.spark.processor_restart_core import BackOff, cause_of, is_hopeless
from bridges.spark.processor_rows import ATTEMPT_COLUMNS, runner
from bridges.spark.processor_source import (
    FORMAT,
    INPUTS_OPTION,
    JOIN_OPTION,
    MAX_STEPS_OPTION,
    TASKS_OPTION,
    ProcessorFormat,
)

logger = logging.getLogger("oncewire.processor")

MAX_STEPS = 10_000
"""Steps of one batch: a repeat of one takes seconds, not hours."""
MAX_OUTPUTS = 32
"""Topics of one processor, as inputs: each has a link of the sink's publisher."""
METRICS = "processor"
"""Under this name Spark's progress has the counts of each batch: outputs, errors, nothing, failed."""
LOOK_S = 1.0
"""How often `run_forever` looks whether it shall stop."""
ALLOWED = frozenset(
    {
        "bridge",
        "bridge.secret",
        "bridge.secretFile",
        "commitMode",
        "deliveryGuarantee",
        "failOnDataLoss",
        "isolationLevel",
        "publishTimeout",
        "stageTimeout",
    }
    | {option.key for option in OPTIONS if option.is_embedded_only}
)
"""Options of the format `amqp` that a processor leaves to its user."""


class ProcessorFailed(PySparkException):  # type: ignore[misc]  # untyped base
    """A processor that no restart helps. Its first line names the cause, the rest is Spark's own text."""


@dataclass(frozen=True)
class Processor:
    """A processor, ready to be started; see `processor`.

    Attributes:
        spark: the session.
        step: name, function, output, error.
        inputs, join: what it reads.
        checkpoint: Spark's folder for it.
        source, sink: options.
    """

    spark: Any
    step: Step
    inputs: tuple[str, ...]
    join: Join | None
    checkpoint: str
    source: Mapping[str, str] = field(repr=False)
    sink: Mapping[str, str] = field(repr=False)

    def start(self, *, available_now: bool = False, interval: str | None = None) -> Any:
        """Start the query, which resumes where it was.

        Args:
            available_now: end when everything that is there now is processed.
            interval: start a batch so often, such as ``10 seconds``; None = as soon as the one before is done.

        Returns:
            Spark's StreamingQuery.
        """
        # Spark looks a format up in the session that is active in this thread. In another thread than the session's own
        # none is, and making a DataFrame is PySpark's public way to change that.
        self.spark.createDataFrame([], "nothing int")
        self.spark.dataSource.register(ProcessorFormat)
        journals = input_journals(self.step.name, self.inputs, self.join)
        rows = self.spark.readStream.format(FORMAT).options(**self.source).load()
        schema = ", ".join(f"{name} {kind}" for name, kind in ATTEMPT_COLUMNS)
        attempts = rows.mapInArrow(runner(self.step, len(journals)), schema)
        published = _observed(attempts).where("payload IS NOT NULL").select("topic", "payload")
        writer = published.writeStream.format(FORMAT).options(**self.sink).queryName(self.step.name)
        writer = writer.option("checkpointLocation", self.checkpoint).outputMode("append")
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif interval is not None:
            writer = writer.trigger(processingTime=interval)
        return writer.start()

    def run_forever(
        self, stop: threading.Event | None = None, *, interval: str | None = None, back_off: BackOff | None = None
    ) -> None:
        """Run the query, and start it again after each failure, later each time. Returns when it is stopped.

        Recovery is nothing but a start: it may itself fail or be killed any number of times.

        Args:
            stop: set it to end the query.
            interval: see `start`.
            back_off: the pauses; None = from 1 s to 60 s.

        Raises:
            ProcessorFailed: the query fails in a way that no restart can fix, such as another query that owns its
                subscription.
        """
        stop = threading.Event() if stop is None else stop
        back_off = BackOff() if back_off is None else back_off
        while not stop.is_set():
            began = time.monotonic()
            try:
                self._run(stop, interval)
            except PySparkException as error:
                cause = cause_of(str(error))
                if is_hopeless(str(error)):
                    raise ProcessorFailed(f"processor {self.step.name} failed: {cause}\n{error}") from error
                pause_s = back_off.pause_s(time.monotonic() - began, random.random())
                logger.exception("processor %s failed: %s; it starts again in %.1f s", self.step.name, cause, pause_s)
                stop.wait(pause_s)
            else:
                return

    def _run(self, stop: threading.Event, interval: str | None) -> None:
        query = self.start(interval=interval)
        try:
            while not stop.is_set():
                if query.awaitTermination(LOOK_S):
                    return
        finally:
            query.stop()


def processor(
    spark: Any,
    inputs: Sequence[str],
    fn: Function,
    output: str | Sequence[str] | None,
    error: str | None = None,
    *,
    name: str,
    checkpoint: str,
    options: Mapping[str, str],
    join: Join | str | None = None,
    handled: tuple[type[Exception], ...] = (Exception,),
    max_steps: int = MAX_STEPS,
    tasks: int | None = None,
) -> Processor:
    """Describe a processor; `start()` or `run_forever()` it.

    Name, inputs and join stay as they are for the life of a checkpoint. The name is what the subscriptions, the sink
    and the delivery hashes are made of: no two processors of a node have the same.

    Args:
        spark: a session.
        inputs: topics.
        fn: called with each `Delivery`; returns bytes, a Message, several of these, or None; or a dict of these by
            topic. Whatever it does beside that may be done again after a crash, with the same `delivery.delivery_hash`
            (with `deliveryGuarantee` at-most-once it is called once at most).
        output: topic of what it returns, or topics; None = it returns nothing. With several it returns a dict.
        error: topic of handled errors; None = they are logged with the delivery hash, counted, and delivered.
        name: up to 90 of A-Z a-z 0-9 _ . -
        checkpoint: a folder for Spark; one for each processor.
        options: which bridge node, as for the format `amqp`: see ALLOWED.
        join: of several inputs: ``zip`` (the n-th message of each together) or ``alts`` (a message of any).
        handled: exceptions of `fn` that the message is to blame for. Others, and `StopAttempt`, stop the query: the
            messages come again. Narrow it when `fn` uses databases or services: that one is away is no error of the
            message.
        max_steps: calls of `fn` in one batch.
        tasks: of a batch at most; None = as many as Spark has slots.

    Raises:
        BadRequest: an argument cannot be used.
    """
    try:
        joined = None if join is None else Join(join)
    except ValueError:
        raise BadRequest(f"processor {name!r} has join={join!r}", "there is no such join", "give zip or alts") from None
    given = _checked(name, options)
    journals = input_journals(name, inputs, joined)
    outputs = output if output is None or isinstance(output, str) else tuple(output)
    step = Step(name, fn, outputs, error, handled)
    if len(step.outputs) > MAX_OUTPUTS or len(set(step.outputs)) < len(step.outputs):
        raise BadRequest(
            f"processor {name!r} has the outputs {', '.join(step.outputs)}",
            f"it may have {MAX_OUTPUTS}, each another topic",
            "name each output once",
        )
    for what, topic in (*(("output", topic) for topic in step.outputs), ("error", error)):
        if topic is not None:
            sink_options({**given[Side.SINK], "sinkId": name, "topic": topic})
            if topic in inputs:
                raise BadRequest(
                    f"processor {name!r} has {topic!r} as {what}", "it is an input, too", "name another topic"
                )
    if max_steps < 1:
        raise BadRequest(f"processor {name!r} has max_steps={max_steps}", "a batch has steps", "give 1 or more")
    source = {**given[Side.SOURCE], "subscription": name}
    for journal in journals:
        source_options({**source, "subscription": journal.subscription, "subscribe": ",".join(journal.topics)})
    source[INPUTS_OPTION] = "\n".join(inputs)
    source[MAX_STEPS_OPTION] = str(max_steps)
    source[TASKS_OPTION] = str(_slots(spark) if tasks is None else tasks)
    if joined is not None:
        source[JOIN_OPTION] = joined.value
    return Processor(spark, step, tuple(inputs), joined, checkpoint, source, {**given[Side.SINK], "sinkId": name})


def _slots(spark: Any) -> int:
    """How many tasks Spark runs at a time; with Spark Connect only a query can ask."""
    if hasattr(spark, "_sc"):
        return int(spark.sparkContext.defaultParallelism)
    from pyspark.sql.functions import spark_partition_id

    return int(spark.range(1 << 16).select(spark_partition_id()).distinct().count())


def _checked(name: str, options: Mapping[str, str]) -> dict[Side, dict[str, str]]:
    """The options of source and sink."""
    known = {allowed.lower() for allowed in ALLOWED}
    sides = {option.key.lower(): option.side for option in OPTIONS}
    found: dict[Side, dict[str, str]] = {Side.SOURCE: {}, Side.SINK: {}}
    for key, value in options.items():
        if key.lower() not in known:
            raise BadRequest(
                f"processor {name!r} cannot have the option {key!r}",
                "it sets that itself, or there is no such option",
                f"leave it out; there are {', '.join(sorted(ALLOWED))}",
            )
        for side, taken in found.items():
            if sides[key.lower()] in {side, Side.BOTH}:
                taken[key] = value
    return found


def _observed(attempts: Any) -> Any:
    """Count what comes of attempts, by Spark's own means."""
    from pyspark.sql import functions

    def count(condition: str, name: str) -> Any:
        return functions.count_if(functions.expr(condition)).alias(name)

    return attempts.observe(
        METRICS,
        count("kind = 'output'", "outputs"),
        count("kind = 'error'", "errors"),
        count("kind = 'nil'", "nothing"),
        count("failed", "failed"),
    )
