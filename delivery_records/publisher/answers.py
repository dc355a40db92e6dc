"""What subscriptions say of one publisher's deliveries: done, again, and what members of shared ones answer.

The rules are I-2, E-4a, SH-2, SH-4 and SH-5; what they fail becomes a dead letter (I-3e).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from delivery_records.model.messages import Claim, Nack, Return, Room
from delivery_records.model.outcomes import UNDELIVERABLE_HERE, DeliveryOutcome
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription
from delivery_records.publisher.dead_letters import DeadLetters
from delivery_records.publisher.fanout import Fanout
from delivery_records.publisher.owner import Owner
from delivery_records.publisher.publisher_outcomes import PublisherOutcomes
from delivery_records.publisher.retries import Retries
from delivery_records.publisher.sharing import Share
from delivery_records.publisher.window import Slot, Window


class Answers:
    """Counts what the subscriptions of one publisher are done with, and lets the rest be sent again."""

    __slots__ = ("_fanout", "_new_letters", "_outcomes", "_publisher", "_retries", "_turn", "_window")

    def __init__(
        self,
        turn: Turn,
        publisher: Owner,
        window: Window,
        fanout: Fanout,
        outcomes: PublisherOutcomes,
        retries: Retries,
        new_letters: Callable[[], DeadLetters],
    ) -> None:
        """Take the parts of the ingress `publisher`; `new_letters` makes its letters, when there are any."""
        self._turn = turn
        self._publisher = publisher
        self._window = window
        self._fanout = fanout
        self._outcomes = outcomes
        self._retries = retries
        self._new_letters = new_letters

    def on_acknowledged(self, subscription: Subscription, first: int, count: int, outcome: DeliveryOutcome) -> None:
        """I-2: the subscription is done with these numbers; true whichever egress says so."""
        if subscription.record.member_of:
            self._on_member_done(subscription, first, count, outcome)
            return
        cursor = self._fanout.cursors.get(subscription.key)
        if cursor is None:
            if self._fanout.letters is not None:
                self._fanout.letters.on_done(subscription.key, first, count)
            return
        window = self._window
        done = window.found(cursor.acknowledge(first, min(first + count, window.end), window.base))
        self.count_done(done, subscription, outcome)

    def count_done(self, done: list[Slot], subscription: Subscription, outcome: DeliveryOutcome) -> None:
        """A subscription, which has no members or is the shared one itself, owes these no longer."""
        is_accepted = outcome is DeliveryOutcome.ACCEPTED
        tracing = self._turn.tracing
        for slot in done:
            if slot.verdict is None:
                slot.pending -= 1
                slot.processed = True
                if not is_accepted:
                    self._on_failed(slot, subscription, outcome)
                if tracing is not None:
                    self._publisher.trace(slot, Rule.ACKNOWLEDGED, subscription.name, outcome.value, slot.pending)
        self._publisher.mark_dirty()

    def _on_failed(self, slot: Slot, subscription: Subscription, outcome: DeliveryOutcome) -> None:
        """I-3e: what a subscription failed becomes a letter; nobody has the body of a large one (L-2)."""
        if outcome is DeliveryOutcome.EXPIRED:
            self._outcomes.on_expired(slot, subscription.name)
        else:
            slot.rejected_by = [*(slot.rejected_by or []), subscription.name]
        if slot.is_large:
            slot.has_no_letter = True
            self.letters().count_failed(slot, subscription.name)
        elif self._outcomes.policy.dead_letter or outcome is not DeliveryOutcome.EXPIRED:
            is_here = outcome in UNDELIVERABLE_HERE  # one reason for people
            self.letters().on_failed(slot, subscription, DeliveryOutcome.UNDELIVERABLE if is_here else outcome)

    def letters(self) -> DeadLetters:
        """I-3e: nearly no publisher needs them."""
        letters = self._fanout.letters
        if letters is None:
            letters = self._fanout.letters = self._new_letters()
            self._fanout.use(letters)
        return letters

    def on_again(self, subscription: Subscription, nack: Nack) -> None:
        """E-4a: the subscription wants another attempt, until it has had too many."""
        number, share, is_late = nack.number, None, False
        if subscription.record.member_of:
            share = self._fanout.shares.get(subscription.record.member_of)
            owed = self._turn.view.subscriptions.get(subscription.record.member_of)
            if share is None or owed is None:
                return
            is_late = share.is_former(subscription.key, nack.subscription_epoch)
            if is_late:
                share.on_handed_back(subscription.key, number)
            elif not share.on_refused(subscription.key, number):
                return
            subscription = owed  # SH-5: another member may do it
        self._after_failure(share, subscription, number, self._retries.on_again(subscription, nack, is_late=is_late))

    def _after_failure(self, share: Share | None, subscription: Subscription, number: int, attempts: int) -> None:
        """E-4a: so often it has failed; `attempts` is 0 where it may be tried again."""
        failed = self._fanout.failed.get((subscription.key, number))
        if share is not None and failed is not None:
            share.count_attempts(number, failed)
        if attempts:
            self.letters().on_poisoned(subscription, number, attempts)
            self.on_acknowledged(subscription, number, 1, DeliveryOutcome.REJECTED)
            poisoned = self._fanout.shares.get(subscription.key)
            if poisoned is not None:
                poisoned.let_go(number)
                poisoned.assign()

    def on_needed_in_vain(self, subscription: Subscription, number: int) -> None:
        """L-7: the subscription waits for it no longer; its publisher may send it as a new message."""
        key = subscription.record.member_of or subscription.key
        slot, cursor = self._window.at(number), self._fanout.cursors.get(key)
        if slot is None or cursor is None or not cursor.owes(number):
            return
        cursor.acknowledge(number, number + 1, self._window.base)
        if slot.verdict is None:
            slot.pending -= 1
        self._outcomes.put_in_doubt(slot)
        share = self._fanout.shares.get(key)
        if share is not None:
            share.let_go(number)
            share.assign()
        self._publisher.mark_dirty()

    def on_annotated(self, subscription: Subscription, number: int, added: Mapping[bytes, bytes]) -> None:
        """E-4b: whichever member of a shared subscription says so."""
        key = subscription.record.member_of or subscription.key
        if self._fanout.owes(key, number):
            self._retries.on_annotated(key, number, added)

    def on_member_says(self, member: Subscription, message: Claim | Return | Room) -> None:
        """SH-2, SH-4: an answer of its egress."""
        share = self._fanout.shares.get(member.record.member_of)
        if share is None or not self._fanout.is_active:
            return
        epoch = message.subscription_epoch
        if isinstance(message, Claim):
            share.on_claim(member.key, epoch, message.room, message.runs, message.serial)
        elif isinstance(message, Return):
            if not share.is_former(member.key, epoch):
                self._fanout.streams.leave_one(message.number, member.key)
            share.on_returned(member.key, epoch, message.number)
        else:
            share.on_room(member.key, epoch, message.room)

    def on_member_deleted(self, member: Subscription) -> None:
        """SH-3: what it had goes to others; what those have refused for good goes to nobody (SH-5)."""
        key = member.record.member_of
        share, owed = self._fanout.shares.get(key), self._turn.view.subscriptions.get(key)
        if share is None:
            return
        share.on_deleted(member.key)
        if owed is not None:
            for number in share.refused_by_all():
                self._refuse(share, owed, number)

    def _refuse(self, share: Share, owed: Subscription, number: int) -> None:
        """SH-5: no member does it."""
        window, cursor = self._window, self._fanout.cursors[owed.key]
        done = window.found(cursor.acknowledge(number, number + 1, window.base))
        self.count_done(done, owed, DeliveryOutcome.UNDELIVERABLE)
        share.let_go(number)

    def _on_member_done(self, member: Subscription, first: int, count: int, outcome: DeliveryOutcome) -> None:
        """SH-5: what a member is done with the shared subscription is done with."""
        key = member.record.member_of
        share, owed = self._fanout.shares.get(key), self._turn.view.subscriptions.get(key)
        if share is None or owed is None:
            return
        window, cursor = self._window, self._fanout.cursors[key]
        if outcome in UNDELIVERABLE_HERE:
            for slot in window.within(first, count):
                number = slot.number
                if outcome is DeliveryOutcome.UNDELIVERABLE_FAILED and not share.has_refused(member.key, number):
                    attempts = self._retries.on_failed_for_good(owed, number)
                    self._after_failure(share, owed, number, attempts)
                if cursor.owes(number) and share.on_refused_for_good(member.key, number):
                    self._refuse(share, owed, number)
        else:
            done = window.found(cursor.acknowledge(first, min(first + count, window.end), window.base))
            for slot in done:
                share.let_go(slot.number)
            self.count_done(done, owed, outcome)
        share.assign()
