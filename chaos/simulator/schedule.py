"""Seeded schedules: faults on, then everything heals and must come to rest (G1 to G6)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from chaos.simulator.judge import Violation
from chaos.simulator.world import MAKE_RECORDS, Choice, World
from delivery_records.records import Records

FAULTS = (
    "crash", "drop-p", "drop-s", "isolate", "reset", "expire-s", "expire-p", "crash-p", "crash-s", "close-s",
)  # fmt: skip
STEPS_WITH_FAULTS = 600
REST_STEPS = 60_000
"""More steps without a fault than any healthy run needs: beyond this the run counts as stuck."""


@dataclass(slots=True)
class Result:
    """What one seed did."""

    seed: int
    setting: str
    deliveries: int = 0
    accepted: int = 0
    steps: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    violation: str | None = None
    story: list[str] = field(default_factory=list)


def run_seed(seed: int, make_records: MAKE_RECORDS = Records) -> Result:
    """Draw a world and a schedule from the seed, run it, judge it."""
    rng = random.Random(seed)
    routers, publishers, subscribers = rng.choice([1, 2, 3, 3]), rng.choice([1, 1, 2]), rng.choice([1, 2, 3])
    messages, window, prefetch = rng.choice([2, 4, 8, 20]), rng.choice([1, 2, 3, 8]), rng.choice([1, 2, 5, 50])
    budget = {fault: rng.choice([0, 0, 1, 2, 3]) for fault in FAULTS}
    setting = f"{routers}R {publishers}P {subscribers}S {messages}m W{window} prefetch {prefetch} {budget}"
    result = Result(seed, setting)
    world = World(
        routers, publishers, subscribers, messages, window=window, prefetch=prefetch, make_records=make_records
    )
    try:
        _run(world, rng, budget, result)
    except Violation as violation:
        result.violation = str(violation)
    except AssertionError as broken:
        result.violation = f"BROKEN: {type(broken).__name__} {broken} at {_where(broken)}"
    result.deliveries, result.accepted, result.story = world.judge.deliveries, world.judge.accepted, world.story
    result.steps = len(world.story)
    return result


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _run(world: World, rng: random.Random, budget: dict[str, int], result: Result) -> None:
    fault_rate = rng.choice([0.01, 0.03, 0.1])
    bias = {verb: rng.choice([0.2, 1.0, 1.0, 3.0]) for verb in _VERBS}
    for _ in range(STEPS_WITH_FAULTS):
        if rng.random() < fault_rate:
            fault = _draw_fault(world, rng, budget)
            if fault is not None:
                result.faults[str(fault[0])] = result.faults.get(str(fault[0]), 0) + 1
                world.do(fault)
                continue
        _step(world, rng, bias)
    for _ in range(REST_STEPS):
        if not _step(world, rng, {}, is_healing=True):
            break
    else:
        raise Violation("BLOCKED: the world does not come to rest")
    world.judge.at_rest()


_VERBS = ("p.connect", "p.send", "s.connect", "s.process", "c.recv", "r.recv", "r.frame", "r.watch", "r.reply",
          "r.restart", "r.fence", "k.lease", "k.reap")  # fmt: skip


def _step(world: World, rng: random.Random, bias: dict[str, float], *, is_healing: bool = False) -> bool:
    """One step; False when nothing can happen any more, now or at a deadline within two minutes."""
    choices = world.choices()
    if choices:
        weights = [bias.get(str(choice[0]), 1.0) for choice in choices]
        world.do(rng.choices(choices, weights)[0])
        world.advance(rng.choice([0.0, 0.0, 0.001, 0.02]))
        return True
    deadline = world.next_deadline()
    if deadline is None or (is_healing and deadline > world.now + 120.0):
        return False
    world.story.append(f"wait until {deadline:.3f}")
    world.advance(max(0.0, deadline - world.now))
    return True


def _draw_fault(world: World, rng: random.Random, budget: dict[str, int]) -> Choice | None:
    left = [fault for fault, count in budget.items() if count]
    if not left:
        return None
    fault = rng.choice(left)
    choice = _fault_choice(world, rng, fault)
    if choice is not None:
        budget[fault] -= 1
    return choice


def _fault_choice(world: World, rng: random.Random, fault: str) -> Choice | None:
    live = [router.index for router in world.routers if router.records is not None]
    if fault in ("crash", "isolate"):
        live = [index for index in live if not world.routers[index].is_isolated]
        if live and fault == "crash" and rng.random() < 0.5:
            world.do(("!lose", rng.choice(live)))
        return ("!" + fault, rng.choice(live)) if live else None
    if fault == "reset":
        return ("!reset", *rng.sample(live, 2)) if len(live) > 1 else None
    clients = world.publishers if fault.endswith("-p") else world.subscribers
    connected = [client.index for client in clients if client.connection is not None]
    if fault == "close-s":
        connected = [index for index in connected if world.subscribers[index].is_replied]
    return ("!" + fault, rng.choice(connected)) if connected else None
