"""The kills: each waits until its victim is at work with something unsettled, strikes, and brings the victim back."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from chaos.faults import Fault
from chaos.spark_demo import JOB
from chaos.spark_demo.processes import DriverProcess, NodeProcess
from chaos.strikes import Strikes
from chaos.trial import Trial, TrialFailed

UNSETTLED_AT_KILL = 20
"""Deliveries that must be unsettled through one router when it, or the bridge node, is struck."""
RESTART_AFTER_S = 1.0
"""From SIGKILL to the start of the next life."""
PHASE_S = 3.0
"""How long the driver is watched for a certain phase of a batch; then any will do."""
BATCH_S = 120.0
"""How long it is watched for any batch: it may just have been started."""
_LOOK_S = 0.005
"""A phase lasts for tens of milliseconds."""


class Kind(Enum):
    """What is killed."""

    DRIVER = "driver"
    NODE = "bridge node"
    ROUTER = "router"


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


class Kills:
    """Kills and restarts, and the record of them.

    Attributes:
        done: all kills so far.
        start: when the load began.
    """

    def __init__(
        self, trial: Trial, node: NodeProcess, driver: DriverProcess, say: Callable[[str], None]
    ) -> None:
        self.done: list[Kill] = []
        self.start = 0.0
        self._trial = trial
        self._network = trial.network
        self._strikes = Strikes(trial)
        self._node = node
        self._driver = driver
        self._say = say

    async def kill(self, kind: Kind) -> None:
        """Kill one of a kind when it is at work, and start it again.

        Raises:
            TrialFailed: it was never at work.
            ClientFailed, LocalNetworkError: a process ended that should not have, or did not come back.
        """
        await {Kind.DRIVER: self._kill_driver, Kind.NODE: self._kill_node, Kind.ROUTER: self._kill_router}[kind]()

    def count(self) -> Counter[Kind]:
        """How often each kind was killed."""
        return Counter(kill.kind for kill in self.done)

    # --- one kind each ------------------------------------------------------------------------------------------------

    async def _kill_router(self) -> None:
        target = await self._strikes.choose(UNSETTLED_AT_KILL, list(self._network.routers))
        pid = self._network.routers[target.router].pid
        self._record(Kind.ROUTER, target.router, target.unsettled, pid, "deliveries unsettled through it")
        await self._strikes.kill(target)
        await self._trial.meanwhile(asyncio.sleep(RESTART_AFTER_S))
        await self._trial.meanwhile(self._network.restart(target.router))

    async def _kill_node(self) -> None:
        busiest = await self._strikes.choose(UNSETTLED_AT_KILL, list(self._network.routers))
        during = f"deliveries unsettled through router {busiest.router}"
        self._record(Kind.NODE, "node", busiest.unsettled, self._node.pid, during)
        await self._node.kill()
        await self._trial.meanwhile(asyncio.sleep(RESTART_AFTER_S))
        await self._trial.meanwhile(self._node.start())

    async def _kill_driver(self) -> None:
        # By turns: a batch that is lost with its driver, and one that outlives it.
        phase = Phase.DECIDED if self.count()[Kind.DRIVER] % 2 else Phase.STAGED
        found = await self._trial.meanwhile(self._wait_for_batch(phase))
        unsettled = await self._unsettled()
        self._record(Kind.DRIVER, "driver", unsettled, self._driver.pid, found.value)
        await self._driver.kill()
        await self._trial.meanwhile(asyncio.sleep(RESTART_AFTER_S))
        await self._driver.start()

    async def _wait_for_batch(self, wanted: Phase) -> Phase:
        began = time.monotonic()
        while True:
            phase = phase_of(await self._node.status())
            waited = time.monotonic() - began
            if phase is wanted or (phase is not None and waited > PHASE_S):
                return phase
            if waited > BATCH_S:
                raise TrialFailed(f"the Spark job had no batch under way within {BATCH_S:g} s")
            await asyncio.sleep(_LOOK_S)

    async def _unsettled(self) -> int:
        states = await self._trial.states(list(self._network.routers))
        return sum(state.unsettled for state in states.values())

    def _record(self, kind: Kind, target: str, unsettled: int, pid: int, during: str) -> None:
        fault = Fault(time.monotonic(), target, signal.SIGKILL.name, unsettled)
        self.done.append(Kill(kind, fault, during))
        name = kind.value if target in {"driver", "node"} else f"{kind.value} {target}"
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
