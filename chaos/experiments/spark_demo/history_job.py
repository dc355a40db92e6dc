"""The late query of the demo: `python -m chaos.experiments.spark_demo.history_job PLAN`, started by history.py.

It reads the journal of the flights from its first message on and ends when it has read all that is there.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import asdict, dataclass
from typing import Any

from chaos.experiments.spark_demo import COUNTS_TOPIC, FLIGHTS_TOPIC, HISTORY
from chaos.experiments.spark_demo.history_core import DELAY_MS
from chaos.experiments.spark_demo.job import MAX_FAILURES, QUERY_FAILED, listen, open_session, words_of
from chaos.experiments.spark_demo.outputs_core import CARRIER


@dataclass(frozen=True, slots=True)
class HistoryPlan:
    """What the job gets at its start.

    Attributes:
        edge: address of the edge's HTTP.
        bridge: address of the bridge node.
        secret_file: of the bridge node.
        folder: for Spark's files, and the checkpoint.
        batch: messages of a batch at most.
        master: of Spark.
    """

    edge: str
    bridge: str
    secret_file: str
    folder: str
    batch: int
    master: str

    def encode(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


def _counts(spark: Any, plan: HistoryPlan) -> Any:
    """Start the query: how many flights of each carrier arrived in each second."""
    from pyspark.sql.functions import col, count, split, struct, to_json, unix_timestamp, window

    flights = (
        spark.readStream.format("oncewire")
        .option("edge", plan.edge)
        .option("journal", FLIGHTS_TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", plan.batch)
        .load()
    )
    groups = (
        flights.select("timestamp", split(col("value").cast("string"), ",")[CARRIER].alias("carrier"))
        .withWatermark("timestamp", f"{DELAY_MS} milliseconds")
        .groupBy(window("timestamp", "1 second"), "carrier")
        .agg(count("*").alias("flights"))
    )
    output = struct(unix_timestamp("window.start").alias("second"), "carrier", "flights")
    return (
        groups.select(to_json(output).alias("value"), col("carrier").alias("key"))
        .writeStream.format("oncewire")
        .option("bridge", plan.bridge)
        .option("bridge.secretFile", plan.secret_file)
        .option("topic", COUNTS_TOPIC)
        .option("sinkId", HISTORY)
        .option("checkpointLocation", f"{plan.folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    """Do the job for one life of the driver; a query that fails is started again, as an operator would."""
    plan = HistoryPlan(**json.loads(sys.argv[1]))
    threading.Thread(target=listen, args=(threading.Event(),), daemon=True).start()
    spark = open_session(plan.folder, plan.master)
    from pyspark.errors import StreamingQueryException

    for _ in range(MAX_FAILURES):
        try:
            _counts(spark, plan).awaitTermination()
        except StreamingQueryException as error:
            sys.stderr.write(f"{QUERY_FAILED} {words_of(error)}\n")
            sys.stderr.flush()
        else:
            spark.stop()
            return
    raise SystemExit("the query fails again and again")


if __name__ == "__main__":
    main()
