"""A standalone Spark cluster of real processes on this machine: a master, a worker on each of two loopback addresses.

Spark starts no twin of a task on the host of its first attempt, so one address would not do. What belongs to the
cluster is in sessions of its own; nothing of it sees the source tree: programs bring their modules (`--py-files`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import IO, Any
from urllib.request import urlopen

from bridges.spark.java import prepare_java
from bridges.spark.worker_python import worker_python
from chaos.experiments.spark_demo.sessions import kill_session
from tests.spark.short_session import JAVA_OPTIONS
from tests.support.waiting import wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")
CORES = 2
"""Task slots of each worker."""
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with (master)")
ANSWER_S = 120.0


class Cluster:
    """See the module. Nothing runs before `start`; `stop` ends everything, also what the executors have started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []
        java = prepare_java()
        import pyspark

        self._home = Path(pyspark.__path__[0])
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK_"))}
        self.environment = {
            **kept,
            "JAVA_HOME": str(java.resolve().parents[1]),
            "SPARK_HOME": str(self._home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS,
            "PYSPARK_PYTHON": worker_python(),  # for speed alone
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    def start(self) -> None:
        """Start master and workers; returns when all have found each other."""
        self.folder.mkdir()
        master = self._run("master", HOSTS[0], "org.apache.spark.deploy.master.Master")
        self.url = _reported(master, _MASTER)
        workers = [
            self._run(
                f"worker-{host}",
                host,
                "org.apache.spark.deploy.worker.Worker",
                "--cores",
                str(CORES),
                "--memory",
                "2g",
                "--work-dir",
                str(self.folder / host),
                self.url,
            )
            for host in HOSTS
        ]
        for worker in workers:
            _reported(worker, _REGISTERED)

    def submit(self, program: Path, arguments: Sequence[str], modules: Path, settings: dict[str, str]) -> Path:
        """Hand a program to `spark-submit`, which runs its driver here; returns where its output goes."""
        confs = [f"--conf={key}={value}" for key, value in {**self._settings(), **settings}.items()]
        command = [str(self._home / "bin" / "spark-submit"), "--master", self.url, "--py-files", str(modules)]
        # Spark brings these files to its tasks, but not to the driver's process that plans what a source reads.
        environment = {"PYTHONPATH": str(modules)}
        return self._start("driver", HOSTS[0], [*command, *confs, str(program), *arguments], environment)

    def driver_ended(self) -> int | None:
        """The exit code of the program that was submitted last; None = it runs."""
        return self._processes[-1].poll()

    def stop(self) -> None:
        """kill -9 of everything."""
        for process in reversed(self._processes):
            kill_session(process.pid)
            process.wait(ANSWER_S)
        for log in self._logs:
            log.close()

    def _settings(self) -> dict[str, str]:
        return {
            "spark.driver.host": HOSTS[0],
            "spark.driver.bindAddress": HOSTS[0],
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.local.dir": str(self.folder / "local"),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }

    def _run(self, name: str, host: str, *arguments: str) -> Path:
        role, *others = arguments
        command = [str(self._home / "bin" / "spark-class"), role, "--host", host, "--port", "0", "--webui-port", "0"]
        return self._start(name, host, [*command, *others])

    def _start(self, name: str, host: str, command: list[str], more: Mapping[str, str] | None = None) -> Path:
        path = self.folder / f"{name}.log"
        log = path.open("wb")
        self._logs.append(log)
        self._processes.append(
            subprocess.Popen(
                command,
                env={**self.environment, "SPARK_LOCAL_IP": host, **(more or {})},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        )
        return path


def _reported(log: Path, pattern: re.Pattern[str]) -> str:
    """Wait for what a process writes."""
    found: list[str] = []

    def look() -> bool:
        found[:] = pattern.findall(log.read_text())
        return bool(found)

    wait_until(look, f"{log.name} does not say {pattern.pattern}")
    return found[0]


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster for the time of the block."""
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def zip_packages(path: Path, *packages: ModuleType) -> Path:
    """Packages as they are imported here, as one file for `--py-files`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for package in packages:
            root = Path(package.__path__[0])
            for source in sorted(root.rglob("*.py")):
                file.write(source, Path(package.__name__) / source.relative_to(root))
    return path


class Applications:
    """What Spark reports about a running program over HTTP: its web interface, as JSON."""

    def __init__(self, web: str) -> None:
        self._root = f"{web}/api/v1/applications"
        self._application = self._get("")[0]["id"]

    def _get(self, path: str) -> Any:
        with urlopen(f"{self._root}{path}", timeout=ANSWER_S) as answer:
            return json.load(answer)

    def tasks(self, stage: int) -> list[dict[str, Any]]:
        """Every attempt of every task of a stage."""
        found: list[dict[str, Any]] = self._get(f"/{self._application}/stages/{stage}/0/taskList?length=1000")
        return found

    def executor_processes(self) -> dict[str, int]:
        """The process of each executor that lives, by the executor's id."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if self._application in words and "--executor-id" in words and "/java" in words[0]:
                found[words[words.index("--executor-id") + 1]] = int(entry.parent.name)
        return found
