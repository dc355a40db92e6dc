"""How long a fault stops a flow: real routers on loopback, killed, stopped and cut off, twenty times each.

What is measured is the time from the fault to the delivery, and to the acceptance, of the first message that was *sent
after* the fault. As messages of a publisher come in order, all earlier ones have come by then.

- *rerouting*: a publisher at r1, a subscriber at r3, the best path through r2, another through r4. r2 is killed,
  stopped, or the link from r1 to r2 falls silent.
- *client*: the router of the publisher, or that of the subscriber, is killed or stopped, or the connection with it
  falls silent; the client goes on at another router.

    python benchmarks/bench_failover.py [--rounds 20] [--only rerouting|client] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field

import aiohttp
import uvloop
from harness import Row, carry_out, show, whole
from silent_relay import SilentRelay
from steady_flow import Flow, steady_flow

from router.commands.local_network import LocalNetwork
from topology.etcd.server import free_port

KILLED, STOPPED, CUT_OFF = "killed", "stopped", "cut off"
FAULTS = (KILLED, STOPPED, CUT_OFF)
SETTLED_S = 0.5
"""Of undisturbed flow before each fault."""
WITHIN_S = 60.0
"""More than any fault may cost; the C routers need 16 s."""
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table."""

    what: str
    fault: str

    def __str__(self) -> str:
        return f"{self.what}: {self.fault}"


@dataclass(slots=True)
class Times:
    """What the rounds of one case gave, seconds."""

    delivered: list[float] = field(default_factory=list)
    """From the fault to the first delivery of what was sent after it."""
    accepted: list[float] = field(default_factory=list)
    """From the fault to its acceptance."""
    back: list[float] = field(default_factory=list)
    """From the fault's end to the path's or router's return; of a killed router, its start included."""


class Square:
    """r1 - r2 - r3 is the best path, r1 - r4 - r3 the other; the link from r1 to r2 leads through a relay."""

    what = "rerouting"

    def __init__(self) -> None:
        self.network = LocalNetwork(4, log_level="error")
        self._relay = SilentRelay(free_port())

    async def start(self, stack: AsyncExitStack) -> None:
        """Start everything; it ends with the stack."""
        await stack.enter_async_context(self._relay.listening())
        connectors = {"r1": f"127.0.0.1:{self._relay.port}=1,r4=2", "r2": "r3=1", "r3": "", "r4": "r3=2"}
        for name, router in self.network.routers.items():
            router.settings |= {"inter_router.mesh": "configured", "inter_router.connectors": connectors[name]}
        self.network.routers["r2"].settings["inter_router.port"] = str(self._relay.target)
        await stack.enter_async_context(self.network)
        await self._until_best_path()

    def urls(self) -> tuple[list[str], list[str]]:
        """Where publisher and subscriber connect."""
        return [self.network.routers["r1"].url], [self.network.routers["r3"].url]

    async def strike(self, fault: str) -> None:
        """Break the best path."""
        if fault == CUT_OFF:
            self._relay.fall_silent()
        else:
            await strike_router(self.network, "r2", fault)

    async def repair(self, fault: str) -> None:
        """Repair it, and wait until it is in use again."""
        if fault == CUT_OFF:
            self._relay.heal()
        else:
            await repair_router(self.network, "r2", fault)
        await self._until_best_path()

    async def _until_best_path(self) -> None:
        ways = {("r1", "r2"), ("r2", "r1"), ("r2", "r3"), ("r3", "r2")}
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"{self.network.routers['r1'].http}/api/v1/state") as answer:
                    links = (await answer.json()).get("links", [])
                if ways <= {(link["from"], link["to"]) for link in links}:
                    return
                await asyncio.sleep(POLL_S)


class Mesh:
    """Three routers, all linked; clients connect through the relay that each router advertises as its address."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.network = LocalNetwork(3, log_level="error")
        self._relays: dict[str, SilentRelay] = {}

    async def start(self, stack: AsyncExitStack) -> None:
        """Start everything; it ends with the stack."""
        for name, router in self.network.routers.items():
            relay = self._relays[name] = await stack.enter_async_context(SilentRelay(router.amqp_port).listening())
            router.settings["listen.advertise"] = f"127.0.0.1:{relay.port}"
        await stack.enter_async_context(self.network)
        for name, router in self.network.routers.items():
            self._relays[name].target = router.amqp_port  # it may have had to choose another

    def urls(self) -> tuple[list[str], list[str]]:
        """Where publisher and subscriber connect: one of them has r1, which is struck, and r2."""
        moving, staying = [self._url("r1"), self._url("r2")], [self._url("r3")]
        return (moving, staying) if self.what == PUBLISHER else (staying, moving)

    def _url(self, name: str) -> str:
        return f"amqp://127.0.0.1:{self._relays[name].port}"

    async def strike(self, fault: str) -> None:
        """Take r1 away from its client."""
        if fault == CUT_OFF:
            self._relays["r1"].fall_silent()
        else:
            await strike_router(self.network, "r1", fault)

    async def repair(self, fault: str) -> None:
        """Bring it back."""
        if fault == CUT_OFF:
            self._relays["r1"].heal()
        else:
            await repair_router(self.network, "r1", fault)
        for name in self.network.routers:
            await self.network.wait_ready(name)


PUBLISHER, SUBSCRIBER = "client, the publisher's router", "client, the subscriber's router"


async def strike_router(network: LocalNetwork, name: str, fault: str) -> None:
    """SIGKILL or SIGSTOP."""
    if fault == KILLED:
        await network.kill(name)
    else:
        network.sigstop(name)


async def repair_router(network: LocalNetwork, name: str, fault: str) -> None:
    """Start it again, or let it go on."""
    if fault == KILLED:
        await network.restart(name)
    else:
        network.sigcont(name)
        await network.wait_ready(name)


async def run_round(place: Square | Mesh, fault: str, topic: str, times: Times) -> None:
    """One fault under load, and its end."""
    async with steady_flow(topic, *place.urls()) as flow:
        await settle(flow)
        struck = time.monotonic()
        await place.strike(fault)
        delivered, accepted = await flow.until_accepted_after(struck, WITHIN_S)
        times.delivered.append(delivered - struck)
        times.accepted.append(accepted - struck)
        repaired = time.monotonic()
        await place.repair(fault)
        times.back.append(time.monotonic() - repaired)
        await flow.until_accepted_after(time.monotonic(), WITHIN_S)


async def settle(flow: Flow) -> None:
    """Wait until messages flow at their steady rate."""
    begun = time.monotonic()
    await flow.until_accepted_after(begun, WITHIN_S)
    await flow.until_accepted_after(begun + SETTLED_S, WITHIN_S)


async def measure(places: Sequence[Callable[[], Square | Mesh]], rounds: int) -> dict[Case, Times]:
    """Each fault once in each round, so that a busy minute of the machine does not hit one case alone."""
    found: dict[Case, Times] = {}
    for make in places:
        place = make()
        async with AsyncExitStack() as stack:
            await place.start(stack)
            for number, fault in itertools.product(range(rounds), FAULTS):
                case = Case(place.what, fault)
                times = found.setdefault(case, Times())
                await run_round(place, fault, f"failover/{len(found)}/{number}", times)
                took_ms = 1000 * times.delivered[-1]
                print(f"round {number + 1} of {rounds}: {case}: {took_ms:,.0f} ms", file=sys.stderr)
    return found


def percentile_95(figures: Sequence[float]) -> float:
    """The smallest figure that 95 % do not exceed."""
    return sorted(figures)[-(-95 * len(figures) // 100) - 1]


def _summary(figures: Sequence[float]) -> str:
    found = (statistics.median(figures), percentile_95(figures), max(figures))
    return "{:,.0f} ({:,.0f}, {:,.0f})".format(*(1000 * figure for figure in found))


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    places: list[Callable[[], Square | Mesh]] = []
    if options.only != "client":
        places.append(Square)
    if options.only != "rerouting":
        places += [lambda: Mesh(PUBLISHER), lambda: Mesh(SUBSCRIBER)]
    found = uvloop.run(measure(places, options.rounds))
    rows: list[Row] = [
        {
            "fault": str(case),
            "rounds": len(times.delivered),
            "delivered after, ms (p95, max)": _summary(times.delivered),
            "accepted after": _summary(times.accepted),
            "back after": _summary(times.back),
        }
        for case, times in found.items()
    ]
    show("failover", rows, options.json, runs={str(case): asdict(times) for case, times in found.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How long killed, stopped and cut-off routers stop a flow.")
    parser.add_argument("--rounds", type=whole, default=20)
    parser.add_argument("--only", choices=["rerouting", "client"], help="leave the other part out")
    carry_out(parser, main)
