"""Where nothing has failed: what is sent at most once arrives, and only repeats are flagged (rules I-1c, E-3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from chaos.simulator import coverage
from chaos.simulator.filters import FilterJudge
from chaos.simulator.roles import ClientRole, Keeps
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.model import effects
from delivery_records.model.limits import HELD_PRESETTLED
from delivery_records.model.view import Kind

_Message: TypeAlias = tuple[int, int]
_MEMBERS = -1
"""All members of the shared subscription: what one has had, may be a repeat for another (SH-5)."""


class CalmJudge:
    """Knows who was confirmed when a message was sent, and what each subscriber was sent so far."""

    def __init__(self, world: WorldState, filters: FilterJudge) -> None:
        """Nothing has failed."""
        self._world = world
        self._filters = filters
        self._confirmed: dict[int, int] = {}
        """Subscriber -> life of its subscription."""
        self._owed: dict[_Message, list[int]] = {}
        self._sent: set[tuple[int, _Message]] = set()
        self._flagged = ""
        """What was flagged and is no repeat; reported last, for it is the least that may be wrong."""

    def on_confirmed(self, subscriber: int, incarnation: int) -> None:
        """Its subscription was confirmed, or it could know."""
        self._confirmed[subscriber] = incarnation

    def on_first_send(self, message: _Message) -> None:
        """A publisher sends a message; few enough are sent at most once that all of them may wait (I-1c)."""
        world = self._world
        publisher, number = message
        sends_settled = world.publishers[publisher].keeps is Keeps.NOTHING
        if world.faults or sum(each.messages for each in world.publishers) > HELD_PRESETTLED:
            return
        self._owed[message] = [
            subscriber
            for subscriber, created in self._confirmed.items()
            if (sends_settled or world.is_at_most_once(subscriber))
            and self._is_first(world.subscribers[subscriber])
            and world.is_subscribed(subscriber, publisher)
            and not world.is_member(subscriber)
            and not world.gets_letters(subscriber)
            and not self._filters.excludes_now(subscriber, publisher, number, created)
        ]

    def _is_first(self, client: ClientRole) -> bool:
        """It was never disconnected."""
        return self._world.links_of(client) == 1

    def on_delivered(self, client: ClientRole | None, effect: effects.Deliver) -> None:
        """A router sends a delivery to a subscriber."""
        world = self._world
        if client is None or len(effect.message) < 5 or world.gets_letters(client.index):
            return
        message = effect.message[0], int.from_bytes(effect.message[1:5], "big")
        place = (_MEMBERS if world.is_member(client.index) else client.index), message
        is_new = place not in self._sent
        self._sent.add(place)
        is_calm = not world.faults and self._is_first(world.publishers[message[0]]) and self._is_first(client)
        if effect.redelivered and is_calm:
            it = f"FLAGGED: s{client.index} is sent p{message[0]}/{message[1]}"
            if world.is_member(client.index) and not self._members_stay():
                return  # what was on its way to the one that is gone may have been processed
            if is_new:
                self._flagged = f"{it} for the first time"
            elif world.is_member(client.index):
                self._flagged = f"{it} again, and all that had it handed it back"

    def _members_stay(self) -> bool:
        """Nobody has lost a link or a key, so who does not have a message any more has handed it back (SH-5)."""
        world = self._world
        members = [each for each in world.subscribers if world.is_member(each.index)]
        is_linked = all(self._is_first(each) and each.connection and each.connection.is_open for each in members)
        keys = [(Kind.SUBSCRIPTION, world.subscription_key(each.index)) for each in members]
        return is_linked and all(key in world.etcd.keys for key in keys)

    def at_rest(self, processed: Mapping[int, set[_Message]]) -> None:
        """All that is sent at most once has arrived, if nothing failed, and what was flagged was sent before.

        Raises:
            Violation: something was dropped, or flagged.
        """
        if self._flagged:
            raise Violation(self._flagged)
        traits = self._world.traits
        if self._world.faults or traits.ttl_s or traits.large or traits.require or traits.streams:
            return  # E-10; C-6: a router at its limits; I-3c: released; L-5: aborted
        for message, owed in self._owed.items():
            for subscriber in owed:
                ends = self._world.publishers[message[0]], self._world.subscribers[subscriber]
                if not all(self._is_first(client) for client in ends):
                    continue
                self._world.coverage[coverage.ONCE_IS_ONCE] += 1
                if message not in processed.get(subscriber, ()):
                    raise Violation(f"DROPPED: s{subscriber} never gets p{message[0]}/{message[1]}, and nothing failed")
