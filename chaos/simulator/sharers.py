"""What a seed draws of a subscription that several subscribers share (SH-1 to SH-6)."""

from __future__ import annotations

import random
from dataclasses import replace

from chaos.simulator.swarm import Setting
from chaos.simulator.traits import Traits


def draw_sharing(rng: random.Random, setting: Setting) -> Setting:
    """In some worlds subscribers share one subscription (SH-1); none of them takes its deliveries at most once.

    Args:
        rng: of its own.
        setting: what was drawn before.
    """
    if setting.traits.settled_subscriber or setting.traits.narrows or rng.random() >= 0.2:
        return setting
    sharers = rng.choice([2, 2, 3, 4])
    # With names of their own each would have a user of its own; and what members leave behind is kept for a day with
    # the policy *never*.
    traits = replace(setting.traits, sharers=sharers, same_names=False, never=False, filters=0)
    return replace(setting, subscribers=sharers + rng.choice([0, 0, 1]), traits=traits)


def draw_declines(rng: random.Random, traits: Traits) -> bool:
    """In some worlds one member declines whatever it gets, so that others get it behind it (SH-5).

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    return traits.sharers > 1 and rng.random() < 0.2


def draw_groups(rng: random.Random, traits: Traits) -> int:
    """In some worlds a shared subscription keeps groups of messages in order (SH-6).

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    return rng.choice([0, 0, 1, 2, 3]) if traits.sharers else 0


def draw_pulls(rng: random.Random, traits: Traits) -> bool:
    """In some worlds members give credit for what comes next before they answer (SH-2).

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    return traits.sharers > 0 and rng.random() < 0.3
