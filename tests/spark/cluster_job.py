"""The job of test_cluster.py: `spark-submit ... cluster_job.py OPTIONS`, JSON with what is read from where below.

From a topic to a topic. The first task of a batch behaves as the batch's number says, see `Role`, and waits for files
that the test makes. It needs nothing but what `--py-files` brings, and of the tests nothing at all.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

PADDED = 200_000
"""Octets of a row of a task that dawdles: so many that it stages before it has seen all its rows."""
PIECE = 5
"""Rows that go to the writer together."""
DAWDLES_S = 240.0
POLL_S = 0.02


class Role(IntEnum):
    """What the first task does in the batch of this number."""

    PLAIN = 0
    TWIN_WINS = 1
    FIRST_WINS = 2
    EXECUTOR_DIES = 3


def wait_for(path: Path) -> None:
    """Dawdle until a file is there. Spark kills attempts that are not needed any more."""
    ends_at = time.monotonic() + DAWDLES_S
    while not path.exists():
        if time.monotonic() > ends_at:
            raise TimeoutError(f"{path.name} was not made")
        time.sleep(POLL_S)


def worked(folder: Path, batches: Iterator[Any]) -> Iterator[Any]:
    """Each row with the attempt that has worked on it; where the role says so, not before it may go on."""
    import pyarrow as pa
    from pyspark import TaskContext

    import bridges.spark

    context = TaskContext.get()
    batch, attempt = context.getLocalProperty("streaming.sql.batchId"), context.attemptNumber()
    name = f"{batch}.{context.partitionId()}.{attempt}"
    (folder / f"began-{name}-{context.stageId()}").touch()
    (folder / "imported-from").write_text(os.fspath(bridges.spark.__file__))
    is_special = context.partitionId() == 0 and int(batch) != Role.PLAIN
    values: list[bytes] = [value for rows in batches for value in rows.column(0).to_pylist()]
    stages_early = is_special and int(batch) in {Role.TWIN_WINS, Role.FIRST_WINS}
    pad = b" " * PADDED if stages_early else b""
    kept = len(values) // 10 if stages_early else len(values) if is_special else 0

    def rows(chosen: list[bytes]) -> Iterator[Any]:
        for start in range(0, len(chosen), PIECE):  # what is written last stays in a buffer until there is more
            texts = [b"%b|%b|%b" % (value, name.encode(), pad) for value in chosen[start : start + PIECE]]
            yield pa.record_batch([pa.array(texts, pa.binary())], ["value"])

    yield from rows(values[: len(values) - kept])
    if is_special:
        wait_for(folder / f"go-{batch}-{attempt if stages_early else 'any'}")
    yield from rows(values[len(values) - kept :])


def main() -> None:
    """Run the query over everything that is there, from its checkpoint."""
    from pyspark.sql import SparkSession

    from bridges.spark import register

    plan = json.loads(sys.argv[1])
    folder = Path(plan["folder"])
    spark = SparkSession.builder.appName("cluster").getOrCreate()
    register(spark)
    (folder / "web").write_text(spark.sparkContext.uiWebUrl)
    (folder / "web").rename(folder / "web-is")
    source = spark.readStream.format("amqp").options(**plan["node"], **plan["source"]).load()
    query = (
        source.select("value")
        .mapInArrow(lambda batches: worked(folder, batches), "value binary")
        .writeStream.format("amqp")
        .options(**plan["node"], **plan["sink"])
        .option("checkpointLocation", plan["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
