"""The processor of the crash plan: `python crash_processor_job.py NODE SECRET-FILE NAME LIFE MAX-STEPS`.

Whatever it computes again comes out different: outputs carry the life and a random number, and each life has another
number of tasks. Points (crash_points.py has how they are named):

    attempt     the inputs of a batch are read, and the function has not run: everything of the job is killed
    worker      a task has staged its rows and not said so: its Python process alone is killed, once
    staged      all tasks have staged, nothing is decided: everything of the job is killed
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import bridges.spark.processor
from bridges.spark.processor import processor
from bridges.spark.processor_core import Delivery
from bridges.spark.processor_sink import ProcessorStreamWriter
from bridges.spark.processor_source import ProcessorFormat
from bridges.spark.sink import StagedMessage
from tests.spark.crash_points import FOLDER, LIFE, ROWS, crash_from, maybe_kill, note, wait_for_go
from tests.spark.short_session import short_session


class DyingWriter(ProcessorStreamWriter):
    """The processor's writer, whose tasks or whose commit may die."""

    def write(self, iterator: Iterator[Any]) -> StagedMessage:
        """See ProcessorStreamWriter."""
        from pyspark import TaskContext

        message = super().write(iterator)
        context, crash = TaskContext.get(), crash_from(os.environ)
        assert context is not None
        place = (context.getLocalProperty("streaming.sql.batchId"), context.partitionId(), context.attemptNumber())
        if crash is not None and crash.point == "worker" and place == (str(crash.batch), 0, 0):
            note("crashes", f"{crash}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return message

    def commit(self, messages: Sequence[StagedMessage | None], batchId: int) -> None:  # noqa: N803
        """See ProcessorStreamWriter."""
        maybe_kill("staged", batchId)
        super().commit(messages, batchId)


class CrashingProcessor(ProcessorFormat):
    """The format of processors with that writer."""

    def streamWriter(self, schema: Any, overwrite: bool) -> DyingWriter:  # noqa: N802
        """See ProcessorFormat."""
        return DyingWriter(self.options)


def transform(delivery: Delivery) -> bytes:
    """INPUT.BODY|LIFE|RANDOM, if it comes to that."""
    (given,) = delivery.inputs
    if given.position % ROWS == 1:  # in one task alone
        maybe_kill("attempt", delivery.batch)
    body = delivery.message.body
    assert isinstance(body, bytes)
    return f"{given.topic}.{body.decode()}|{os.environ[LIFE]}|{random.random()}".encode()


def main() -> None:
    """Run the processor over everything that is there."""
    address, secret_file, name, life, max_steps = sys.argv[1:]
    folder = Path(os.environ[FOLDER])
    # Two attempts for each task: one may lose its process.
    spark = short_session("crash-plan", "local[2,2]", folder, "512m")
    spark.dataSource.register(CrashingProcessor)  # the work of a first time
    wait_for_go(int(life))
    setattr(bridges.spark.processor, "ProcessorFormat", CrashingProcessor)  # noqa: B010  # what `start` registers
    query = processor(
        spark,
        inputs=[f"{name}-a", f"{name}-b"],
        fn=transform,
        output=f"{name}-out",
        name=name,
        join="alts",
        checkpoint=str(folder / "checkpoint"),
        options={"bridge": address, "bridge.secretFile": secret_file},
        max_steps=int(max_steps),
        tasks=1 + int(life) % 3,
    ).start(available_now=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
