"""Whether publishers learn which subscriptions ended without their deliveries (I-3b), by what clients sent and got."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chaos.simulator import coverage
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.model.limits import OWING_NAMES
from delivery_records.model.view import Kind


class EndedJudge:
    """Watches reports of ended subscriptions, and the acceptances behind them.

    A subscription owed a message for certain when it was sent it, in the life that ended. A message is judged when it
    was sent and accepted on one link: an ingress does not know what ended before that. Users may use one another's
    names (`same_names`): a report of a name is taken for one of each.
    """

    def __init__(self, world: WorldState) -> None:
        """Nothing was sent."""
        self._world = world
        self._sent: dict[int, set[int]] = {}
        """Messages that each publisher has sent for the first time on its present link."""
        self._received: dict[tuple[int, int, int], int] = {}
        """(subscriber, publisher, message) -> the life of the subscription in which it was sent to it."""
        self._named: set[tuple[int, int, int]] = set()
        """(subscriber, publisher, message): reported, and the message was under way."""

    def on_attached(self, publisher: int) -> None:
        """A router has answered its attach."""
        self._sent[publisher] = set()

    def on_first_send(self, publisher: int, number: int) -> None:
        """It sends a new message."""
        self._sent.setdefault(publisher, set()).add(number)

    def on_received(self, subscriber: int, publisher: int, number: int, incarnation: int) -> None:
        """A message has arrived at a subscriber."""
        self._received[(subscriber, publisher, number)] = incarnation

    def on_reported(self, publisher: int, names: Sequence[str], count: int, oldest: int) -> None:
        """The publisher is notified that subscriptions ended which owed this message of it, or later ones."""
        world = self._world
        if count < len(names) or len(names) != min(count, OWING_NAMES):
            raise Violation(f"MISCOUNTED: p{publisher} is notified that {count} ended, with {len(names)} names")
        named = [s.index for s in world.subscribers if "/".join(world.names("s", s.index)) in names]
        if named and not world.restores and not any(self._has_ended(subscriber) for subscriber in named):
            raise Violation(f"UNENDED: p{publisher} is notified that s{named[0]} ended, and it never did")
        for number in self._sent.get(publisher, ()):
            if number >= oldest:
                self._named.update((subscriber, publisher, number) for subscriber in named)

    def _has_ended(self, subscriber: int) -> bool:
        """Any life of it that etcd has seen, but for the present one."""
        etcd, key = self._world.etcd, (Kind.SUBSCRIPTION, self._world.subscription_key(subscriber))
        held = etcd.keys.get(key)
        return bool(etcd.created.get(key, set()) - ({held.create_revision} if held is not None else set()))

    def check_accepted(self, publisher: int, number: int, ended: Iterable[tuple[int, int]]) -> None:
        """A message is accepted that these (subscriber, life) have not processed, and they are gone.

        Raises:
            Violation: one of them owed it, and the publisher was not notified before.
        """
        if self._world.is_stock_publisher(publisher) or number not in self._sent.get(publisher, ()):
            return
        for subscriber, created in ended:
            place = (subscriber, publisher, number)
            if self._received.get(place) != created:
                continue
            if place not in self._named:
                raise Violation(f"UNREPORTED: p{publisher}/{number} accepted, s{subscriber} ended without it")
            self._world.coverage[coverage.ENDED_REPORTED] += 1
