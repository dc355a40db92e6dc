"""What topics' policies decide (I-3d): outcomes of messages that no subscription is done with, and failed attempts."""

from __future__ import annotations

from collections import Counter

from chaos.simulator import coverage
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.model import inputs
from delivery_records.model.limits import MAX_ATTEMPTS
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.view import Kind

CLOCKS = 0.7
"""A second of the fastest router's clock, which N-3 allows to be a third fast."""
_Message = tuple[int, int]


class PolicyJudge:
    """Watches what is refused for want of subscriptions, and how often subscribers failed before they are done."""

    def __init__(self, world: WorldState) -> None:
        """Nothing was sent."""
        self._world = world
        self._received: dict[_Message, int] = {}
        """A message and the first subscriber that was sent it."""
        self._refused: set[_Message] = set()
        """Released or rejected for want of subscriptions, as a publisher with a map got it."""
        self._presented: set[_Message] = set()
        self._failed: Counter[tuple[int, _Message]] = Counter()
        self._doubted: Counter[tuple[int, _Message]] = Counter()
        """How often a failure was presented that a router may have heard of: it may count again (E-4a)."""
        self._failed_here: Counter[tuple[int, _Message]] = Counter()
        """By link."""
        self._last: dict[tuple[int, _Message], tuple[float, tuple[int, int, int]]] = {}
        """By link: when it failed last, and how disturbed the world was then."""

    def on_presented(self, publisher: int, number: int) -> None:
        """A map names it: what an earlier ingress decided of it is not known any more."""
        self._presented.add((publisher, number))
        self._refused.discard((publisher, number))  # I-3: an outcome that was read and not recorded holds no longer

    def on_received(self, subscriber: int, message: _Message) -> None:
        """A message has arrived at a subscriber."""
        self._received.setdefault(message, subscriber)
        if message in self._refused:
            raise Violation(f"SENT: p{message[0]}/{message[1]} was refused as nobody's, and s{subscriber} gets it")

    def on_failed(self, subscriber: int, message: _Message, link: int) -> None:
        """A subscriber has failed to process it (E-4a), and answers so on this link; 0: it cannot yet."""
        self._failed[(subscriber, message)] += 1
        if link:
            self._failed_here[(link, message)] += 1
            self._last.pop((link, message), None)
            if self.is_quiet(message):
                self._last[(link, message)] = self._world.now, self.disturbance(subscriber)

    def on_failed_for_good(self, member: int, message: _Message) -> None:
        """SH-5: it states so to each ingress; one that has heard of a later failure before counts it once more."""
        self._failed[(member, message)] += 1
        self._doubted[(member, message)] += 1

    def on_failure_presented(self, subscriber: int, message: _Message, link: int, *, is_stated: bool) -> None:
        """The map of an attach says that it has failed to process it; `is_stated`: a router may know that."""
        self._doubted[(subscriber, message)] += is_stated
        self._failed_here[(link, message)] += 1

    def on_attempt(self, subscriber: int, message: _Message, attempt: int, link: int, *, is_new: bool) -> None:
        """Another attempt states what failed before, comes not before it is wanted, and not when there were too many.

        What failed on the same link its egress remembers, whatever becomes of the publisher's router.
        """
        world, traits = self._world, self._world.traits
        it = f"s{subscriber} gets p{message[0]}/{message[1]}"
        if attempt > self._failures(subscriber, message):
            raise Violation(f"ATTEMPTS: {it} as failed {attempt} times, which is too often")
        here = self._failed_here[(link, message)]
        if not here or is_new or world.restores:
            return
        if attempt < here:
            raise Violation(f"ATTEMPTS: {it} as failed {attempt} times, and it was {here}")
        failed_at, before = self._last.get((link, message), (0.0, None))
        if self.disturbance(subscriber) != before:
            return
        if traits.attempts and attempt >= traits.attempts:
            raise Violation(f"ATTEMPTS: {it} again although it failed {attempt} times")
        if world.now - failed_at < CLOCKS * traits.delay_ms / 1000:
            raise Violation(f"EARLY: {it} {world.now - failed_at:g} s after it failed")

    def is_quiet(self, message: _Message) -> bool:
        """Nothing that was sent before can arrive now: no frame is under way, none waits for a view or for credit.

        Nor does the publisher's own repeat of the message (I-1).
        """
        world = self._world
        body = world.body(*message)
        for connection in world.connections.values():
            if any(isinstance(item, inputs.PublisherTransfer) and item.message == body for item in connection.up):
                return False
        cores = [router.records for router in world.routers if router.records is not None]
        is_seen = all(core.view.applied >= world.etcd.applied for core in cores)
        return is_seen and not world.traits.large and not any(world.frames.values())

    def disturbance(self, subscriber: int) -> tuple[int, int, int]:
        """It differs where anything but a retry can have sent a delivery again (I-5)."""
        cores = [router.records for router in self._world.routers if router.records is not None]
        restarts = sum(core.counts[Decision.CHANNEL_RESTARTED] for core in cores)
        keys = [self._world.subscription_key(each) for each in self._sharing(subscriber)]
        views = [core.view.subscriptions for core in cores]
        epochs = sum(view[key].epoch for view in views for key in keys if key in view)
        return self._world.disturbances, restarts, epochs

    def _failures(self, subscriber: int, message: _Message) -> int:
        """The most that may be counted."""
        return self._failed[(subscriber, message)] + self._doubted[(subscriber, message)]

    def has_failed(self, subscriber: int, message: _Message) -> bool:
        """Whether it may count as done there: it failed as often as the policy allows."""
        return self.failures(subscriber, message) >= (self._world.traits.attempts or MAX_ATTEMPTS)

    def failures(self, subscriber: int, message: _Message) -> int:
        """The most that its ingress may count."""
        return sum(self._failures(index, message) for index in self._sharing(subscriber))

    def _sharing(self, subscriber: int) -> list[int]:
        """SH-5: whoever shares its subscription, itself included."""
        world = self._world
        if not world.is_member(subscriber):
            return [subscriber]
        return [each.index for each in world.subscribers if world.is_member(each.index)]

    def failed_at(self, message: _Message) -> set[int]:
        """The subscribers where that is so."""
        return {s.index for s in self._world.subscribers if self.has_failed(s.index, message)}

    def check_refused(self, message: _Message, outcome: DeliveryOutcome, *, is_owed: bool, is_repeated: bool) -> bool:
        """Whether the policy is the reason; a publisher with a map is refused only what nobody was ever sent."""
        world = self._world
        reason = {DeliveryOutcome.RELEASED: 2, DeliveryOutcome.REJECTED: 3}.get(outcome)
        if not world.traits.on_empty or world.traits.on_empty != reason or is_owed:
            return False
        world.coverage[coverage.NOBODY] += 1
        if world.is_stock_publisher(message[0]) or is_repeated or world.restores:
            return True
        self._refused.add(message)
        if message in self._received:
            raise Violation(
                f"SENT: p{message[0]}/{message[1]} is refused as nobody's, and s{self._received[message]} got it"
            )
        return True

    def check_accepted(self, message: _Message) -> None:
        """A policy that refuses what is nobody's does so where nobody has ever subscribed."""
        world = self._world
        if world.traits.on_empty < 2 or message in self._presented or world.restores:
            return
        ordinary = [s.index for s in world.subscribers if not world.gets_letters(s.index)]
        keys = {world.life_key(subscriber) for subscriber in ordinary}
        if not any(world.etcd.created.get((Kind.SUBSCRIPTION, key)) for key in keys):
            raise Violation(f"UNPROCESSED: p{message[0]}/{message[1]} accepted, and nobody has ever subscribed")
