"""What a seed draws: the size of its world, how clients behave, and how often each fault may happen.

Swarm testing: every knob is drawn, so that seeds differ in kind and not only in order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace

from chaos.simulator.cores import SHIPPED, Cores
from chaos.simulator.fault_names import (
    ALL_FAULTS,
    DETACHES,
    DRAIN,
    FAULTS,
    NEW_FILTER,
    NEW_TOPIC,
    ORDER,
    QUIT,
    RELOAD,
    RENEWAL,
    ROLLBACK,
)
from chaos.simulator.filters import FILTERS
from chaos.simulator.traits import Traits
from chaos.simulator.world import World


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
            self.routers,
            self.publishers,
            self.subscribers,
            self.messages,
            window=self.window,
            prefetch=self.prefetch,
            traits=self.traits,
            cores=cores,
        )


def draw_setting(rng: random.Random) -> Setting:
    """A world."""
    publishers = rng.choice([1, 1, 2])
    traits = Traits(
        rng.random() < 0.3,
        rng.random() < 0.2,
        rng.random() < 0.3,
        rng.choice([1000, 1000, 4 * publishers]),
        rng.choice([45, 90]),
    )
    return Setting(
        rng.choice([1, 2, 3, 3]),
        publishers,
        rng.choice([1, 2, 3]),
        rng.choice([2, 4, 8, 20, 60, 150]),
        rng.choice([1, 2, 3, 8, 30]),
        rng.choice([1, 2, 5, 50]),
        traits,
    )


def draw_traits(rng: random.Random, traits: Traits) -> Traits:
    """How clients, leases and the store of a world behave.

    Args:
        rng: of its own, so that the size of a world does not depend on how many traits there are.
        traits: what was drawn before.
    """
    shipped = rng.random() < 0.6
    return replace(
        traits,
        shipped=shipped,
        durable=shipped and rng.random() < 0.7,
        out_of_order=rng.random() < 0.3,
        in_doubt=rng.random() < 0.2,
        late_joiner=rng.random() < 0.2,
        late_loss=rng.random() < 0.4,
        slow_store=rng.random() < 0.4,
        reports=rng.random() < 0.2,
        large=rng.random() < 0.05,
        leases=rng.random() < 0.5,
        slow_percent=rng.choice([0, 10, 33]),
        batches=rng.random() < 0.3,
    )


def draw_weaker(rng: random.Random, traits: Traits) -> Traits:
    """Some worlds have clients to whom less is promised, so the judge asks for less there: not too many.

    Args:
        rng: of its own, so that a world without such clients goes the same way with them or without.
        traits: what the other clients do.
    """
    return replace(
        traits,
        refuses=rng.random() < 0.2,
        stock_publisher=rng.random() < 0.15,
        stock_subscriber=rng.random() < 0.15,
        presettled_publisher=rng.random() < 0.1,
        settled_subscriber=rng.random() < 0.1,
    )


def draw_resuming(rng: random.Random, traits: Traits) -> bool:
    """In some worlds a publisher resumes its link as AMQP says (A-3b), in place of one that keeps no map.

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    return not traits.presettled_publisher and rng.random() < 0.15


def draw_narrow(rng: random.Random, traits: Traits) -> Traits:
    """Some worlds have subscribers whose frames become too small for their maps (C-4).

    Not where an application finishes out of order and its process may die: such a map may never become smaller (the
    protocol page, *What stays open*).

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    may_stay = traits.out_of_order and traits.durable
    return replace(traits, narrows=traits.shipped and not may_stay and rng.random() < 0.1)


def draw_budget(rng: random.Random) -> dict[str, int]:
    """How often each fault may happen; half of the seeds look deep into one or two kinds."""
    if rng.random() < 0.5:
        focus = rng.sample(FAULTS, rng.choice([1, 2, 3]))
        return {fault: rng.choice([1, 2, 4]) if fault in focus else 0 for fault in FAULTS}
    return {fault: rng.choice([0, 0, 0, 1, 2, 3]) for fault in FAULTS}


def draw_calm(rng: random.Random, traits: Traits) -> bool:
    """In some worlds nothing fails: many of those in which something is sent at most once, for faults may drop that.

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    return rng.random() < (0.4 if traits.presettled_publisher or traits.settled_subscriber else 0.02)


def draw_drains(rng: random.Random) -> dict[str, int]:
    """Some worlds have a router drained, or several (K-8a).

    Args:
        rng: of its own.
    """
    return {DRAIN: rng.choice([1, 2, 4])} if rng.random() < 0.15 else {}


def draw_orders(rng: random.Random) -> dict[str, int]:
    """Some worlds have operators who end subscriptions (K-5a).

    Args:
        rng: of its own.
    """
    return {ORDER: rng.choice([1, 2, 4])} if rng.random() < 0.15 else {}


def draw_renewals(rng: random.Random) -> dict[str, int]:
    """Some worlds have subscribers that unsubscribe and subscribe again under the same name (I-6a).

    Args:
        rng: of its own.
    """
    return {RENEWAL: rng.choice([1, 2, 4])} if rng.random() < 0.25 else {}


def draw_topics(rng: random.Random) -> tuple[int, dict[str, int]]:
    """Some worlds have two topics, and subscribers that come back with one of them (A-2, E-6).

    Args:
        rng: of its own.
    """
    return (2, {NEW_TOPIC: rng.choice([1, 2, 4])}) if rng.random() < 0.15 else (1, {})


def draw_sessions(rng: random.Random) -> dict[str, int]:
    """In some worlds clients detach and keep their AMQP session, which their expiry policy waits for (A-9).

    Args:
        rng: of its own.
    """
    return {fault: rng.choice([1, 2, 4]) for fault in DETACHES} if rng.random() < 0.15 else {}


def draw_rollbacks(rng: random.Random) -> dict[str, int]:
    """In some worlds older data of etcd are put back, and nobody says so (K-9).

    Args:
        rng: of its own.
    """
    return {ROLLBACK: rng.choice([1, 1, 2])} if rng.random() < 0.05 else {}


def draw_patience(rng: random.Random, traits: Traits) -> Traits:
    """In some worlds a policy ends subscriptions, or their links, that make no progress (K-5b).

    Not where frames become too small for maps (the protocol page, *What stays open*).

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    if traits.narrows or rng.random() >= 0.15:
        return traits
    return replace(traits, patience_s=rng.choice([2, 10, 40]), expels=rng.random() < 0.6)


def draw_longest(rng: random.Random) -> int:
    """In some worlds a policy keeps subscriptions and sessions for less time than clients ask for (K-5c).

    Args:
        rng: of its own.
    """
    return rng.choice([5, 20, 70]) if rng.random() < 0.1 else 0


def draw_require(rng: random.Random, traits: Traits) -> int:
    """In some worlds publishers require subscriptions (I-3c).

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    return rng.choice([1, 1, 2, 3]) if traits.shipped and rng.random() < 0.15 else 0


def draw_waits(rng: random.Random, setting: Setting) -> bool:
    """In half of the worlds in which they require one, publishers wait for it (I-3f): it is there in the end.

    Of several topics one may be without a subscription for ever, as where all subscribers get dead letters.

    Args:
        rng: of its own.
        setting: what was drawn before.
    """
    traits = setting.traits
    answering = setting.subscribers - traits.letters - traits.settled_subscriber  # at most once counts for nobody (c.3)
    has_some = traits.topics == 1 and answering > 0 and not traits.late_joiner
    return has_some and traits.require == 1 and rng.random() < 0.5


def draw_storers(rng: random.Random, setting: Setting) -> Traits:
    """In most worlds in which publishers require subscriptions, some of these only store messages (I-3g).

    Where publishers wait for one, one that processes stays.

    Args:
        rng: of its own.
        setting: what was drawn before.
    """
    traits = setting.traits
    if not traits.require or rng.random() < 0.3:
        return traits
    answering = setting.subscribers - traits.sharers - traits.letters - traits.settled_subscriber
    storers = rng.randint(0, max(0, answering - traits.waits))
    return replace(traits, storers=storers, require_processed=1 if traits.waits else rng.choice([0, 1, 1, 2]))


def draw_filters(rng: random.Random) -> tuple[int, dict[str, int]]:
    """In some worlds subscribers have filters, and come back with others (E-9).

    Args:
        rng: of its own.
    """
    if rng.random() >= 0.2:
        return 0, {}
    return rng.randint(1, len(FILTERS)), {NEW_FILTER: rng.choice([0, 1, 2, 4])}


def draw_deduplication(rng: random.Random, traits: Traits) -> Traits:
    """In some worlds subscribers drop copies (D-3); there a publisher must be one that sends copies.

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    sends_copies = traits.stock_publisher or traits.in_doubt
    if not traits.shipped or not sends_copies or rng.random() >= 0.5:
        return traits
    return replace(traits, remembers=rng.choice([1, 4, 1000]), lingers=rng.random() < 0.5)


def draw_policies(rng: random.Random, setting: Setting) -> Setting:
    """In some worlds topics have policies of their own (I-3d): for what is nobody's, and for failed attempts.

    Args:
        rng: of its own.
        setting: what was drawn before.
    """
    if rng.random() >= 0.2:
        return setting
    attempts = rng.choice([0, 2, 3])
    policies = replace(setting.traits, on_empty=rng.choice([0, 1, 2, 3]), attempts=attempts)
    delay_ms = rng.choice([0, 0, 300, 4000])
    messages = min(setting.messages, 60) if delay_ms > 300 else setting.messages  # else a world takes too long to rest
    return replace(setting, messages=messages, traits=replace(policies, delay_ms=delay_ms))


def draw_letters(rng: random.Random, traits: Traits) -> tuple[Traits, dict[str, int]]:
    """In some worlds a policy names a dead-letter topic (I-3e); there subscribers must be able to refuse.

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    if rng.random() >= 0.2:
        return traits, {}
    traits = replace(traits, letters=rng.choice([1, 1, 2]), late_letters=rng.choice([0, 0, 20, 70]), refuses=True)
    changes = {RELOAD: 1} if rng.random() < 0.2 else {}
    traits = replace(traits, reload_at_sync=rng.random() < 0.2)
    return replace(traits, letter_wait=rng.choice([0, 0, 2, 15])), changes


def draw_expiry(rng: random.Random, traits: Traits) -> int:
    """In some worlds a policy lets messages expire (E-10).

    Not where frames become too small for maps (the protocol page, *What stays open*).

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    return rng.choice([1, 4, 15, 40]) if not traits.narrows and rng.random() < 0.15 else 0


def draw_ends(rng: random.Random, traits: Traits) -> dict[str, int]:
    """Stock publishers end their links right behind what they send, or detach them and come back later (A-9a).

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    chance = rng.random() if traits.stock_publisher else 1.0
    fault = QUIT if chance < 0.5 else DETACHES[0]
    return {fault: rng.choice([1, 2, 4])} if chance < (0.5 if traits.session_end else 0.7) else {}


def draw_pairs(rng: random.Random, traits: Traits) -> bool:
    """In some worlds a subscriber and a publisher share an AMQP session (A-2d); none that is kept without a link.

    Args:
        rng: of its own.
        traits: what was drawn before.
    """
    return not traits.session_end and rng.random() < 0.15


def draw_streams(rng: random.Random, setting: Setting) -> Setting:
    """In some worlds some messages are large, and come in parts (L-1).

    Not where frames become too small for maps (the protocol page, *What stays open*).

    Args:
        rng: of its own.
        setting: what was drawn before.
    """
    traits = setting.traits
    if traits.narrows or traits.large or rng.random() >= 0.2:
        return setting
    streams = replace(traits, streams=rng.choice([1, 2, 3]), aborts=rng.random() < 0.3, reads_late=rng.random() < 0.1)
    return replace(setting, messages=min(setting.messages, 20), traits=streams)


def aimed_setting(rng: random.Random, setting: Setting, aim: tuple[str, ...]) -> Setting:
    """A small world, and what the aim says of it: `publishers=2`, `never=1`, any field of a setting or a trait.

    Raises:
        ValueError: an aim is neither a fault nor such a field.
    """
    small = replace(setting, routers=rng.choice([1, 2, 2]), publishers=1, messages=rng.choice([2, 3, 4]))
    sizes = {field.name: int for field in fields(Setting) if field.name != "traits"}
    kinds = {field.name: type(getattr(setting.traits, field.name)) for field in fields(Traits)}
    said: dict[str, int] = {}
    for word in aim:
        name, equals, value = word.partition("=")
        if name not in (sizes | kinds if equals else ALL_FAULTS):
            raise ValueError(f"{word} is neither a fault nor a field of a setting or a trait with its value")
        if equals:
            said[name] = int(value)
    traits = replace(small.traits, **{name: kinds[name](value) for name, value in said.items() if name in kinds})
    if traits.sharers and "settled_subscriber" not in said:
        traits = replace(traits, settled_subscriber=False)  # as where sharing is drawn
    if traits.waits:  # as where waiting is drawn: somebody is there who answers
        unsaid = {"settled_subscriber", "late_joiner"} - said.keys()
        traits = replace(traits, **dict.fromkeys(unsaid, False))
    return replace(small, traits=traits, **{name: value for name, value in said.items() if name in sizes})


def aimed_budget(rng: random.Random, aim: tuple[str, ...]) -> dict[str, int]:
    """Only these faults, each at least once."""
    return {fault: rng.choice([1, 2, 3, 4]) if fault in aim else 0 for fault in ALL_FAULTS}
