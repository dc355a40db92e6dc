"""Rows of an attempt as Arrow has them: what a task reads, what comes of it. Runs in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from bridges.node.arrow_bodies import arrow
from bridges.spark.processor_core import AttemptRow, Input, Step, attempt

ATTEMPT_COLUMNS = (
    ("kind", "string"),
    ("delivery_hash", "string"),
    ("failed", "boolean"),
    ("topic", "string"),
    ("payload", "binary"),
)
"""What comes of an attempt; see `AttemptRow`."""


@cache
def attempt_schema() -> Any:
    """ATTEMPT_COLUMNS for Arrow."""
    pa = arrow()
    kinds = {"string": pa.string(), "boolean": pa.bool_(), "binary": pa.binary()}
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in ATTEMPT_COLUMNS])


def inputs_in(batch: Any, journals: int) -> Iterator[list[Input]]:
    """The inputs of each step of a batch with the columns of `processor_reader.columns_of`."""
    pa = arrow()
    steps = []
    for number in range(journals):
        arrived = batch.column(f"arrived_{number}").cast(pa.int64())
        columns = [batch.column(f"{name}_{number}") for name in ("topic", "journal", "position")] + [
            arrived,
            batch.column(f"payload_{number}"),
        ]
        steps.append([Input(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)])
    for inputs in zip(*steps, strict=True):
        yield list(inputs)


def attempt_batch(rows: list[AttemptRow]) -> Any:
    """Rows of attempts as a record batch."""
    names = [name for name, _ in ATTEMPT_COLUMNS]
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    columns["kind"] = [str(kind) for kind in columns["kind"]]
    return arrow().record_batch([columns[name] for name in names], schema=attempt_schema())


def runner(step: Step, journals: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What Spark calls in each task: it calls the processor's function for each step.

    Args:
        step: the processor.
        journals: how many it reads.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        tried = int(context.attemptNumber())
        for batch in batches:
            rows = [row for inputs in inputs_in(batch, journals) for row in attempt(step, inputs, number, tried)]
            yield attempt_batch(rows)

    return run
