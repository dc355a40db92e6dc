"""What must be true of every run of the simulation."""

from __future__ import annotations

from collections import Counter
from typing import Any

from oncewire.wire import Attach, LinkDetached, Symbol

FAULTY = frozenset({"amqp:link:transfer-limit-exceeded", "amqp:session:window-violation", "amqp:session:errant-link"})
"""Errors that say that credit or a window was exceeded (R-5, R-8)."""


SERVED = Symbol("served-by")
"""Property of a bridge's attach: what a client is answered comes from a service (R-3)."""


class Violation(Exception):
    """A rule or a guarantee does not hold; the text says which."""


class Judge:
    """Watches clients, bridges and routers."""

    def __init__(self) -> None:
        self.accepted: set[bytes] = set()
        self.largest_held = 0
        self._given: dict[tuple[int, int], str] = {}
        self._orders: dict[str, int] = {}
        self._held_until: dict[int, float] = {}
        self._attaches = 0

    def on_detached(self, event: LinkDetached) -> None:
        """Some end saw a detach."""
        error = event.error
        if error is not None and (error.condition in FAULTY or "no credit left" in (error.description or "")):
            raise Violation(f"credit or window was exceeded: {event.error}")

    def on_reply(self, asked: Attach, reply: Attach) -> None:
        """R-3: a client's attach is answered by a service, and with a map where it has presented one."""
        if SERVED not in (reply.properties or {}):
            raise Violation(f"{reply.name} was answered without a service")
        if asked.unsettled is not None and reply.unsettled is None:
            raise Violation(f"{reply.name} has presented a map and was answered without one")

    def next_attach(self) -> int:
        """A number for an attach that reached a bridge."""
        self._attaches += 1
        return self._attaches

    def on_origin(self, key: str, name: str) -> None:
        """R-4: a bridge learnt who a client is; in this world link names begin with the container-id."""
        container, _, link = key.partition("|")
        if not link.startswith(f"{container}-") or name != key:
            raise Violation(f"a client claims to be another one: {key}, {name}")

    def on_item(self, worker: str, item: int, reservation: int) -> None:
        """A worker got an item: no reservation is two workers', or comes twice."""
        other = self._given.get((item, reservation))
        if other is not None:
            raise Violation(f"item {item}.{reservation} went to {other} and to {worker}")
        self._given[item, reservation] = worker

    def on_reserved(self, item: int, now: float, until: float) -> None:
        """W-4: nobody else has an item until its time is over."""
        if self._held_until.get(item, 0.0) > now:
            raise Violation(f"item {item} was reserved twice at a time")
        self._held_until[item] = until

    def on_released(self, item: int) -> None:
        """An outcome of an item is in the store."""
        self._held_until.pop(item, None)

    def on_finished(self, store: Any, item: int, reservation: int) -> None:
        """W-5: a worker is notified that an item is done when it is."""
        if store.done.get(item) != reservation:
            raise Violation(f"a worker was notified that item {item}.{reservation} is done, and it is not")

    def on_order(self, link: str, number: int) -> None:
        """R-5: deliveries of one attach come in their order."""
        if number <= self._orders.get(link, 0):
            raise Violation(f"{link}: delivery {number} came behind {self._orders[link]}")
        self._orders[link] = number

    def on_held(self, deliveries: int, limit: int) -> None:
        """R-8: what waits at a router has a bound."""
        self.largest_held = max(self.largest_held, deliveries)
        if deliveries > limit:
            raise Violation(f"{deliveries} deliveries wait at a router, more than {limit}")

    def at_end(self, store: Any, sent: Counter[bytes], exactly_once: set[bytes]) -> None:
        """Everything was accepted, pushed and done."""
        missing = self.accepted - store.pushes.keys()
        if missing:
            raise Violation(f"accepted and lost: {sorted(missing)[:3]}")
        twice = [item for item in sorted(exactly_once) if store.pushes[item] > 1]
        if twice:
            raise Violation(f"pushed twice: {twice[:3]}")
        open_items = sent.keys() - self.accepted
        if open_items:
            raise Violation(f"not accepted at the end: {sorted(open_items)[:3]}")
        left = [row.payload for row in store.rows.values() if not row.is_done]
        if left:
            raise Violation(f"not done at the end: {left[:3]}")
