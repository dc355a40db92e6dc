"""The bridge node and the job's driver as processes of their own, which can be killed and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bridges.node.client import RemoteNode, read_secret
from bridges.node.errors import NodeError
from chaos.clients.client_plan import STOP_COMMAND
from chaos.experiments.spark_demo import FLIGHTS_TOPIC, JOB
from chaos.experiments.spark_demo.job import LOCAL, QUERY_FAILED, JobPlan
from chaos.experiments.spark_demo.sessions import kill_session
from chaos.network.trial import TrialFailed
from topology.etcd.server import free_port

START_S = 300.0
"""From start to the node's first word: all of these are seconds, and minutes on a machine that is busy with others."""
STOP_S = 300.0
"""A driver works off what there is, then ends its JVM."""
READY_S = 300.0
"""From the node's start until its subscription is confirmed: routers may have been killed just now."""
POLL_S = 0.05
LOG_TAIL_BYTES = 3_000

# The node ends with us, however we end.
_NODE = """
import os, runpy, sys
from router.commands.parent_watch import die_with_parent
die_with_parent(int(sys.argv.pop(1)))
runpy.run_module("bridges.node", run_name="__main__", alter_sys=True)
"""


class DemoProcess:
    """One process over all its lives."""

    def __init__(self, what: str, log: Path) -> None:
        """Nothing is started yet; what it prints goes to the file `log`."""
        self.what = what
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Its process id; it must be running."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended."""
        return self._process is not None and self._process.returncode is None

    def check(self) -> None:
        """Raise TrialFailed if it ended by itself."""
        if self._process is not None and self._process.returncode is not None:
            raise TrialFailed(f"the {self.what} ended with code {self._process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of what it printed."""
        words = self.log.read_bytes()[-LOG_TAIL_BYTES:] if self.log.exists() else b""
        return words.decode(errors="replace").strip() or "it said nothing"

    async def kill(self) -> None:
        """SIGKILL it, with all its own children, and wait until they are gone."""
        process, self._process = self._process, None
        if process is None:
            return
        # Reaped or not, the session's number is not used again while it has members.
        await asyncio.to_thread(kill_session, process.pid)
        await process.wait()

    async def _start(
        self, arguments: list[str], *, announces: bool = False, environment: dict[str, str] | None = None
    ) -> None:
        assert not self.is_running, f"the {self.what} runs already"
        with self.log.open("ab") as log:
            # In a session of its own: a Ctrl-C in the terminal is for the demo, which then ends its processes.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE if announces else log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )


class NodeProcess(DemoProcess):
    """A bridge node that receives the flights. Its addresses and its folder stay the same over restarts."""

    def __init__(self, folder: Path, routers: list[str]) -> None:
        """Nothing is started yet.

        Args:
            folder: for its files, its settings and its log.
            routers: URLs.
        """
        super().__init__("bridge node", folder / "node.log")
        self._config = folder / "node.toml"
        self._remote: RemoteNode | None = None
        self.address = f"tcp://127.0.0.1:{(port := free_port())}"
        self.secret_file = folder / "node" / "secret"
        self._config.write_text(
            f'name = "demo"\nfolder = {json.dumps(str(folder / "node"))}\nrouters = {json.dumps(routers)}\n'
            f'listen.port = {port}\nhttp.host = ""\nlog.level = "warning"\n'
            f'[[subscription]]\nname = "{JOB}"\ntopics = ["{FLIGHTS_TOPIC}"]\n'
        )

    async def start(self) -> None:
        """Start it and wait until pipelines can connect.

        Raises:
            TrialFailed: it ended, or says nothing.
        """
        await self._start(["-c", _NODE, str(os.getpid()), "--announce", "--config", str(self._config)], announces=True)
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), START_S)
        except TimeoutError:
            line = b""
        if not line:
            await self.kill()
            raise TrialFailed(f"the bridge node did not start: {self.last_words()}")

    async def status(self) -> dict[str, Any] | None:
        """What it is doing; None where it does not answer. One call at a time."""
        return await asyncio.to_thread(self._ask)

    def _ask(self) -> dict[str, Any] | None:
        try:
            if self._remote is None:
                self._remote = RemoteNode(self.address, read_secret(self.secret_file), patience_s=0.0)
            return self._remote.status()
        except NodeError:
            return None

    async def kill(self) -> None:
        """SIGKILL it and wait until it is gone."""
        if self._remote is not None:
            self._remote.close()
            self._remote = None
        await super().kill()

    async def wait_ready(self) -> None:
        """Wait until the network has confirmed its subscription: what is sent from then on is owed to it.

        Raises:
            TrialFailed: it does not in time.
        """
        ends_at = time.monotonic() + READY_S
        while True:
            self.check()
            state = await self.status()
            if state is not None and state["ready"] and JOB in state["subscriptions"]:
                return
            if time.monotonic() > ends_at:
                why = "it does not answer" if state is None else ", ".join(state["waiting_for"])
                raise TrialFailed(f"the bridge node is not ready after {READY_S:g} s: {why}")
            await asyncio.sleep(POLL_S)


class DriverProcess(DemoProcess):
    """The driver of the Spark job, with its JVM and its Python workers. Each start goes on from the checkpoint."""

    def __init__(self, folder: Path, node: NodeProcess, batch: int) -> None:
        """Nothing is started yet.

        Args:
            folder: for Spark's files and the log.
            node: what it reads from and writes to.
            batch: messages of a batch at most.

        `master` is Spark's: set it before the first start, if the driver is not to do all itself.
        """
        super().__init__("Spark driver", folder / "driver.log")
        self._folder = folder / "spark"
        self._folder.mkdir()
        self._node = node
        self._batch = batch
        self.starts = 0
        self.master = LOCAL

    def query_failures(self) -> list[str]:
        """What the query failed with by itself, in all lives; the job has started it again each time."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return [line for line in text.splitlines() if line.startswith(QUERY_FAILED)]

    async def start(self) -> None:
        """Start it; returns when the process exists, seconds before it is at work."""
        self.starts += 1
        plan = JobPlan(
            self._node.address, str(self._node.secret_file), str(self._folder), self.starts, self._batch, self.master
        )
        # Whatever Spark makes for the time of a life, and leaves where it is killed, goes with the folder.
        environment = {**os.environ, "TMPDIR": str(self._folder)}
        await self._start(["-m", "chaos.experiments.spark_demo.job", plan.encode()], environment=environment)

    async def stop(self) -> None:
        """Have it work off what is there and end in good order.

        Raises:
            TrialFailed: it had to be killed, or ended with an error.
        """
        process = self._process
        assert process is not None
        assert process.stdin is not None
        self.check()
        process.stdin.write(STOP_COMMAND)
        try:
            code = await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            await self.kill()
            raise TrialFailed(f"the Spark driver did not end within {STOP_S:g} s: {self.last_words()}") from None
        await self.kill()  # its children may take a moment longer
        if code not in (0, -signal.SIGKILL):
            raise TrialFailed(f"the Spark driver ended with code {code}: {self.last_words()}")
