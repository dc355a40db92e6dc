"""The job of the crash plan: `python crash_job.py URL TOPIC START`, with the environment of crash_points.py.

It reads files of lines and publishes each line with the number of this start and a random number behind it, in random
order, over another number of partitions at each start: whatever is computed again comes out different.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.spark.crash_job_points import CrashingAmqp
from tests.spark.crash_points import FOLDER, wait_for_go
from tests.spark.short_session import short_session

INFLIGHT = 20
"""A tenth of a batch: a crash at half a batch leaves many rows unsent, many accepted, and some under way."""


def main() -> None:
    """Run the query over all files, from its checkpoint."""
    from pyspark.sql.functions import concat_ws, lit, rand

    url, topic, start = sys.argv[1], sys.argv[2], int(sys.argv[3])
    folder = Path(os.environ[FOLDER])
    spark = short_session("crash-plan", "local[2]", folder, "512m")
    spark.dataSource.register(CrashingAmqp)
    wait_for_go(start)
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
    rows = lines.repartition(1 + start % 3, rand()).select(
        concat_ws("|", "value", lit(str(start)), rand().cast("string")).alias("value")
    )
    query = (
        rows.writeStream.format(CrashingAmqp.name())
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("bridge", "embedded")
        .option("bridge.folder", str(folder / "node"))
        .option("bridge.name", "crash-plan")
        .option("amqp.urls", url)
        .option("topic", topic)
        .option("sinkId", topic)
        .option("inflight", INFLIGHT)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
