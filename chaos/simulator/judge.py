"""The judge: what clients are promised (G1 to G7) as checks on what they did, independent of the cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from chaos.simulator import coverage
from chaos.simulator.annotations_judge import AnnotationsJudge
from chaos.simulator.calm_judge import CalmJudge
from chaos.simulator.copies_judge import CopiesJudge
from chaos.simulator.ended_judge import EndedJudge
from chaos.simulator.ends_judge import EndsJudge
from chaos.simulator.expiry_judge import ExpiryJudge
from chaos.simulator.filters import FilterJudge
from chaos.simulator.histories import Histories
from chaos.simulator.letters_judge import LettersJudge
from chaos.simulator.operators import Operators
from chaos.simulator.policy_judge import PolicyJudge
from chaos.simulator.promises import PromiseJudge
from chaos.simulator.require_judge import RequireJudge
from chaos.simulator.roles import ClientRole
from chaos.simulator.session_judge import SessionJudge
from chaos.simulator.shared_judge import SharedJudge
from chaos.simulator.state import WorldState
from chaos.simulator.steals_judge import StealsJudge
from chaos.simulator.violation import Violation
from delivery_records.model import effects
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import Kind

Message: TypeAlias = tuple[int, int]
"""A publisher's index and the number of its message."""


class Judge:
    """Sees every send, acceptance, confirmation and processing."""

    def __init__(self, world: WorldState, operators: Operators) -> None:
        """Watch `world`."""
        self._world = world
        self._histories = Histories(world)
        self.sessions = SessionJudge(world)
        self.ended = EndedJudge(world)
        self.ends = EndsJudge(world, self._still_owed)
        self.promises = PromiseJudge(world, operators)
        self.require = RequireJudge(world)
        self.filters = FilterJudge(world)
        self.calm = CalmJudge(world, self.filters)
        self._copies = CopiesJudge(world)
        self.policies = PolicyJudge(world)
        self.annotations = AnnotationsJudge(world, self.policies)
        self._confirmed: dict[int, int] = {}
        self._owed: dict[Message, list[tuple[int, int]]] = {}
        self.processed: dict[int, set[Message]] = {}
        self._last: dict[tuple[int, int], tuple[int, int]] = {}
        self._handed: dict[tuple[int, int], int] = {}
        self._spans: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        """(subscriber, publisher) -> subscription incarnation -> first and last message processed in it."""
        self._excused: dict[int, set[Message]] = {}
        """What a subscriber will not get any more, as it was notified (S-a)."""
        self._retries_lost: dict[int, set[Message]] = {}
        """What each subscriber wanted again and whose router is gone: in nobody's map but the publisher's (E-4a)."""
        self._new_again: Counter[Message] = Counter()
        """How often a publisher sent a message again as a new one (c.5, A-5)."""
        self.shared = SharedJudge(world, self._new_again)
        self.letters = LettersJudge(world, self._new_again, self.filters, self.policies)
        self.steals = StealsJudge(world)
        self.expiry = ExpiryJudge(world, self._new_again, self.processed)
        self._repeats: Counter[tuple[int, Message]] = Counter()
        self._forgotten: dict[int, set[Message]] = {}
        self._settled: dict[int, set[Message]] = {}
        """What a subscriber without a map had done when a drained router let it go at rest (K-8a)."""
        self._marks: dict[tuple[int, int], int] = {}
        """(subscriber, publisher) -> the first message that was sent after the subscriber had lost its map."""
        self._starts: dict[Message, int] = {}
        """A revision before which a message was sent, as its publisher knows (I-6a)."""
        self._left: set[tuple[int, int]] = set()
        """(subscriber, incarnation): lives of subscriptions that their subscriber itself ended."""
        self._dropped: set[tuple[int, int, Message]] = set()
        """(subscriber, incarnation, message): what an application was handed and will not finish."""
        self.attempted = 0
        self.accepted = 0
        self.deliveries = 0

    def created(self, subscriber: int) -> int:
        """The life of a subscription as etcd knows it; 0 when there is none."""
        held = self._world.etcd.keys.get((Kind.SUBSCRIPTION, self._world.life_key(subscriber)))
        return 0 if held is None else held.create_revision

    def has_key(self, subscriber: int) -> bool:
        """Whether etcd has the key of a subscriber's link; that of a member is not the subscription's (SH-1)."""
        return (Kind.SUBSCRIPTION, self._world.subscription_key(subscriber)) in self._world.etcd.keys

    def on_left(self, client: ClientRole) -> None:
        """A client's link is gone, or what its expiry policy waits for: its time begins, or began before (A-9, K-5)."""
        if client in self._world.publishers:
            self.sessions.on_left(client.index)
        else:
            self.promises.on_left(client.index)

    def on_joined(self, client: ClientRole) -> None:
        """A router has attached it, or it keeps its AMQP session."""
        if client in self._world.publishers:
            self.sessions.on_joined(client.index)
        else:
            self.promises.on_joined(client.index)

    # ------------------------------------------------------------------ what is reported to clients

    def on_incarnation(self, subscriber: int, incarnation: int) -> None:
        """G4: a subscriber learns in which life of its subscription it is; a number it never had would hide a gap."""
        world = self._world
        if world.is_member(subscriber):
            self.shared.on_attached(subscriber)
        known = world.etcd.created.get((Kind.SUBSCRIPTION, world.life_key(subscriber)), set())
        if incarnation not in known and not world.restores:
            raise Violation(f"INCARNATION: s{subscriber} gets {incarnation}, which is none of {sorted(known)}")

    def on_start_reported(self, publisher: int, number: int, revision: int) -> None:
        """I-6a: whoever subscribes at that revision or later does not get this message."""
        message = (publisher, number)
        self._starts[message] = min(revision, self._starts.get(message, revision))

    def on_starts_lost(self, publisher: int) -> None:
        """The publisher's process is gone, and with it what it knew of starts (I-6a, last sentence)."""
        self._starts = {message: revision for message, revision in self._starts.items() if message[0] != publisher}

    def on_leaving(self, subscriber: int) -> None:
        """It unsubscribes, with deliveries that it had not finished; another life may be handed them again (G3)."""
        self.on_restart(subscriber)
        self._left.add((subscriber, self.created(subscriber)))

    def on_dropped(self, subscriber: int, message: Message, incarnation: int) -> None:
        """Its application will not finish a delivery; it comes again only in the same life of the subscription."""
        self._dropped.add((subscriber, incarnation, message))

    def on_confirmed(self, subscriber: int, incarnation: int) -> None:
        """The subscriber was notified that its subscription counts."""
        self.calm.on_confirmed(subscriber, incarnation)
        if self._world.is_at_most_once(subscriber):
            return
        self._confirmed[subscriber] = incarnation
        if self._world.is_member(subscriber):
            self.shared.on_confirmed(incarnation)
            return
        if self._world.gets_letters(subscriber):
            self.letters.on_confirmed(subscriber, incarnation)
            return
        self._histories.on_confirmed(subscriber, incarnation)

    def on_reply_to_stock(self, subscriber: int, incarnation: int) -> None:
        """A-6b: the reply stands for the confirmation, but for one that went out before the barrier was complete."""
        live = [router.records for router in self._world.routers if router.records is not None]
        if all(records.view.applied >= incarnation for records in live):
            self.on_confirmed(subscriber, incarnation)

    def is_confirmed(self, subscriber: int) -> bool:
        """It has been notified so in the present life of its subscription."""
        return self._confirmed.get(subscriber) == self.created(subscriber)

    def on_first_send(self, publisher: int, number: int) -> None:
        """G1 is about subscriptions confirmed before this moment."""
        self.attempted += 1
        self.calm.on_first_send((publisher, number))
        self._histories.on_sent(publisher, number)
        self.ended.on_first_send(publisher, number)
        self._owed[(publisher, number)] = [
            (subscriber, created)
            for subscriber, created in self._confirmed.items()
            if self.created(subscriber) == created
            and self._world.is_subscribed(subscriber, publisher)
            and not self._world.is_member(subscriber)
            and not self.filters.excludes_now(subscriber, publisher, number, created)
        ]
        if self._world.traits.sharers:
            self.shared.on_first_send((publisher, number))
        self.letters.on_first_send((publisher, number), self._confirmed.items())

    def on_accepted(self, publisher: int, number: int) -> None:
        """G1: every owed subscription that still exists has processed the message."""
        self.accepted += 1
        self._histories.on_accepted(publisher, number)
        self._check_letter((publisher, number), is_rejected=False)
        self._check_released(publisher, number)
        self.policies.check_accepted((publisher, number))
        if not self._is_over_for_members((publisher, number)):
            self.shared.check_accepted((publisher, number))
        for subscriber in self._still_owed(publisher, number):
            raise Violation(f"LOST: p{publisher}/{number} accepted but not processed by s{subscriber}")
        gone = [owing for owing in self._unprocessed((publisher, number)) if self.created(owing[0]) != owing[1]]
        self.ended.check_accepted(publisher, number, gone)

    def _check_letter(self, message: Message, *, is_rejected: bool) -> None:
        self.letters.check_reported(message, is_poisoned=self._is_poisoned(message), is_rejected=is_rejected)

    def _is_over_for_members(self, message: Message) -> bool:
        """SH-5, E-4a: together they failed as often as the policy allows; or none took it in time (E-10)."""
        last = len(self._world.subscribers) - 1
        has_failed = self.policies.has_failed(last, message)
        return self._world.is_member(last) and (has_failed or message in self.expiry.expired(last))

    def _check_released(self, publisher: int, number: int) -> None:
        """I-3: *accepted* states to a stock publisher that somebody is done with its message."""
        world = self._world
        if not world.is_stock_publisher(publisher) or world.traits.settled_subscriber or world.resumes(publisher):
            return  # what goes out settled is answered by nobody; what is presented counts as done
        message = (publisher, number)
        if self.filters.excluded_somewhere(publisher, number) or self.shared.is_declined(message):
            return  # E-9, SH-5: it counts as processed there
        if world.traits.on_empty == 1 or self.policies.failed_at(message) or self.expiry.has_expired(message):
            return  # I-3d, E-10
        if not any(message in done for done in (*self.processed.values(), *self._retries_lost.values())):
            raise Violation(f"UNPROCESSED: p{publisher}/{number} accepted, and no subscriber is done with it")

    def on_refused(self, publisher: int, number: int, outcome: DeliveryOutcome) -> None:
        """I-3: *released* states to a stock publisher that nobody had subscribed; *rejected*, that somebody refused."""
        if outcome is DeliveryOutcome.MODIFIED_FAILED:
            return  # A-9a: judged when its router states it
        traits = self._world.traits
        self._check_letter((publisher, number), is_rejected=outcome is DeliveryOutcome.REJECTED)
        message = (publisher, number)
        has_reason = traits.refuses or self.expiry.has_expired(message) or self.shared.is_declined(message)  # SH-5
        is_reported = traits.reports or traits.letter_wait or (traits.letters and self._world.is_large(number))  # I-3e
        if outcome is DeliveryOutcome.REJECTED and is_reported and has_reason:
            return
        if outcome is DeliveryOutcome.RELEASED and not self._world.is_stock_publisher(publisher) and traits.require:
            return  # I-3c: judged when its application gets the outcome
        owed = bool(self._still_owed(publisher, number) or self.shared.is_owed(message))
        is_again = self._new_again[message] > 0
        if self.policies.check_refused(message, outcome, is_owed=owed, is_repeated=is_again):
            return
        is_stock = self._world.is_stock_publisher(publisher)
        if outcome is DeliveryOutcome.RELEASED and is_stock and not owed and not traits.on_empty:
            return
        raise Violation(f"REFUSED: p{publisher}/{number} is {outcome.value}, and nobody had a reason")

    def _still_owed(self, publisher: int, number: int) -> list[int]:
        message = (publisher, number)
        owed = []
        for subscriber, created in self._owed[message]:
            if self._is_excused(subscriber, message):
                continue
            is_here = self.created(subscriber) == created
            self._world.coverage[coverage.EXPIRY_RACE] += not is_here
            if is_here and message not in self.processed.get(subscriber, ()):
                owed.append(subscriber)
        return owed

    def _unprocessed(self, message: Message) -> list[tuple[int, int]]:
        """(subscriber, life) of those that the message was owed to when it was sent, and that are not done with it."""
        return [
            (subscriber, created)
            for subscriber, created in self._owed[message]
            if message not in self.processed.get(subscriber, ()) and not self._is_excused(subscriber, message)
        ]

    def _is_poisoned(self, message: Message) -> bool:
        """Whether somebody that owed it is there and has failed it too often, so that the ingress knew (E-4a)."""
        return any(
            self.policies.has_failed(subscriber, message)
            and message not in self._retries_lost.get(subscriber, ())
            and not self._world.is_stock_subscriber(subscriber)
            and not self._is_amnesiac(subscriber)
            and self.created(subscriber) == created
            and message not in self.processed.get(subscriber, ())
            for subscriber, created in self._owed[message]
        )

    def _is_excused(self, subscriber: int, message: Message) -> bool:
        """E-4a: it wanted the message again, and lost its router since, or failed too often; or it expired (E-10)."""
        is_lost = message in self._retries_lost.get(subscriber, ()) or message in self.expiry.expired(subscriber)
        return is_lost or self.policies.has_failed(subscriber, message)

    # ------------------------------------------------------------------ what excuses

    def may_come_again(self, messages: Iterable[Message]) -> None:
        """They are sent once more as new messages, so each subscriber may have them once more."""
        self._new_again.update(messages)

    def on_retry_lost(self, subscriber: int, messages: set[Message]) -> None:
        """G1 is not promised for these (E-4a, last sentence)."""
        self._retries_lost.setdefault(subscriber, set()).update(messages)

    def on_restore(self) -> None:
        """What was sent before is not owed any more, and comes again only where its publisher knows that (K-9)."""
        self._owed = {message: [] for message in self._owed}
        self._confirmed.clear()
        self._starts.clear()
        self.shared.on_restore()
        self.sessions.on_restore()
        self.letters.on_restore()
        for subscriber in range(len(self._world.subscribers)):
            self._forget(subscriber)

    def on_left_at_rest(self, subscriber: int, messages: set[Message]) -> None:
        """K-8a: all of it is settled, so none of it may come again, though the subscriber keeps no map."""
        self._settled.setdefault(subscriber, set()).update(messages)

    def on_expired(self, note: effects.Note) -> None:
        """E-10: a router lets deliveries expire; what expires may become a letter (I-3e)."""
        self.letters.on_expired(self.expiry.on_expired(note))

    def on_amnesia(self, subscriber: int, messages: Iterable[Message]) -> None:
        """G7: what the subscriber forgot may come again, once."""
        self._copies.on_amnesia(subscriber)
        self.expiry.on_amnesia(subscriber)
        if self._world.is_member(subscriber):
            self.shared.on_forgot(subscriber)
        messages = list(messages)
        self.letters.on_amnesia(subscriber, messages)
        done = self.processed.get(subscriber, set())
        for message in messages:
            if message in done:
                self._forgotten.setdefault(subscriber, set()).add(message)
        self._forget(subscriber)

    def _forget(self, subscriber: int) -> None:
        """Order and holes begin anew with what is sent from now on."""
        for publisher in self._world.publishers:
            place = (subscriber, publisher.index)
            self._marks[place] = publisher.next
            for known in (self._last, self._handed, self._spans):
                known.pop(place, None)

    def on_given_up(self, subscriber: int, publisher: int, number: int) -> None:
        """The subscriber was notified that a delivery it had before its restart will not come again."""
        self._excused.setdefault(subscriber, set()).add((publisher, number))

    # ------------------------------------------------------------------ what subscribers do

    def on_received(self, subscriber: int, publisher: int, number: int, incarnation: int, body: bytes) -> None:
        """A delivery has arrived that the subscriber did not have: whole, and as it was sent."""
        if self._world.gets_letters(subscriber):
            self.letters.on_received(subscriber, (publisher, number), body)
            return
        if body != self._world.body(publisher, number):
            raise Violation(f"ALTERED: p{publisher}/{number} arrives as {len(body)} bytes, another message")
        self._check_start(subscriber, (publisher, number), incarnation)
        self.filters.on_received(subscriber, publisher, number)
        self.ended.on_received(subscriber, publisher, number, incarnation)
        self.require.on_received(subscriber, (publisher, number))
        if not self._new_again[(publisher, number)]:
            self.policies.on_received(subscriber, (publisher, number))
        if self._world.is_member(subscriber):
            self.shared.on_received(subscriber, (publisher, number))
            return
        self._histories.on_received(subscriber, publisher, number, incarnation)

    def on_attempt(self, subscriber: int, message: Message, delivery: effects.Deliver) -> None:
        """E-4a, E-4b: what the delivery states of former attempts."""
        is_new = self._new_again[message] > 0
        self.annotations.on_attempt(subscriber, delivery, message, is_new=is_new)
        if not self._world.is_member(subscriber):
            self.policies.on_attempt(subscriber, message, delivery.attempt, delivery.link, is_new=is_new)

    def _check_start(self, subscriber: int, message: Message, incarnation: int) -> None:
        """I-6: a new life of a subscription starts behind what was sent before it."""
        start = self._starts.get(message)
        if start is not None and incarnation >= start and not self._new_again[message]:
            raise Violation(f"START: s{subscriber} gets p{message[0]}/{message[1]}, sent before its subscription")

    def on_processed(
        self, subscriber: int, publisher: int, number: int, incarnation: int, redelivered: bool = False
    ) -> None:
        """G2, G3, G4; for clients of a weaker class only what it promises (c.5)."""
        self.deliveries += 1
        message = (publisher, number)
        if self._world.gets_letters(subscriber):
            self.letters.on_processed(subscriber, message)
            return
        done = self.processed.setdefault(subscriber, set())
        self._copies.on_processed(subscriber, message)
        if self._world.is_member(subscriber):
            done.add(message)
            self.shared.on_processed(subscriber, message, redelivered)
            return
        self._histories.on_processed(subscriber, publisher, number)
        if message in done:
            self._check_repeat(subscriber, message, redelivered)
            return
        done.add(message)
        place = (subscriber, publisher)
        if number < self._marks.get(place, 0):
            return  # G7: once, older deliveries out of order
        last = self._last.get(place)
        if not self._new_again[message]:  # what is sent again as a new message comes behind what followed it
            spans = self._spans.setdefault(place, {})
            first, highest = spans.get(incarnation, (number, number))
            spans[incarnation] = min(first, number), max(highest, number)
            if last is not None:
                self._check_order(subscriber, publisher, number, last, incarnation)
        self._last[place] = (max(number, last[0]) if last else number, incarnation)

    def _check_repeat(self, subscriber: int, message: Message, redelivered: bool) -> None:
        publisher, number = message
        is_settled = message in self._settled.get(subscriber, ())
        if redelivered and self._world.is_stock_subscriber(subscriber) and not is_settled:
            return
        forgotten = self._forgotten.get(subscriber, set())
        if message in forgotten:
            forgotten.discard(message)
            return
        self._repeats[(subscriber, message)] += 1
        if self._repeats[(subscriber, message)] > self._new_again[message]:
            raise Violation(f"DUP: s{subscriber} processes p{publisher}/{number} twice")

    def on_map(self, subscriber: int, entries: int) -> None:
        """C-4: a map fits its bound, but for the oldest delivery of each publisher that has none in it."""
        world = self._world
        if world.restores or self._is_amnesiac(subscriber) or world.is_stock_subscriber(subscriber):
            return
        bound = world.traits.map_bound + len(world.publishers)
        if entries > bound:
            raise Violation(f"MAP: s{subscriber} holds {entries} deliveries, more than {bound}")

    def _is_amnesiac(self, subscriber: int) -> bool:
        return (subscriber, 0) in self._marks

    def on_handed(self, subscriber: int, publisher: int, number: int) -> None:
        """G3 for an application that finishes in any order: what it is handed is in order."""
        if self._world.gets_letters(subscriber):
            self.letters.on_handed(subscriber, (publisher, number))
            return
        place = (subscriber, publisher)
        if not self._is_ordered(subscriber, publisher) or number < self._marks.get(place, 0):
            return
        if self._new_again[(publisher, number)]:
            return
        last = self._handed.get(place, -1)
        if number <= last:
            raise Violation(f"ORDER: s{subscriber} is handed p{publisher}/{number} after {last}")
        self._handed[place] = number

    def on_restart(self, subscriber: int) -> None:
        """What was handed over and not finished is handed over again."""
        self.shared.on_restart(subscriber)
        self.letters.on_restart(subscriber)
        for publisher in range(len(self._world.publishers)):
            self._handed.pop((subscriber, publisher), None)

    def _check_order(
        self, subscriber: int, publisher: int, number: int, last: tuple[int, int], incarnation: int
    ) -> None:
        if not self._is_ordered(subscriber, publisher) or self._finishes_anyhow:
            return
        if number <= last[0]:
            raise Violation(f"ORDER: s{subscriber} processes p{publisher}/{number} after {last[0]}")
        if incarnation == last[1]:
            self._check_holes(subscriber, publisher, last[0] + 1, number, incarnation)

    def _is_ordered(self, subscriber: int, publisher: int) -> bool:
        """G3 and G4: not without a map (c.5), nor for answers of Again (E-4a); the shipped client never gives those."""
        world = self._world
        if world.is_stock_publisher(publisher) and not world.resumes(publisher):
            return False
        if world.is_stock_subscriber(subscriber) or world.is_member(subscriber):
            return False
        return world.traits.shipped or not world.traits.refuses

    @property
    def _finishes_anyhow(self) -> bool:
        """Order is then judged where deliveries are handed over, and holes at the end."""
        traits = self._world.traits
        return traits.shipped and (traits.out_of_order or traits.refuses)

    def _check_holes(
        self, subscriber: int, publisher: int, first: int, stop: int, life: int, *, has_ended: bool = False
    ) -> None:
        """Raise if a number in first..stop-1 was not processed in this life of the subscription, which may be over."""
        if self._world.is_at_most_once(subscriber):
            return
        given_up = self._world.publishers[publisher].given_up
        done = self.processed.get(subscriber, set())
        done = done | self._excused.get(subscriber, set()) if subscriber in self._excused else done
        if has_ended:  # only an application that finishes out of order has finished something behind what it dropped
            done = done | {message for index, of, message in self._dropped if (index, of) == (subscriber, life)}
        done = done | self.expiry.expired(subscriber)
        missing = [n for n in range(first, stop) if n not in given_up and (publisher, n) not in done]
        missing = [n for n in missing if not self.filters.excludes(subscriber, publisher, n, life)]
        if missing:
            raise Violation(f"HOLE: s{subscriber} misses p{publisher}/{missing[0]}")

    # ------------------------------------------------------------------ the end

    def at_rest(self) -> None:
        """G4 to the end: everybody has finished (`at_rest.check_rest`), so nothing more will fill a hole."""
        self._check_streams()
        self.calm.at_rest(self.processed)
        self._ask_checker()

    def _ask_checker(self) -> None:
        """The checker of real experiments must agree, for every subscriber to whom all is promised."""
        world = self._world
        if world.traits.refuses or world.traits.topics > 1 or self._finishes_anyhow or self._new_again:
            return
        if world.traits.ttl_s:
            return
        judged = [
            subscriber.index
            for subscriber in world.subscribers
            if subscriber.is_wanted
            and not world.gets_letters(subscriber.index)
            and not world.is_member(subscriber.index)
            and not self._is_amnesiac(subscriber.index)
            and subscriber.index not in self._excused
            and not world.is_stock_subscriber(subscriber.index)
            and not world.is_at_most_once(subscriber.index)
            and not self.filters.has_filter(subscriber.index)
        ]
        for found in self._histories.verdict(judged).subscribers:
            # A process may have died with a message that its publisher then gave up: nothing is left of it (G6).
            if found.lost or found.duplicated or found.reordered or found.unexpected:
                raise Violation(f"CHECKER: {found.name}: {dict(found.examples)}")

    def _check_streams(self) -> None:
        """G4: a stream has no hole from its first message on: to the end, or to the end of its incarnation."""
        for (subscriber, publisher), spans in self._spans.items():
            if not self._is_ordered(subscriber, publisher):
                continue
            for incarnation, (first, last) in spans.items():
                is_current = self.created(subscriber) == incarnation
                is_current = is_current and self._world.is_subscribed(subscriber, publisher)
                if self._finishes_anyhow and not is_current and (subscriber, incarnation) in self._left:
                    continue  # it left with deliveries it had not finished between others that it had
                stop = self._world.publishers[publisher].next if is_current else last
                self._check_holes(subscriber, publisher, first + 1, stop, incarnation, has_ended=not is_current)
