"""Runs one experiment: network, load, its rounds of faults, the end, the verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from chaos.clients.client_process import ClientFailed
from chaos.clients.layout import lay_out
from chaos.experiments.injection import Injector
from chaos.experiments.plans import UNSETTLED_AT_FAULT, Experiment, FaultPlan
from chaos.experiments.plans import Path as ConnectionPath
from chaos.experiments.proxied_network import ProxiedNetwork
from chaos.experiments.results import ExperimentResult, Timeline, client_steps
from chaos.experiments.targets import Target, targets_of
from chaos.network.recovery import BEHIND_S, Round, costs_of_rounds, flows_of
from chaos.network.strikes import Strikes
from chaos.network.toxiproxy import UPSTREAM, ToxiproxyFailed
from chaos.network.trial import Trial, TrialFailed
from router.commands.local_network import LocalNetworkError
from topology.etcd.server import EtcdFailed
from topology.etcd.store import StoreError

LOOK_S = 0.05
"""How often routers are asked what is unsettled: a fault comes at most this much after its condition."""
SPREAD_AFTER_S = 4.0
"""Clients that have all fled to one router leave the others without a load; then some of them are sent on."""
SENT_ON = 0.5
"""How many of them: all would flee to one router again."""
LOAD_TIMEOUT_S = 90.0
"""Until every target of a round has its load."""
RECOVERY_TIMEOUT_S = 90.0
"""From the end of a fault until every client has messages again and has caught up, on the slowest machine."""
KEPT_S = 0.5
"""A deadline that is later by so much has been moved by a keep-alive, of which there is one a second."""
END_S = 120.0
"""From the last message to the last acceptance."""

FAILURES = (TrialFailed, ClientFailed, LocalNetworkError, StoreError, ToxiproxyFailed, EtcdFailed)
"""What ends an experiment early; each text says what happened."""


async def run_experiment(
    experiment: Experiment, seed: int, folder: Path, say: Callable[[str], None]
) -> ExperimentResult:
    """Run it once; ends every process it started.

    Args:
        experiment: what to do.
        seed: decides which client prefers which router, and who is hit.
        folder: an empty one for journals and logs.
        say: is called with each step.

    Raises:
        ToxiproxyNotFound, EtcdNotFound, DataSetError: something is missing.
        ToxiproxyFailed, EtcdFailed, LocalNetworkError: the network did not start.
    """
    began = time.monotonic()
    chance = random.Random(f"{experiment.name} {seed}")
    async with ProxiedNetwork(experiment, folder, seed) as network:
        say(network.description)
        clients = lay_out(experiment.load, network.client_urls, folder, chance)
        async with Trial(network.network, folder, *clients) as trial:
            run = _Run(experiment, network, trial, chance, say)
            await run.to_the_end()
            await asyncio.gather(*(client.kill() for client in trial.clients))
            run.problems += internal_errors(folder)
            return await asyncio.to_thread(run.result, seed, began)


def internal_errors(folder: Path) -> list[str]:
    """One line per router that met a fault of its own code."""
    return [
        f"router {log.stem} logged internal_error"
        for log in sorted(folder.glob("r*.log"))
        if "internal_error" in log.read_text(errors="replace")
    ]


def draw_targets(candidates: Sequence[Sequence[Target]], chance: random.Random) -> list[Target] | None:
    """One target with enough load for each fault, at random; None while there are not enough.

    No fault hits only what another one hits too: it would test nothing.
    """
    chosen: list[Target] = []
    for each in candidates:
        free = [target for target in each if target.is_loaded and not any(target.hides(other) for other in chosen)]
        if not free:
            return None
        chosen.append(chance.choice(free))
    return chosen


class _Run:
    """The middle of an experiment: from the start of the clients to the end of the load."""

    def __init__(
        self,
        experiment: Experiment,
        network: ProxiedNetwork,
        trial: Trial,
        chance: random.Random,
        say: Callable[[str], None],
    ) -> None:
        self.problems: list[str] = []
        self._experiment = experiment
        self._network = network
        self._trial = trial
        self._chance = chance
        self._timeline = Timeline(say)
        self._strikes = Strikes(trial, experiment.situation)
        self._injector = Injector(experiment, network, trial, self._strikes, self._timeline.say)
        self._rounds: list[Round] = []
        self._fenced: list[str] = []
        """Routers that gave up an incarnation while their process lived on, once for each time."""
        self._lives: dict[str, tuple[int, int]] = {}
        """Process id and incarnation of each router when they were looked at last."""

    async def to_the_end(self) -> None:
        """Start the load, carry out all rounds, let everything come to rest; what fails is a problem of the result."""
        trial = self._trial
        try:
            await trial.start()
            self._timeline.begin()
            await self._recovered()
            for number, faults in enumerate(self._experiment.rounds, 1):
                self._timeline.say(f"round {number} of {len(self._experiment.rounds)}")
                await self._round(faults)
            await trial.wait_until(
                lambda: sum(each.counts["sent"] for each in trial.publishers.values()) >= self._experiment.load.least,
                f"{self._experiment.load.least} messages are sent",
                RECOVERY_TIMEOUT_S,
            )
            await trial.cut_short()
            await trial.finish(END_S)
        except FAILURES as failure:
            self._timeline.say(f"broken off: {failure}")
            self.problems.append(str(failure))
            # What was not sent by now is not missing; what is on its way counts as stuck.
            await trial.cut_short()

    def result(self, seed: int, began: float) -> ExperimentResult:
        """Read the journals and judge."""
        publishers, subscribers = self._trial.histories()
        self._timeline.add(client_steps([*publishers, *subscribers]))
        return ExperimentResult(
            experiment=self._experiment,
            seed=seed,
            verdict=self._trial.verdict(),
            rounds=costs_of_rounds(self._rounds, flows_of(publishers, subscribers)),
            fenced=self._fenced,
            timeline=self._timeline.steps,
            problems=self.problems,
            seconds=time.monotonic() - began,
            software=self._network.software,
        )

    # --- a round ------------------------------------------------------------------------------------------------------

    async def _round(self, faults: Sequence[FaultPlan]) -> None:
        targets = await self._choose(faults)
        before = len(self._strikes.faults)
        try:
            await self._trial.meanwhile(self._together(faults, targets))
        finally:
            self._rounds.append(Round(self._strikes.faults[before:], time.monotonic()))
        await self._recovered()

    async def _together(self, faults: Sequence[FaultPlan], targets: Sequence[Target]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for fault, target in zip(faults, targets, strict=True):
                    group.create_task(self._injector.carry_out(fault, target))
        except ExceptionGroup as several:
            # The first one made the others end.
            raise several.exceptions[0] from several

    async def _choose(self, faults: Sequence[FaultPlan]) -> list[Target]:
        """Wait until all clients have caught up and each fault has a target with enough load; then one at random."""
        began = spread_at = time.monotonic()
        while True:
            self._trial.look()
            now = time.monotonic()
            candidates: list[list[Target]] = []
            if self._is_at_rate and all(client.is_attached for client in self._trial.clients):
                candidates = await self._candidates(faults)
                chosen = draw_targets(candidates, self._chance)
                if chosen is not None:
                    return chosen
            if now - spread_at > SPREAD_AFTER_S:
                spread_at = now
                await self._spread()
            if now - began > LOAD_TIMEOUT_S:
                seen = [[(target.name, target.unsettled) for target in each] for each in candidates]
                raise TrialFailed(
                    f"never {UNSETTLED_AT_FAULT} deliveries unsettled through a target of each of "
                    f"{[str(fault) for fault in faults]}: last {seen}; {self._trial.describe()}"
                )
            await asyncio.sleep(LOOK_S)

    async def _candidates(self, faults: Sequence[FaultPlan]) -> list[list[Target]]:
        states = await self._trial.states(list(self._network.network.routers))
        shape = self._experiment.shape
        return [targets_of(fault, states, self._network, self._trial, shape) for fault in faults]

    async def _spread(self) -> None:
        """Send some clients of the router that has most of them elsewhere; no fault is counted for it."""
        places = [client.router for client in self._trial.clients if client.is_attached]
        if not places:
            return
        crowded = max(sorted(set(places)), key=places.count)
        self._timeline.say(f"some clients of {crowded} are disconnected, so that other connections get a load")
        toxiproxy = self._network.toxiproxy
        for wire in self._network.wires_of(ConnectionPath.CLIENT_ROUTER, crowded):
            await toxiproxy.add_toxic(wire.proxy, "spread", "reset_peer", UPSTREAM, {"timeout": 0}, toxicity=SENT_ON)
            await asyncio.sleep(1.0)
            await toxiproxy.remove_toxic(wire.proxy, "spread")

    async def _recovered(self) -> None:
        """Wait until routers are ready and their leases kept, and clients attached, with messages again, not behind."""
        network = self._network.network
        ready = asyncio.gather(*(network.wait_ready(name, RECOVERY_TIMEOUT_S) for name in network.routers))
        await self._trial.meanwhile(ready)
        await self._leases_are_kept()
        publishers = {client: client.counts["accepted"] for client in self._trial.publishers.values()}
        subscribers = {client: client.counts["received"] for client in self._trial.subscribers.values()}
        await self._trial.wait_until(
            lambda: (
                all(client.is_attached for client in self._trial.clients)
                and all(client.counts["accepted"] > count for client, count in publishers.items())
                and all(client.counts["received"] > count for client, count in subscribers.items())
                and self._is_at_rate
            ),
            "every client is attached, has messages again and has caught up",
            RECOVERY_TIMEOUT_S,
        )
        await self._note_lives()

    async def _leases_are_kept(self) -> None:
        """Two outages of etcd with no keep-alive between them are one, and perhaps longer than a lease."""
        names = list(self._network.network.routers)
        ends_at = time.monotonic() + RECOVERY_TIMEOUT_S
        before: dict[str, float] = {}
        while True:
            states = await self._trial.states(names)
            deadlines = {name: time.monotonic() + state.lease_left_s for name, state in states.items()}
            before = deadlines | before
            late = [name for name in names if not deadlines.get(name, 0.0) >= before.get(name, 0.0) + KEPT_S]
            if not late:
                return
            if time.monotonic() > ends_at:
                raise TrialFailed(f"no lease is kept after {RECOVERY_TIMEOUT_S:g} s: {', '.join(late)}")
            await asyncio.sleep(LOOK_S)

    @property
    def _is_at_rate(self) -> bool:
        return self._trial.behind <= self._experiment.load.rate * BEHIND_S

    async def _note_lives(self) -> None:
        network = self._network.network
        for name, state in (await self._trial.states(list(network.routers))).items():
            life = (network.routers[name].pid, state.incarnation)
            pid, incarnation = self._lives.get(name, life)
            if pid == life[0] and incarnation != life[1]:
                self._fenced.append(name)
                self._timeline.say(f"router {name} has become a new incarnation in the same process (K-3)")
            self._lives[name] = life
