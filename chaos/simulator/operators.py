"""Operators who end subscriptions (K-5a): one looks at a router, and orders later, perhaps at another router."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.simulator import coverage
from chaos.simulator.routers import Router
from chaos.simulator.state import Feed, WorldState
from chaos.simulator.steps import Choice
from chaos.simulator.violation import Violation
from delivery_records.model import effects, inputs
from delivery_records.model.effects import OrderEnding
from delivery_records.model.view import Kind


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an operator was shown of a subscription."""

    key: str
    epoch: int


class Operators:
    """Orders that are still to be given, and those that wait for their answer."""

    def __init__(self, world: WorldState, feed: Feed) -> None:
        """Nobody has looked yet."""
        self._world = world
        self._feed = feed
        self._number = 0
        self._seen: dict[int, _Seen] = {}
        self._asked: dict[int, tuple[int, _Seen]] = {}
        """Order -> the incarnation that was asked, and what for."""

    def look(self, subscriber: int, router: int) -> None:
        """An operator is shown a subscription by a router, however late its view is."""
        world = self._world
        records = world.routers[router].records
        key = world.subscription_key(subscriber)
        found = None if records is None else records.view.subscriptions.get(key)
        if found is not None:
            self._number += 1
            self._seen[self._number] = _Seen(key, found.epoch)

    def has_ordered(self, subscriber: int) -> bool:
        """Somebody has ordered the end of this subscription, and has no answer yet."""
        key = self._world.subscription_key(subscriber)
        return any(seen.key == key for _, seen in self._asked.values())

    def choices(self) -> list[Choice]:
        """What was seen is acted upon at any router that serves."""
        usable = self._world.usable_routers() if self._seen else []
        return [
            (verb, number, router.index) for number in self._seen for router in usable for verb in ("o.end", "o.expire")
        ]

    def end(self, number: int, router: int, *, only_if_away: bool) -> None:
        """He orders it."""
        seen = self._seen.pop(number)
        asked = self._world.routers[router]
        self._asked[number] = (asked.rid, seen)
        self._feed(asked, [inputs.EndSubscription(number, seen.key, seen.epoch, only_if_away)])

    def on_answer(self, router: Router, answer: effects.OrderAnswered) -> None:
        """The operator gets the result.

        Raises:
            Violation: it is not what happened.
        """
        rid, seen = self._asked.pop(answer.order)
        assert rid == router.rid
        world = self._world
        world.coverage[coverage.ENDED_BY_OPERATOR] += answer.ending is OrderEnding.DELETED
        world.coverage[coverage.ORDER_TOO_LATE] += answer.ending is OrderEnding.CHANGED
        held = world.etcd.keys.get((Kind.SUBSCRIPTION, seen.key))
        is_there = held is not None and held.mod_revision == seen.epoch
        if is_there and answer.ending in (OrderEnding.DELETED, OrderEnding.CHANGED):
            raise Violation(f"ORDERED: answered {answer.ending.value}, and the subscription stands as it was shown")
        if answer.ending is OrderEnding.DELETED and not world.restores:
            of_it = [c for c in world.etcd.log if (c.kind, c.key) == (Kind.SUBSCRIPTION, seen.key)]
            later = [change for change in of_it if change.mod_revision > seen.epoch]
            # K-5a: of what a snapshot skipped, *deleted* says only that the key is missing.
            if later[0].record is not None and later[0].mod_revision > router.skipped:
                raise Violation("ORDERED: a subscription was ended that had been attached again since it was shown")

    def check_rest(self) -> None:
        """Everybody who asked a router that still lives has his answer.

        Raises:
            Violation: somebody waits.
        """
        live = {router.rid for router in self._world.routers if router.records is not None}
        waiting = [number for number, (rid, _) in self._asked.items() if rid in live]
        if waiting:
            raise Violation(f"BLOCKED: nobody answers the orders {waiting} of operators")
