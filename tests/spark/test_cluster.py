"""Past one machine: a real standalone cluster of two hosts, speculation on, from a topic to a topic.

Two attempts of the same task stage rows at the node, once the twin wins and once the first; an executor gets a SIGKILL
when tasks of it are done and their batch is not decided. Spark's own interface and the node's outbox say that it
happened; a subscriber says that every row came once.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import bridges
import oncewire
from tests.node.node_process import NodeProcess
from tests.spark.cluster_job import Role
from tests.spark.life_log import excerpt
from tests.spark.sink_recorder import Recorder
from tests.spark.spark_helpers import Names, RouterChild, node_options, publish_numbers
from tests.spark.standalone_cluster import CORES, HOSTS, Applications, Cluster, running_cluster, zip_packages

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.campaign]

TASKS = CORES * len(HOSTS)
ROWS = 240
"""Of each batch."""
BATCHES = len(Role)
WAIT_S = 300.0
"""Seconds that nothing here needs, on a machine that is busy with others, too."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
}
OTHERS = {
    "spark.ui.port": "0",
    "spark.sql.streaming.pollingDelay": "5ms",
    # The rows of a task reach its writer in pieces.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5",
}

Staged = tuple[int, int, str]
"""Batch, partition and the name of an attempt."""


@dataclass
class Run:
    """The job at work, and what is seen of it."""

    cluster: Cluster
    folder: Path
    outbox: Path
    log: Path
    staged: set[Staged] = field(default_factory=set)

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait; returns what the condition gave."""
        ends_at = time.monotonic() + WAIT_S
        while not (found := condition()):
            assert time.monotonic() < ends_at, f"{what}: {excerpt(self.log)}"
            assert self.cluster.driver_ended() is None, f"the driver ended: {excerpt(self.log)}"
            time.sleep(0.05)
        return found

    def attempts(self, batch: int) -> set[Staged]:
        """Which attempts have staged rows of a batch, as the node's outbox has it."""
        if not self.outbox.exists():
            return set()
        database = sqlite3.connect(f"file:{self.outbox}?mode=ro", uri=True)
        try:
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'node_parts'").fetchone():
                self.staged |= set(database.execute("SELECT batch, partition, attempt FROM node_parts"))
        finally:
            database.close()
        return {found for found in self.staged if found[0] == batch}

    def stage_of(self, batch: int) -> int:
        """Spark's number of the stage that works on a batch."""
        (number, *_) = {int(path.name.rpartition("-")[2]) for path in self.folder.glob(f"began-{batch}.*")}
        return number

    def go(self, batch: int, attempt: object) -> None:
        """Let an attempt that dawdles go on."""
        (self.folder / f"go-{batch}-{attempt}").touch()


def let_both_stage(run: Run, spark: Applications, batch: Role, winner: int) -> None:
    """Two attempts of the first task stage rows, then one may go on."""

    def both() -> bool:
        found = run.attempts(batch)
        return len({who for _, partition, who in found if partition == 0}) == 2 and len(found) > TASKS

    run.until(both, f"batch {batch} has no twin that staged: {run.staged}")
    twins = [task for task in spark.tasks(run.stage_of(batch)) if task["index"] == 0]
    assert sorted(task["speculative"] for task in twins) == [False, True]
    assert len({task["host"] for task in twins}) == 2
    run.go(batch, winner)


def kill_an_executor_whose_tasks_are_done(run: Run, spark: Applications, batch: Role) -> None:
    """kill -9 when Spark has noted the end of all tasks but the first, whose batch can so not be decided."""
    run.until(lambda: list(run.folder.glob(f"began-{batch}.0.*")), f"batch {batch} does not begin")

    def done() -> set[str]:
        ended = [task for task in spark.tasks(run.stage_of(batch)) if task["status"] == "SUCCESS"]
        return {task["executorId"] for task in ended} if len({task["index"] for task in ended}) == TASKS - 1 else set()

    executor = min(run.until(done, f"the tasks of batch {batch} do not end"))
    process = spark.executor_processes()[executor]
    os.kill(process, signal.SIGKILL)
    run.until(lambda: process not in spark.executor_processes().values(), "the executor lives")
    run.go(batch, "any")


@pytest.mark.timeout(600)
def test_twins_that_stage_and_an_executor_that_dies_neither_lose_nor_double_a_row(
    router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    folder = tmp_path / "seen"
    folder.mkdir()
    plan = {
        "folder": str(folder),
        "checkpoint": str(tmp_path / "checkpoint"),
        "node": node_options(node),
        "source": {
            "subscribe": names.orders,
            "subscription": names.orders,
            "includeMetadata": "false",
            "maxOffsetsPerTrigger": str(ROWS),
            "minPartitions": str(TASKS),
        },
        "sink": {"topic": names.out, "sinkId": names.out},
    }
    with node.connect() as remote:
        remote.subscribe(names.orders, [names.orders])
    publish_numbers(router.url, names.orders, 0, BATCHES * ROWS)
    modules = zip_packages(tmp_path / "oncewire.zip", bridges, oncewire)
    job = Path(__file__).with_name("cluster_job.py")
    with running_cluster(tmp_path / "cluster") as cluster, Recorder(router.url, names.out) as recorder:
        log = cluster.submit(job, [json.dumps(plan)], modules, SPECULATION | OTHERS)
        run = Run(cluster, folder, node.folder / "outboxes" / f"{names.out}.db", log)
        run.until(lambda: list(folder.glob(f"began-{Role.TWIN_WINS}.*")), "no second batch")
        spark = Applications((folder / "web-is").read_text())
        let_both_stage(run, spark, Role.TWIN_WINS, winner=1)
        let_both_stage(run, spark, Role.FIRST_WINS, winner=0)
        kill_an_executor_whose_tasks_are_done(run, spark, Role.EXECUTOR_DIES)
        received = recorder.wait(lambda found: len(found) >= BATCHES * ROWS)
        ends_at = time.monotonic() + WAIT_S
        while (code := cluster.driver_ended()) is None and time.monotonic() < ends_at:
            time.sleep(0.05)
        assert code == 0, excerpt(log)
        received = recorder.received

    rows = [delivery.text.split("|")[:2] for delivery in received]
    came = Counter(value for value, _ in rows)
    assert came == Counter(map(str, range(BATCHES * ROWS))), "lost or doubled"
    winners = {attempt for _, attempt in rows}
    assert len(winners) == BATCHES * TASKS, "rows of two attempts of one task"
    assert f"{Role.TWIN_WINS}.0.1" in winners
    assert f"{Role.FIRST_WINS}.0.0" in winners
    record_property("rows", len(rows))
    of_twins = [found for found in run.staged if found[0] in {Role.TWIN_WINS, Role.FIRST_WINS}]
    record_property("attempts_staged_in_two_batches", len(of_twins))
    record_property("attempts_that_won_in_two_batches", 2 * TASKS)
    assert len(of_twins) >= 2 * (TASKS + 1), "staged parts are not more than winners"
    assert (folder / "imported-from").read_text().partition(".zip")[1], "the package did not come with --py-files"
