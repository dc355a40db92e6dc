"""The part of the demo that comes late: an edge keeps the flights, and a second query reads them when all is over.

Its driver and the edge are killed together in the middle of it, then a worker of Spark's cluster, which has a part of
its state; they are started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from bridges.journal import log
from bridges.journal.contents import JOURNALS
from bridges.journal.model import StoredMessage
from chaos.experiments.spark_demo import COUNTS_TOPIC, FLIGHTS_TOPIC
from chaos.experiments.spark_demo.cluster import SparkCluster
from chaos.experiments.spark_demo.history_core import HistoryVerdict, Kept, judge_history
from chaos.experiments.spark_demo.history_job import HistoryPlan
from chaos.experiments.spark_demo.job import LOCAL
from chaos.experiments.spark_demo.processes import POLL_S, START_S, DemoProcess, NodeProcess
from chaos.network.trial import Trial, TrialFailed
from oncewire.store.contents import Contents
from oncewire.store.opening import open_store
from oncewire.store.transaction import SqlTransaction
from oncewire.wire import decode_message
from topology.etcd.server import free_port

BATCHES = 10
"""The late query takes the journal in about so many batches."""
KILLED_BEHIND = 3
"""So many of its batches are over when it is killed: some are left."""
WORKER_KILLED_BEHIND = 6
"""And so many when a worker is killed."""
PAGE, PAGE_BYTES = 1_000, 1 << 24
"""What is read of a journal at once."""


class JournalEdge(DemoProcess):
    """An edge that keeps the flights, and what the late query publishes. Its address stays the same over restarts."""

    def __init__(self, folder: Path, routers: Sequence[str]) -> None:
        """Nothing is started yet.

        Args:
            folder: for its store, its settings and its log.
            routers: URLs.
        """
        super().__init__("edge", folder / "edge.log")
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self._store = f"sqlite:///{folder / 'edge.db'}"
        self._file = folder / "edge.toml"
        journals = "".join(
            f'[[journal]]\nname = "{name}"\ntopics = ["{name}"]\nkeep = "1d"\n'
            for name in (FLIGHTS_TOPIC, COUNTS_TOPIC)
        )
        self._file.write_text(
            f'[edge]\nname = "edge"\nstore = {json.dumps(self._store)}\nrouters = {json.dumps(list(routers))}\n'
            f'[http]\nhost = "127.0.0.1"\nport = {port}\n{journals}'
        )

    async def start(self) -> None:
        """Start it and wait until its journals receive.

        Raises:
            TrialFailed: it ended, or says nothing.
        """
        module = "chaos.experiments.journal_demo.process"  # ends when its standard input does: when we do
        await self._start(["-m", module, "edge", str(self._file)], announces=True)
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), START_S)
        except TimeoutError:
            line = b""
        if not line:
            await self.kill()
            raise TrialFailed(f"the edge did not start: {self.last_words()}")

    def kept(self, name: str) -> list[Kept]:
        """All messages of a journal, in order; none where the edge has not made it."""
        found: list[StoredMessage] = []

        def read(do: SqlTransaction) -> list[StoredMessage]:
            return list(log.read(do, name, found[-1].position if found else 0, PAGE, PAGE_BYTES)[1])

        with closing(open_store(self._store, Contents([JOURNALS]))) as store:
            if store.transact([lambda do: log.find(do, name)])[0][0] is None:
                return []
            while page := store.transact([read])[0][0]:
                found += page
        return [Kept(message.arrived_us, _body(message.payload)) for message in found]


def _body(payload: bytes) -> bytes:
    body = decode_message(payload).body
    return body if isinstance(body, bytes) else repr(body).encode()


class LateDriver(DemoProcess):
    """The driver of the late query. Each start goes on from the checkpoint; it ends by itself."""

    def __init__(self, folder: Path, edge: JournalEdge, node: NodeProcess, messages: int) -> None:
        """Nothing is started yet.

        Args:
            folder: for Spark's files and the log.
            edge: what it reads.
            node: what it writes to.
            messages: that it will find.
        """
        super().__init__("late Spark driver", folder / "late-driver.log")
        self._folder = folder / "late-spark"
        self._folder.mkdir()
        self._places = edge.address, node.address, str(node.secret_file), str(self._folder)
        self._batch = max(1, messages // BATCHES)

    async def start(self, master: str) -> None:
        """Start it; returns when the process exists, seconds before it is at work."""
        environment = {**os.environ, "TMPDIR": str(self._folder)}
        plan = HistoryPlan(*self._places, self._batch, master)
        await self._start(["-m", "chaos.experiments.spark_demo.history_job", plan.encode()], environment=environment)

    def batches(self) -> int:
        """How many batches Spark has noted as done."""
        commits = self._folder / "checkpoint" / "commits"
        return sum(path.name.isdigit() for path in commits.iterdir()) if commits.is_dir() else 0

    async def wait_for_batches(self, count: int, patience_s: float) -> None:
        """Wait until so many are done.

        Raises:
            TrialFailed: they are not in time, or it has ended.
        """
        ends_at = time.monotonic() + patience_s
        while self.batches() < count:
            self.check()
            if time.monotonic() > ends_at:
                raise TrialFailed(f"the late query has not done {count} batches within {patience_s:g} s")
            await asyncio.sleep(POLL_S)

    async def wait_for_end(self, patience_s: float) -> None:
        """Wait until it has read all and ended.

        Raises:
            TrialFailed: it does not in time, or ended with an error.
        """
        assert self._process is not None
        try:
            code = await asyncio.wait_for(self._process.wait(), patience_s)
        except TimeoutError:
            raise TrialFailed(f"the late query has not ended within {patience_s:g} s: {self.last_words()}") from None
        if code != 0:
            raise TrialFailed(f"the late query ended with code {code}: {self.last_words()}")
        await self.kill()  # its children may take a moment longer


class History:
    """The edge of a run, and the late query.

    Attributes:
        edge: to be started before the first flight is published.
        driver: of the late query.
        kills: SIGKILLs that were done, by what they hit.
    """

    def __init__(
        self, folder: Path, routers: Sequence[str], node: NodeProcess, cluster: SparkCluster | None, messages: int
    ) -> None:
        """Nothing is started yet; see `JournalEdge` and `LateDriver`."""
        self._node = node
        self._cluster = cluster
        self.edge = JournalEdge(folder, routers)
        self.driver = LateDriver(folder, self.edge, node, messages)
        self.kills = {"driver": 0, "edge": 0} | ({} if cluster is None else {"worker": 0})

    async def play(self, trial: Trial, say: Callable[[str], None], patience_s: float) -> None:
        """Run the query to its end, with kills in its middle.

        Raises:
            TrialFailed: something did not happen that must.
        """
        trial.on_look = self._look
        master = LOCAL if self._cluster is None else self._cluster.url
        await self.driver.start(master)
        say(f"late Spark driver, pid {self.driver.pid}: the journal from its first flight on")
        await trial.meanwhile(self.driver.wait_for_batches(KILLED_BEHIND, patience_s))
        say(f"SIGKILL to the late driver, pid {self.driver.pid}, and to the edge, pid {self.edge.pid}")
        await asyncio.gather(self.driver.kill(), self.edge.kill())
        self.kills |= {"driver": 1, "edge": 1}
        await trial.meanwhile(self.edge.start())
        await self.driver.start(master)
        if self._cluster is not None:
            worker = self._cluster.workers[0]
            await trial.meanwhile(self.driver.wait_for_batches(WORKER_KILLED_BEHIND, patience_s))
            say(f"SIGKILL to the {worker.what} of the late query, pid {worker.pid}")
            await worker.kill()
            self.kills["worker"] = 1
            await trial.meanwhile(worker.start())
        await trial.meanwhile(self.driver.wait_for_end(patience_s))

    def _look(self) -> None:
        self._node.check()
        self.edge.check()
        if self._cluster is not None:
            self._cluster.check()

    def judge(self, rows: Sequence[bytes]) -> HistoryVerdict:
        """Judge what the edge keeps."""
        return judge_history(rows, self.edge.kept(FLIGHTS_TOPIC), [each.body for each in self.edge.kept(COUNTS_TOPIC)])

    async def kill(self) -> None:
        """End both."""
        await self.driver.kill()
        await self.edge.kill()
