"""How subscriptions may end: what a router stated of their time-out is a promise (A-10, K-5).

G1 says nothing of a message that a deleted subscription was owed, so without this a deletion before its time would be
a loss that nobody is blamed for.
"""

from __future__ import annotations

from chaos.simulator.etcd import Held
from chaos.simulator.operators import Operators
from chaos.simulator.roles import STRANGER
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.model.view import Kind, SubscriptionRecord

FASTEST_CLOCK = 1.34
"""By a router's clock, which may run a third fast (N-3), a time-out is over this much earlier."""


class PromiseJudge:
    """Knows the time-out last stated to each subscriber, and since when it is disconnected."""

    def __init__(self, world: WorldState, operators: Operators) -> None:
        """Nothing is promised."""
        self._world = world
        self._operators = operators
        self._stated: dict[int, tuple[int, float]] = {}
        """Subscriber -> life of its subscription, and the longest time-out stated for that life."""
        self._left: dict[int, float] = {}
        self._written: dict[int, float] = {}
        """When each subscriber's key was last written: whoever did that has a whole time-out."""
        self._condemned: set[int] = set()
        self._refiltered: set[int] = set()
        self._expelled: set[tuple[object, object]] = set()
        """(key, epoch): subscriptions that a router ends for want of progress (K-5b)."""

    def on_stated(self, subscriber: int, incarnation: int, timeout_s: float) -> None:
        """A reply or a confirmation says how long it is kept. All attaches ask for the same."""
        if self._world.is_member(subscriber):  # what is stated holds for what it is assigned (SH-3)
            held = self._world.etcd.keys.get((Kind.SUBSCRIPTION, self._world.subscription_key(subscriber)))
            incarnation = 0 if held is None else held.create_revision
        life, longest = self._stated.get(subscriber, (0, 0.0))
        self._stated[subscriber] = (incarnation, max(timeout_s, longest) if life == incarnation else timeout_s)

    def on_written(self, subscriber: int) -> None:
        """Its key was put."""
        self._written[subscriber] = self._world.now

    def on_left(self, subscriber: int) -> None:
        """Its link, or what its policy waits for, is gone, or was so before."""
        self._left.setdefault(subscriber, self._world.now)

    def on_refiltered(self, subscriber: int) -> None:
        """It takes another filter, and may take the former one again."""
        self._refiltered.add(subscriber)

    def on_joined(self, subscriber: int) -> None:
        """A router has attached it, or it keeps the AMQP session it was detached in (A-9)."""
        self._left.pop(subscriber, None)

    def condemn(self, subscriber: int) -> None:
        """A fault will delete its key."""
        self._condemned.add(subscriber)

    def on_expelled(self, key: object, epoch: object) -> None:
        """A router wants this subscription deleted as it stood then; `PatienceJudge` has judged whether it may."""
        self._expelled.add((key, epoch))

    def on_key_deleted(self, subscriber: int, key: str, held: Held) -> None:
        """Its key is deleted: by a fault, an operator, its own close or new topic, or after the time that was stated.

        A stolen subscription's time begins when the thief has gone, whatever the subscriber believes.

        Raises:
            Violation: before that time; whatever it was owed is lost.
        """
        world = self._world
        if subscriber in self._condemned:
            self._condemned.discard(subscriber)
            return
        if (key, held.mod_revision) in self._expelled or (
            world.is_member(subscriber) and world.is_stock_subscriber(subscriber)
        ):  # SH-3: without a map it cannot come back to what it was assigned
            return
        life, timeout_s = self._stated.get(subscriber, (0, 0.0))
        client = world.subscribers[subscriber]
        # It came back with another topic or filter, which ends the former one; so does a stale attach with that.
        has_moved = client.topic != world.asked(subscriber) or subscriber in self._refiltered
        is_ended = client.is_closing or has_moved or self._operators.has_ordered(subscriber)
        if is_ended or world.restores or life != held.create_revision:
            return
        since = self._written[subscriber]
        assert isinstance(held.record, SubscriptionRecord)
        if held.record.peer != STRANGER:
            since = max(since, self._left.get(subscriber, world.now))
        if world.now - since < timeout_s / FASTEST_CLOCK:
            waited = f"{world.now - since:.0f} s after it left, {timeout_s:.0f} s were stated"
            raise Violation(f"LOST: the subscription of s{subscriber} is deleted {waited}")
