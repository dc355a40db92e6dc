"""The configurations of the reference model, run with the real cores: bounded systematic search.

The model visits every state of a configuration. Real cores cannot be copied and compared cheaply, so a schedule is
run from the start every time, and it is the schedules that are enumerated, by how far they differ from one of two
default orders:

- The *default orders* are fair and deterministic: what could happen longest happens next, and time passes only when
  nothing else can happen. In one of them publishers send as soon as they may, in the other not before everything else
  has come to rest.
- A *placement* is a departure from it in front of step k: a fault of the configuration's budget; the first attach of
  a latecomer; or a delay, which holds back what the default order would do next (one watch, one connection's bytes,
  one channel, one client) for `SHORT` steps of others or until nothing else can happen. A fault that makes clients
  attach again names the router where they do, and so does a latecomer's attach: every target is a placement of its own.
- *Level n* holds the schedules with n faults or delays, and with latecomers at every place or at none. The placements
  of a schedule are added from its start to its end, so each schedule exists once.

*Enumerated*: level 0, then level 1 and so on, each completely while it fits into half of what is left of the number
asked for.
*Sampled*: with the rest, chains. A chain starts at the default order and adds one random placement after another, up
to the whole budget of faults and `DELAYS_IN_A_CHAIN` delays; every schedule on the way is run, and none twice.

*Neither*: interleavings that need more delays or delays of another length; positions inside a turn of a core, which is
atomic. Behind the last step everything heals in one random order with a fixed seed (`schedule.heal`), in which
the latecomers that are still missing join; then the judge looks at what is left.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.model_configurations import Configuration
from chaos.simulator.scenario import Scenario
from chaos.simulator.schedule import heal
from chaos.simulator.steps import Choice
from chaos.simulator.violation import Violation
from chaos.simulator.world import World
from delivery_records.attachments.view import Kind

SHORT = 6
"""Steps of others after which a short delay ends: long enough to be overtaken by a whole exchange with one client."""
PATIENCE_S = 1.0
"""Time the default order waits for a deadline: barriers and echoes come within it, time-outs of clients do not."""
MOST_STEPS = 400
"""More than any run of these small worlds has; a run that gets there heals from there."""
FRUITLESS_CHAINS = 200
"""Chains without a new schedule after which there are hardly any left."""
DELAYS_IN_A_CHAIN = 2
"""Beyond that the delays of a chain mostly undo each other."""

_SENDS = ("p.send", "p.submit")
"""A reference publisher sends, the application of a shipped one submits."""
_ATTACHES = ("p.connect", "s.connect")

Source: TypeAlias = Choice
"""What the default order is fair to, and what a delay holds back: a choice, or all places a client may attach at."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One departure from the default order, in front of step `at`."""

    at: int
    steps: tuple[Choice, ...] = ()
    """Done there: a fault, or a latecomer's attach."""
    router: int = -1
    """Where the clients that lose their link by it attach again; -1: where they were, or the next one."""
    hold: Source | None = None
    """Held back from there on."""
    until: int = 0
    """Step at which it is let go again; 0: when nothing else can happen."""

    @property
    def kind(self) -> str:
        """The fault, "hold", or "p.connect" or "s.connect" of a latecomer."""
        return "hold" if self.hold is not None else self.steps[-1][0]

    @property
    def is_first_attach(self) -> bool:
        """A latecomer's."""
        return self.kind in _ATTACHES


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule: a default order and the placements in it, by rising step."""

    sends_last: bool
    placements: tuple[Placement, ...] = ()

    def plus(self, placement: Placement) -> Plan:
        """One placement more."""
        return Plan(self.sends_last, (*self.placements, placement))


@dataclass(slots=True)
class Run:
    """One schedule: how it ended, and what may be placed behind its last placement."""

    violation: str | None
    scenario: Scenario
    deliveries: int
    children: list[Placement]


@dataclass(slots=True)
class Exploration:
    """What `explore` did; every count is of different schedules."""

    configuration: Configuration
    levels: list[int] = field(default_factory=list)
    """Schedules of level 0, 1 ..., each level complete."""
    sampled: int = 0
    """Schedules beyond them, on chains."""
    steps: int = 0
    deliveries: int = 0
    violation: str | None = None
    scenario: Scenario | None = None
    """The schedule that breaks a guarantee; replay it with `scenario.replay`."""

    @property
    def schedules(self) -> int:
        """All that were run."""
        return sum(self.levels) + self.sampled


def explore(
    configuration: Configuration, schedules: int, seed: int = 0, cores: Cores = SHIPPED
) -> Exploration:
    """Run that many different schedules of one configuration; stop at the first that breaks a guarantee.

    Args:
        configuration: the world, the links attached at first, and the budget of faults.
        schedules: how many; fewer are run when there are not so many.
        seed: draws the chains, and nothing else.
        cores: shipped ones, or with a rule edited out.
    """
    search = _Search(configuration, schedules, cores)
    search.enumerate()
    search.sample(random.Random(f"{seed} {configuration.name} {configuration.budget}"))
    return search.done


class _Search:
    """Levels first, then chains."""

    def __init__(self, configuration: Configuration, schedules: int, cores: Cores) -> None:
        self.done = Exploration(configuration)
        self._schedules = schedules
        self._cores = cores
        self._children: dict[Plan, list[Placement]] = {}
        """Of every schedule that was run."""

    @property
    def _room(self) -> int:
        return 0 if self.done.violation is not None else self._schedules - len(self._children)

    def enumerate(self) -> None:
        """Each level that fits into half of what is left, completely; the other half is for chains."""
        level = [Plan(False), Plan(True)]
        while level and len(level) <= self._room // 2:
            following: list[Plan] = []
            before, kept = len(self._children), self._room // 2
            while level and self._room > kept:
                plan = level.pop()
                for child in self._run(plan):
                    (level if child.is_first_attach else following).append(plan.plus(child))
            if level or self.done.violation is not None:
                self.done.sampled = len(self._children) - before
                return
            self.done.levels.append(len(self._children) - before)
            level = following

    def sample(self, rng: random.Random) -> None:
        """Chains, until the number is full or new ones are hard to find."""
        fruitless = 0
        while self._room and fruitless < FRUITLESS_CHAINS:
            before = len(self._children)
            plan = Plan(rng.random() < 0.5)
            while self._room:
                found = self._children.get(plan)
                possible = self._run(plan) if found is None else found
                if sum(placement.hold is not None for placement in plan.placements) == DELAYS_IN_A_CHAIN:
                    possible = [child for child in possible if child.hold is None]
                if not possible:
                    break
                plan = plan.plus(_draw(rng, possible))
            self.done.sampled += len(self._children) - before
            fruitless = 0 if len(self._children) > before else fruitless + 1

    def _run(self, plan: Plan) -> list[Placement]:
        run = run_schedule(self.done.configuration, plan, self._cores)
        self._children[plan] = run.children
        self.done.steps += len(run.scenario.steps)
        self.done.deliveries += run.deliveries
        if run.violation is not None:
            self.done.violation, self.done.scenario = run.violation, run.scenario
        return run.children


def _draw(rng: random.Random, possible: list[Placement]) -> Placement:
    """A kind, then one of it; half of the latecomers come at once, since with nobody there little happens."""
    kind = rng.choice(sorted({child.kind for child in possible}))
    found = [child for child in possible if child.kind == kind]
    if found[0].is_first_attach and rng.random() < 0.5:
        found = [child for child in found if child.at == found[0].at]
    return rng.choice(found)


def run_schedule(configuration: Configuration, plan: Plan, cores: Cores = SHIPPED) -> Run:
    """Run a default order with its placements, heal, judge."""
    order = _Order(configuration, plan, cores)
    violation: str | None = None
    try:
        order.run()
        heal(order.world, random.Random(0))
    except Violation as broken:
        violation = str(broken)
    except Exception as broken:  # noqa: BLE001 - whatever a core raises is a finding
        violation = f"BROKEN: {type(broken).__name__} {broken}"
    scenario = Scenario(configuration.setting, tuple(order.world.story))
    return Run(violation, scenario, order.world.judge.deliveries, order.children)


def attach(world: World, configuration: Configuration) -> None:
    """Bring the links of the configuration up, and everything to rest, before anything is sent."""
    _settle(world)
    for link in configuration.attached:
        world.do((f"{link.kind}.connect", link.index, link.router))
        _settle(world)


def _settle(world: World) -> None:
    """Whatever is under way arrives; nobody attaches and nobody sends."""
    while True:
        possible = [choice for choice in world.choices() if choice[0] not in (*_ATTACHES, *_SENDS)]
        if possible:
            world.do(possible[0])
        elif not wait_for_deadline(world):
            return


def wait_for_deadline(world: World) -> bool:
    """Let time pass to the next deadline; False, and nothing happens, when that is farther than PATIENCE_S."""
    deadline = world.next_deadline()
    if deadline is None or deadline > world.now + PATIENCE_S:
        return False
    world.do(("wait", max(1, math.ceil((deadline - world.now) * 1000))))
    return True


class _Order:
    """The default order with its placements; collects what else could be placed."""

    def __init__(self, configuration: Configuration, plan: Plan, cores: Cores) -> None:
        self.world = configuration.setting.build(cores)
        self.configuration = configuration
        self.children: list[Placement] = []
        self._sends_last = plan.sends_last
        self._placements = {placement.at: placement for placement in plan.placements}
        self._last = max(self._placements, default=-1)
        self._left = dict(configuration.budget)
        for placement in plan.placements:
            for step in placement.steps:
                fault = step[0].removeprefix("!")
                if fault in self._left:
                    self._left[fault] -= 1
        self._waiting = set(configuration.latecomers)
        self._home = {(link.kind, link.index): link.router for link in configuration.attached}
        self._age: dict[Source, int] = {}
        self._held: dict[Source, int] = {}

    def run(self) -> None:
        """To the end of the default order."""
        attach(self.world, self.configuration)
        for at in range(MOST_STEPS):
            self._place(at)
            found = self._next(at)
            if found is None:
                break
            source, choice = found
            if at > self._last:
                self._collect(at, source)
            self._age.pop(source, None)
            if choice is None:
                wait_for_deadline(self.world)
            else:
                self.world.do(choice)

    # ------------------------------------------------------------------ the default order

    def _next(self, at: int) -> tuple[Source, Choice | None] | None:
        """What happens next; None for the choice: time passes. None: nothing is left but latecomers and held things."""
        possible = self._possible()
        for source in [source for source, until in self._held.items() if until and until <= at]:
            del self._held[source]
        free = {source: choice for source, choice in possible.items() if source not in self._held}
        hasty = {s: c for s, c in free.items() if s[0] not in _SENDS} if self._sends_last else free
        if not hasty and self._is_deadline_near():
            return ("wait", 0), None
        free = hasty or free
        if not free:
            self._held.clear()
            free = possible
        for source in free:
            self._age.setdefault(source, at)
        self._age = {source: since for source, since in self._age.items() if source in possible}
        oldest = min(free, key=lambda source: self._age[source], default=None)
        return None if oldest is None else (oldest, free[oldest])

    def _is_deadline_near(self) -> bool:
        deadline = self.world.next_deadline()
        return deadline is not None and deadline <= self.world.now + PATIENCE_S

    def _possible(self) -> dict[Source, Choice]:
        """Everything that can happen, at one router for each client that attaches."""
        found: dict[Source, Choice] = {}
        restarts = self.configuration.restarts or not self._usable()
        for choice in self.world.choices():
            verb = choice[0]
            if verb in _ATTACHES:
                client = (verb[0], choice[1])
                if client not in self._waiting:
                    found[verb, client[1]] = (verb, client[1], self._target(client))
            elif verb != "r.restart" or restarts:
                found[choice] = choice
        return found

    def _usable(self) -> list[int]:
        return [r.index for r in self.world.routers if r.records is not None and not r.is_isolated]

    def _target(self, client: tuple[str, int]) -> int:
        """Its router, or the next one that can be used."""
        home, usable = self._home[client], self._usable()
        return next((index for index in usable if index >= home), usable[0])

    # ------------------------------------------------------------------ placements

    def _place(self, at: int) -> None:
        placement = self._placements.get(at)
        if placement is None:
            return
        if placement.hold is not None:
            self._held[placement.hold] = placement.until
        if placement.router >= 0:
            for client in self._moved(placement.steps[-1]):
                self._home[client] = placement.router
        for step in placement.steps:
            self.world.do(step)
            if placement.is_first_attach:
                client = (step[0][0], step[1])
                self._waiting.discard(client)
                self._home[client] = step[-1]

    def _moved(self, fault: Choice) -> list[tuple[str, int]]:
        """The clients that lose their link by a fault."""
        verb, index = fault[0], fault[1]
        if verb in ("!crash", "!isolate"):
            return [client for client, home in self._home.items() if home == index]
        return [(verb[-1], index)] if (verb[-1], index) in self._home else []

    def _collect(self, at: int, source: Source) -> None:
        """Everything that may be placed in front of step `at`, where the default order would take `source`."""
        if source[0] != "wait":
            self.children += [Placement(at, hold=source, until=at + SHORT), Placement(at, hold=source)]
        for fault, left in self._left.items():
            if left:
                self.children += self._faults(at, fault)
        for kind, index in sorted(self._waiting):
            for router in self._usable():
                self.children.append(Placement(at, ((f"{kind}.connect", index, router),)))

    def _faults(self, at: int, fault: str) -> Iterator[Placement]:
        """The fault at everybody it can happen to, as the model has it, once for each router to go to afterwards."""
        world = self.world
        if fault in ("crash", "isolate"):
            for index in self._usable():
                others = [r.index for r in world.routers if r.index != index] or [index]
                for router in others:
                    yield Placement(at, (("!" + fault, index),), router)
                    if fault == "crash" and self._is_sending(index):
                        yield Placement(at, (("!lose", index), ("!crash", index)), router)
        elif fault == "reset":
            for one in range(len(world.routers)):
                for other in range(one):
                    if self._is_between(one, other):
                        yield Placement(at, (("!reset", one, other),))
        else:
            kind = fault[-1]
            for client in world.publishers if kind == "p" else world.subscribers:
                if (kind, client.index) not in self._waiting and self._can_meet(kind, client.index, fault):
                    for router in [-1] if fault == "close-s" else self._usable():
                        yield Placement(at, (("!" + fault, client.index),), router)

    def _is_sending(self, index: int) -> bool:
        rid = self.world.routers[index].rid
        return any(under_way for (sender, _), under_way in self.world.frames.items() if sender == rid)

    def _is_between(self, one: int, other: int) -> bool:
        rids = {self.world.routers[one].rid, self.world.routers[other].rid}
        return any(under_way for pair, under_way in self.world.frames.items() if set(pair) == rids)

    def _can_meet(self, kind: str, index: int, fault: str) -> bool:
        """Drops and closing need a link, expiries a key; a client may crash at any time."""
        world = self.world
        if fault.startswith("expire"):
            key = world.publisher_key(index) if kind == "p" else world.subscription_key(index)
            return (Kind.PUBLISHER if kind == "p" else Kind.SUBSCRIPTION, key) in world.etcd.keys
        if fault == "close-s":
            return world.subscribers[index].is_replied
        client = world.publishers[index] if kind == "p" else world.subscribers[index]
        return fault.startswith("crash") or client.connection is not None
