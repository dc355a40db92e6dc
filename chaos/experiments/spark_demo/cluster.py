"""A standalone cluster of Spark: a master, and workers that are killed with their executors and started again."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bridges.spark.java import prepare_java
from chaos.experiments.spark_demo.job import JAVA_OPTIONS
from chaos.experiments.spark_demo.processes import POLL_S, START_S, DemoProcess
from chaos.network.trial import TrialFailed

HOST = "127.0.0.1"
CORES = 1
"""Task slots of a worker: one executor of each runs."""
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master (\S+)")


class ClusterProcess(DemoProcess):
    """One of Spark's daemons over all its lives, with what it starts."""

    def __init__(
        self, what: str, folder: Path, role: str, environment: Mapping[str, str], said: re.Pattern[str]
    ) -> None:
        """Nothing is started yet.

        Args:
            what: for people; also the name of its log.
            folder: of the cluster.
            role: its class.
            environment: of the process.
            said: what it prints when it is ready.
        """
        super().__init__(what, folder / f"{what.replace(' ', '-')}.log")
        self._role = role
        self._environment = dict(environment)
        self._said = said
        self.arguments: Sequence[str] = ()

    async def start(self) -> str:
        """Start it and wait until it is ready; returns what it said.

        Raises:
            TrialFailed: it ended, or is not ready in time.
        """
        before = self.log.stat().st_size if self.log.exists() else 0
        home = self._environment["SPARK_HOME"]
        command = [f"{home}/bin/spark-class", self._role, "--host", HOST, "--port", "0", "--webui-port", "0"]
        module = "chaos.experiments.spark_demo.cluster_child"
        await self._start(["-m", module, *command, *self.arguments], environment=self._environment)
        ends_at = time.monotonic() + START_S
        while not (found := self._said.search(self.log.read_bytes()[before:].decode(errors="replace"))):
            self.check()
            if time.monotonic() > ends_at:
                raise TrialFailed(f"the {self.what} is not ready after {START_S:g} s: {self.last_words()}")
            await asyncio.sleep(POLL_S)
        return found[1]


class SparkCluster:
    """See the module.

    Attributes:
        workers: in the order of their numbers, from 1.
        url: of the master, when it is started.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        """Nothing is started yet.

        Args:
            folder: for logs, and what executors need.
            workers: how many.
        """
        found = importlib.util.find_spec("pyspark")
        assert found is not None, "the command has looked for it"
        assert found.origin is not None
        self._folder = folder / "cluster"
        self._folder.mkdir()
        environment = {
            **os.environ,
            "JAVA_HOME": str(prepare_java().resolve().parents[1]),
            "SPARK_HOME": str(Path(found.origin).parent),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS.format(folder=self._folder),
            "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS.format(folder=self._folder),
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_LOCAL_IP": HOST,
            "TMPDIR": str(self._folder),
        }
        deploy = "org.apache.spark.deploy"
        self._master = ClusterProcess("Spark master", self._folder, f"{deploy}.master.Master", environment, _MASTER)
        self.workers = [
            ClusterProcess(f"Spark worker {number}", self._folder, f"{deploy}.worker.Worker", environment, _REGISTERED)
            for number in range(1, workers + 1)
        ]
        self.url = ""

    async def start(self) -> None:
        """Start master and workers; returns when all have found each other. Errors as `ClusterProcess.start`."""
        self.url = await self._master.start()
        for number, worker in enumerate(self.workers, 1):
            folder = str(self._folder / f"work-{number}")
            worker.arguments = ("--cores", str(CORES), "--memory", "1g", "--work-dir", folder, self.url)
        await asyncio.gather(*(worker.start() for worker in self.workers))

    def check(self) -> None:
        """Raise TrialFailed if one of them ended by itself."""
        for each in (self._master, *self.workers):
            each.check()

    async def kill(self) -> None:
        """End everything."""
        await asyncio.gather(*(each.kill() for each in (*self.workers, self._master)))
