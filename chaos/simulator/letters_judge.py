"""What dead letters promise (I-3e): no publisher is notified before the letter is done, and no letter comes twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from chaos.simulator import coverage
from chaos.simulator.filters import FilterJudge
from chaos.simulator.policy_judge import PolicyJudge
from chaos.simulator.promises import FASTEST_CLOCK
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.model.view import Kind

Message: TypeAlias = tuple[int, int]


class LettersJudge:
    """Watches what subscribers fail, and what dead-letter subscribers get of it.

    A failure is certain when the subscriber's map says so: each ingress hears of it before it notifies the publisher.
    A subscriber without a map, or a member of a shared subscription, may accept the next time. A message that its
    publisher has sent again as a new one is not judged.
    """

    def __init__(
        self, world: WorldState, new_again: Counter[Message], filters: FilterJudge, policies: PolicyJudge
    ) -> None:
        """Nothing has failed."""
        self._world = world
        self._new_again = new_again
        self._filters = filters
        self._policies = policies
        self._failed: set[Message] = set()
        """Some subscription has failed it, perhaps not for the last time."""
        self._rejected: dict[Message, dict[int, int]] = {}
        """Subscribers whose map says that they reject it, and the life of their subscriptions."""
        self._done: dict[int, set[Message]] = {}
        self._forgotten: dict[int, set[Message]] = {}
        self._answered: set[tuple[int, Message]] = set()
        """What a subscriber may have answered before it lost its map: that outcome may be the one that counts (I-2)."""
        self._repeats: Counter[tuple[int, Message]] = Counter()
        self._sent_at: dict[Message, float] = {}
        self._owed: dict[Message, list[tuple[int, int]]] = {}
        """Dead-letter subscribers that were confirmed when it was sent, and the lives of their subscriptions."""
        self._last: dict[tuple[int, int], int] = {}
        self._confirmed: dict[int, int] = {}
        """Dead-letter subscribers, and the life of their subscriptions that was confirmed last."""
        self._seen_at = 0.0
        """When one of those was there the last time that anybody looked."""
        self._absent_until = -1.0
        """The end of the last time for which nobody was there as long as letters wait."""

    def _created(self, subscriber: int) -> int:
        held = self._world.etcd.keys.get((Kind.SUBSCRIPTION, self._world.subscription_key(subscriber)))
        return 0 if held is None else held.create_revision

    # ------------------------------------------------------------------ what publishers and subscribers do

    def on_first_send(self, message: Message, confirmed: Iterable[tuple[int, int]]) -> None:
        """A publisher sends it, when these dead-letter subscriptions are confirmed."""
        self._look()
        self._sent_at.setdefault(message, self._world.now)
        self._owed[message] = [
            (subscriber, created)
            for subscriber, created in confirmed
            if self._world.gets_letters(subscriber) and self._created(subscriber) == created
        ]

    def on_confirmed(self, subscriber: int, life: int) -> None:
        """Each router knows this dead-letter subscription from now on."""
        self._look()
        self._confirmed[subscriber] = life
        self._look()

    def _look(self) -> None:
        """Whether somebody is there; between two looks with somebody nobody may have been there for all of it."""
        now, wait_s = self._world.now, self._world.traits.letter_wait
        if now - self._seen_at >= wait_s / FASTEST_CLOCK:
            self._absent_until = now
        if any(self._created(subscriber) == life for subscriber, life in self._confirmed.items()):
            self._seen_at = now

    def on_failed(self, subscriber: int, message: Message, life: int = 0) -> None:
        """A subscriber fails a message; `life`: of its subscription, when its map says that it rejects it."""
        world = self._world
        if world.gets_letters(subscriber):
            return
        self._failed.add(message)
        is_certain = not (world.is_member(subscriber) or world.is_stock_subscriber(subscriber))
        if life and is_certain and (subscriber, message) not in self._answered:
            self._rejected.setdefault(message, {})[subscriber] = life

    def on_expired(self, messages: Iterable[Message]) -> None:
        """They were not sent to a subscription in time (E-10)."""
        self._failed |= set(messages)

    def on_amnesia(self, subscriber: int, messages: Iterable[Message]) -> None:
        """G7: it has lost its map."""
        messages = list(messages)
        self._answered.update((subscriber, message) for message in messages)
        for rejecting in self._rejected.values():
            rejecting.pop(subscriber, None)
        done = self._done.get(subscriber, set())
        self._forgotten.setdefault(subscriber, set()).update(message for message in messages if message in done)
        self.on_restart(subscriber)

    def on_restart(self, subscriber: int) -> None:
        """What it was handed is handed over again."""
        for place in [place for place in self._last if place[0] == subscriber]:
            del self._last[place]

    def on_restore(self) -> None:
        """K-9: nothing that was sent before is owed."""
        self._rejected.clear()
        self._confirmed.clear()
        self._owed = {message: [] for message in self._owed}

    # ------------------------------------------------------------------ what dead-letter subscribers get

    def on_received(self, subscriber: int, message: Message, body: bytes) -> None:
        """A letter has arrived that it did not have."""
        publisher, number = message
        if body != self._world.letter_body(publisher, number):
            raise Violation(f"ALTERED: the letter of p{publisher}/{number} is no letter at s{subscriber}")
        if message not in self._failed:
            raise Violation(f"UNFAILED: s{subscriber} gets a letter of p{publisher}/{number}, which nobody has failed")
        self._world.coverage[coverage.LETTER] += 1

    def on_handed(self, subscriber: int, message: Message) -> None:
        """I-3e: letters of one ingress come in the order of its window."""
        publisher, number = message
        traits = self._world.traits
        is_ordered = traits.shipped or not traits.refuses  # as for others: not for answers of Again
        if not is_ordered or self._world.links_of(self._world.publishers[publisher]) > 1 or self._new_again[message]:
            return
        last = self._last.get((subscriber, publisher), -1)
        if number <= last:
            raise Violation(f"ORDER: s{subscriber} is handed the letter of p{publisher}/{number} after {last}")
        self._last[(subscriber, publisher)] = number

    def on_processed(self, subscriber: int, message: Message) -> None:
        """G2."""
        done = self._done.setdefault(subscriber, set())
        if message not in done:
            done.add(message)
            return
        forgotten = self._forgotten.get(subscriber, set())
        if message in forgotten:
            forgotten.discard(message)
            return
        self._repeats[(subscriber, message)] += 1
        if self._repeats[(subscriber, message)] > self._new_again[message]:
            raise Violation(f"DUP: s{subscriber} processes the letter of p{message[0]}/{message[1]} twice")

    # ------------------------------------------------------------------ what is reported to publishers

    def check_reported(self, message: Message, *, is_poisoned: bool, is_rejected: bool) -> None:
        """A publisher gets the outcome of a message.

        Args:
            message: which one.
            is_poisoned: a subscription there failed it too often.
            is_rejected: the outcome is *rejected*.

        Raises:
            Violation: a subscription that is there has rejected it, or has failed it too often, and its letter is not
                done, or was given up before its time.
        """
        self._look()
        world = self._world
        if not world.traits.letters or world.is_without_letters or world.is_large(message[1]):
            return
        if self._new_again[message]:
            return
        rejecting = self._rejected.get(message, {})
        if not any(self._created(subscriber) == life for subscriber, life in rejecting.items()) and not is_poisoned:
            return
        it = f"p{message[0]}/{message[1]} was failed, and its publisher is notified"
        for subscriber, created in self._owed.get(message, ()):
            if self._created(subscriber) == created and not self._is_done(subscriber, message):
                raise Violation(f"LOST: {it} before s{subscriber} is done with the letter")
        if not any(self._is_done(s.index, message) for s in world.subscribers if world.gets_letters(s.index)):
            if not (is_rejected and world.traits.letter_wait):
                raise Violation(f"LOST: {it} before anybody is done with the letter")
            if self._absent_until < self._sent_at[message]:
                raise Violation(f"EARLY: {it}, for the letter is given up after less than {world.traits.letter_wait} s")
            return
        world.coverage[coverage.LETTER_FIRST] += 1

    def _is_done(self, subscriber: int, message: Message) -> bool:
        if message in self._done.get(subscriber, ()) or self._policies.has_failed(subscriber, message):
            return True
        return self._filters.excludes(subscriber, *message)  # E-9
