"""Where a fault that a seed has drawn strikes now: at which router, client, or pair of them."""

from __future__ import annotations

import random
from collections.abc import Callable

from chaos.simulator import coverage
from chaos.simulator.fault_names import (
    ALL_FAULTS,
    DEATH,
    DETACHES,
    DRAIN,
    NEW_FILTER,
    NEW_TOPIC,
    ORDER,
    PAUSE,
    QUIT,
    RELOAD,
    RENEWAL,
    ROLLBACK,
)
from chaos.simulator.filters import FILTERS
from chaos.simulator.publishers import Publisher
from chaos.simulator.roles import Keeps
from chaos.simulator.shipped_publisher import ShippedPublisher
from chaos.simulator.shipped_subscriber import ShippedSubscriber
from chaos.simulator.steps import Choice
from chaos.simulator.stock_clients import StockPublisher
from chaos.simulator.subscribers import Subscriber
from chaos.simulator.world import World


def draw_fault(world: World, rng: random.Random, budget: dict[str, int]) -> Choice | None:
    """A fault that is left in the budget and can strike now; it is taken off the budget."""
    left = [fault for fault, count in budget.items() if count]
    if not left:
        return None
    fault = rng.choice(left)
    choice = _PLACES[fault](world, rng, "!" + fault)
    if choice is not None:
        budget[fault] -= 1
    return choice


def _live(world: World) -> list[int]:
    return [router.index for router in world.routers if router.records is not None]


def _at_router(world: World, rng: random.Random, verb: str) -> Choice | None:
    live = [index for index in _live(world) if not world.routers[index].is_isolated]
    if live and verb == "!crash" and rng.random() < 0.5:
        world.do(("!lose", rng.choice(live)))
    return (verb, rng.choice(live)) if live else None


def _drained(world: World, rng: random.Random, verb: str) -> Choice | None:
    serving = [index for index in _live(world) if world.routers[index].drains_until is None]
    return (verb, rng.choice(serving), rng.choice([1_000, 3_000, 10_000])) if serving else None


def _ordered(world: World, rng: random.Random, verb: str) -> Choice | None:
    live = _live(world)
    if not live:
        return None
    return (verb, rng.choice(world.subscribers).index, rng.choice(live))


def _for_a_while(world: World, rng: random.Random, verb: str) -> Choice | None:
    live = _live(world)
    if not live or (verb == "!freeze" and not world.traits.leases):
        return None
    return (verb, rng.choice(live), rng.choice([300, 3_000, 8_000, 12_000, 25_000]))


def _everywhere(world: World, rng: random.Random, verb: str) -> Choice | None:
    return (verb, 0) if _live(world) and world.etcd.is_up else None


def _reloaded(world: World, rng: random.Random, verb: str) -> Choice | None:
    """Seldom before there are letters."""
    traits = world.traits
    if not traits.letters or world.is_without_letters:
        return None
    if traits.reload_at_sync and not world.is_letters_sync_under_way():
        return None
    return (verb, 0) if world.coverage[coverage.LETTER] or rng.random() < 0.03 else None


def _from_backup(world: World, rng: random.Random, verb: str) -> Choice | None:
    """Seldom: less is promised in such a world. What the maps hold of before stays there: it must not fill them.

    A subscription that was closed since the backup is back, for T_sub: a day where it asked for *never*.
    """
    return (verb, rng.choice([0, 1, 3, 8, 20])) if _may_go_back(world) and rng.random() < 0.1 else None


def _put_back(world: World, rng: random.Random, verb: str) -> Choice | None:
    """Only what some router remembers of is noticed (the protocol page, *What stays open*)."""
    back = rng.choice([1, 3, 8, 20])
    is_noticed = max(router.seen for router in world.routers) > world.etcd.revision - back
    return (verb, back) if is_noticed and _may_go_back(world) and rng.random() < 0.3 else None


def _may_go_back(world: World) -> bool:
    traits = world.traits
    return not (traits.never or traits.narrows or traits.map_bound < world.limits.window * 8)


def _between_routers(world: World, rng: random.Random, verb: str) -> Choice | None:
    live = _live(world)
    if len(live) < 2:
        return None
    one, other = rng.sample(live, 2)
    return (verb, one, other)


def _connected(world: World, verb: str) -> list[int]:
    clients = world.publishers if verb.endswith("-p") else world.subscribers
    return [client.index for client in clients if client.connection is not None]


def _at_client(world: World, rng: random.Random, verb: str) -> Choice | None:
    connected = _connected(world, verb)
    if verb == "!close-s":  # what nobody is there for would wait without end (I-3e)
        connected = [index for index in connected if not world.gets_letters(index)]
    if verb in ("!close-s", "!renew-s"):
        connected = [index for index in connected if world.subscribers[index].is_replied]
    if verb in ("!early-p", "!close-p"):
        connected = [index for index in connected if isinstance(world.publishers[index], Publisher)]
        connected = [index for index in connected if world.publishers[index].is_replied]
    if verb.startswith("!torn") and not (world.traits.durable and world.traits.shipped):
        return None
    if verb == "!pause-p":  # a journal that another process can take over
        connected = [i for i in connected if world.traits.durable and isinstance(world.publishers[i], ShippedPublisher)]
    return (verb, rng.choice(connected)) if connected else None


def _quit(world: World, rng: random.Random, verb: str) -> Choice | None:
    stock = [each.index for each in world.publishers if isinstance(each, StockPublisher) and each.is_replied]
    return (verb, rng.choice(stock), rng.randrange(4)) if stock else None


def _killed(world: World, rng: random.Random, verb: str) -> Choice | None:
    """In the middle of what it sends."""
    mortal = [
        publisher.index
        for publisher in world.publishers
        if world.is_mortal(publisher.index)
        and publisher.keeps is Keeps.MAP
        and publisher.is_wanted
        and publisher.next
        and publisher.leftover()
    ]
    return (verb, rng.choice(mortal)) if mortal else None


def _trimmed(world: World, rng: random.Random, verb: str) -> Choice | None:
    connected = _connected(world, verb)
    return (verb, rng.choice(connected), rng.choice([0, 0, 1, 2, 3])) if connected else None


def _away(world: World, rng: random.Random, verb: str) -> Choice | None:
    connected = _connected(world, verb)
    return (verb, rng.choice(connected), rng.choice([5, 40, 70, 150])) if connected else None


def _narrowed(world: World, rng: random.Random, verb: str) -> Choice | None:
    """From the pattern to a topic and never back: what was settled because it did not match is forgotten (E-6)."""
    wide = [s.index for s in world.subscribers if s.connection is not None and s.topic == world.pattern()]
    wide = [index for index in wide if world.traits.topics > 1 and not world.is_member(index)]
    return (verb, rng.choice(wide), rng.choice(world.publishers).index) if wide else None


def _refiltered(world: World, rng: random.Random, verb: str) -> Choice | None:
    connected = _connected(world, verb) if not world.traits.sharers else []  # members have the filter they share
    return (verb, rng.choice(connected), rng.randrange(len(FILTERS))) if connected else None


def _stolen(world: World, rng: random.Random, verb: str) -> Choice | None:
    clients = world.publishers if verb.endswith("-p") else world.subscribers
    known = [client.index for client in clients if type(client) in _WITH_MAPS]
    if verb.endswith("-s"):  # a thief has no map, so what it takes over goes to other members: S-1 is broken
        known = [index for index in known if not world.is_member(index)]
    usable = world.usable_routers()
    return (verb, rng.choice(known), rng.choice(usable).index) if known and usable else None


_WITH_MAPS = (Publisher, Subscriber, ShippedPublisher, ShippedSubscriber)
_Place = Callable[[World, random.Random, str], "Choice | None"]
_KINDS: tuple[tuple[_Place, tuple[str, ...]], ...] = (
    (_at_router, ("crash", "leave", "isolate", "relist")),
    (_drained, (DRAIN,)),
    (_ordered, (ORDER,)),
    (_quit, (QUIT,)),
    (_for_a_while, ("stall", "freeze")),
    (_everywhere, ("blackout", "outage", "compact")),
    (_between_routers, ("reset", "clog", "cut", "shed", "twist", "double")),
    (
        _at_client,
        (
            "drop-p",
            "drop-s",
            "half-p",
            "half-s",
            "expire-s",
            "expire-p",
            "crash-p",
            "crash-s",
            "torn-p",
            "torn-s",
            "early-p",
            "close-p",
            "close-s",
            RENEWAL,
            PAUSE,
        ),
    ),
    (_away, ("away-p", "away-s", *DETACHES)),
    (_from_backup, ("restore",)),
    (_put_back, (ROLLBACK,)),
    (_reloaded, (RELOAD,)),
    (_trimmed, ("trim-p", "trim-s")),
    (_killed, (DEATH,)),
    (_narrowed, (NEW_TOPIC,)),
    (_refiltered, (NEW_FILTER,)),
    (_stolen, ("thief-p", "thief-s")),
)
_PLACES = {fault: place for place, faults in _KINDS for fault in faults}
assert set(_PLACES) == set(ALL_FAULTS)
