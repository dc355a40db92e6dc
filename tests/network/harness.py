"""Real networks under real load: clients are processes of their own, and the verdict comes from their journals."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from chaos.checker import Verdict
from chaos.clients.client_plan import PublisherPlan, Share, SubscriberPlan
from chaos.clients.events import Resumed
from chaos.network.network_state import RouterState
from chaos.network.strikes import Strikes
from chaos.network.trial import LOOK_S, Trial
from router.commands.local_network import Edge, LocalNetwork

UNSETTLED = 200
"""Deliveries that must be unsettled through a target at the instant it is struck."""
BATCH = 600
BATCH_S = 0.8
"""At 1,000 messages per second a subscriber has up to 600 in its hands, 300 of each of two publishers."""
WINDOW = 1_000
SPARE = 12
"""Times the load that a publisher could send: it goes on until the last strike is over, on whatever machine."""
END_S = 90.0
"""From the last fault to the last acceptance, on the slowest machine."""


@dataclass(frozen=True)
class Load:
    """Who publishes and subscribes where: name -> router. Each publisher has a topic of its own, `load/NAME`."""

    publishers: Mapping[str, str]
    subscribers: Mapping[str, str]
    messages: int = 6_000
    """What is sent at least, over all publishers; more follow until the verdict is asked for."""
    seconds: float = 6.0
    """Over which a publisher spreads its part of them; faults make it longer."""
    durable: bool = False
    batch: int = BATCH
    batch_s: float = BATCH_S
    """How long a subscriber takes for one batch at most; its gaps are not shorter."""
    patterns: Mapping[str, str] = field(default_factory=dict)
    """Subscribers of less than every topic: name -> topic."""


@dataclass
class Experiment:
    """A network with its trial, and how to strike it."""

    network: LocalNetwork
    trial: Trial
    strikes: Strikes
    folder: Path
    load: Load

    async def until_published(self, part: float) -> None:
        """Wait until this part of the load has been published."""
        await self.trial.wait_until(
            lambda: (
                sum(client.counts["sent"] for client in self.trial.publishers.values()) >= part * self.load.messages
            ),
            f"{part:.0%} of {self.load.messages} messages are published",
            END_S,
        )

    async def target(self, router: str) -> RouterState:
        """Wait until enough is unsettled through this router under steady load."""
        return await self.strikes.choose(UNSETTLED, [router])

    async def until_finished(self, router: str) -> RouterState:
        """Wait until a subscriber here has accepted enough that is not settled yet."""
        ends_at = time.monotonic() + END_S
        while True:
            self.trial.look()
            state = (await self.trial.states([router]))[router]
            if state.finished >= UNSETTLED:
                return replace(state, unsettled=state.finished)
            assert time.monotonic() < ends_at, state
            await asyncio.sleep(LOOK_S)

    async def verdict(self) -> Verdict:
        """Let everything come to its end and judge."""
        await self.until_published(1.0)
        await self.trial.cut_short()
        await self.trial.finish(END_S)
        return self.trial.verdict()


@asynccontextmanager
async def network_under_load(
    folder: Path,
    load: Load,
    *,
    routers: int = 3,
    edges: Sequence[Edge] | None = None,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Experiment]:
    """A network whose clients are attached and publish; everything ends with the block.

    `environment` is that of the routers' first processes, beside ours.
    """
    network = LocalNetwork(routers, edges=edges, settings=settings, log_folder=folder, log_level="info")
    for router in network.routers.values():
        router.environment.update(environment or {})
    async with network:
        publishers, subscribers = _plans(folder, load, network)
        async with Trial(network, folder, publishers, subscribers) as trial:
            try:
                await trial.start()
                yield Experiment(network, trial, Strikes(trial), folder, load)
            finally:
                assert_no_internal_error(folder)


def assert_no_internal_error(folder: Path) -> None:
    """No router met a fault of its own code."""
    for log in folder.glob("r*.log"):
        assert "internal_error" not in log.read_text(), log.read_text()


def _plans(folder: Path, load: Load, network: LocalNetwork) -> tuple[list[PublisherPlan], list[SubscriberPlan]]:
    def urls(first: str) -> tuple[str, ...]:
        return tuple(network.routers[name].url for name in (first, *(n for n in network.routers if n != first)))

    def durable(name: str) -> str | None:
        return str(folder / f"{name}.sqlite") if load.durable else None

    count = len(load.publishers)
    publishers = [
        PublisherPlan(
            name=name,
            topic=f"load/{name}",
            urls=urls(router),
            events=str(folder / f"{name}.jsonl"),
            share=Share(load.messages * SPARE, index, count),
            rate=load.messages / count / load.seconds,
            window=WINDOW,
            journal=durable(name),
        )
        for index, (name, router) in enumerate(load.publishers.items())
    ]
    subscribers = [
        SubscriberPlan(
            name=name,
            address=load.patterns.get(name, "load/*"),
            urls=urls(router),
            events=str(folder / f"{name}.jsonl"),
            batch=load.batch,
            batch_s=load.batch_s,
            journal=durable(name),
        )
        for name, router in load.subscribers.items()
    ]
    return publishers, subscribers


def assert_nothing_wrong(experiment: Experiment, verdict: Verdict) -> None:
    """Nothing lost, duplicated, reordered, unexpected or stuck; every subscription is still its first incarnation."""
    evidence = f"{verdict.findings()}\n{describe(experiment)}"
    assert verdict.passed, evidence
    assert not any(verdict.total(count) for count in ("lost", "duplicated", "reordered", "stuck")), evidence
    assert all(one.incarnations == 1 and not one.excused for one in verdict.subscribers), evidence
    faults = experiment.strikes.faults
    assert all(fault.unsettled >= UNSETTLED for fault in faults), faults


def assert_resumed(experiment: Experiment, *names: str) -> None:
    """Each of these clients presented unsettled deliveries to a router and was resumed."""
    for name in names:
        client = {**experiment.trial.publishers, **experiment.trial.subscribers}[name]
        resumed = [event for event in client.history() if isinstance(event, Resumed)]
        assert resumed, f"{name} was never resumed: {client.last_words()}"


def describe(experiment: Experiment) -> str:
    """What a failed test needs to be understood."""
    logs = [f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted(experiment.folder.glob("*.log"))]
    return "\n".join([json.dumps([str(fault) for fault in experiment.strikes.faults]), *logs])
