"""One seeded run: routers, bridges on one store, clients; faults for a while, then calm until everything is done."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeAlias

from chaos.routed.bridges import SimBridge
from chaos.routed.clients import SimClient, SimPusher, SimWorker
from chaos.routed.code import WINDOW_FRAMES, Code
from chaos.routed.judge import Judge, Violation
from chaos.routed.pipes import End, Pipes
from chaos.routed.routers import SimRouter

STORM_STEPS = 1_500
CALM_STEPS = 40_000
"""Far more than any run has needed to finish; a run that does not is stuck."""
MOST_ATTACHES = 40
"""Attaches of one name that wait at a router: a few of a client that came again, each up to 16 times in a circle."""
ITEMS = 25
"""Of each pusher."""
HELD_LIMIT = 4 * WINDOW_FRAMES
"""Deliveries of a link that came over another router, and wait at one: two windows, and what was offered."""


class Run(Protocol):
    """What a seed runs, of any kind.

    Attributes:
        faults: so far.
    """

    faults: int

    @property
    def judge(self) -> Judge:
        """What it has seen."""
        ...

    def run(self) -> int:
        """Run to the end; returns the steps. Raises Violation."""
        ...


Kind: TypeAlias = Callable[[Any, int], Run]
"""Makes the run of a seed, of the code that this kind runs."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to."""

    seed: int
    steps: int
    faults: int
    accepted: int
    largest_held: int
    violation: str = ""


class World:
    """One run."""

    def __init__(self, code: Code, seed: int) -> None:
        self.random = Random(seed)
        self.code = code
        self.pipes = Pipes(self.random)
        self.judge = self._judge()
        self.store = code.model_store.ModelStore()
        self.sent: Counter[bytes] = Counter()
        self.routers: dict[int, SimRouter] = {}
        self.bridges: list[SimBridge] = []
        self.bridge_ends: dict[str, list[End]] = {}
        self.places: dict[int, frozenset[str]] = {}
        self.faults = 0
        self.is_calm = False
        self._rids = 0
        self._size = self.random.randint(1, 5)
        self._shape = self.random.choice(("chain", "ring", "mesh"))
        self.slots: list[int] = []
        self.clients: list[SimClient] = []
        self._build()

    def _build(self) -> None:
        for _ in range(self._size):
            self.slots.append(self._start_router(len(self.slots)))
        for number in range(self.random.randint(1, 3)):
            self.bridges.append(self._bridge(f"bridge{number}"))
        self._build_clients()

    def _judge(self) -> Judge:
        return Judge()

    def _build_clients(self) -> None:
        for number in range(self.random.randint(1, 3)):
            second = number == 0 or self.random.random() < 0.7
            self.clients.append(SimPusher(f"p{number}", self.judge, self.random, ITEMS, self._on_sent, second))
        for number in range(self.random.randint(1, 3)):
            self.clients.append(SimWorker(f"w{number}", self.judge, self.random, self.store))

    def _bridge(self, name: str) -> SimBridge:
        def chance() -> float:
            return 1.0 if self.is_calm else self.random.random()

        return SimBridge(self.code, name, self.store, self.judge, chance, is_slow=self.random.random() < 0.5)

    def _on_sent(self, item: bytes) -> None:
        self.sent[item] += 1

    def _start_router(self, slot: int) -> int:
        self._rids += 1
        router = SimRouter(self.code, self.pipes, self._rids, self._on_services)
        others = list(enumerate(self.slots))
        for place, rid in others:
            if place != slot and rid in self.routers and self._is_edge(place, slot):
                router.link_to(self.routers[rid])
        self.routers[router.rid] = router
        return router.rid

    def _is_edge(self, one: int, other: int) -> bool:
        distance = abs(one - other)
        return self._shape == "mesh" or distance == 1 or (self._shape == "ring" and distance == self._size - 1)

    def _on_services(self, rid: int, prefixes: frozenset[str]) -> None:
        self.places[rid] = prefixes

    # --- what routers learn -------------------------------------------------------------------------------------------

    def _learn(self, router: SimRouter) -> None:
        """The paths and places of now; between two calls they may be out of date."""
        distances, hops = {router.rid: 0}, {router.rid: router.rid}
        queue = [(0, router.rid)]
        while queue:
            distance, rid = heapq.heappop(queue)
            for other, carrier in self.routers[rid].neighbours.items():
                is_open = other in self.routers and self.pipes.is_open(carrier.end)
                if is_open and other not in distances:
                    distances[other], hops[other] = distance + 1, other if rid == router.rid else hops[rid]
                    heapq.heappush(queue, (distance + 1, other))
        router.distances = {rid: found for rid, found in distances.items() if rid != router.rid}
        router.next_hops = {rid: hop for rid, hop in hops.items() if rid != router.rid}
        router.links.places = {
            prefix: frozenset(rid for rid, prefixes in self.places.items() if prefix in prefixes)
            for prefix in router.links.limits.prefixes
        }

    # --- steps --------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run to the end; returns the steps.

        Raises:
            Violation: something does not hold.
        """
        for step in range(STORM_STEPS):
            self._step(step)
            if self.random.random() < 0.012:
                self._fault()
        self._calm()
        for step in range(STORM_STEPS, STORM_STEPS + CALM_STEPS):
            self._step(step)
            if step % 50 == 0 and self._is_done():
                seconds = {each.name.encode() for each in self._pushers() if each.is_second}
                self._judge_end({item for item in self.sent if item.partition(b":")[0] in seconds})
                return step
        raise Violation(f"the run does not end: {self._story()}")

    def _judge_end(self, exactly_once: set[bytes]) -> None:
        self.judge.at_end(self.store, self.sent, exactly_once)

    def _is_done(self) -> bool:
        rows = self.store.rows.values()
        return (
            all(client.is_done for client in self._pushers())
            and all(row.is_done for row in rows)
            and all(client.is_answered for client in self.clients if isinstance(client, SimWorker))
            and all(link.core.is_joined for router in self.routers.values() for link in router.links.links)
        )

    def _story(self) -> str:
        return f"{sum(len(each.left) + len(each.unsettled) for each in self._pushers())} items are not accepted"

    def _pushers(self) -> list[SimPusher]:
        return [client for client in self.clients if isinstance(client, SimPusher)]

    def _step(self, step: int) -> None:
        self.store.now = float(step)
        actions: list[Callable[[], object]] = [self.pipes.step] * 6
        actions += [client.act for client in self.clients]
        actions += [bridge.run_job for bridge in self.bridges if bridge.jobs and self._is_quick(bridge)]
        actions += [bridge.take_result for bridge in self.bridges if bridge.results]
        actions += [self._connect, self._wake, self._toggle]
        actions += self._others()
        if self.is_calm or self.random.random() < 0.3:
            actions.append(self._learn_one)
        self.random.choice(actions)()
        self.pipes.write()
        for router in self.routers.values():
            self._look_at_circles(router)
            for link in router.links.links:
                self._look_at_credit(link)
                if link.near.owns_session:  # the client's own session is bounded by C-6, which is not simulated here
                    self.judge.on_held(link.core.waiting, HELD_LIMIT)

    def _others(self) -> list[Callable[[], object]]:
        return []

    def _is_quick(self, bridge: SimBridge) -> bool:
        """The store of some bridges is slow."""
        return self.is_calm or not bridge.is_slow or self.random.random() < 0.05

    def _look_at_credit(self, link: Any) -> None:
        """R-5: the sender has no credit that the receiver did not grant."""
        source, sink = (half.link for half in link.halves)
        allowed = max(source.moved, sink.moved + sink.credit)
        if link.core.is_joined and source.moved + source.credit > allowed:
            raise Violation(f"a router grants {source.moved + source.credit} deliveries, the receiver {allowed}")

    def _look_at_circles(self, router: SimRouter) -> None:
        names = Counter(link.near.link.name for link in router.links.links if not link.core.is_joined)
        if names and max(names.values()) > MOST_ATTACHES:
            raise Violation(f"attaches of one link are {max(names.values())} times at a router")

    def _learn_one(self) -> None:
        self._learn(self.routers[self.random.choice(sorted(self.routers))])

    def _wake(self) -> None:
        bridge = self.random.choice(self.bridges)
        if bridge.waiting:
            bridge.wake(self.random.randrange(100))

    def _toggle(self) -> None:
        """A connection falls behind, or catches up."""
        router = self.routers[self.random.choice(sorted(self.routers))]
        carriers = [each for each in router.carriers if self.pipes.is_open(each.end)]
        if carriers:
            carrier = self.random.choice(carriers)
            carrier.is_behind = not self.is_calm and self.random.random() < 0.5
            if not carrier.is_behind:
                carrier.routed.release()

    def _connect(self) -> None:
        """Somebody who is not connected, or not attached, tries."""
        if self.random.random() < 0.4:
            bridge = self.random.choice(self.bridges)
            ends = [end for end in self.bridge_ends.get(bridge.name, []) if self.pipes.is_open(end)]
            self.bridge_ends[bridge.name] = ends
            if len(ends) < 2 and (not ends or self.random.random() < 0.2):
                end = bridge.connect()
                router = self.routers[self.random.choice(sorted(self.routers))]
                self.pipes.connect(end, router.accept().end)
                ends.append(end)
            return
        client = self.random.choice(self.clients)
        if client.end is None:
            router = self.routers[self.random.choice(sorted(self.routers))]
            self.pipes.connect(client.connect(), router.accept().end)
        elif client.link is None:
            client.attach()

    # --- faults -------------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        self.faults += 1
        kind = self.random.randrange(6)
        if kind == 0:
            self._kill_router(self.random.randrange(len(self.slots)))
        elif kind == 1:
            self._kill_bridge(self.random.randrange(len(self.bridges)))
        elif kind == 2:
            end = self.pipes.pick()
            if end is not None:
                self.pipes.cut(end)
        elif kind == 3:
            client = self.random.choice(self.clients)
            if client.end is not None:
                self.pipes.cut(client.end)
        elif kind == 4:
            client = self.random.choice(self.clients)
            if client.link is not None:
                client.detach()
        else:
            self._toggle_full()

    def _toggle_full(self) -> None:
        self.store.is_full = not self.store.is_full

    def _kill_router(self, slot: int) -> None:
        router = self.routers.pop(self.slots[slot])
        self.places.pop(router.rid, None)
        for carrier in router.carriers:
            self.pipes.cut(carrier.end)
        self.places.pop(router.rid, None)
        self.slots[slot] = self._start_router(slot)

    def _kill_bridge(self, place: int) -> None:
        bridge = self.bridges[place]
        for end in self.bridge_ends.pop(bridge.name, []):
            self.pipes.cut(end)
        done = self.random.randrange(len(bridge.jobs) + 1)  # some of what it had asked for is carried out yet
        late = self._bridge(bridge.name)
        for _ in range(done):
            bridge.run_job()
        self.bridges[place] = late

    def _calm(self) -> None:
        """No fault any more: whoever is lost connects again, and all paths are there."""
        self.is_calm = True
        self.store.is_full = False
        for one, rid in enumerate(self.slots):
            for other in range(one):
                router, neighbour = self.routers[rid], self.routers[self.slots[other]]
                carrier = router.neighbours.get(neighbour.rid)
                if self._is_edge(one, other) and (carrier is None or not self.pipes.is_open(carrier.end)):
                    router.link_to(neighbour)
        for client in self.clients:
            if isinstance(client, SimWorker):
                client.is_calm = True
        for router in self.routers.values():
            self._learn(router)


def simulate(code: Any, seed: int, kind: Kind = World) -> Result:
    """One run, judged."""
    world, violation, steps = None, "", 0
    try:
        world = kind(code, seed)
        steps = world.run()
    except Violation as found:
        violation = str(found)
    except Exception as error:  # noqa: BLE001  (a mutant may break anything)
        violation = f"{type(error).__name__}: {error}"
    if world is None:
        return Result(seed, 0, 0, 0, 0, violation)
    return Result(seed, steps, world.faults, len(world.judge.accepted), world.judge.largest_held, violation)
