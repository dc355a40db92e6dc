"""What *modified* adds to messages stays for later attempts, and only failures are counted (E-4b, SH-5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chaos.simulator.policy_judge import PolicyJudge
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.model import effects
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import Kind

_Message = tuple[int, int]
_Added = dict[bytes, bytes]


@dataclass(slots=True)
class _Stated:
    """What a subscription, or the members of one, have stated of a message while nothing disturbed the world."""

    since: tuple[int, int, int]
    """How disturbed the world was when the first of it was stated."""
    epoch: int
    """Of the publisher then: later ingresses may not have heard of it."""
    added: _Added = field(default_factory=dict)
    failures: int = 0
    is_flagged: bool = False
    """It came to the last one as a repeat that somebody may have processed."""


class AnnotationsJudge:
    """Watches what subscribers state as they want a message again, and what the next attempt says."""

    def __init__(self, world: WorldState, policies: PolicyJudge) -> None:
        """Nothing was stated."""
        self._world = world
        self._policies = policies
        self._statements = 0
        self._here: dict[tuple[int, _Message], _Added] = {}
        """By link: its egress remembers it, whatever becomes of the publisher's router."""
        self._stated: dict[tuple[str, _Message], _Stated] = {}
        """By the life of the subscription that owes it; a next attempt behind nothing but that must say it."""
        self._known: dict[tuple[str, _Message], tuple[int, _Added]] = {}
        """What the ingress of that publisher epoch has certainly heard, and says wherever the subscription attaches."""
        self._for_good: dict[tuple[int, _Message], _Added | None] = {}
        """By link: what was stated with an answer that is final; it is the same when the delivery is resumed."""
        self._came_in: dict[tuple[int, _Message], int] = {}
        """By subscriber: the publisher epoch in which it got the message; later ingresses cannot know who had it."""

    def state(
        self, subscriber: int, message: _Message, link: int, outcome: DeliveryOutcome, *, is_flagged: bool
    ) -> _Added | None:
        """A subscriber answers Again, or that it never does it, on this link; what it adds to the message."""
        if (link, message) in self._for_good:
            return self._for_good[(link, message)]
        added: _Added | None = None
        if outcome is not DeliveryOutcome.RELEASED:
            self._statements += 1
            added = {b"key %d" % (self._statements % 3): b"value %d" % self._statements}
        if outcome in (DeliveryOutcome.UNDELIVERABLE, DeliveryOutcome.UNDELIVERABLE_FAILED):
            self._for_good[(link, message)] = added
        place = self._life(subscriber), message
        for key in added or ():
            self._known.get(place, (0, {}))[1].pop(key, None)  # another value takes its place, when it is heard of
        if not self._world.is_member(subscriber):
            self._here.setdefault((link, message), {}).update(added or {})
        failed = outcome in (DeliveryOutcome.MODIFIED_FAILED, DeliveryOutcome.UNDELIVERABLE_FAILED)
        now = self._policies.disturbance(subscriber)
        stated = self._stated.get(place)
        if not self._policies.is_quiet(message) or (self._world.is_member(subscriber) and self._is_unread(message)):
            self._stated.pop(place, None)
            return added
        if stated is None or stated.since != now:
            has_moved = self._came_in.get((subscriber, message)) != self._epoch(message[0])
            stated = self._stated[place] = _Stated(now, self._epoch(message[0]), is_flagged=is_flagged or has_moved)
        stated.added.update(added or {})
        stated.failures += failed
        return added

    def on_attempt(self, subscriber: int, delivery: effects.Deliver, message: _Message, *, is_new: bool) -> None:
        """A message has arrived.

        Raises:
            Violation: it lacks what was added to it, or counts what was no failure.
        """
        world = self._world
        place = self._life(subscriber), message
        self._came_in[(subscriber, message)] = self._epoch(message[0])
        if is_new or world.restores:
            self._stated.pop(place, None)
            return
        it = f"s{subscriber} gets p{message[0]}/{message[1]}"
        found = delivery.annotations or {}
        if _lacks(found, self._here.get((delivery.link, message), {})):
            raise Violation(f"ANNOTATIONS: {it} without what it added to it on that link")
        if world.is_member(subscriber):
            self._check_count(subscriber, place[1], delivery.attempt, it)
        self._check_known(place, found, it)
        self._check_stated(subscriber, place, delivery, it)

    def _check_count(self, member: int, message: _Message, attempt: int, it: str) -> None:
        """SH-5: the members' failures are those of the shared subscription."""
        if attempt > self._policies.failures(member, message):
            raise Violation(f"ATTEMPTS: {it} as failed {attempt} times, which is too often")

    def _check_known(self, place: tuple[str, _Message], found: Mapping[bytes, bytes], it: str) -> None:
        epoch, known = self._known.get(place, (0, {}))
        if epoch and epoch == self._epoch(place[1][0]) and _lacks(found, known):
            raise Violation(f"ANNOTATIONS: {it} without what was added to it, and its publisher has not moved")

    def _check_stated(self, subscriber: int, place: tuple[str, _Message], delivery: effects.Deliver, it: str) -> None:
        stated = self._stated.get(place)
        if stated is None or stated.since != self._policies.disturbance(subscriber):
            return
        found = delivery.annotations or {}
        if _lacks(found, stated.added):
            raise Violation(f"ANNOTATIONS: {it} without what was added to it")
        if self._world.is_member(subscriber):
            if delivery.attempt < stated.failures:
                raise Violation(f"ATTEMPTS: {it} as failed {delivery.attempt} times, and it was {stated.failures}")
            if delivery.redelivered and not stated.is_flagged:
                raise Violation(f"COUNT: {it} flagged, and all that had it handed it back")
            stated.is_flagged = delivery.redelivered
        if stated.epoch == self._epoch(place[1][0]):
            self._known[place] = self._epoch(place[1][0]), dict(stated.added)

    def _is_unread(self, message: _Message) -> bool:
        """A subscriber was sent it and has not read it, perhaps on a link that has ended."""
        world, body = self._world, self._world.body(*message)
        sent = (item for each in (*world.connections.values(), *world.dying.values()) for item in each.down)
        return any(isinstance(item, effects.Deliver) and item.message == body for item in sent)

    def _life(self, subscriber: int) -> str:
        """Names this life of the subscription: who subscribes again is owed nothing that the one before has said."""
        key = self._world.life_key(subscriber)
        held = self._world.etcd.keys.get((Kind.SUBSCRIPTION, key))
        return f"{key} {0 if held is None else held.create_revision}"

    def _epoch(self, publisher: int) -> int:
        held = self._world.etcd.keys.get((Kind.PUBLISHER, self._world.publisher_key(publisher)))
        return 0 if held is None else held.mod_revision


def _lacks(found: Mapping[bytes, bytes], expected: Mapping[bytes, bytes]) -> bool:
    return any(found.get(key) != value for key, value in expected.items())
