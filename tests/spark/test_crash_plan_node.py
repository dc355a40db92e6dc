"""The crash plan of the bridge node: it is killed at every named point while a processor reads and publishes by it.

Two topics are one alts input of a processor whose outputs are never the same twice. First the node dies while messages
arrive. Then the job dies between an alts read and its attempt, and once more while it recovers, when all is staged;
each time the other input has got messages. Then the node dies at each point of a batch (crash_node.py), twice in one
batch, while the job lives on; at last both die together, in the middle of publishing. The job recovers from that, too,
and one of its Python workers dies after it has staged.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from bridges.node.client import RemoteNode, read_secret
from oncewire.client import connect
from oncewire.wire.vocabulary import BATCH
from tests.spark.crash_plan import (
    LIFE_S,
    Job,
    Verdict,
    check_code,
    end_session,
    environment_of,
    judge,
    one_after_the_other,
    until,
)
from tests.spark.crash_points import LIFE, ROWS, Crash
from tests.spark.life_log import excerpt
from tests.spark.sink_recorder import Recorder
from tests.spark.spark_helpers import Names, RouterChild

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.campaign]
HERE = Path(__file__).parent
BATCHES = 7
WHILE_RECEIVING = (Crash(0, "appended"), Crash(0, "durable"))


@dataclass(frozen=True, slots=True)
class Life:
    """One life of the job.

    Attributes:
        max_steps: of a batch.
        job: where it dies, or one of its workers; None = nowhere.
        node: where the node dies meanwhile, one after the other.
        together: the job is killed when the node dies the last time.
    """

    max_steps: int = ROWS
    job: Crash | None = None
    node: tuple[Crash, ...] = ()
    together: bool = False


# Up to half as many again could be attempted, were it not for what was chosen at first.
READS = (
    Life(ROWS + ROWS // 2, Crash(0, "attempt")),
    Life(ROWS + ROWS // 2, Crash(0, "staged")),  # while the job recovers
)
NODE_DIES = Life(
    node=(
        Crash(1, "chosen"),
        Crash(1, "staged"),
        Crash(1, "manifest"),
        Crash(2, "midpublish", 0.4),
        Crash(2, "midpublish", 0.7),  # while the node behind it recovers
        Crash(1, "trim"),
        Crash(3, "published"),
        Crash(2, "trimmed"),
        Crash(5, "midpublish", 0.5),
    ),
    together=True,
)
LAST = Life(job=Crash(6, "worker"))


class CrashNode:
    """A node's process, started again and again at the same address."""

    def __init__(self, folder: Path, router: RouterChild, name: str) -> None:
        self._folder = folder
        self._router = router
        self._name = name
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self._starts = 0
        self.address = ""
        self.secret_file = folder / "node" / "secret"

    def start(self, crash: Crash | None) -> None:
        """Start it, and wait until it can be reached."""
        config = self._folder / "node.toml"
        config.write_text(
            f'name = "node"\nfolder = "{self._folder / "node"}"\nrouters = {json.dumps([self._router.url])}\n'
            f'listen.port = {self._port}\nhttp.host = ""\noutbox.inflight = {ROWS // 10}\n'
            f'[[subscription]]\nname = "{self._name}"\ntopics = {json.dumps(self.topics)}\n'
        )
        self._starts += 1
        with (self._folder / f"node-log-{self._starts}").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", HERE / "crash_node.py", "--announce", "--config", config],
                env=environment_of(self._folder, crash),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:  # it has died at once, of what was left to do
            return
        self.address = json.loads(line)["tcp"]
        self._port = int(self.address.rpartition(":")[2])

    @property
    def topics(self) -> list[str]:
        return [f"{self._name}-a", f"{self._name}-b"]

    def is_dead(self) -> bool:
        """Whether it has killed itself."""
        assert self._process is not None
        return self._process.poll() is not None

    def end(self) -> None:
        """See to it that it is dead."""
        if self._process is not None:
            end_session(self._process.pid)
            self._process.wait(LIFE_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def next_life(self, crash: Crash | None) -> None:
        """It has died where it should; the next one."""
        assert self._process is not None
        log = self._folder / f"node-log-{self._starts}"
        check_code(self._process.wait(LIFE_S), log, dies=True)
        self.end()
        self.start(crash)

    def confirm_subscription(self) -> None:
        """Wait until what is published now is owed to it."""
        with RemoteNode(self.address, read_secret(self.secret_file), patience_s=LIFE_S) as remote:
            remote.subscribe(self._name, self.topics)


class Plan:
    """Router, node, inputs and job of one run of the plan."""

    def __init__(self, folder: Path, router: RouterChild, name: str) -> None:
        self.folder, self.router, self.name = folder, router, name
        self.node = CrashNode(folder, router, name)
        self.lines: list[str] = []
        self.crashes: list[Crash] = []

    def publish(self, which: str, rows: int = ROWS) -> None:
        """So many more messages for an input; returns when they are accepted."""
        first = len(self.lines)
        bodies = [str(number) for number in range(first, first + rows)]
        topic = f"{self.name}-{which}"
        self.lines += [f"{topic}.{body}" for body in bodies]

        async def send() -> None:
            async with connect(self.router.url, container_id=f"{self.name}-{first}", timeout=LIFE_S) as client:
                publisher = await client.publisher(topic)
                for body in bodies:
                    _ = await publisher.submit(body.encode())
                await publisher.flush(LIFE_S)
                await publisher.close()

        asyncio.run(send())

    def receive(self, crashes: Sequence[Crash]) -> None:
        """Messages arrive while the node dies."""
        self.node.start(crashes[0])
        self.node.confirm_subscription()
        with ThreadPoolExecutor(1) as pool:
            published = pool.submit(self.publish, "a")
            for _, behind in zip(crashes, [*crashes[1:], None], strict=True):
                until(self.node.is_dead, "the node does not die while it receives")
                self.node.next_life(behind)
            published.result(LIFE_S)
        self.crashes += crashes

    def job(self, number: int, life: Life) -> Job:
        """What runs in a life; it is not started."""
        node = [self.node.address, str(self.node.secret_file)]
        arguments = [*node, self.name, str(number), str(life.max_steps)]
        return Job(self.folder, number, [HERE / "crash_processor_job.py", *arguments], life.job, {LIFE: str(number)})

    def live(self, life: Life, job: Job) -> None:
        """One life of the job; the node is as it was before when it ends."""
        if life.node:
            self.node.end()
            self.node.start(life.node[0])
        job.go()
        for behind in life.node[1:]:
            self.until_node_dies(job)
            self.node.next_life(behind)
        if life.together:
            self.until_node_dies(job)
            job.end()
        job.check_end(dies=life.together or life in READS)
        if life.together:
            self.node.next_life(None)
        self.crashes += [*life.node, *([life.job] if life.job else [])]

    def until_node_dies(self, job: Job) -> None:
        """The job lives on meanwhile."""
        until(lambda: self.node.is_dead() or job.is_over(), "the node does not die")
        assert not job.is_over(), excerpt(job.log)

    def crashes_hit(self) -> list[str]:
        """The points that were really reached, in order."""
        return (self.folder / "crashes").read_text().splitlines()


@pytest.fixture
def plan(router: RouterChild, names: Names, tmp_path: Path) -> Iterator[Plan]:
    found = Plan(tmp_path, router, names.p)
    yield found
    found.node.end()


@pytest.mark.timeout(1200)
def test_a_processor_is_exact_though_node_job_and_workers_die_at_every_point(
    plan: Plan, record_property: Callable[[str, object], None]
) -> None:
    with Recorder(plan.router.url, f"{plan.name}-out") as recorder:
        plan.receive(WHILE_RECEIVING)
        lives = [*READS, NODE_DIES, LAST]
        with one_after_the_other([plan.job(number, life) for number, life in enumerate(lives)]) as jobs:
            for life in READS:
                plan.live(life, next(jobs))
                plan.publish("b")  # the next attempt must read what this one has read
            while len(plan.lines) < BATCHES * ROWS:
                plan.publish("a" if len(plan.lines) % 400 else "b")
            plan.live(NODE_DIES, next(jobs))
            plan.live(LAST, next(jobs))
        received = recorder.wait(lambda found: len(found) >= len(plan.lines))
    assert plan.crashes_hit() == list(map(str, plan.crashes)), "a point of the plan was not hit"
    deliveries = [(delivery.message.annotations[BATCH], delivery.text) for delivery in received]
    verdict = judge(plan.lines, deliveries, (plan.folder / "sent").read_text())
    for name, count in asdict(verdict).items():
        record_property(name, count)
    record_property("crashes", list(map(str, plan.crashes)))
    assert verdict == Verdict(received=BATCHES * ROWS, lost=0, twice=0, torn=0, two_contents=0)
    first = sorted(text.partition("|")[0] for batch, text in deliveries if batch == 0)
    assert first == sorted(plan.lines[:ROWS]), "the choice among the inputs was made anew"
