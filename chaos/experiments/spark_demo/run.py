"""One run: a network, a bridge node and a Spark job at work on the flights, kills among them, and the verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from chaos.clients.client_plan import PublisherPlan, Share, SubscriberPlan, open_gate
from chaos.clients.client_process import ClientFailed
from chaos.clients.flights import take_flights
from chaos.clients.processed_table import read_payloads
from chaos.experiments.kills import by_turns
from chaos.experiments.progress import DemoProgress
from chaos.experiments.spark_demo import COLLECTOR, DELAYS_TOPIC, FLIGHTS_TOPIC, PUBLISHER
from chaos.experiments.spark_demo.cluster import SparkCluster
from chaos.experiments.spark_demo.history import History
from chaos.experiments.spark_demo.kills import Kills, Kind, Victims
from chaos.experiments.spark_demo.outputs_core import judge_outputs
from chaos.experiments.spark_demo.processes import DriverProcess, NodeProcess
from chaos.experiments.spark_demo.report import SparkResult
from chaos.network.trial import Trial, TrialFailed
from router.commands.local_network import LocalNetwork, LocalNetworkError

SECONDS_PER_KILL = 4.0
"""The publisher's rate spreads the rows over this time for each kill, so that something is under way at each."""
BATCHES = 40
MIN_BATCH = 100
MAX_BATCH = 1_000
"""The job takes the rows in about so many batches, none smaller or larger than this."""
WINDOW = 512
"""Unsettled messages of the publisher: it goes on for a second while nothing is accepted."""
COLLECTED = 100
COLLECTED_S = 0.3
"""The subscriber commits as many messages at a time: so deliveries are unsettled while the job publishes."""
PATIENCE_S = 300.0
SECONDS_PER_MESSAGE = 0.01
"""How long each part of a run may take, on a slow machine."""
IDLE_S = 10.0
"""A router that is killed closes its connections; one that is silent may have a slow machine."""
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """What to run."""

    messages: int
    kills: int
    routers: int
    seed: int
    workers: int = 0
    """Of a standalone cluster of Spark; 0: the drivers do all themselves."""
    keep: Path | None = None
    """Folder for journals and logs; None: a temporary one, which is removed."""

    @property
    def batch(self) -> int:
        """Messages of a batch of the job at most."""
        return min(MAX_BATCH, max(MIN_BATCH, self.messages // BATCHES))

    @property
    def patience_s(self) -> float:
        """How long each part of the run may take."""
        return PATIENCE_S + self.messages * SECONDS_PER_MESSAGE

    @property
    def segment(self) -> int:
        """Rows from one kill to the next."""
        return self.messages // (self.kills + 1)

    def schedule(self) -> list[tuple[int, Kind]]:
        """What is killed, and after how many outputs: each kind as often, in random order."""
        kinds = by_turns([kind for kind in Kind if self.workers or kind is not Kind.WORKER], self.kills, self.seed)
        return [(index * self.segment + self.segment // 2, kind) for index, kind in enumerate(kinds)]


async def run_spark_demo(options: SparkOptions, console: Console) -> SparkResult:
    """Run once; leaves no process behind, and no file unless they are to be kept.

    Raises:
        DataSetError: the flights cannot be read.
        LocalNetworkError, EtcdNotFound, EtcdFailed: the network cannot be started.
    """
    rows = await asyncio.to_thread(take_flights, options.messages)
    if options.keep is not None:
        return await _run_in(options.keep, options, rows, console)
    with TemporaryDirectory(prefix="oncewire-demo-spark-") as folder:
        return await _run_in(Path(folder), options, rows, console)


async def _run_in(folder: Path, options: SparkOptions, rows: Sequence[bytes], console: Console) -> SparkResult:
    began = time.monotonic()
    network = LocalNetwork(options.routers, log_folder=folder)
    with DemoProgress(console) as progress:
        async with network, AsyncExitStack() as stack:
            assert network.etcd is not None
            flow = _Flow(options, folder)
            progress.say(f"{network.etcd.description}, pid {network.etcd.pid}")
            for router in network.routers.values():
                progress.say(f"router {router.id} at {router.url}, pid {router.pid}")
            plans = _plans(network, folder, options, flow)
            trial = await stack.enter_async_context(Trial(network, folder, *plans, patience_s=options.patience_s))
            urls = [router.url for router in network.routers.values()]
            node = NodeProcess(folder, urls)
            stack.push_async_callback(node.kill)
            cluster = SparkCluster(folder, options.workers) if options.workers else None
            if cluster is not None:
                stack.push_async_callback(cluster.kill)
            history = History(folder, urls, node, cluster, options.messages)
            stack.push_async_callback(history.kill)
            driver = DriverProcess(folder, node, options.batch)
            stack.push_async_callback(driver.kill)
            stage = _Stage(options, trial, Victims(node, driver, cluster), progress, flow)
            problems: list[str] = []
            try:
                await _start(history, cluster, driver, progress)
                await stage.play()
                await history.play(trial, progress.say, options.patience_s)
            except (TrialFailed, ClientFailed, LocalNetworkError) as failure:
                problems.append(str(failure))
                problems += [f"the {each.what} said last: {each.last_words()}" for each in (node, driver, history.edge)]
            await asyncio.gather(*(client.kill() for client in trial.clients))
            accepted = trial.publishers[PUBLISHER].counts["accepted"]
            payloads = await asyncio.to_thread(read_payloads, _collected(folder))
            verdict = await asyncio.to_thread(judge_outputs, rows, payloads)
            kept = await asyncio.to_thread(history.judge, rows)
            seconds = time.monotonic() - began
            return SparkResult(
                options.messages,
                accepted,
                verdict,
                stage.kills.done,
                options.kills,
                driver.starts,
                driver.query_failures(),
                stage.kills.start,
                seconds,
                problems,
                kept,
                history.kills,
            )


async def _start(history: History, cluster: SparkCluster | None, driver: DriverProcess, progress: DemoProgress) -> None:
    """Start what is there before the job."""
    await asyncio.gather(history.edge.start(), *(() if cluster is None else (cluster.start(),)))
    progress.say(f"edge at {history.edge.address}, pid {history.edge.pid}")
    if cluster is not None:
        driver.master = cluster.url
        progress.say(f"Spark at {cluster.url}: {', '.join(f'{each.what}, pid {each.pid}' for each in cluster.workers)}")


def _collected(folder: Path) -> Path:
    return folder / f"{COLLECTOR}.sqlite"


def _plans(
    network: LocalNetwork, folder: Path, options: SparkOptions, flow: _Flow
) -> tuple[list[PublisherPlan], list[SubscriberPlan]]:
    urls = [router.url for router in network.routers.values()]
    random.Random(options.seed).shuffle(urls)
    publisher = PublisherPlan(
        name=PUBLISHER,
        topic=FLIGHTS_TOPIC,
        urls=tuple(urls),
        events=str(folder / f"{PUBLISHER}.jsonl"),
        share=Share(options.messages),
        rate=options.messages / (SECONDS_PER_KILL * options.kills),
        window=WINDOW,
        journal=str(folder / f"{PUBLISHER}.sqlite"),
        gate=str(flow.gate),
        idle_timeout_s=IDLE_S,
    )
    collector = SubscriberPlan(
        name=COLLECTOR,
        address=DELAYS_TOPIC,
        urls=tuple(reversed(urls)),
        events=str(folder / f"{COLLECTOR}.jsonl"),
        batch=COLLECTED,
        batch_s=COLLECTED_S,
        journal=str(_collected(folder)),
        keeps_payloads=True,
        hold=str(flow.hold),
        idle_timeout_s=IDLE_S,
    )
    return [publisher], [collector]


class _Flow:
    """How far the publisher may go, and whether the subscriber processes what comes: both look at files.

    Rows are held back until their kill is near, however slow the machine is: it must find the job at work. Kill number
    n is in the middle of segment n, and is what opens the next segment.
    """

    def __init__(self, options: SparkOptions, folder: Path) -> None:
        self.gate = folder / f"{PUBLISHER}.gate"
        self.hold = folder / f"{COLLECTOR}.hold"
        self._options = options
        self._opened = 0
        self.open_to(1)

    def open_to(self, segment: int) -> None:
        """Let the publisher go on to the end of a segment; they count from 1."""
        self._opened = max(segment, self._opened)
        is_last = self._opened > self._options.kills
        rows = self._options.messages + 1 if is_last else self._opened * self._options.segment
        open_gate(self.gate, rows)

    @contextmanager
    def unsettled(self) -> Iterator[None]:
        """See `chaos.experiments.spark_demo.kills.Work`."""
        self.hold.touch()
        self.open_to(self._opened + 1)
        try:
            yield
        finally:
            self.hold.unlink()


class _Stage:
    """The processes of a run, and what happens to them."""

    def __init__(
        self, options: SparkOptions, trial: Trial, victims: Victims, progress: DemoProgress, flow: _Flow
    ) -> None:
        self._options = options
        self._trial = trial
        self._victims = victims
        self._node = victims.node
        self._driver = victims.driver
        self._progress = progress
        self._flow = flow
        self._publisher = trial.publishers[PUBLISHER]
        self._collector = trial.subscribers[COLLECTOR]
        self.kills = Kills(trial, victims, flow, progress.say, options.patience_s)

    async def play(self) -> None:
        """Start everything, kill by the schedule, and let all come to its end.

        Raises:
            TrialFailed, ClientFailed, LocalNetworkError: something did not happen that must.
        """
        options, trial = self._options, self._trial
        await self._node.start()
        self._progress.say(f"bridge node at {self._node.address}, pid {self._node.pid}")
        await self._node.wait_ready()
        await self._driver.start()
        self._progress.say(f"Spark driver, pid {self._driver.pid}: batches of {options.batch} flights at most")
        self._progress.follow(self._publisher, "accepted", options.messages)
        self._progress.follow(self._collector, "received", options.messages)
        trial.on_look = self._look
        self.kills.start = time.monotonic()
        await trial.start()
        for number, (outputs, kind) in enumerate(options.schedule(), 1):
            await self._until_received(outputs)
            await self.kills.kill(kind)
            self._flow.open_to(number + 1)
        await self._until_received(options.messages)
        await trial.wait_until(lambda: self._publisher.has_ended, "the publisher is done", options.patience_s)
        await self._end()

    def _look(self) -> None:
        self._progress.show()
        self._victims.check()

    @property
    def _received(self) -> int:
        return self._collector.counts["received"]

    async def _until_received(self, count: int) -> None:
        await self._trial.wait_until(
            lambda: self._received >= count, f"the subscriber has {count} outputs", self._options.patience_s
        )

    async def _end(self) -> None:
        """End the driver, then wait until nothing more can come: neither from the outbox nor from the network."""
        await self._trial.meanwhile(self._driver.stop())
        ends_at = time.monotonic() + self._options.patience_s
        while not await self._is_published():
            if time.monotonic() > ends_at:
                raise TrialFailed(f"the bridge node's outbox is not empty after {self._options.patience_s:g} s")
            await asyncio.sleep(POLL_S)
        await self._trial.wait_until_at_rest()
        await self._collector.stop(self._options.patience_s)

    async def _is_published(self) -> bool:
        state = await self._node.status()
        return state is not None and not any(
            sink["waiting_manifests"] or sink["unfinished"] for sink in state["sinks"].values()
        )
