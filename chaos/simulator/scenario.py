"""Scenarios: a schedule written down, with what the routers answered. One text file each, readable as a story.

A scenario is found by searching seeds with a rule edited out, and shortened while the rule's absence still shows.
Replayed on the shipped core it must end well and give the same answers; with the edit it must break the same guarantee.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, fields

from chaos.simulator import wording
from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.routers import Router
from chaos.simulator.schedule import heal
from chaos.simulator.steps import Choice
from chaos.simulator.swarm import Setting
from chaos.simulator.traits import PLAIN, Traits
from chaos.simulator.violation import Violation
from chaos.simulator.world import World
from delivery_records.model import effects

_STEP = "- "
_ANSWER = "    "


@dataclass(frozen=True, slots=True)
class Scenario:
    """A world and what happens in it."""

    setting: Setting
    steps: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a replay ended: the violation or None, and the story with the routers' answers."""

    violation: str | None
    story: tuple[str, ...]


def replay(scenario: Scenario, cores: Cores = SHIPPED) -> Verdict:
    """Carry the steps out, then heal. A step that cannot happen in this core is passed over."""
    world = scenario.setting.build(cores)
    story: list[str] = []
    world.on_turn = lambda router, done: story.extend(_ANSWER + _reported(router, effect) for effect in _worth(done))
    try:
        for step in scenario.steps:
            story.append(_STEP + " ".join(str(part) for part in step))
            if _is_possible(world, step):
                world.do(step)
            else:
                story.append(_ANSWER + "does not come to it")
        world.on_turn = None
        heal(world, random.Random(0))
    except Violation as violation:
        return Verdict(str(violation), tuple(story))
    except Exception as broken:  # noqa: BLE001 - whatever a core raises is a finding
        return Verdict(f"BROKEN: {type(broken).__name__}", tuple(story))
    return Verdict(None, tuple(story))


def _is_possible(world: World, step: Choice) -> bool:
    if step[0] == "wait":
        return True
    if not str(step[0]).startswith("!"):
        return step in world.choices()
    arguments = [int(part) for part in step[1:]]
    verb = str(step[0])
    if verb in ("!expire-s", "!expire-p", "!blackout", "!outage", "!compact", "!restore", "!rollback", "!reload"):
        return True
    if verb.startswith("!thief"):
        return any(router.index == arguments[1] for router in world.usable_routers())
    if verb == "!end-s":
        return world.routers[arguments[1]].records is not None
    if verb[-2:] in ("-p", "-s"):
        clients = world.publishers if verb.endswith("-p") else world.subscribers
        return clients[arguments[0]].connection is not None
    routers = arguments[:1] if verb in ("!stall", "!freeze", "!drain") else arguments
    return all(world.routers[index].records is not None for index in routers)


def undisturbed(setting: Setting) -> Scenario:
    """A run of the shipped core without any fault, from the start to rest."""
    world = setting.build()
    heal(world, random.Random(0))
    return Scenario(setting, tuple(world.story))


def shorten(scenario: Scenario, cores: Cores, kind: str, still_worth: Callable[[], bool]) -> Scenario:
    """Leave out as many steps as possible while the replay still breaks the guarantee named by `kind`.

    `still_worth` is asked between trials, so that the caller can bound the time.
    """
    steps = list(scenario.steps)
    size = max(1, len(steps) // 2)
    while size and still_worth():
        at = 0
        while at < len(steps) and still_worth():
            shorter = steps[:at] + steps[at + size :]
            found = replay(Scenario(scenario.setting, tuple(shorter)), cores).violation
            if found is not None and found.startswith(kind):
                steps = shorter
            else:
                at += size
        size //= 2
    return Scenario(scenario.setting, tuple(steps))


# ---------------------------------------------------------------------- text


def write(scenario: Scenario, title: str, violation: str) -> str:
    """The scenario as text: head, setting, what happens without the rule, and the story on the shipped core."""
    setting = " ".join(
        f"{field.name}={getattr(scenario.setting, field.name)}"
        for field in fields(scenario.setting)
        if field.name != "traits"
    )
    drawn = {field.name: getattr(scenario.setting.traits, field.name) for field in fields(Traits)}
    traits = " ".join(f"{name}={int(value)}" for name, value in drawn.items() if value != getattr(PLAIN, name))
    head = [f"# {line}" for line in title.splitlines()]
    return "\n".join(
        [
            *head,
            f"world: {setting}",
            f"clients: {traits}",
            f"without the rule: {violation}",
            "",
            *replay(scenario).story,
            "",
        ]
    )


def read(text: str) -> tuple[Scenario, str, tuple[str, ...]]:
    """A written scenario: its steps, the violation it promises without the rule, and its story."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    head = dict(line.split(": ", 1) for line in lines[:3])
    numbers = {key: int(value) for key, value in (part.split("=") for part in head["world"].split())}
    knobs = {key: int(value) for key, value in (part.split("=") for part in head["clients"].split())}
    plain = {field.name: getattr(PLAIN, field.name) for field in fields(Traits)}
    traits = Traits(**{name: type(default)(knobs.get(name, default)) for name, default in plain.items()})
    story = tuple(lines[3:])
    steps = tuple(_parse(line.removeprefix(_STEP)) for line in story if line.startswith(_STEP))
    return Scenario(Setting(**numbers, traits=traits), steps), head["without the rule"], story


def _parse(line: str) -> Choice:
    verb, *arguments = line.split()
    numbers = [int(argument) for argument in arguments]
    return (verb, numbers[0], numbers[1]) if len(numbers) > 1 else (verb, numbers[0])


def _worth(done: list[effects.Effect]) -> list[effects.Effect]:
    return [effect for effect in done if not isinstance(effect, effects.Note)]


def _reported(router: Router, effect: effects.Effect) -> str:
    """One effect in one line."""
    if isinstance(effect, effects.SendToRouters):
        targets = " ".join(f"{rid}/{generation}.{sequence}" for rid, generation, sequence in effect.targets)
        return f"r{router.index} to {targets}: {wording.sent(effect.message)}"
    if isinstance(effect, effects.SendDatagram):
        return f"r{router.index} to {effect.rid}: {wording.sent(effect.message)}"
    if isinstance(effect, effects.Propose):
        what = "delete" if effect.record is None else "put"
        return f"r{router.index} proposes: {what} {effect.key[:9]} if revision is {effect.expect}"
    if isinstance(effect, effects.Read):
        return f"r{router.index} reads {effect.key[:9]}"
    return f"r{router.index}: {wording.done(effect)}"
