"""Filters of simulated subscriptions (E-9), and a judge of what they keep from subscribers.

A filter chooses messages by the remainder of their number, which is in their bytes; `local` excludes what the
subscriber's own container publishes, and `none` everything.
"""

from __future__ import annotations

from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.subscriber.filters import CompiledFilter, UnknownFilter

MODULUS = 3
NOTHING = "none"
"""A subscriber with this filter may give no credit at all: nothing that it is owed ever waits for any."""
FILTERS = ("0,1", "1", "", "0,2,local", NOTHING, "local", "2")


def filter_at(traits_filters: int, index: int) -> str:
    """The filter of subscriber `index` at first; all of them have none in a world without filters."""
    return FILTERS[(traits_filters + index) % len(FILTERS)] if traits_filters else ""


class SimulatedFilters:
    """The engine of simulated routers."""

    def compile(self, text: str) -> CompiledFilter:
        """See delivery_records.subscriber.filters.FilterEngine."""
        if text not in FILTERS:
            raise UnknownFilter(f"{text!r} is no simulated filter")
        parts = set(text.split(","))
        rests = frozenset(int(part) for part in parts if part.isdigit())
        if not rests and text != NOTHING:
            return CompiledFilter("local" in parts)
        return CompiledFilter("local" in parts, lambda number: number in rests)

    def open(self, message: bytes, message_format: int) -> object:
        """What the filters look at."""
        return int.from_bytes(message[1:5], "big") % MODULUS


def group_of(number: int, groups: int) -> int | None:
    """The group of a message by its number, in a world with so many; None: it has none (SH-6)."""
    rest = number % (groups + 1)
    return rest if rest < groups else None


class SimulatedGroups:
    """Reads the group of a message for simulated routers."""

    def __init__(self, groups: int) -> None:
        """Of a world with so many."""
        self._groups = groups

    def read(self, message: bytes, message_format: int) -> bytes | None:
        """See delivery_records.model.groups.ReadGroup."""
        group = group_of(int.from_bytes(message[1:5], "big"), self._groups)
        return None if group is None else b"%d" % group


class FilterJudge:
    """Knows the filter of each life of a subscription, by what stood in etcd."""

    def __init__(self, world: WorldState) -> None:
        """No subscription was written."""
        self._world = world
        self._filters: dict[int, dict[int, str]] = {}
        """Subscriber -> life of its subscription -> filter."""
        self._received: set[tuple[int, int, int]] = set()

    def on_written(self, subscriber: int, created: int, text: str) -> None:
        """A subscription's key is put."""
        self._filters.setdefault(subscriber, {})[created] = text

    def has_filter(self, subscriber: int) -> bool:
        """In any life of its subscription."""
        return any(self._filters.get(subscriber, {}).values())

    def excludes(self, subscriber: int, publisher: int, number: int, life: int | None = None) -> bool:
        """Whether a filter kept this message from a subscription: that of a life, or an earlier one.

        An earlier one, because a subscriber that changes its filter keeps what it has; what lies between is skipped.
        """
        return any(
            excludes(self._world, text, subscriber, publisher, number)
            for created, text in self._filters.get(subscriber, {}).items()
            if life is None or created <= life
        )

    def excludes_now(self, subscriber: int, publisher: int, number: int, life: int) -> bool:
        """Whether the filter of this very life excludes a message."""
        text = self._filters.get(subscriber, {}).get(life, "")
        return excludes(self._world, text, subscriber, publisher, number)

    def excluded_somewhere(self, publisher: int, number: int) -> list[int]:
        """Subscribers for whom it counted as processed without being sent, or may have."""
        return [subscriber for subscriber in self._filters if self.excludes(subscriber, publisher, number)]

    def on_received(self, subscriber: int, publisher: int, number: int) -> None:
        """A message has arrived.

        Raises:
            Violation: the filter excludes it, and the subscriber did not have it before it took this filter.
        """
        place = (subscriber, publisher, number)
        text = self._world.subscribers[subscriber].filter
        if place not in self._received and excludes(self._world, text, subscriber, publisher, number):
            raise Violation(f"EXCLUDED: s{subscriber} gets p{publisher}/{number}, which its filter {text} excludes")
        self._received.add(place)


def excludes(world: WorldState, text: str, subscriber: int, publisher: int, number: int) -> bool:
    """What a filter text says, in code of the judge's own."""
    if not text:
        return False
    if "local" in text and subscriber == publisher:
        return True  # WorldState.names
    rests = [part for part in text.split(",") if part != "local"]
    return bool(rests) and str(number % MODULUS) not in rests
