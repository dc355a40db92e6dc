"""Seeded schedules: faults on, then everything heals and must come to rest (G1 to G6)."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace

from chaos.simulator.clients import Traits
from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.judge import FOUND_AS, Violation
from chaos.simulator.world import Choice, World

FAULTS = (
    "crash", "drop-p", "drop-s", "isolate", "reset", "expire-s", "expire-p", "crash-p", "crash-s", "close-s",
)  # fmt: skip
STEPS_WITH_FAULTS = 600
HEALING_S = 300.0
"""Virtual seconds without a fault after which everything must be at rest; T_sub and T_pub are 90 s."""
REST_STEPS = 8_000
"""More steps without a fault than any healthy run needs: beyond this the run counts as stuck."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The size of a world and how its clients behave."""

    routers: int
    publishers: int
    subscribers: int
    messages: int
    window: int
    prefetch: int
    traits: Traits

    def build(self, cores: Cores = SHIPPED) -> World:
        """A fresh world of this size."""
        return World(
            self.routers, self.publishers, self.subscribers, self.messages, window=self.window,
            prefetch=self.prefetch, traits=self.traits, cores=cores,
        )  # fmt: skip


@dataclass(slots=True)
class Result:
    """What one seed did."""

    seed: int
    setting: Setting
    attempted: int = 0
    """Messages that publishers sent."""
    accepted: int = 0
    """Messages that publishers were told accepted."""
    deliveries: int = 0
    """Messages that subscribers processed, each checked against G1 to G4."""
    steps: int = 0
    virtual_s: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    coverage: dict[str, int] = field(default_factory=dict)
    """Rare situations this seed met, by name (`chaos.simulator.coverage`)."""
    violation: str | None = None
    story: list[Choice] = field(default_factory=list)

    @property
    def found_as(self) -> str | None:
        """The checker's word for the violation (lost, stuck, ...); None if there is none."""
        return None if self.violation is None else FOUND_AS.get(self.violation.partition(":")[0], "unexpected")


def draw_setting(rng: random.Random) -> Setting:
    """Every knob is drawn, so that seeds differ in kind and not only in order (swarm testing)."""
    publishers = rng.choice([1, 1, 2])
    traits = Traits(
        rng.random() < 0.3, rng.random() < 0.2, rng.random() < 0.3, rng.choice([1000, 1000, 4 * publishers]),
        rng.choice([45, 90]),
    )
    return Setting(
        rng.choice([1, 2, 3, 3]), publishers, rng.choice([1, 2, 3]), rng.choice([2, 4, 8, 20]),
        rng.choice([1, 2, 3, 8]), rng.choice([1, 2, 5, 50]), traits,
    )  # fmt: skip


def draw_weaker(rng: random.Random, traits: Traits) -> Traits:
    """Some worlds have clients to whom less is promised, so the judge asks for less there: not too many.

    Args:
        rng: of its own, so that a world without such clients goes the same way with them or without.
        traits: what the other clients do.
    """
    return replace(
        traits, refuses=rng.random() < 0.2, stock_publisher=rng.random() < 0.15, stock_subscriber=rng.random() < 0.15
    )


def draw_budget(rng: random.Random) -> dict[str, int]:
    """How often each fault may happen; half of the seeds look deep into one or two kinds."""
    budget = {fault: rng.choice([0, 0, 1, 2, 3]) for fault in FAULTS}
    if rng.random() < 0.5:
        focus = rng.sample(FAULTS, rng.choice([1, 2]))
        budget = {fault: rng.choice([1, 2, 4]) if fault in focus else 0 for fault in FAULTS}
    return budget


def run_seed(seed: int, cores: Cores = SHIPPED, aim: tuple[str, ...] = ()) -> Result:
    """Draw a world and a schedule from the seed, run it, judge it.

    Args:
        seed: everything random comes from it.
        cores: shipped ones, or with a rule edited out.
        aim: faults to look at closely, in a small world; empty: anything.
    """
    rng = random.Random(seed)
    setting, budget = draw_setting(rng), draw_budget(rng)
    setting = replace(setting, traits=draw_weaker(random.Random(f"weaker {seed}"), setting.traits))
    if aim:
        setting = replace(setting, routers=rng.choice([1, 2, 2]), publishers=1, messages=rng.choice([2, 3, 4]))
        budget = {fault: rng.choice([1, 2, 3, 4]) if fault in aim else 0 for fault in FAULTS}
    result = Result(seed, setting)
    world = setting.build(cores)
    try:
        _run(world, rng, budget, result, rng.choice([0.05, 0.1, 0.2] if aim else [0.01, 0.03, 0.1]))
    except Violation as violation:
        result.violation = str(violation)
    except AssertionError as broken:
        result.violation = f"BROKEN: {type(broken).__name__} {broken} at {_where(broken)}"
    judge = world.judge
    result.attempted, result.accepted, result.deliveries = judge.attempted, judge.accepted, judge.deliveries
    result.steps, result.virtual_s, result.story = len(world.story), world.now, world.story
    return result


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _run(
    world: World, rng: random.Random, budget: dict[str, int], result: Result, fault_rate: float
) -> None:
    late_zombies = rng.choice([1.0, 0.02])
    bias = {verb: rng.choice([0.2, 1.0, 1.0, 3.0]) for verb in _VERBS}
    for _ in range(STEPS_WITH_FAULTS):
        if rng.random() < fault_rate:
            fault = _draw_fault(world, rng, budget)
            if fault is not None:
                result.faults[str(fault[0])] = result.faults.get(str(fault[0]), 0) + 1
                world.do(fault)
                continue
        _step(world, rng, bias, late_zombies)
    heal(world, rng)


def heal(world: World, rng: random.Random) -> None:
    """No more faults: everything must come to rest, and nothing may be missing then (G5, G6).

    Raises:
        Violation: it does not.
    """
    patience = world.now + 3 * HEALING_S
    for _ in range(REST_STEPS):
        if world.now > patience:
            raise Violation("BLOCKED: the world does not come to rest")
        if not _step(world, rng, {}, is_healing=True):
            break
    else:
        raise Violation("BLOCKED: the world does not come to rest")
    world.judge.at_rest()


_VERBS = ("p.connect", "p.send", "s.connect", "s.process", "c.recv", "r.recv", "r.frame", "r.watch", "r.reply",
          "r.restart", "r.fence", "k.lease")  # fmt: skip
_REFUSALS = {"s.reject": 0.1, "s.release": 0.1, "s.fail": 0.1}
"""Most deliveries are accepted at last."""


def _step(
    world: World, rng: random.Random, bias: dict[str, float], late_zombies: float = 1.0, *, is_healing: bool = False
) -> bool:
    """One step; False when nothing can happen any more, now or at a deadline within HEALING_S."""
    choices = world.choices()
    if choices:
        weights = [_weight(world, choice, bias, late_zombies) for choice in choices]
        world.do(rng.choices(choices, weights)[0])
        if (milliseconds := rng.choice([0, 0, 1, 20])) > 0:
            world.do(("wait", milliseconds))
        return True
    deadline = world.next_deadline()
    if deadline is None or (is_healing and deadline > world.now + HEALING_S):
        return False
    world.do(("wait", max(1, math.ceil((deadline - world.now) * 1000))))
    return True


def _weight(world: World, choice: Choice, bias: dict[str, float], late_zombies: float) -> float:
    """Bytes of a dead connection may be read much later (N-1)."""
    verb = str(choice[0])
    is_zombie = verb == "r.recv" and not world.connections[int(choice[1])].is_open
    return bias.get(verb, _REFUSALS.get(verb, 1.0)) * (late_zombies if is_zombie else 1.0)


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
        if len(live) < 2:
            return None
        one, other = rng.sample(live, 2)
        return ("!reset", one, other)
    clients = world.publishers if fault.endswith("-p") else world.subscribers
    connected = [client.index for client in clients if client.connection is not None]
    if fault == "close-s":
        connected = [index for index in connected if world.subscribers[index].is_replied]
    return ("!" + fault, rng.choice(connected)) if connected else None
