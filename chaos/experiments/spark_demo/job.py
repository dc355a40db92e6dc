"""The Structured Streaming job of the demo: `python -m chaos.experiments.spark_demo.job PLAN`, started by processes.py.

What a user would write is in `_delays`; the rest is about being one of an experiment's processes: it stops when it is
asked to, and ends at once, with its JVM and Python workers, when the experiment is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict, dataclass
from typing import Any

from bridges.spark import register
from bridges.spark.java import session_builder
from bridges.spark.worker_python import worker_python
from chaos.clients.client_plan import STOP_COMMAND
from chaos.experiments.spark_demo import DELAYS_TOPIC, FLIGHTS_TOPIC, JOB
from chaos.experiments.spark_demo.outputs_core import ARRIVAL_DELAY, CARRIER, DESTINATION, ORIGIN, UNKNOWN
from chaos.experiments.spark_demo.sessions import kill_session

HOST = "127.0.0.1"
LOCAL = "local[2]"
"""The master of a driver that does all itself."""
LOOK_S = 0.2
"""How often it is looked whether the query has failed, or is to stop."""
EXPERIMENT_GONE = 3
MAX_FAILURES = 30
"""Of the query in one life of the driver. A very busy machine fails it: Spark gives its workers 10 s to start."""
QUERY_FAILED = "the query failed:"
"""Begins a line of the driver's log."""
ERROR_CHARACTERS = 600
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={folder}"
"""Starts quickly, for it is killed soon; and leaves nothing outside its folder."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What the job gets at its start.

    Attributes:
        bridge: address of the bridge node.
        secret_file: of the bridge node.
        folder: for Spark's files, and the checkpoint.
        run: the number of this life of the job.
        batch: messages of a batch at most.
        master: of Spark; a cluster, or LOCAL.
    """

    bridge: str
    secret_file: str
    folder: str
    run: int
    batch: int
    master: str

    def encode(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


def _delays(spark: Any, plan: JobPlan) -> Any:
    """Start the query: each flight's delay as JSON, with its carrier as the key."""
    from pyspark.sql.functions import col, concat_ws, lit, split, struct, substring_index, to_json, when

    node = {"bridge": plan.bridge, "bridge.secretFile": plan.secret_file}
    flights = (
        spark.readStream.format("amqp")
        .options(**node)
        .option("subscribe", FLIGHTS_TOPIC)
        .option("subscription", JOB)
        .option("maxOffsetsPerTrigger", plan.batch)
        .load()
    )
    cells = split(col("value").cast("string"), ",")
    delay = when(cells[ARRIVAL_DELAY] != UNKNOWN, cells[ARRIVAL_DELAY].cast("int"))
    output = struct(
        substring_index("message_id", "/", -1).cast("int").alias("row"),
        cells[CARRIER].alias("carrier"),
        concat_ws("-", cells[ORIGIN], cells[DESTINATION]).alias("route"),
        delay.alias("minutes_late"),
        # As a random number would: a batch that is computed again in another life comes out different.
        lit(plan.run).alias("run"),
    )
    delays = flights.select(to_json(output).alias("value"), cells[CARRIER].alias("key"), "message_id")
    return (
        # In another life other tasks have other rows, in another order.
        delays.repartition(1 + plan.run % 3)
        .writeStream.format("amqp")
        .options(**node)
        .option("topic", DELAYS_TOPIC)
        .option("sinkId", JOB)
        .option("atomicBatches", "true")
        .option("checkpointLocation", f"{plan.folder}/checkpoint")
        .start()
    )


def open_session(folder: str, master: str) -> Any:
    """A session of Spark that leaves nothing outside a folder; its driver is on this machine, whatever the master."""
    for variable, value in {"PYSPARK_PYTHON": worker_python(), "SPARK_LOCAL_IP": HOST}.items():
        os.environ.setdefault(variable, value)
    java = JAVA_OPTIONS.format(folder=folder)
    spark = (
        session_builder("oncewire-demo", master)
        .config("spark.driver.host", HOST)
        .config("spark.driver.bindAddress", HOST)
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", java)
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", java)
        # What a killed executor has shuffled is asked for once more, not for 15 s.
        .config("spark.shuffle.io.maxRetries", "1")
        .config("spark.shuffle.io.retryWait", "1s")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.streaming.pollingDelay", "5ms")
        .config("spark.local.dir", f"{folder}/local")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def listen(reported: threading.Event) -> None:
    """Wait for the experiment: it has this process stop, or has ended, and everything here ends at once."""
    # Not through sys.stdin: a thread that waits in it would keep the interpreter from its end.
    if os.read(0, len(STOP_COMMAND)) == STOP_COMMAND:
        reported.set()
        return
    kill_session(os.getsid(0), spared=os.getpid())
    os._exit(EXPERIMENT_GONE)


def words_of(error: object) -> str:
    """The beginning of an error, on one line."""
    return " ".join(str(error).split())[:ERROR_CHARACTERS]


def _work(spark: Any, plan: JobPlan, reported: threading.Event) -> None:
    """Run the query from its checkpoint until asked to stop; one that fails is started again, as an operator would."""
    failures = 0
    while True:
        query = _delays(spark, plan)
        while query.isActive:
            if reported.wait(LOOK_S):
                query.processAllAvailable()
                query.stop()
                return
        failures += 1
        sys.stderr.write(f"{QUERY_FAILED} {words_of(query.exception())}\n")
        sys.stderr.flush()
        if failures == MAX_FAILURES:
            raise SystemExit("the query fails again and again")


def main() -> None:
    """Do the job for one life of the driver."""
    plan = JobPlan(**json.loads(sys.argv[1]))
    reported = threading.Event()
    threading.Thread(target=listen, args=(reported,), daemon=True).start()
    spark = open_session(plan.folder, plan.master)
    _work(spark, plan, reported)
    spark.stop()


if __name__ == "__main__":
    main()
