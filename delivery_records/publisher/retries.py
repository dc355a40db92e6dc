"""Deliveries a subscription asked for again (rule E-4a): delay, attempts, and the poison limit."""

from __future__ import annotations

from collections.abc import Mapping

from delivery_records.model.endpoint import Endpoint
from delivery_records.model.limits import RELEASES_PER_ATTEMPT, RETRY_DOUBLINGS, TopicPolicy
from delivery_records.model.messages import Nack
from delivery_records.model.outcomes import Decision
from delivery_records.model.timers import Timer
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription
from delivery_records.publisher.fanout import REPLACED, Fanout
from delivery_records.publisher.policy import Policy
from delivery_records.publisher.window import Slot, Window


class _Attempts:
    __slots__ = ("failed", "heard_late", "heard_presented", "released")

    def __init__(self) -> None:
        self.failed = 0
        self.released = 0
        self.heard_late = False
        """A failure was heard of a member's former epoch: what that member presents is the same one."""
        self.heard_presented = False
        """The other way round."""


class Retries(Policy):
    """What one ingress must send again, and when. Entries leave with their delivery or their subscription."""

    __slots__ = ("_attempts", "_endpoint", "_fanout", "_turn", "_window", "policy")

    def __init__(self, turn: Turn, endpoint: Endpoint, window: Window, fanout: Fanout, policy: TopicPolicy) -> None:
        """Nothing to retry. What failed before this ingress, egresses state (E-4a)."""
        self._turn = turn
        self.policy = policy
        self._endpoint = endpoint
        self._window = window
        self._fanout = fanout
        self._attempts: dict[int, dict[str, _Attempts]] = {}
        """By number and subscription: what leaves costs no look at the rest of the window."""

    def on_again(self, subscription: Subscription, nack: Nack, *, is_late: bool = False) -> int:
        """Schedule the next attempt: 0. At the poison limit, the failed attempts: the delivery counts as rejected.

        Args:
            subscription: that owes it.
            nack: of the subscription, or of a member.
            is_late: of a member's former epoch: it counts, and the delivery has been assigned anew (SH-5).
        """
        number = nack.number
        slot = self._window.at(number)
        if slot is None or not self._fanout.owes(subscription.key, number):
            return 0
        pair = (subscription.key, number)
        entry = self._entry(pair)
        if self._was_heard(entry, pair, nack, is_late):
            delay = self._back_off(entry.failed - 1)
        else:
            entry.failed = max(entry.failed, nack.attempts - nack.failed)  # before this one, as the egress knows
            delay = self._count(entry, nack.failed)
            entry.heard_late = entry.heard_late or (is_late and nack.failed)
            entry.heard_presented = entry.heard_presented or nack.is_presented
        if nack.delay_ms is not None:
            delay = min(nack.delay_ms / 1000, self.policy.retry_cap_s)
        attempts = self._look_at_limit(subscription, slot, entry)
        if attempts or is_late:
            return attempts
        self._turn.counts[Decision.RETRY_SCHEDULED] += 1
        self._trace(slot, Rule.RETRY, subscription.name, delay)
        # The SYNC of its present epoch has repeated what the former one wanted again; members are sent nothing by it.
        is_repeated = nack.subscription_epoch != subscription.epoch and not subscription.record.shared
        if is_repeated:
            self._fanout.scheduled.setdefault(pair, REPLACED)  # what the present epoch has asked for stays (E-4a)
        else:
            self._fanout.scheduled[pair] = self._turn.now + delay
        self._arm()
        return 0

    def on_failed_for_good(self, subscription: Subscription, number: int) -> int:
        """SH-5: a member failed it, and is never sent it again: counted as by `on_again`, and nothing is scheduled."""
        slot = self._window.at(number)
        if slot is None or not self._fanout.owes(subscription.key, number):
            return 0
        entry = self._entry((subscription.key, number))
        entry.failed += 1
        return self._look_at_limit(subscription, slot, entry)

    def _look_at_limit(self, subscription: Subscription, slot: Slot, entry: _Attempts) -> int:
        pair = (subscription.key, slot.number)
        if entry.failed >= self.policy.max_attempts:
            self._turn.note(
                Decision.DELIVERY_POISONED,
                publisher=self._endpoint.name,
                subscription=subscription.name,
                tag=slot.tag.hex(),
            )
            self._trace(slot, Rule.POISONED, subscription.name, entry.failed)
            self._forget_pair(pair)  # what others asked for goes on
            return entry.failed
        if entry.failed:
            self._fanout.failed[pair] = entry.failed
        return 0

    def _was_heard(self, entry: _Attempts, pair: tuple[str, int], nack: Nack, is_late: bool) -> bool:
        """A presented failure has been counted if no attempt was made since, but for a repeat; or late (SH-5)."""
        if nack.is_presented and entry.failed:
            was_late, entry.heard_late = entry.heard_late, False
            return was_late or pair in self._fanout.scheduled
        was_presented = is_late and nack.failed and entry.heard_presented
        if was_presented:
            entry.heard_presented = False
        return was_presented

    def _count(self, entry: _Attempts, failed: bool) -> float:
        """Seconds until the next attempt: 0 for the first release, else doubling up to the topic's cap."""
        if failed:
            entry.failed += 1
            return self._back_off(entry.failed - 1)
        entry.released += 1
        if entry.released % RELEASES_PER_ATTEMPT == 0:
            entry.failed += 1
        if entry.released == 1:
            return 0.0
        return self._back_off(entry.released - 2)

    def _back_off(self, times: int) -> float:
        """First wait, then twice that, up to the cap (I-3d)."""
        policy = self.policy
        return min(policy.retry_first_s * 2.0 ** min(times, RETRY_DOUBLINGS), policy.retry_cap_s)

    def on_timer(self) -> None:
        """Send what is due."""
        now = self._turn.now
        scheduled = self._fanout.scheduled
        for (key, number), deadline in list(scheduled.items()):
            if deadline <= now:
                del scheduled[(key, number)]
                entry = self._attempts[number][key]
                self._fanout.send_again(key, number, entry.failed)
        self._arm()

    def on_annotated(self, key: str, number: int, added: Mapping[bytes, bytes]) -> None:
        """E-4b: a subscription, or a member of it, has added to a delivery; what it adds stays for later attempts."""
        self._fanout.use(self)
        self._fanout.annotated.add(key, number, added)

    def _entry(self, pair: tuple[str, int]) -> _Attempts:
        self._fanout.use(self)
        key, number = pair
        return self._attempts.setdefault(number, {}).setdefault(key, _Attempts())

    def forget(self, slot: Slot) -> None:
        """It has left the window: nothing of it is tried again."""
        number = slot.number
        self._fanout.annotated.forget(number)
        for key in list(self._attempts.get(number, ())):
            self._forget_pair((key, number))

    def leave(self, key: str) -> None:
        """The subscription ends: nothing is tried again for it."""
        self._fanout.annotated.forget_subscription(key)
        for number in [number for number, by_key in self._attempts.items() if key in by_key]:
            self._forget_pair((key, number))

    def _trace(self, slot: Slot, rule: Rule, *fields: object) -> None:
        if self._turn.tracing is not None:
            self._turn.tracing.of_epoch(self._endpoint.epoch, slot.tag, rule, *fields)

    def _forget_pair(self, pair: tuple[str, int]) -> None:
        key, number = pair
        by_key = self._attempts[number]
        del by_key[key]
        if not by_key:
            del self._attempts[number]
        self._fanout.scheduled.pop(pair, None)
        self._fanout.failed.pop(pair, None)

    def _arm(self) -> None:
        earliest = min(self._fanout.scheduled.values(), default=REPLACED)
        if earliest != REPLACED:
            self._turn.timers.set(Timer.RETRY, self._endpoint.key, earliest)
