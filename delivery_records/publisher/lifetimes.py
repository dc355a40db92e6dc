"""How long the messages of one publisher live, and what no member of a shared subscription took in time (rule E-10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from delivery_records.model.endpoint import Endpoint
from delivery_records.model.expiry_times import ReadTtl
from delivery_records.model.limits import EXPIRED_TAGS, EXPIRY_LOOK_S
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.timers import Timer
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription
from delivery_records.publisher.fanout import Fanout
from delivery_records.publisher.policy import Policy
from delivery_records.publisher.window import Slot, Window

CountDone: TypeAlias = Callable[[list[Slot], Subscription, DeliveryOutcome], None]
"""I-2: a subscription is done with these."""


class Lifetimes(Policy):
    """Of the messages in one window. Only where the topic's policy limits their life it is used."""

    __slots__ = ("_endpoint", "_fanout", "_read_ttl", "_turn")

    def __init__(self, turn: Turn, endpoint: Endpoint, fanout: Fanout, read_ttl: ReadTtl) -> None:
        """`endpoint` is the ingress; its fanout knows the deadlines."""
        self._turn = turn
        self._endpoint = endpoint
        self._fanout = fanout
        self._read_ttl = read_ttl

    def deadline(self, message: bytes, message_format: int, longest_s: float) -> float:
        """E-10: of a message that arrives now; its own ttl counts where it is shorter than the policy's."""
        own = self._read_ttl(message, message_format)
        return self._turn.now + (longest_s if not own else min(own / 1000, longest_s))

    def begin(self, slot: Slot, longest_s: float) -> None:
        """A delivery has arrived whole; one that is repeated after a failover has its time anew."""
        deadline = self.deadline(slot.message, slot.message_format, longest_s)
        self._fanout.use(self)
        self._fanout.expiries[slot.number] = deadline
        if self._fanout.shares:
            planned = self._turn.timers.deadline(Timer.SHARE_EXPIRY, self._endpoint.key)
            if planned is None or deadline < planned:
                self._turn.timers.set(Timer.SHARE_EXPIRY, self._endpoint.key, deadline)

    def forget(self, slot: Slot) -> None:
        """It has left the window, and expires no more."""
        self._fanout.expiries.pop(slot.number, None)

    def on_timer(self, window: Window, count_done: CountDone) -> None:
        """What no member was given in time, a shared subscription is done with."""
        fanout = self._fanout
        for key, numbers in self._take_due():
            owed, share, cursor = self._turn.view.subscriptions[key], fanout.shares[key], fanout.cursors[key]
            for number in numbers:
                done = window.found(cursor.acknowledge(number, number + 1, window.base))
                count_done(done, owed, DeliveryOutcome.EXPIRED)
                share.let_go(number)
            self._report(owed, window.found(numbers))
            share.assign()

    def _report(self, subscription: Subscription, expired: list[Slot]) -> None:
        """Count them, for a shared subscription."""
        for slot in expired:
            if self._turn.tracing is not None:
                self._turn.tracing.of_epoch(self._endpoint.epoch, slot.tag, Rule.EXPIRED, subscription.name)
        self._turn.counts[Decision.EXPIRED] += len(expired) - 1  # the note counts one
        self._turn.note(
            Decision.EXPIRED,
            subscription=subscription.name,
            key=subscription.key,
            publisher=self._endpoint.name,
            session=self._turn.view.publishers[self._endpoint.key].session,
            deliveries=len(expired),
            tags=[slot.tag.hex() for slot in expired[:EXPIRED_TAGS]],
        )

    def _take_due(self) -> list[tuple[str, list[int]]]:
        """Key of each shared subscription, and what no member of it was given in time."""
        turn, expiries = self._turn, self._fanout.expiries
        past = [number for number, deadline in expiries.items() if deadline <= turn.now]
        found: list[tuple[str, list[int]]] = []
        for key, share in self._fanout.shares.items():
            expired = [number for number in past if share.may_expire(number)]
            if expired:
                found.append((key, expired))
        cursors = [self._fanout.cursors[key] for key in self._fanout.shares]
        looks = [deadline for deadline in expiries.values() if deadline > turn.now] if cursors else []
        if any(cursor.owes(number) for cursor in cursors for number in past):
            looks.append(turn.now + EXPIRY_LOOK_S)  # else it waits for its publisher alone, which may never come
        if looks:
            turn.timers.set(Timer.SHARE_EXPIRY, self._endpoint.key, min(looks))
        return found
