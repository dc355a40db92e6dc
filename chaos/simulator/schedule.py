"""Seeded schedules: faults on, then everything heals and must come to rest (G1 to G6)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.left_behind import draw_pauses, draw_what_is_left
from chaos.simulator.sharers import draw_declines, draw_groups, draw_pulls, draw_sharing
from chaos.simulator.steps import Choice
from chaos.simulator.strikes import draw_fault
from chaos.simulator.swarm import (
    Setting,
    aimed_budget,
    aimed_setting,
    draw_budget,
    draw_calm,
    draw_deduplication,
    draw_drains,
    draw_ends,
    draw_expiry,
    draw_filters,
    draw_letters,
    draw_longest,
    draw_narrow,
    draw_orders,
    draw_pairs,
    draw_patience,
    draw_policies,
    draw_renewals,
    draw_require,
    draw_resuming,
    draw_rollbacks,
    draw_sessions,
    draw_setting,
    draw_storers,
    draw_streams,
    draw_topics,
    draw_traits,
    draw_waits,
    draw_weaker,
)
from chaos.simulator.violation import FOUND_AS, Violation
from chaos.simulator.world import World

STEPS_WITH_FAULTS = 600
STEPS_PER_MESSAGE = 5
"""More messages, more steps: faults strike all along a stream."""
HEALING_S = 300.0
"""Virtual seconds without a fault after which everything must be at rest; T_sub and T_pub are 90 s."""
REST_STEPS = 8_000
REST_STEPS_PER_MESSAGE = 150
"""More steps without a fault than any healthy run needs: beyond this the run counts as stuck."""


@dataclass(slots=True)
class Result:
    """What one seed did."""

    seed: int
    setting: Setting
    attempted: int = 0
    """Messages that publishers sent."""
    accepted: int = 0
    """Messages that publishers got accepted."""
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


def _drawn(seed: int, setting: Setting, budget: dict[str, int]) -> tuple[Setting, dict[str, int]]:
    """What was added to worlds later is drawn with a number of its own, so that the others stay as they were."""
    budget |= draw_drains(random.Random(f"drains {seed}"))
    budget |= draw_orders(random.Random(f"orders {seed}"))
    budget |= draw_renewals(random.Random(f"renewals {seed}"))
    budget |= draw_pauses(random.Random(f"pauses {seed}"))
    budget |= draw_rollbacks(random.Random(f"rollbacks {seed}"))
    topics, changes = draw_topics(random.Random(f"topics {seed}"))
    setting = replace(setting, traits=replace(setting.traits, topics=topics))
    budget |= changes
    sessions = draw_sessions(random.Random(f"sessions {seed}"))
    if sessions:
        budget |= sessions
        setting = replace(setting, traits=replace(setting.traits, session_end=True))
    traits = draw_patience(random.Random(f"patience {seed}"), setting.traits)
    same_names = random.Random(f"names {seed}").random() < 0.1
    longest_s = draw_longest(random.Random(f"longest {seed}"))
    require = draw_require(random.Random(f"require {seed}"), traits)
    filters, changes = draw_filters(random.Random(f"filters {seed}"))
    budget |= changes
    setting = replace(
        setting, traits=replace(traits, same_names=same_names, longest_s=longest_s, require=require, filters=filters)
    )
    setting = draw_sharing(random.Random(f"sharing {seed}"), setting)
    declines = draw_declines(random.Random(f"declines {seed}"), setting.traits)
    groups = draw_groups(random.Random(f"groups {seed}"), setting.traits)
    pulls = draw_pulls(random.Random(f"pulls {seed}"), setting.traits)
    setting = replace(setting, traits=replace(setting.traits, declines=declines, groups=groups, pulls=pulls))
    setting = replace(setting, traits=draw_deduplication(random.Random(f"copies {seed}"), setting.traits))
    setting = draw_policies(random.Random(f"policies {seed}"), setting)
    ttl_s = draw_expiry(random.Random(f"expiry {seed}"), setting.traits)
    setting = replace(setting, traits=replace(setting.traits, ttl_s=ttl_s))
    traits, changes = draw_letters(random.Random(f"letters {seed}"), setting.traits)
    budget |= changes
    budget |= draw_ends(random.Random(f"ends {seed}"), traits)
    traits = replace(traits, pairs=draw_pairs(random.Random(f"pairs {seed}"), traits))
    setting = draw_streams(random.Random(f"streams {seed}"), replace(setting, traits=traits))
    setting, changes = draw_what_is_left(seed, setting)
    budget |= changes
    resumes = draw_resuming(random.Random(f"resuming {seed}"), setting.traits)
    setting = replace(setting, traits=replace(setting.traits, resuming_publisher=resumes))
    waits = draw_waits(random.Random(f"waits {seed}"), setting)
    setting = replace(setting, traits=replace(setting.traits, waits=waits))
    setting = replace(setting, traits=draw_storers(random.Random(f"storers {seed}"), setting))
    if waits:  # for somebody who comes back
        budget.pop("close-s", None)
    is_calm = draw_calm(random.Random(f"calm {seed}"), setting.traits)
    return setting, {} if is_calm else budget


def run_seed(seed: int, cores: Cores = SHIPPED, aim: tuple[str, ...] = ()) -> Result:
    """Draw a world and a schedule from the seed, run it, judge it.

    Args:
        seed: everything random comes from it.
        cores: shipped ones, or with a rule edited out.
        aim: faults to look at closely, in a small world, and `name=value` for what that world must be like; empty:
            anything.
    """
    rng = random.Random(seed)
    setting, budget = draw_setting(rng), draw_budget(rng)
    traits = draw_traits(random.Random(f"traits {seed}"), setting.traits)
    traits = draw_weaker(random.Random(f"weaker {seed}"), traits)
    setting = replace(setting, traits=draw_narrow(random.Random(f"narrow {seed}"), traits))
    result = Result(seed, setting)
    if aim:
        setting = aimed_setting(rng, setting, aim)
        budget = aimed_budget(rng, aim)
    else:
        setting, budget = _drawn(seed, setting, budget)
    result.setting = setting
    world = setting.build(cores)
    try:
        _run(world, rng, budget, result, rng.choice([0.05, 0.1, 0.2] if aim else [0.01, 0.03, 0.1]))
    except Violation as violation:
        result.violation = str(violation)
    except Exception as broken:  # noqa: BLE001 - whatever a core raises is a finding
        result.violation = f"BROKEN: {type(broken).__name__} {broken} at {_where(broken)}"
    judge = world.judge
    for router in world.routers:
        if router.records is not None:
            world.count_decisions(router)
    result.coverage = dict(+world.coverage)
    result.attempted, result.accepted, result.deliveries = judge.attempted, judge.accepted, judge.deliveries
    result.steps, result.virtual_s, result.story = len(world.story), world.now, world.story
    return result


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def _run(world: World, rng: random.Random, budget: dict[str, int], result: Result, fault_rate: float) -> None:
    drawn = {verb: rng.choice([0.2, 1.0, 1.0, 3.0]) for verb in _VERBS}
    tempo = Tempo(
        _REFUSALS | drawn | {"k.together": drawn["k.apply"]} | _SELDOM, rng.choice([1.0, 0.02]), *rng.choice(PAUSES)
    )
    for _ in range(STEPS_WITH_FAULTS + STEPS_PER_MESSAGE * world.publishers[0].messages):
        if rng.random() < fault_rate:
            fault = draw_fault(world, rng, budget)
            if fault is not None:
                result.faults[str(fault[0])] = result.faults.get(str(fault[0]), 0) + 1
                world.do(fault)
                continue
        _step(world, rng, tempo)
    heal(world, rng)


def heal(world: World, rng: random.Random) -> None:
    """No more faults: everything must come to rest, and nothing may be missing then (G5, G6).

    Raises:
        Violation: it does not.
    """
    under_way = world.under_way()
    messages = sum(publisher.messages for publisher in world.publishers)
    # A message that is wanted again comes behind a delay (E-4a), and the next one behind it where windows are small.
    patience = world.now + HEALING_S * (3 + messages * world.traits.refuses)
    for _ in range(REST_STEPS + REST_STEPS_PER_MESSAGE * messages + 4 * under_way):
        if world.now > patience:
            if not world.mortals.bury():  # their deliveries may keep a subscriber's patience looking (K-5b)
                raise Violation("BLOCKED: the world does not come to rest")
            patience = world.now + 3 * HEALING_S
        if not _step(world, rng, HEALING, is_healing=True) and not world.mortals.bury():
            break
    else:
        raise Violation("BLOCKED: the world does not come to rest")
    world.check_rest()


_VERBS = (
    "p.connect",
    "p.send",
    "p.submit",
    "p.store",
    "p.stored",
    "s.connect",
    "s.process",
    "s.later",
    "s.store",
    "s.stored",
    "c.recv",
    "r.recv",
    "r.frame",
    "r.watch",
    "r.reply",
    "r.restart",
    "r.fence",
    "k.lease",
    "k.apply",
    "c.lost",
)
_REFUSALS = {"s.reject": 0.1, "s.release": 0.1, "s.fail": 0.1, "s.decline": 0.1, "p.abort": 0.05, "s.early": 0.1}
"""Most deliveries are accepted at last."""
LINGERING = 0.03
"""Weight of the steps of an application that takes long: a publisher can connect and send again meanwhile."""
READS_LATE = 0.03
"""Weight of a frame that comes over a slow network: publishers can move to another router meanwhile."""
_FINISHES = frozenset({"s.process", "s.later", "s.reject", "s.decline"})
_SELDOM = {
    "p.wake": 0.1,
    "n.flow": 0.1,
    "n.heal": 0.1,
    "n.idle": 0.05,
    "n.end": 0.02,
    "k.return": 0.1,
    "k.miss": 0.3,
    "r.rejoin": 0.2,
    "o.end": 0.1,
    "o.expire": 0.05,
}
"""What ends a fault does not come at once, until the world heals."""
PAUSES: tuple[tuple[float, tuple[int, ...]], ...] = (
    (0.0, ()),
    (0.1, (2_000,)),
    (0.05, (2_000, 20_000)),
    (0.02, (20_000, 60_000)),
)
"""How often, and for how many milliseconds: long against keep-alives and probes, or against leases and time-outs."""


@dataclass(frozen=True, slots=True)
class Tempo:
    """How often each kind of step is taken, and how fast time passes."""

    bias: Mapping[str, float]
    """By verb; a step that is not named has the weight 1."""
    late_zombies: float = 1.0
    """Weight of reading bytes of a dead connection: they may be read much later (N-1)."""
    pause: float = 0.0
    """Part of the steps after which some seconds pass with everything under way."""
    pauses_ms: tuple[int, ...] = ()


HEALING = Tempo(_REFUSALS)


def _step(world: World, rng: random.Random, tempo: Tempo, *, is_healing: bool = False) -> bool:
    """One step; False when nothing can happen any more, now or at a deadline within HEALING_S."""
    choices = world.choices()
    if choices:
        world.do(rng.choices(choices, _weights(world, choices, tempo))[0])
        if (milliseconds := rng.choice([0, 0, 1, 20])) > 0:
            world.do(("wait", milliseconds))
        if tempo.pause and rng.random() < tempo.pause:
            world.do(("wait", rng.choice(tempo.pauses_ms)))
        return True
    deadline = world.next_deadline()
    may_wait = not is_healing and not world.mortals.are_waited_for
    if deadline is None or (deadline > world.now + HEALING_S and not may_wait):
        return False
    world.do(("wait", max(1, math.ceil((deadline - world.now) * 1000))))
    return True


def _weights(world: World, choices: list[Choice], tempo: Tempo) -> list[float]:
    """One for each choice; a slow store alone may leave a thousand of them, so what is rare is looked at apart."""
    bias = tempo.bias
    weights = [bias.get(choice[0], 1.0) for choice in choices]
    if tempo.late_zombies < 1.0:
        for at, choice in enumerate(choices):
            if choice[0] == "r.recv" and not world.connections[choice[1]].is_open:
                weights[at] *= tempo.late_zombies
    if world.traits.lingers:
        for at, choice in enumerate(choices):
            if choice[0] in _FINISHES:
                weights[at] *= LINGERING
    if world.traits.reads_late:
        for at, choice in enumerate(choices):
            if choice[0] == "c.recv" and world.is_subscribers(choice[1]):
                weights[at] *= READS_LATE
    return weights
