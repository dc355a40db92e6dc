"""Dead letters of one publisher: what subscriptions failed goes to a topic before an outcome is reported (rule I-3e).

A letter is a further obligation of the entry that it is a copy of: one more is pending for the entry, as if a
subscription owed it. The body is made again from the entry's whenever it is sent, so a letter costs no body.

The first subscription that is done with an entry and has not accepted it makes the letter, which says who that was and
why; those that fail it later are only counted. Without a dead-letter topic, the failure is counted and noted alone. A
large delivery has no letter, because nobody has its body.

The letter is sent when no other subscription owes the entry or one before it: letters leave in the order of the
window. It is owed by the dead-letter subscriptions of that time, the *members*, and by each that joins while it is out
and nobody is done with it. When no member owes it any more and one was done with it, it is no longer pending. If all
that owed it have left, it waits for the next member. The policy may limit that time; when it is over, what waits is
given up, and so is what follows, until somebody is there or the policy is another.

Members are synced as other subscriptions are (I-5): a SYNC names all that has no verdict, then what they owe is
repeated. A subscription that a change of the policy has made no member is synced with nothing, so that it lets go of
its letters. When an entry leaves the window its letter is settled with it, also one that an earlier ingress may have
sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from delivery_records.channels.channel import Channels
from delivery_records.model.letter import Letter, MakeLetter
from delivery_records.model.letter_topics import gets_letters
from delivery_records.model.limits import LETTER_NOTE_S, TopicPolicy
from delivery_records.model.messages import Msg, Reason, Settle, Sync
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.runs import add_run, frozen_runs
from delivery_records.model.timers import Timer
from delivery_records.model.topics import split_vhost
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription, SubscriptionMode
from delivery_records.publisher.owner import Owner
from delivery_records.publisher.policy import Policy
from delivery_records.publisher.window import AWAITED, REPORTED, Slot, Window
from delivery_records.subscriber.to_egresses import ToEgresses

MAX_ATTEMPTS_REASON = "max-attempts"
"""Why, where a subscription failed it too often."""


class Attempts(Protocol):
    """What the ingress knows of attempts, by subscription and number; dead-letter subscriptions have theirs."""

    failed: dict[tuple[str, int], int]

    def replace_attempts(self, number: int, keys: Iterable[str]) -> None:
        """What is repeated takes the place of the attempt that was scheduled (E-4a)."""

    def state_annotations(self, number: int, subscription: Subscription) -> None:
        """Ahead of a MSG: what was added to it before (E-4b)."""


class DeadLetters(Policy):
    """Letters of one publisher, and its dead-letter subscriptions."""

    __slots__ = (
        "_attempts",
        "_channels",
        "_errors",
        "_former",
        "_is_given_up",
        "_letters",
        "_make",
        "_members",
        "_noted_at",
        "_poisoned",
        "_policy",
        "_publisher",
        "_settled_runs",
        "_through",
        "_to_egresses",
        "_turn",
        "_unsent",
        "_waits_until",
        "_window",
    )

    def __init__(
        self,
        turn: Turn,
        publisher: Owner,
        window: Window,
        to_egresses: ToEgresses,
        channels: Channels,
        make: MakeLetter,
        attempts: Attempts,
    ) -> None:
        """Nothing has failed.

        Args:
            turn: of this router.
            publisher: whose letters they are.
            window: of the publisher.
            to_egresses: the egresses of this router.
            channels: the way to those of other routers.
            make: the letter's body from that of the message.
            attempts: of subscriptions, which count those of letters as well.
        """
        self._turn = turn
        self._publisher = publisher
        self._window = window
        self._to_egresses = to_egresses
        self._channels = channels
        self._make = make
        self._policy = TopicPolicy()
        """Of the publisher's topic; one without a dead-letter topic until `use`."""
        self._attempts = attempts
        self._letters: dict[int, Letter] = {}
        """By number of the entry."""
        self._unsent = 0
        """Letters whose turn has not come."""
        self._through = 0
        """Below it no entry is owed to a subscription, and each letter was sent."""
        self._errors: dict[int, tuple[str, str]] = {}
        """Number -> key of a subscription that is about to reject, and its error."""
        self._members: dict[str, None] = {}
        """Keys of the dead-letter subscriptions."""
        self._former: dict[str, None] = {}
        """Keys of those that a change of the policy has made none, and that may have letters."""
        self._settled_runs: list[list[int]] = []
        self._poisoned = ("", 0, 0)
        """Key, number and failed attempts of what is about to count as rejected."""
        self._noted_at: dict[Decision, float] = {}
        """When the log had it last."""
        self._waits_until = 0.0
        """When letters that nobody is there for are given up; 0: none waits, or for as long as it takes."""
        self._is_given_up = False
        """Nobody was there for that long: what comes now waits no longer."""

    # ------------------------------------------------------------------ dead-letter subscriptions

    def _in_view(self) -> list[Subscription]:
        topic = self._policy.dead_letter
        return [s for s in self._turn.view.matching(topic) if self._is_member(s)] if topic else []

    def _is_member(self, subscription: Subscription) -> bool:
        record = subscription.record
        if record.shared or record.member_of or record.mode is SubscriptionMode.AT_MOST_ONCE:
            return False
        return gets_letters(self._policy, self._publisher.topic, record.topic)

    def on_subscription(self, subscription: Subscription) -> None:
        """It came, moved, or was put again."""
        key = subscription.key
        if self._is_member(subscription):
            if key not in self._members:
                self._join(key)
        elif key in self._members:
            self._leave(key)
            self._former[key] = None
        self.sync([subscription])

    def _join(self, key: str) -> None:
        """It owes what nobody is done with."""
        self._members[key] = None
        self._former.pop(key, None)
        self._wait_anew()
        self._turn.plan_version += 1
        for letter in self._letters.values():
            if letter.is_out and not letter.is_done:
                letter.owed[key] = None

    def leave(self, key: str) -> None:
        """What it owed is owed no longer; where nobody else does, the letter waits for the next one."""
        self._former.pop(key, None)
        if key in self._members:
            self._leave(key)

    def _leave(self, key: str) -> None:
        del self._members[key]
        for number, letter in list(self._letters.items()):
            if key in letter.owed:
                del letter.owed[key]
                self._after(number, letter)

    def use(self, policy: TopicPolicy) -> None:
        """At activation, or when the operator's rules have changed (I-3d): everybody in view, and U for each (I-5)."""
        former, self._policy = self._policy, policy
        if policy.dead_letter_wait_s != former.dead_letter_wait_s:
            self._wait_anew()
        if policy.dead_letter == former.dead_letter:
            return
        if not policy.dead_letter:
            self._forget_all()
        found = {subscription.key: subscription for subscription in self._in_view()}
        for key in [key for key in self._members if key not in found]:
            self._leave(key)
            self._former[key] = None
        for key in [key for key in found if key not in self._members]:
            self._join(key)
        subscriptions = self._turn.view.subscriptions
        self.sync([subscriptions[key] for key in (*self._members, *self._former) if key in subscriptions])
        self._publisher.mark_dirty()

    def _forget_all(self) -> None:
        """The policy names no topic any more: nothing waits for letters. What is failed later may have one again."""
        for number, letter in self._letters.items():
            slot = self._window.at(number)
            if letter.is_over or slot is None:
                continue
            slot.pending -= 1
            self._turn.counts[Decision.DELIVERY_FAILED] += 1
        self._letters.clear()
        self._unsent = 0

    # ------------------------------------------------------------------ failures

    def on_reason(self, subscription: Subscription, reason: Reason) -> None:
        """Its ACK follows; that of a member counts for the shared subscription (SH-5)."""
        key = subscription.record.member_of or subscription.key
        for first, count in reason.runs:
            for slot in self._window.within(first, count):
                if slot.number not in self._letters:
                    self._errors.setdefault(slot.number, (key, reason.error))

    def on_poisoned(self, subscription: Subscription, number: int, attempts: int) -> None:
        """E-4a: it has failed so often, and counts as rejected now."""
        self._poisoned = (subscription.key, number, attempts)

    def on_failed(self, slot: Slot, subscription: Subscription, outcome: DeliveryOutcome) -> None:
        """A subscription is done with it, and has not accepted it."""
        letter = self._letters.get(slot.number)
        if letter is not None:
            letter.count += 1
            return
        if not self._policy.dead_letter:
            self.count_failed(slot, subscription.name)
            return
        key, error = self._errors.pop(slot.number, ("", ""))
        poisoned, number, attempts = self._poisoned
        is_poisoned = (poisoned, number) == (subscription.key, slot.number)
        if not is_poisoned:
            is_attempt = outcome is not DeliveryOutcome.EXPIRED
            attempts = self._attempts.failed.get((subscription.key, slot.number), 0) + is_attempt
        self._letters[slot.number] = Letter(
            split_vhost(self._publisher.topic)[1],
            subscription.name,
            MAX_ATTEMPTS_REASON if is_poisoned else outcome.value,
            attempts,
            error if key == subscription.key else "",
        )
        slot.pending += 1  # the letter, until `_after`
        self._unsent += 1
        if self._turn.tracing is not None:
            self._publisher.trace(slot, Rule.LETTER, subscription.name)

    def count_failed(self, slot: Slot, subscription: str) -> None:
        """There is no dead-letter topic, or nobody has its body."""
        self._errors.pop(slot.number, None)
        self._note(Decision.DELIVERY_FAILED, topic=self._publisher.topic, subscription=subscription, tag=slot.tag.hex())

    def _note(self, decision: Decision, **fields: object) -> None:
        """Count it; log the first in a while."""
        turn = self._turn
        if turn.now - self._noted_at.get(decision, -LETTER_NOTE_S) < LETTER_NOTE_S:
            turn.counts[decision] += 1
            return
        self._noted_at[decision] = turn.now
        turn.note(decision, publisher=self._publisher.name, **fields)

    # ------------------------------------------------------------------ sending

    def flush(self) -> None:
        """Letters go out in the order of the window: nobody owes the entry or one before it any more."""
        if not self._unsent:
            return
        window = self._window
        number = max(self._through, window.next_accept)
        while self._unsent and number < window.end:
            slot = window.at(number)
            if slot is not None and slot.state is not REPORTED:
                letter = self._letters.get(number)
                holds = letter is not None and not letter.is_over
                if slot.state is AWAITED or slot.pending > int(holds):
                    break
                if letter is not None and not letter.is_out:
                    self._send_out(slot, letter)
            number += 1
        self._through = number

    def _send_out(self, slot: Slot, letter: Letter) -> None:
        if slot.is_large:  # I-3e: failed in a presented map, before it came in parts: nobody has its body
            self.discard(slot)
            slot.has_no_letter = True
            slot.pending -= 1
            self.count_failed(slot, letter.subscription)
            return
        letter.is_out = True
        self._unsent -= 1
        letter.owed.update(self._members)
        self._turn.counts[Decision.DEAD_LETTER_SENT] += 1
        if self._turn.tracing is not None:
            self._publisher.trace(slot, Rule.LETTER_SENT, len(letter.owed))
        if not self._members:
            self._after(slot.number, letter)
            return
        body = self._body(slot, letter)
        for key in self._members:  # E-4a: one at this router may have failed it too often
            self._send_to(self._turn.view.subscriptions[key], slot, body, redelivered=slot.repeated)

    def _body(self, slot: Slot, letter: Letter) -> bytes:
        """A message of another format than AMQP's own goes as it is."""
        return slot.message if slot.message_format else self._make(slot.message, letter)

    def _send_to(self, subscription: Subscription, slot: Slot, body: bytes, *, redelivered: bool) -> None:
        attempt = self._attempts.failed.get((subscription.key, slot.number), 0)
        self._attempts.state_annotations(slot.number, subscription)
        self._send(
            subscription.record.rid,
            Msg(
                self._publisher.epoch,
                slot.number,
                slot.tag,
                body,
                (subscription.epoch,),
                redelivered=redelivered,
                attempt=attempt,
                message_format=slot.message_format,
            ),
        )

    def _send(self, rid: int, message: Msg | Sync) -> None:
        if rid == self._turn.rid:
            self._to_egresses.deliver(rid, message)
        else:
            self._channels.send_stream(rid, message)

    def sync(self, subscriptions: Iterable[Subscription]) -> None:
        """I-5: declare U, then repeat in order what it owes; to one that is none any more an empty U."""
        window = self._window
        for subscription in subscriptions:
            key = subscription.key
            is_member = key in self._members
            if subscription.record.rid not in self._turn.view.routers or not (is_member or key in self._former):
                continue
            unsettled = [slot for slot in window.slots() if slot.verdict is None] if is_member else []
            numbers, tags = tuple(slot.number for slot in unsettled), tuple(slot.tag for slot in unsettled)
            rid = subscription.record.rid
            self._send(rid, Sync(self._publisher.epoch, (subscription.epoch,), numbers, tags, is_letters=True))
            for slot in unsettled if self._letters else ():
                letter = self._letters.get(slot.number)
                if letter is not None and key in letter.owed:
                    self._attempts.replace_attempts(slot.number, (key,))
                    self._send_to(subscription, slot, self._body(slot, letter), redelivered=True)

    def sync_router(self, rid: int) -> None:
        """T-4: the channel to that router restarted."""
        found = self._turn.view.subscriptions
        keys = (*self._members, *self._former)
        self.sync([found[key] for key in keys if key in found and found[key].record.rid == rid])

    def owes(self, key: str, number: int) -> bool:
        """Whether this dead-letter subscription was sent the letter, and is not done with it."""
        letter = self._letters.get(number)
        return letter is not None and key in letter.owed

    def send_again(self, key: str, number: int) -> None:
        """E-4a: one more attempt."""
        slot, letter = self._window.at(number), self._letters.get(number)
        if slot is not None and letter is not None and key in letter.owed:
            body = self._body(slot, letter)
            self._send_to(self._turn.view.subscriptions[key], slot, body, redelivered=slot.repeated)

    # ------------------------------------------------------------------ done and settled

    def on_done(self, key: str, first: int, count: int) -> None:
        """ACK of a dead-letter subscription; of a letter that was not sent it says nothing yet."""
        for slot in self._window.within(first, count):
            letter = self._letters.get(slot.number)
            if letter is None or key not in letter.owed:
                continue
            del letter.owed[key]
            letter.is_done = True
            self._after(slot.number, letter)

    def _after(self, number: int, letter: Letter) -> None:
        """Somebody owes it no longer."""
        if letter.owed or not letter.is_out:
            return
        slot = self._window.at(number)
        assert slot is not None
        if not letter.is_done:
            self._wait(slot)
        else:
            slot.pending -= 1
            self._turn.counts[Decision.DEAD_LETTER_DONE] += 1
            if self._turn.tracing is not None:
                self._publisher.trace(slot, Rule.LETTER_DONE, slot.pending)
        self._publisher.mark_dirty()

    # ------------------------------------------------------------------ nobody is there

    def _wait(self, slot: Slot) -> None:
        """Its letter is owed to the next one that joins, unless nobody has been there for too long."""
        if self._is_given_up:
            self._give_up(slot)
            return
        self._note_letter(Decision.DEAD_LETTER_WAITS, slot)
        wait_s = self._policy.dead_letter_wait_s
        if wait_s and not self._waits_until:
            self._waits_until = self._turn.now + wait_s
            self._turn.timers.set(Timer.LETTERS, self._publisher.key, self._waits_until)

    def _wait_anew(self) -> None:
        """Somebody is there, or the policy's time is another."""
        self._waits_until, self._is_given_up = 0.0, False
        self._turn.timers.cancel(Timer.LETTERS, self._publisher.key)
        if not self._members:
            for slot in self._waiting_slots():
                self._wait(slot)

    def on_timer(self) -> None:
        """I-3e: nobody was there in all the time that the policy gives letters."""
        if not self._waits_until or self._turn.now < self._waits_until:
            return  # a timer of a former ingress
        self._is_given_up = True
        for slot in self._waiting_slots():
            self._give_up(slot)
        self._publisher.mark_dirty()

    def _waiting_slots(self) -> list[Slot]:
        waiting = [number for number, letter in self._letters.items() if letter.is_out and not letter.is_over]
        return [slot for slot in map(self._window.at, waiting) if slot is not None]

    def _give_up(self, slot: Slot) -> None:
        """Nobody owes it, and the publisher, which gets *rejected*, keeps the message."""
        self.discard(slot)
        slot.has_no_letter = True
        slot.pending -= 1
        self._note_letter(Decision.DEAD_LETTER_GIVEN_UP, slot)
        if self._turn.tracing is not None:
            self._publisher.trace(slot, Rule.LETTER_GIVEN_UP, slot.pending)

    def _note_letter(self, decision: Decision, slot: Slot) -> None:
        self._note(decision, topic=self._publisher.topic, dead_letter=self._policy.dead_letter, tag=slot.tag.hex())

    # ------------------------------------------------------------------ settled

    def forget(self, slot: Slot) -> None:
        """The entry left the window: its letter is settled with it, also one that an earlier ingress has sent."""
        letter = self.discard(slot)
        if slot.repeated or letter is not None or slot.has_no_letter:
            add_run(self._settled_runs, slot.number)

    def discard(self, slot: Slot) -> Letter | None:
        """Nothing is owed for the entry any more. Returns the letter that was."""
        self._errors.pop(slot.number, None)
        letter = self._letters.pop(slot.number, None)
        if letter is not None and not letter.is_out:
            self._unsent -= 1
        return letter

    def after_settling(self) -> None:
        """SETTLE of what was forgotten in this turn, wherever a dead-letter subscription is."""
        if not self._settled_runs:
            return
        runs, self._settled_runs = frozen_runs(self._settled_runs), []
        turn, epoch = self._turn, self._publisher.epoch
        remote: dict[int, None] = {}
        for key in self._members:
            rid = turn.view.subscriptions[key].record.rid
            egress = self._to_egresses.egresses.get(key)
            if rid == turn.rid and egress is not None:
                self._to_egresses.to_these(Settle(epoch, runs), (egress,))
            elif rid in turn.view.routers and rid != turn.rid:
                remote[rid] = None
        self._channels.broadcast([self._channels.channel(rid) for rid in remote], Settle(epoch, runs))

    # ------------------------------------------------------------------ for people

    def waits(self, number: int) -> bool:
        """Whether nobody is there for the letter of an entry."""
        letter = self._letters.get(number)
        if letter is None or letter.is_done or letter.owed:
            return False
        return letter.is_out

    def owing_keys(self, number: int) -> list[str]:
        """Keys of the dead-letter subscriptions that owe the letter of an entry."""
        letter = self._letters.get(number)
        return [] if letter is None else list(letter.owed)

    def owing(self, number: int) -> list[str]:
        """Who owes the letter of an entry; where nobody is there, what is missing."""
        letter = self._letters.get(number)
        if letter is None or letter.is_over or not letter.is_out:
            return []
        if not letter.owed:
            return [f"no subscription of the dead-letter topic {split_vhost(self._policy.dead_letter)[1]}"]
        return [self._turn.view.subscriptions[key].name for key in letter.owed]

    @property
    def waiting(self) -> int:
        """Letters that nobody is there for."""
        return sum(1 for number in self._letters if self.waits(number))
