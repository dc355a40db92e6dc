"""The kills: each waits until its victim is at work with something unsettled, strikes, and brings the victim back."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from chaos.experiments.spark_demo import JOB
from chaos.experiments.spark_demo.cluster import SparkCluster
from chaos.experiments.spark_demo.processes import DriverProcess, NodeProcess
from chaos.network.faults import Fault
from chaos.network.network_state import RouterState
from chaos.network.strikes import Strikes
from chaos.network.trial import Trial, TrialFailed

UNSETTLED_AT_KILL = 20
"""Deliveries that must be unsettled through one router when it, or the bridge node, is struck."""
RESTART_AFTER_S = 1.0
"""From SIGKILL to the start of the next life."""
PHASE_S = 3.0
"""How long the driver is watched for a batch that is staged: so many go by, and on a slow machine none is seen."""
_LOOK_S = 0.005
"""A phase lasts for tens of milliseconds."""


class Kind(Enum):
    """What is killed."""

    DRIVER = "driver"
    NODE = "bridge node"
    ROUTER = "router"
    WORKER = "Spark worker"


NUMBERED = frozenset({Kind.ROUTER, Kind.WORKER})
"""There are several of these."""


class Phase(Enum):
    """Where a batch is, as the bridge node sees it."""

    STAGED = "rows staged, the batch not decided"
    DECIDED = "the batch decided, not yet published"


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill.

    Attributes:
        kind: of victim.
        fault: when, who, and how many deliveries were unsettled through a router; for the driver, through all of them.
        during: for people: what was under way.
    """

    kind: Kind
    fault: Fault
    during: str

    def as_json(self, start: float) -> dict[str, object]:
        """What the JSON line says of it; `start` is the beginning of the load."""
        return {
            "at_ms": round((self.fault.t - start) * 1000),
            "what": self.kind.value,
            "target": self.fault.target,
            "unsettled_then": self.fault.unsettled,
            "during": self.during,
        }


@dataclass(frozen=True, slots=True)
class Victims:
    """Beside the routers.

    Attributes:
        node: what the job reads from and writes to.
        driver: of the job.
        cluster: whose workers do the job's work; None = its driver does.
    """

    node: NodeProcess
    driver: DriverProcess
    cluster: SparkCluster | None

    def check(self) -> None:
        """Raise TrialFailed if one of them ended by itself."""
        self.node.check()
        self.driver.check()
        if self.cluster is not None:
            self.cluster.check()


class Work(Protocol):
    """What the job has to do, as far as kills depend on it."""

    def unsettled(self) -> AbstractContextManager[None]:
        """For the time of the block the job has rows, and what it publishes stays unsettled.

        So there is a moment to strike, however slow or fast the machine is.
        """
        ...


class Kills:
    """Kills and restarts, and the record of them.

    Args:
        trial: the clients, and the network.
        victims: beside its routers.
        work: what the job has to do.
        say: prints a line for people.
        patience_s: how long to wait for a victim to be at work.

    Attributes:
        done: all kills so far.
        start: when the load began.
    """

    def __init__(
        self, trial: Trial, victims: Victims, work: Work, say: Callable[[str], None], patience_s: float
    ) -> None:
        self.done: list[Kill] = []
        self.start = 0.0
        self._work = work
        self._patience_s = patience_s
        self._trial = trial
        self._network = trial.network
        self._strikes = Strikes(trial)
        self._node = victims.node
        self._driver = victims.driver
        self._cluster = victims.cluster
        self._say = say

    async def kill(self, kind: Kind) -> None:
        """Kill one of a kind when it is at work, and start it again.

        Raises:
            TrialFailed: it was never at work.
            ClientFailed, LocalNetworkError: a process ended that should not have, or did not come back.
        """
        kills = {
            Kind.DRIVER: self._kill_driver,
            Kind.NODE: self._kill_node,
            Kind.ROUTER: self._kill_router,
            Kind.WORKER: self._kill_worker,
        }
        await kills[kind]()

    def count(self) -> Counter[Kind]:
        """How often each kind was killed."""
        return Counter(kill.kind for kill in self.done)

    # --- one kind each ------------------------------------------------------------------------------------------------

    async def _busiest_router(self) -> RouterState:
        candidates = list(self._network.routers)
        return await self._strikes.choose(UNSETTLED_AT_KILL, candidates, self._patience_s)

    async def _kill_router(self) -> None:
        with self._work.unsettled():
            target = await self._busiest_router()
            pid = self._network.routers[target.router].pid
            self._record(Kind.ROUTER, target.router, target.unsettled, pid, "deliveries unsettled through it")
            await self._strikes.kill(target)
        await self._trial.meanwhile(asyncio.sleep(RESTART_AFTER_S))
        await self._trial.meanwhile(self._network.restart(target.router))

    async def _kill_node(self) -> None:
        with self._work.unsettled():
            busiest = await self._busiest_router()
            during = f"deliveries unsettled through router {busiest.router}"
            self._record(Kind.NODE, "node", busiest.unsettled, self._node.pid, during)
            await self._node.kill()
        await self._trial.meanwhile(asyncio.sleep(RESTART_AFTER_S))
        await self._trial.meanwhile(self._node.start())

    async def _kill_driver(self) -> None:
        # By turns: a batch that is lost with its driver, and one that outlives it.
        await self._strike_in_a_batch(self._strike_driver, prefers_staged=not self.count()[Kind.DRIVER] % 2)

    async def _kill_worker(self) -> None:
        assert self._cluster is not None
        number = self.count()[Kind.WORKER] % len(self._cluster.workers)
        worker = self._cluster.workers[number]

        async def strike(phase: Phase) -> None:
            pid = worker.pid
            unsettled, _ = await asyncio.gather(self._unsettled(), worker.kill())
            self._record(Kind.WORKER, f"{number + 1}", unsettled, pid, phase.value)
            await self._trial.meanwhile(asyncio.sleep(RESTART_AFTER_S))
            await self._trial.meanwhile(worker.start())

        # Its executor has tasks that stage; the other one's do not end with it.
        await self._strike_in_a_batch(strike, prefers_staged=True)

    async def _strike_in_a_batch(self, strike: Callable[[Phase], Awaitable[None]], *, prefers_staged: bool) -> None:
        """Strike when a batch is staged, which cannot be made to last, or else when one is decided."""
        if prefers_staged and await self._trial.meanwhile(self._wait_for(Phase.STAGED, PHASE_S)):
            await strike(Phase.STAGED)
            return
        with self._work.unsettled():
            if not await self._trial.meanwhile(self._wait_for(Phase.DECIDED, self._patience_s)):
                raise TrialFailed(f"the Spark job had no batch under way within {self._patience_s:g} s")
            await strike(Phase.DECIDED)

    async def _strike_driver(self, phase: Phase) -> None:
        pid = self._driver.pid
        # At the same time: the phase is over in a moment.
        unsettled, _ = await asyncio.gather(self._unsettled(), self._driver.kill())
        self._record(Kind.DRIVER, "driver", unsettled, pid, phase.value)
        await self._trial.meanwhile(asyncio.sleep(RESTART_AFTER_S))
        await self._driver.start()

    async def _wait_for(self, wanted: Phase, patience_s: float) -> bool:
        ends_at = time.monotonic() + patience_s
        while phase_of(await self._node.status()) is not wanted:
            if time.monotonic() > ends_at:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def _unsettled(self) -> int:
        states = await self._trial.states(list(self._network.routers))
        return sum(state.unsettled for state in states.values())

    def _record(self, kind: Kind, target: str, unsettled: int, pid: int, during: str) -> None:
        fault = Fault(time.monotonic(), target, signal.SIGKILL.name, unsettled)
        self.done.append(Kill(kind, fault, during))
        name = f"{kind.value} {target}" if kind in NUMBERED else kind.value
        count = "" if "unsettled" in during else " deliveries unsettled,"
        self._say(f"SIGKILL to {name}, pid {pid}: {unsettled}{count} {during}")


def phase_of(state: dict[str, Any] | None) -> Phase | None:
    """In which phase the job's present batch is; None = in no phase that the bridge node knows of.

    Args:
        state: the bridge node's.
    """
    sink = (state or {}).get("sinks", {}).get(JOB)
    if sink is None:
        return None
    if sink["waiting_manifests"]:
        return Phase.DECIDED
    return Phase.STAGED if sink["staged_bytes"] else None
