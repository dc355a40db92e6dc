"""What expires at an egress: a delivery that waits here and was never sent to the subscriber (rule E-10).

Nothing is kept for messages that do not expire. For the others one deadline is set, the earliest of those that wait.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from delivery_records.model.limits import EXPIRED_TAGS
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.tags import OWN_TAG_AT, SESSION_AT, session_of
from delivery_records.model.timers import Timer
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription, SubscriptionMode
from delivery_records.subscriber.entries import HELD, Entry
from delivery_records.subscriber.outgoing import Outgoing

SLACK: Final = 64
"""Deliveries that do not wait any more are taken out when there are so many more than those that do."""


class HeldExpiry:
    """Deadlines of what one egress holds."""

    __slots__ = ("_heap", "_is_owed", "_key", "_link", "_name", "_outgoing", "_serial", "_turn")

    def __init__(self, turn: Turn, subscription: Subscription, link: int, outgoing: Outgoing) -> None:
        """Nothing that is held expires."""
        self._turn = turn
        self._key, self._name = subscription.key, subscription.name
        self._link = link
        self._is_owed = subscription.record.mode is not SubscriptionMode.AT_MOST_ONCE
        self._outgoing = outgoing
        self._heap: list[tuple[float, int, Entry]] = []
        self._serial = 0

    def watch(self, entry: Entry, ttl_ms: int) -> None:
        """It is held, and has so much time left."""
        self._serial += 1
        heappush(self._heap, (self._turn.now + ttl_ms / 1000, self._serial, entry))
        if len(self._heap) > 2 * self._outgoing.held_new + SLACK:
            self._heap = [item for item in self._heap if item[2].state is HELD]
            heapify(self._heap)
        self._arm()

    def on_timer(self) -> None:
        """What still waits, and has no time left, expires."""
        expired: list[Entry] = []
        while self._heap and self._heap[0][0] <= self._turn.now:
            _, _, entry = heappop(self._heap)
            if entry.state is HELD:  # else it was sent, or dropped, in time
                self._outgoing.expire(entry)
                expired.append(entry)
        self._arm()
        if expired:
            self.report(expired)
            self._outgoing.pump()  # C-5: a drain may have waited for them

    def report(self, expired: list[Entry]) -> None:
        """Count them, and notify the ingress: the subscription is done with them."""
        by_session: dict[bytes, list[Entry]] = {}
        for entry in expired:
            by_session.setdefault(entry.tag[SESSION_AT:OWN_TAG_AT], []).append(entry)
            entry.outcome = DeliveryOutcome.EXPIRED
            self._outgoing.trace(entry, Rule.EXPIRED)
            if entry.sync is not None and self._is_owed:  # c.3, I-1c: else nothing is owed
                entry.sync.acknowledge(entry.number, DeliveryOutcome.EXPIRED)
        for entries in by_session.values():
            self._note(entries)

    def _note(self, expired: list[Entry]) -> None:
        """One line for what expires of one publisher."""
        turn = self._turn
        key = turn.view.sessions.get(session_of(expired[0].tag, turn.nonce), "")
        publisher = turn.view.publishers.get(key)
        turn.counts[Decision.EXPIRED] += len(expired) - 1  # the note counts one
        turn.note(
            Decision.EXPIRED,
            subscription=self._name,
            key=self._key,
            link=self._link,
            publisher="" if publisher is None else publisher.name,
            deliveries=len(expired),
            tags=[entry.tag.hex() for entry in expired[:EXPIRED_TAGS]],
        )

    def _arm(self) -> None:
        while self._heap and self._heap[0][2].state is not HELD:
            heappop(self._heap)
        if self._heap:
            self._turn.timers.set(Timer.HELD_EXPIRY, self._key, self._heap[0][0])
        else:
            self._turn.timers.cancel(Timer.HELD_EXPIRY, self._key)
