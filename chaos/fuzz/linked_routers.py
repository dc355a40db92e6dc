"""Target `linked-routers`: two linked routers in one process, hostile clients at both, honest ones beside them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from chaos.fuzz.honest import HonestPublisher, HonestSubscriber
from chaos.fuzz.hostile import HostileClient
from chaos.fuzz.memory_loop import MemoryLoop, run_in_memory
from chaos.fuzz.memory_router import MemoryRouter
from chaos.fuzz.target import Counts, Finding
from chaos.quiet import without_logs
from topology.etcd.memory_store import MemoryEtcd

STREAMS = 60
"""Hostile connections of one run; they share names, so that they resume and steal each other's links."""
AT_ONCE = 6
REST_S = 150.0
"""Longer than any terminus is kept: then nothing may be left of those who came and went."""


@dataclass(frozen=True, slots=True)
class LinkedRouters:
    """The target; see `Target`."""

    name: str = "linked-routers"
    about: str = (
        "attaches, maps, transfers, outcomes, flows, detaches and mutated frames of connections that steal each "
        "other's links, at two linked routers with real incarnations, on transports in memory; an input is one write "
        "of a hostile client, one frame or several; no fault is logged, no incarnation ends, honest messages from one "
        "router to the other arrive exactly once, in order, and when all have left and time-outs are over the routers "
        "keep nothing"
    )
    code: tuple[str, ...] = (
        "oncewire.wire",
        "oncewire.transport",
        "delivery_records",
        "topology",
        "router",
        "chaos.fuzz.hostile",
        "chaos.fuzz.honest",
        "chaos.fuzz.memory_loop",
        "chaos.fuzz.memory_router",
        "chaos.fuzz.streams",
        "chaos.fuzz.wire_client",
    )
    streams: int = STREAMS

    def run(self, number: int) -> Counts:
        """See `Target`."""
        rng = random.Random(f"{self.name} {number}")
        with without_logs():
            return run_in_memory(lambda loop: _run(loop, rng, self.streams))


async def _run(_loop: MemoryLoop, rng: random.Random, streams: int) -> Counts:
    etcd = MemoryEtcd()
    routers = [MemoryRouter(name, etcd) for name in ("r1", "r2")]
    try:
        await asyncio.gather(*(router.start() for router in routers))
        counts = await _abuse(rng, routers, streams)
        for router in routers:
            router.check_whole()
        await asyncio.sleep(REST_S)
        for router in routers:
            router.check_whole()
            router.check_at_rest()
        return counts
    finally:
        for router in routers:
            await router.stop()


async def _abuse(rng: random.Random, routers: list[MemoryRouter], streams: int) -> Counts:
    """Let everybody do as they do; returns what was counted."""
    publisher_at, subscriber_at = rng.sample(routers, 2)
    subscriber = await HonestSubscriber("honest-s").dial(subscriber_at.port)
    await subscriber.until(lambda: subscriber.is_ready)
    publisher = await HonestPublisher("honest-p").dial(publisher_at.port)
    await publisher.until(lambda: publisher.is_ready)
    seen: list[bytes] = []
    seeds = iter([rng.random() for _ in range(streams)])
    counts = Counts()

    async def attack() -> None:
        for seed in seeds:
            own = random.Random(seed)
            publisher.send_more()
            written = await HostileClient(own, seen).run(own.choice(routers).port)
            counts.inputs += written
            del seen[:-100]

    await asyncio.gather(*(attack() for _ in range(AT_ONCE)))
    publisher.send_more()
    await publisher.until(lambda: publisher.accepted == publisher.sent)
    await subscriber.until(lambda: subscriber.received == publisher.sent)
    if not publisher.sent:
        raise Finding("the honest publisher could send nothing")
    counts.honest = publisher.sent
    await publisher.leave()
    await subscriber.leave()
    return counts


LINKED_ROUTERS = LinkedRouters()
