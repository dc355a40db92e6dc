"""What a seed draws of publishers that leave something behind: a session, a map, or a journal that another one has."""

from __future__ import annotations

import random
from dataclasses import replace

from chaos.simulator.fault_names import DEATH, PAUSE
from chaos.simulator.swarm import Setting
from chaos.simulator.traits import Traits


def draw_pauses(rng: random.Random) -> dict[str, int]:
    """In some worlds processes of publishers are paused until others have taken their journals over (P-b).

    Args:
        rng: of its own.
    """
    return {PAUSE: rng.choice([1, 2, 4])} if rng.random() < 0.2 else {}


def draw_what_is_left(seed: int, setting: Setting) -> tuple[Setting, dict[str, int]]:
    """What publishers leave behind, maps that do not fit frames (C-4, K-5d), and much at once (A-2b, A-2e, T-10).

    Args:
        seed: each of them is drawn with a number of its own.
        setting: what was drawn before.
    """
    setting, deaths = _draw_mortals(random.Random(f"mortals {seed}"), setting)
    traits = _draw_parts(random.Random(f"parts {seed}"), setting.traits)
    short = not traits.mortals and random.Random(f"short {seed}").random() < 0.1
    unread = random.Random(f"at once {seed}").random() < 0.15
    pieces = random.Random(f"pieces {seed}").random() < 0.15
    together = traits.slow_store and random.Random(f"together {seed}").random() < 0.3
    traits = replace(traits, short_sessions=short, unread=unread or together, pieces=pieces, together=together)
    return replace(setting, traits=traits), deaths


def _draw_mortals(rng: random.Random, setting: Setting) -> tuple[Setting, dict[str, int]]:
    """In some worlds publishers live shortly, and leave their sessions behind; maps are small there."""
    if setting.traits.narrows or setting.traits.letters or rng.random() >= 0.1:
        return setting, {}
    mortals = rng.choice([2, 3, 5])
    traits = replace(setting.traits, mortals=mortals, map_bound=rng.choice([2, 4, 8, 1000]))
    small = replace(setting, messages=min(setting.messages, 20), publishers=1 + mortals, traits=traits)
    return small, {DEATH: rng.choice([1, mortals])}


def _draw_parts(rng: random.Random, traits: Traits) -> Traits:
    """In some worlds frames become too small for maps, and routers take the rest of a map; or they do not."""
    if traits.narrows:
        return replace(traits, rounds=rng.random() < 0.5)
    return replace(traits, narrows=traits.shipped and rng.random() < 0.15)
