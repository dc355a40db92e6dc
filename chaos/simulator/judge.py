"""The judge: guarantees G1 to G6 as checks on what clients did, independent of the core (protocol part (a))."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from chaos.simulator import coverage
from chaos.simulator.histories import Histories
from delivery_records.view import Kind

if TYPE_CHECKING:
    from chaos.simulator.clients import Arrived
    from chaos.simulator.shipped_subscriber import Handed
    from chaos.simulator.world import World


class Violation(AssertionError):
    """A guarantee is broken; the first word says which: LOST, DUP, ORDER, HOLE, ALTERED, BLOCKED, LEAK, EXPIRED, ..."""


FOUND_AS = {
    "LOST": "lost",
    "HOLE": "lost",
    "DUP": "duplicated",
    "ORDER": "reordered",
    "BLOCKED": "stuck",
    "LEAK": "stuck",
}
"""The checker's words; whatever else is wrong (an assertion, a session that ended by itself) is *unexpected*."""


SHORTEST_TIMEOUT_S = 60.0
"""T_pub is 90 s in these worlds, by a router's clock that may run a third fast."""


class Judge:
    """Sees every send, acceptance, confirmation and processing."""

    def __init__(self, world: World) -> None:
        """Watch `world`."""
        self._world = world
        self._histories = Histories(world)
        self._confirmed: dict[int, int] = {}
        self._owed: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.processed: dict[int, set[tuple[int, int]]] = {}
        self._last: dict[tuple[int, int], tuple[int, int]] = {}
        self._handed: dict[tuple[int, int], int] = {}
        self._spans: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        """(subscriber, publisher) -> subscription incarnation -> first and last message processed in it."""
        self._excused: dict[int, set[tuple[int, int]]] = {}
        """What a subscriber was told that it will not get any more (S-a)."""
        self._retries_lost: dict[int, set[tuple[int, int]]] = {}
        """What each subscriber wanted again and whose router is gone: in nobody's map but the publisher's (E-4a)."""
        self.may_repeat: set[tuple[int, int]] = set()
        """Messages that a publisher without a map sent again as new ones (c.5)."""
        self._forgotten: dict[int, set[tuple[int, int]]] = {}
        self._amnesiac: set[int] = set()
        self.may_expire = False
        """A fault has ended a session."""
        self._replied: dict[int, float] = {}
        self._held_up: set[int] = set()
        self._left: dict[int, float] = {}
        """When each publisher last lost a link that was attached."""
        self.attempted = 0
        self.accepted = 0
        self.deliveries = 0

    def _created(self, subscriber: int) -> int:
        held = self._world.etcd.keys.get((Kind.SUBSCRIPTION, self._world.subscription_key(subscriber)))
        return 0 if held is None else held.create_revision

    def on_confirmed(self, subscriber: int, incarnation: int) -> None:
        """The subscriber was told that its subscription counts."""
        if self._world.is_at_most_once(subscriber):
            return
        self._confirmed[subscriber] = incarnation
        self._histories.on_confirmed(subscriber, incarnation)

    def on_first_send(self, publisher: int, number: int) -> None:
        """G1 is about subscriptions confirmed before this moment."""
        self.attempted += 1
        self._histories.on_sent(publisher, number)
        self._owed[(publisher, number)] = [
            (subscriber, created)
            for subscriber, created in self._confirmed.items()
            if self._created(subscriber) == created
        ]

    def on_accepted(self, publisher: int, number: int) -> None:
        """G1: every owed subscription that still exists has processed the message."""
        self.accepted += 1
        self._histories.on_accepted(publisher, number)
        for subscriber, created in self._owed[(publisher, number)]:
            if (publisher, number) in self._retries_lost.get(subscriber, ()):
                continue
            is_here = self._created(subscriber) == created
            self._world.coverage[coverage.EXPIRY_RACE] += not is_here
            if is_here and (publisher, number) not in self.processed.get(subscriber, ()):
                raise Violation(f"LOST: p{publisher}/{number} accepted but not processed by s{subscriber}")

    def on_left(self, publisher: int) -> None:
        """A publisher's link that was attached is gone: T_pub begins, or began before (K-5)."""
        self._left.setdefault(publisher, self._world.now)

    def on_joined(self, publisher: int) -> None:
        """A router has attached it."""
        self._left.pop(publisher, None)

    def on_replied(self, publisher: int) -> None:
        """It knows that it is attached."""
        self._replied[publisher] = self._world.now

    def on_held_up(self, publisher: int) -> None:
        """A router detached it by force while the world paused: it could not answer, and I-9 counts that against it."""
        self._held_up.add(publisher)

    def on_body(self, publisher: int, number: int, body: bytes) -> None:
        """A message arrives whole and as it was sent."""
        if body != self._world.body(publisher, number):
            raise Violation(f"ALTERED: p{publisher}/{number} arrives as {len(body)} bytes, another message")

    def on_session_expired(self, publisher: int) -> None:
        """A publisher that keeps to P-1 loses its session only by T_pub or by an operator (A-5)."""
        now = self._world.now
        gone_s = now - min(self._left.get(publisher, now), self._replied.get(publisher, 0.0))
        if not self.may_expire and publisher not in self._held_up and gone_s < SHORTEST_TIMEOUT_S:
            raise Violation(f"EXPIRED: p{publisher} lost its session without a cause")

    def on_retry_lost(self, subscriber: int, messages: set[tuple[int, int]]) -> None:
        """G1 is not promised for these (E-4a, last sentence)."""
        self._retries_lost.setdefault(subscriber, set()).update(messages)

    def on_restore(self) -> None:
        """Exactly-once is lost for what was sent before (protocol c.3)."""
        self._owed = {message: [] for message in self._owed}
        self._confirmed.clear()
        self.may_repeat.update(self._owed)
        self._amnesiac.update(range(len(self._world.subscribers)))
        self._last.clear()
        self.may_expire = True

    def on_amnesia(self, subscriber: int, entries: Iterable[Arrived | Handed]) -> None:
        """G7: what the subscriber forgot may come again, once."""
        done = self.processed.get(subscriber, set())
        for entry in entries:
            if (entry.publisher, entry.number) in done:
                self._forgotten.setdefault(subscriber, set()).add((entry.publisher, entry.number))
        self._amnesiac.add(subscriber)
        for publisher in range(len(self._world.publishers)):
            self._last.pop((subscriber, publisher), None)

    def on_processed(
        self, subscriber: int, publisher: int, number: int, incarnation: int, redelivered: bool = False
    ) -> None:
        """G2, G3, G4; for clients of a weaker class only what it promises (c.5)."""
        self.deliveries += 1
        self._histories.on_processed(subscriber, publisher, number)
        done = self.processed.setdefault(subscriber, set())
        message = (publisher, number)
        if message in done:
            if message in self.may_repeat or (redelivered and self._world.is_stock_subscriber(subscriber)):
                return
            forgotten = self._forgotten.get(subscriber, set())
            if message not in forgotten:
                raise Violation(f"DUP: s{subscriber} processes p{publisher}/{number} twice")
            forgotten.discard(message)
            return
        done.add(message)
        spans = self._spans.setdefault((subscriber, publisher), {})
        first, highest = spans.get(incarnation, (number, number))
        spans[incarnation] = min(first, number), max(highest, number)
        last = self._last.get((subscriber, publisher))
        if last is not None and message not in self.may_repeat:
            self._check_order(subscriber, publisher, number, last, incarnation)
        self._last[(subscriber, publisher)] = (max(number, last[0]) if last else number, incarnation)

    def on_received(self, subscriber: int, publisher: int, number: int, incarnation: int) -> None:
        """A delivery has arrived that the subscriber did not have."""
        self._histories.on_received(subscriber, publisher, number, incarnation)

    def on_map(self, subscriber: int, entries: int) -> None:
        """C-4: a map fits its bound, but for the oldest delivery of each publisher that has none in it."""
        world = self._world
        if world.restores or subscriber in self._amnesiac or world.is_stock_subscriber(subscriber):
            return
        bound = world.traits.map_bound + len(world.publishers)
        if entries > bound:
            raise Violation(f"MAP: s{subscriber} holds {entries} deliveries, more than {bound}")

    def on_handed(self, subscriber: int, publisher: int, number: int) -> None:
        """G3 for an application that finishes in any order: what it is handed is in order."""
        if subscriber in self._amnesiac or not self._is_ordered(subscriber, publisher):
            return
        if (publisher, number) in self.may_repeat:
            return
        last = self._handed.get((subscriber, publisher), -1)
        if number <= last:
            raise Violation(f"ORDER: s{subscriber} is handed p{publisher}/{number} after {last}")
        self._handed[(subscriber, publisher)] = number

    def on_restart(self, subscriber: int) -> None:
        """What was handed over and not finished is handed over again."""
        for publisher in range(len(self._world.publishers)):
            self._handed.pop((subscriber, publisher), None)

    def on_given_up(self, subscriber: int, publisher: int, number: int) -> None:
        """The subscriber was told that a delivery it had before its restart will not come again."""
        self._excused.setdefault(subscriber, set()).add((publisher, number))

    def _check_order(
        self, subscriber: int, publisher: int, number: int, last: tuple[int, int], incarnation: int
    ) -> None:
        if subscriber in self._amnesiac:
            return  # G7: once, older deliveries out of order
        if not self._is_ordered(subscriber, publisher) or self._finishes_anyhow:
            return
        if number <= last[0]:
            raise Violation(f"ORDER: s{subscriber} processes p{publisher}/{number} after {last[0]}")
        if incarnation == last[1]:
            self._check_holes(subscriber, publisher, last[0] + 1, number)

    def _is_ordered(self, subscriber: int, publisher: int) -> bool:
        """G3 and G4: neither for answers of Again (E-4a) nor for clients without a map (c.5)."""
        world = self._world
        return not (
            world.traits.refuses or world.is_stock_publisher(publisher) or world.is_stock_subscriber(subscriber)
        )

    @property
    def _finishes_anyhow(self) -> bool:
        """Order is then judged where deliveries are handed over, and holes at the end."""
        return self._world.traits.shipped and self._world.traits.out_of_order

    def _check_holes(self, subscriber: int, publisher: int, first: int, stop: int) -> None:
        if self._world.is_at_most_once(subscriber):
            return
        given_up = self._world.publishers[publisher].given_up
        done = self.processed.get(subscriber, set())
        done = done | self._excused.get(subscriber, set()) if subscriber in self._excused else done
        missing = [n for n in range(first, stop) if n not in given_up and (publisher, n) not in done]
        if missing:
            raise Violation(f"HOLE: s{subscriber} misses p{publisher}/{missing[0]}")

    def at_rest(self) -> None:
        """G4 to the end, G5, G6: everybody has finished and nobody keeps anything."""
        world = self._world
        for publisher in world.publishers:
            if left := publisher.leftover():
                raise Violation(f"BLOCKED: p{publisher.index} {left}")
        for subscriber in world.subscribers:
            if left := subscriber.leftover():
                raise Violation(f"LEAK: s{subscriber.index} {left}")
            if not subscriber.is_wanted and self._created(subscriber.index):
                raise Violation(f"LEAK: the subscription of s{subscriber.index} is back after it was closed")
        for router in world.routers:
            if router.records is None:
                continue
            for ingress in router.records.ingresses.values():
                if len(ingress.window):
                    raise Violation(f"LEAK: router {router.index} keeps records of {ingress.name}")
            for egress in router.records.egresses.values():
                # Another cluster's entries, named by its nonce, stay until the application decides (c.3).
                if any(entries for session, entries in egress.sessions.items() if session[:4] == world.nonce):
                    raise Violation(f"LEAK: router {router.index} keeps entries of {egress.name}")
        self._check_streams()
        self._ask_checker()

    def _ask_checker(self) -> None:
        """The checker of real experiments must agree, for every subscriber to whom all is promised."""
        world = self._world
        if world.traits.refuses or self._finishes_anyhow or self.may_repeat:
            return
        judged = [
            subscriber.index
            for subscriber in world.subscribers
            if subscriber.is_wanted
            and subscriber.index not in self._amnesiac
            and subscriber.index not in self._excused
            and not world.is_stock_subscriber(subscriber.index)
            and not world.is_at_most_once(subscriber.index)
        ]
        for found in self._histories.verdict(judged).subscribers:
            # A process may have died with a message that its publisher then gave up: nothing is left of it (G6).
            if found.lost or found.duplicated or found.reordered or found.unexpected:
                raise Violation(f"CHECKER: {found.name}: {dict(found.examples)}")

    def _check_streams(self) -> None:
        """G4: a stream has no hole from its first message on: to the end, or to the end of its incarnation."""
        for (subscriber, publisher), spans in self._spans.items():
            if subscriber in self._amnesiac or not self._is_ordered(subscriber, publisher):
                continue
            for incarnation, (first, last) in spans.items():
                is_current = self._created(subscriber) == incarnation
                if self._finishes_anyhow and not is_current and self._world.subscribers[subscriber].is_closing:
                    continue  # it left with deliveries it had not finished between others that it had
                stop = self._world.publishers[publisher].next if is_current else last
                self._check_holes(subscriber, publisher, first + 1, stop)
