"""What a campaign finds: written schedules, and seeds of both kinds of worlds."""

from __future__ import annotations

from random import Random

from bridges.workqueue.items import NewItem
from chaos.routed.bridges import SimBridge
from chaos.routed.clients import SimPusher, SimWorker
from chaos.routed.code import Code
from chaos.routed.journal_world import JournalWorld
from chaos.routed.judge import Judge
from chaos.routed.owners_world import OwnersWorld
from chaos.routed.pipes import Pipes
from chaos.routed.routers import SimRouter
from chaos.routed.world import Kind, World, simulate

CIRCLE_STEPS = 5_000
HELD_UP_ITEMS = 20
"""More than the window between two routers, so that some wait behind it."""
CORPUS: dict[Kind, tuple[int, ...]] = {World: (268, 300, 341, 423), JournalWorld: (24, 39, 46, 69), OwnersWorld: (73,)}
"""Seeds beyond the usual ones that have found something, a fault or a mutant."""


def circle(code: Code) -> str:
    """A written schedule (R-3): three routers whose paths to a fourth form a circle; returns what is wrong."""
    pipes = Pipes(Random(0))
    routers = [SimRouter(code, pipes, rid, lambda _rid, _prefixes: None) for rid in (1, 2, 3)]
    for router, following in zip(routers, [*routers[1:], routers[0]], strict=True):
        router.link_to(following)
        router.next_hops, router.distances = {4: following.rid}, {4: 1}
        router.links.places = {"queue://": frozenset({4})}
    _settle(pipes)
    client = SimPusher("p0", Judge(), Random(0), 1, lambda _item: None, True)
    pipes.connect(client.connect(), routers[0].accept().end)
    client.attach()
    _settle(pipes)
    opened = sum(router.links.opened for router in routers)
    left = sum(len(router.links.links) for router in routers)
    if client.link is not None or left or opened > code.terms.MAX_HOPS:
        return f"an attach was forwarded {opened} times, and {left} links of it are left"
    return ""


def held_up(code: Code) -> str:
    """A written schedule (R-7): a worker that does not read is lost while items wait; returns what is wrong."""
    pipes, judge = Pipes(Random(0)), Judge()
    store = code.model_store.ModelStore()
    for number in range(HELD_UP_ITEMS):
        store.push(NewItem(b"%d" % number))
    router, following = (SimRouter(code, pipes, rid, lambda _rid, _prefixes: None) for rid in (1, 2))
    router.link_to(following)
    router.next_hops, router.distances = {2: 2}, {2: 1}
    bridge = SimBridge(code, "bridge0", store, judge, lambda: 1.0, is_slow=False)
    pipes.connect(bridge.connect(), following.accept().end)
    _settle(pipes)
    router.links.places = following.links.places = {"queue://": frozenset({2})}
    worker, carrier = SimWorker("w0", judge, Random(0), store), router.accept()
    pipes.connect(worker.connect(), carrier.end)
    worker.attach()
    _settle(pipes)
    carrier.is_behind = True
    worker.link.grant(HELD_UP_ITEMS)
    pipes.write()
    while pipes.step() or bridge.jobs or bridge.results:
        if bridge.jobs:
            bridge.run_job()
        if bridge.results:
            bridge.take_result()
        pipes.write()
    if not any(link.core.waiting for link in router.links.links):
        return "nothing waits at the router"
    assert worker.end is not None
    pipes.cut(worker.end)
    _settle(pipes)
    left = len(router.links.links) + len(following.links.links)
    return f"{left} links of a lost client are left" if left else ""


def _settle(pipes: Pipes) -> None:
    """Until nothing is under way."""
    for _ in range(CIRCLE_STEPS):
        pipes.write()
        if not pipes.step():
            return


def kind_of(rule: str) -> Kind:
    """The world that shows that a rule is missing."""
    if rule.startswith("CO-") or rule in {"J-16", "J-27", "J-28", "W-26"}:
        return OwnersWorld
    return JournalWorld if rule.startswith("J-") else World


def first_finding(code: Code, seeds: int, kind: Kind = World) -> str:
    """What a written schedule or the first of the seeds finds; empty = nothing."""
    try:
        found = (circle(code) or held_up(code)) if kind is World else ""
    except Exception as error:  # noqa: BLE001  (a mutant may break anything)
        found = f"{type(error).__name__}: {error}"
    for seed in (*CORPUS[kind], *range(seeds)):
        if found:
            return found
        result = simulate(code, seed, kind)
        found = result.violation and f"seed {seed}: {result.violation}"
    return found
