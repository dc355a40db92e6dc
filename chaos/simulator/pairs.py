"""Clients that attach a subscriber and behind it a publisher, in one AMQP session and in one write (A-2d)."""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulator.connections import SimulatedConnection
from chaos.simulator.state import WorldState
from chaos.simulator.steps import Choice
from chaos.simulator.violation import Violation
from delivery_records.model import effects, inputs


class Pairs:
    """A subscriber and the publisher of the same index are such a client."""

    def __init__(self, world: WorldState) -> None:
        """Nobody is attached."""
        self._world = world
        self._first: SimulatedConnection | None = None
        """The subscriber's, while its publisher attaches."""
        self._before: dict[int, SimulatedConnection] = {}
        """The publisher's link -> what the subscriber before it has."""
        self._answered: set[int] = set()
        """Links of subscribers."""

    def connect(self, index: int, router: int, choices: Callable[[], list[Choice]]) -> None:
        """A subscriber attaches, and its publisher where it may."""
        world = self._world
        subscriber = world.subscribers[index]
        may_follow = bool(world.traits.pairs) and ("p.connect", index, router) in choices()
        subscriber.connect(router)
        if may_follow:
            self._first = subscriber.connection
            world.publishers[index].connect(router)
            self._first = None

    def place_behind(self, link: int) -> inputs.LinkPlace | None:
        """The session of a link that is opened now, if it is that of a subscriber before it."""
        if self._first is None:
            return None
        self._before[link] = self._first
        return self._first.place

    def is_held(self, link: int) -> bool:
        """Frames of one session are read in order: the subscriber's attach first."""
        before = self._before.get(link)
        return before is not None and bool(before.up) and isinstance(before.up[0], inputs.SubscriberAttach)

    def shares(self, connection: SimulatedConnection) -> bool:
        """Whether the other one of a pair is still there, and its session with it."""
        others = self._world.connections.values() if self._world.traits.pairs else ()
        return any(other.place == connection.place for other in others if other is not connection)

    def on_effect(self, effect: effects.Effect) -> None:
        """A-2d: the publisher is answered behind the subscriber.

        Raises:
            Violation: it is not.
        """
        if isinstance(effect, effects.SubscriberReply | effects.DetachLink | effects.CloseConnection):
            self._answered.add(effect.link)
        elif isinstance(effect, effects.PublisherReply):
            before = self._before.get(effect.link)
            is_there = before is not None and before.is_open and before.link in self._world.connections
            if before is not None and is_there and before.link not in self._answered:
                raise Violation(f"OVERTAKEN: link {effect.link} is answered before link {before.link} of its session")
