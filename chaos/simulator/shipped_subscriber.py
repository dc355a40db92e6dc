"""A simulated subscriber whose every decision is the shipped core's (`oncewire.client.subscriber_core`).

With a journal the application's effect and the outcome are one transaction: a message counts as processed when that is
durable. Without one it counts when the application has finished with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from chaos.simulator import coverage
from chaos.simulator.connections import OpenLink, SimulatedConnection
from chaos.simulator.filters import filter_at
from chaos.simulator.judge import Judge
from chaos.simulator.roles import Keeps
from chaos.simulator.state import WorldState
from chaos.simulator.steps import Choice
from chaos.simulator.violation import Violation
from delivery_records.model import effects, inputs
from delivery_records.model.outcomes import DeliveryOutcome as RouterOutcome
from delivery_records.model.view import SubscriptionMode
from oncewire.client import core_effects as wanted
from oncewire.client.deduplicating_core import DeduplicatingCore
from oncewire.client.journal_records import MessageIdentity, SubscriberChanges, SubscriberState
from oncewire.client.outcomes import ACCEPTED, Outcome, rejected
from oncewire.client.subscriber_core import SubscriberCore

EVERYTHING = 1 << 30
"""A bound no map reaches."""
NARROW = 2
"""Entries of a map in frames that became small; the publishers' windows are larger (C-4)."""
PART = 2
"""Entries that each flow behind the attach has (C-4)."""
REFUSED = rejected("oncewire:simulated", "not usable")


@dataclass(frozen=True, slots=True)
class Handed:
    """A delivery the application was handed."""

    publisher: int
    number: int
    incarnation: int
    redelivered: bool
    is_rejected: bool = False
    """The application has rejected it."""


class SubscriberJournal:
    """What would be on disk: a fold of the changes that were committed."""

    def __init__(self) -> None:
        """An empty journal."""
        self.state = SubscriberState()

    def write(self, changes: SubscriberChanges) -> None:
        """One transaction, as the SQLite journal carries it out."""
        entries = dict(self.state.entries)
        for tag in changes.forgotten:
            entries.pop(tag, None)
        entries.update(changes.entries)
        ids = {done.identity: done for done in self.state.done_ids}
        for identity in (*changes.forgotten_ids, *(done.identity for done in changes.done_ids)):
            ids.pop(identity, None)
        ids.update((done.identity, done) for done in changes.done_ids)
        self.state = SubscriberState(changes.incarnation, tuple(entries.items()), tuple(ids.values()))


def _outcomes(unsettled: Mapping[bytes, Outcome | None]) -> dict[bytes, RouterOutcome | None]:
    return {tag: None if outcome is None else RouterOutcome(outcome.kind.value) for tag, outcome in unsettled.items()}


def _message(body: bytes) -> tuple[int, int]:
    """The publisher and the number of a message."""
    return body[0], int.from_bytes(body[1:5], "big")


def identify(body: bytes, message_format: int) -> MessageIdentity:
    """D-3: each simulated publisher has a user of its own, and numbers its messages from 0."""
    return MessageIdentity(f"p{body[0]}", body[1:5])


class ShippedSubscriber:
    """The shipped subscriber core, an application and a journal around it."""

    keeps = Keeps.MAP

    def __init__(self, world: WorldState, judge: Judge, open_link: OpenLink, index: int, prefetch: int) -> None:
        """Let `prefetch` deliveries come ahead."""
        self.world = world
        self.judge = judge
        self.open_link = open_link
        self.index = index
        self.prefetch = prefetch
        self.topic = world.asked(index)
        self.filter = filter_at(world.traits.filters, index)
        self.connection: SimulatedConnection | None = None
        self.is_wanted = True
        self.is_replied = False
        self.is_closing = False
        self._has_attached = False
        self._renews = False
        self._handed: dict[int, Handed] = {}
        """By serial, in the order they were handed over; what the application has not finished with."""
        self._finished: list[Handed] = []
        """Finished with, not in a transaction yet."""
        self._committing: SubscriberChanges | None = None
        self._in_commit: list[Handed] = []
        self._refused: set[int] = set()
        self._journal = SubscriberJournal()
        self._redelivered = False
        self._messages: dict[bytes, Handed] = {}
        """What each tag stood for, for the judge."""
        self._tags: list[bytes] = []
        """Of this attach: the tag of delivery-id n at place n."""
        self._limit = 0
        self._arrived: dict[bytes, tuple[int, int]] = {}
        """What each tag stands for, handed over or kept back as a copy."""
        self._copies = 0
        self._core = self._new_core()

    def _new_core(self) -> SubscriberCore:
        """What a process starts with: the journal."""
        cores, remembers = self.world.cores, self.world.traits.remembers
        if not remembers:
            return cores.subscriber(prefetch=self.prefetch, recovered=self._journal.state)
        return cores.deduplicating(
            identify, prefetch=self.prefetch, recovered=self._journal.state, ids_per_user=remembers
        )

    def leftover(self) -> str:
        """What is unfinished, in words; empty when it is done."""
        if self._core.unfinished and self.world.restores:
            kept = self._core.begin_attach(EVERYTHING)
            assert kept is not None
            if not any(tag[1:5] == self.world.nonce for tag in kept.unsettled):
                return ""  # another cluster's entries stay until the application decides (c.3)
        if self._core.unfinished or self._handed or self._finished or self._committing:
            return f"unfinished {self._core.unfinished}, with the application {list(self._handed.values())}"
        return ""

    # ------------------------------------------------------------------ what may happen

    def may_connect(self) -> bool:
        """It wants its subscription."""
        return self.is_wanted

    def choices(self) -> list[Choice]:
        """What the application and the journal may do now."""
        found: list[Choice] = []
        if self._handed:
            found.append(("s.process", self.index))
            if self.world.traits.out_of_order and len(self._handed) > 1:
                found.append(("s.later", self.index))
            if self.world.traits.refuses:
                found += [("s.reject", self.index)]
                if next(iter(self._handed)) not in self._refused:
                    found += [("s.release", self.index)]
        if self._committing is not None:
            found.append(("s.stored", self.index))
        elif self._core.wants_commit:
            found.append(("s.store", self.index))
        return found

    def process(self, *, reject: bool = False, newest: bool = False) -> None:
        """The application finishes with its oldest delivery, or its newest."""
        serial = next(reversed(self._handed)) if newest else next(iter(self._handed))
        done = replace(self._handed.pop(serial), is_rejected=reject)
        self._finished.append(done)
        if reject:
            self.judge.letters.on_failed(self.index, (done.publisher, done.number))
        self._core.complete(serial, REFUSED if reject else ACCEPTED)
        self._without_disk()

    def release(self) -> None:
        """The application wants its oldest delivery again: the core hands it over again by itself."""
        serial = next(iter(self._handed))
        self._refused.add(serial)
        self._carry_out(self._core.release(serial))

    def store(self) -> None:
        """The application's transaction begins."""
        self._in_commit, self._finished = self._finished, []
        self._committing = self._core.next_commit()

    def stored(self) -> None:
        """It is durable, and the core hears of it."""
        self._write()
        self._carry_out(self._core.committed())

    def _write(self) -> None:
        assert self._committing is not None
        self._journal.write(self._committing)
        self._committing = None
        for done in self._in_commit:
            if done.is_rejected:
                self.judge.letters.on_failed(self.index, (done.publisher, done.number), done.incarnation)
            self.judge.on_processed(self.index, done.publisher, done.number, done.incarnation, done.redelivered)
        self._in_commit = []

    def _without_disk(self) -> None:
        """A journal in memory has no delay."""
        while not self.world.traits.durable and self._core.wants_commit:
            self.store()
            self.stored()

    # ------------------------------------------------------------------ connection

    def connect(self, router: int) -> None:
        """Attach with the map (S-1)."""
        traits = self.world.traits
        connection = self.open_link(f"s{self.index}", router)
        self.connection = connection
        self.is_replied = False
        self._tags = []
        self._limit = 0
        everything = self._core.begin_attach(EVERYTHING)
        bound = NARROW if traits.narrows and self._has_attached else traits.map_bound
        self._has_attached = True
        presented = self._core.begin_attach(bound)
        assert everything is not None
        assert presented is not None
        self.judge.on_map(self.index, len(everything.unsettled))
        entries = len(everything.unsettled) if presented.rest and not traits.rounds else 0
        connection.up.append(
            inputs.SubscriberAttach(
                connection.link,
                *self.world.names("s", self.index),
                self.topic,
                _outcomes(presented.unsettled),
                True,
                SubscriptionMode.EXACTLY_ONCE,
                "never" if traits.never else self.world.policy,
                float(traits.timeout_s),
                bound,
                incomplete=bool(presented.rest) and not entries,
                peer=f"s{self.index}",
                place=connection.place,
                owner=self.world.owner(self.index),
                patience=self.world.patience,
                share=self.world.share_of(self.index),
                filter=self.filter,
                entries=entries,
                stores=self.world.stores(self.index),
            )
        )
        rest = list(presented.rest.items()) if entries else []
        for at in range(0, len(rest), PART):
            connection.up.append(inputs.MapPart(connection.link, _outcomes(dict(rest[at : at + PART]))))

    def disconnect(self) -> None:
        """The connection drops; what was under way to us is lost."""
        self.judge.on_left(self)
        if self.connection is not None:
            self.connection.drop()
        self.connection = None
        self.is_replied = False
        self._core.lost()

    def crash(self, *, is_durable: bool = False) -> None:
        """The process dies. `is_durable`: the transaction under way was written, but nobody got an answer."""
        self.disconnect()
        if self._committing is not None and is_durable:
            self.world.coverage[coverage.TORN] += 1
            self._write()
        self._committing = None
        if not self.world.traits.durable:
            forgotten = self._core.begin_attach(EVERYTHING)
            assert forgotten is not None
            self.judge.on_amnesia(self.index, self._known(forgotten.unsettled))
            self._journal = SubscriberJournal()
        self.judge.on_restart(self.index)
        self._finished, self._in_commit = [], []
        self._drop_handed()
        self._core = self._new_core()

    def _known(self, tags: Iterable[bytes]) -> list[tuple[int, int]]:
        """Of these, what was handed over: not what came after it had closed."""
        handed = [self._messages[tag] for tag in tags if tag in self._messages]
        return [(delivery.publisher, delivery.number) for delivery in handed]

    def close(self, *, renews: bool = False) -> None:
        """Unsubscribe: detach(closed=true) again and again until it is answered without error (E-8).

        Args:
            renews: then subscribe again, under the same name and with the same journal.
        """
        self.is_closing, self._renews = True, renews
        self.judge.on_leaving(self.index)
        self._drop_handed()
        if self.is_replied and self.connection is not None:
            self.connection.up.append(inputs.LinkDetach(self.connection.link, True))

    def _drop_handed(self) -> None:
        for handed in self._handed.values():
            self.judge.on_dropped(self.index, (handed.publisher, handed.number), handed.incarnation)
        self._handed.clear()

    def change_topic(self, topic: str) -> None:
        """It comes back with another topic, which is another subscription, and presents its map (A-2)."""
        self.disconnect()
        self.topic = topic
        self.judge.on_leaving(self.index)

    def change_filter(self, text: str) -> None:
        """It comes back with another filter, which is another subscription, and presents its map (E-9)."""
        self.disconnect()
        self.filter = text
        self.judge.promises.on_refiltered(self.index)
        self.judge.on_leaving(self.index)

    def receive(self, effect: effects.Effect) -> None:
        """One frame of the router."""
        core = self._core
        assert self.connection is not None
        if isinstance(effect, (effects.DetachLink, effects.CloseConnection)):
            self._on_detached(effect)
        elif isinstance(effect, effects.SubscriberReply):
            self.is_replied = True
            self.judge.on_incarnation(self.index, effect.incarnation)
            self.judge.promises.on_stated(self.index, effect.incarnation, effect.timeout_s)
            first_settles = effect.mode is not SubscriptionMode.EXACTLY_ONCE
            kept = frozenset(effect.kept or ())
            self._carry_out(
                core.attached(
                    kept,
                    capable=effect.exactly_once,
                    is_whole=not effect.incomplete,
                    incarnation=effect.incarnation,
                    settles_first=first_settles,
                )
            )
            if self.is_closing:
                self.connection.up.append(inputs.LinkDetach(self.connection.link, True))
        elif isinstance(effect, effects.Confirm):
            self.judge.on_incarnation(self.index, effect.incarnation)
            self.judge.promises.on_stated(self.index, effect.incarnation, effect.timeout_s)
            self._carry_out(core.flow(confirmed=effect.incarnation))
        elif isinstance(effect, effects.AskEcho):
            self._carry_out(core.flow(echo=effect.epoch))
        elif isinstance(effect, effects.Deliver):
            self._on_delivery(effect)
        elif isinstance(effect, effects.DeliverPart):  # aborted (L-5)
            self._tags.append(effect.tag)
            self._carry_out(core.transfer(len(self._tags) - 1, effect.tag, b"", aborted=True))
        elif isinstance(effect, effects.SettleAtSubscriber):
            self._carry_out(core.settled([(0, tag) for tag in effect.tags]))

    def _on_detached(self, effect: effects.DetachLink | effects.CloseConnection) -> None:
        self.disconnect()
        ended = isinstance(effect, effects.DetachLink) and effect.closed and not effect.condition  # E-8
        if self.is_closing and ended:
            self._core.end_subscription(keeps_done=self._renews)
            self._drop_handed()
            if self._renews:
                self._open_again()
            else:
                self.is_wanted = False
                self._finished.clear()

    def _open_again(self) -> None:
        """Unsubscribing returns when everything is written; then the application opens the subscription again."""
        if self._committing is not None:
            self.stored()
        while self._core.wants_commit:
            self.store()
            self.stored()
        self.is_closing = False
        self._core = self._new_core()

    def _on_delivery(self, delivery: effects.Deliver) -> None:
        self._tags.append(delivery.tag)
        self._redelivered = delivery.redelivered
        if delivery.message and not delivery.settled:  # the tag of a settled one names nothing
            self._arrived[delivery.tag] = _message(delivery.message)
        asked = self._core.transfer(
            len(self._tags) - 1, delivery.tag, delivery.message, settled=delivery.settled, resume=delivery.resume
        )
        self._count_copies(delivery.message)
        self._carry_out(asked)

    def _count_copies(self, body: bytes) -> None:
        copies = self._core.copies if isinstance(self._core, DeduplicatingCore) else 0
        if copies > self._copies:
            has_it = any((each.publisher, each.number) == _message(body) for each in self._handed.values())
            self.world.coverage[coverage.COPY_WAITED if has_it else coverage.COPY_DROPPED] += 1
        self._copies = copies

    # ------------------------------------------------------------------ effects of the core

    def _carry_out(self, asked: Sequence[wanted.SubscriberEffect]) -> None:
        for effect in asked:
            if isinstance(effect, wanted.DeliverMessage):
                if not self.is_closing:
                    self._hand_over(effect)
            elif isinstance(effect, wanted.DisposeDeliveries):
                tags = [self._tags[delivery_id] for delivery_id in effect.delivery_ids]
                outcome = RouterOutcome(effect.outcome.kind.value)
                connection = self._attached()
                connection.up.append(inputs.SubscriberDisposition(connection.link, tags, outcome, effect.settled))
            elif isinstance(effect, wanted.GrantCredit):
                connection = self._attached()
                self._limit = len(self._tags) + effect.credit
                self._flow(connection, None)
            elif isinstance(effect, wanted.AnswerEcho):
                self._flow(self._attached(), effect.value)
            elif isinstance(effect, wanted.ReportGivenUp):
                self.world.coverage[coverage.GIVEN_UP] += 1
                self.judge.on_given_up(self.index, *self._arrived[effect.tag])
            elif isinstance(effect, wanted.ReportConfirmed):
                self.judge.on_confirmed(self.index, effect.incarnation)
            elif isinstance(effect, wanted.RefuseLink):
                raise Violation(f"REFUSED: s{self.index}: {effect.reason}")
        self._without_disk()

    def _flow(self, connection: SimulatedConnection, echoed_epoch: int | None) -> None:
        received = len(self._tags)
        connection.up.append(
            inputs.ClientFlow(connection.link, limit=self._limit, delivery_count=received, echoed_epoch=echoed_epoch)
        )

    def _attached(self) -> SimulatedConnection:
        assert self.connection is not None, "the core speaks on a link that is gone"
        return self.connection

    def _hand_over(self, delivery: wanted.DeliverMessage) -> None:
        if delivery.again:
            return  # the application still has it, of its own incarnation; by now another delivery may have its tag
        publisher, number = _message(delivery.payload)
        self.judge.on_handed(self.index, publisher, number)
        self.judge.on_received(self.index, publisher, number, self._core.incarnation, delivery.payload)
        self.world.coverage[coverage.BODY_AGAIN] += delivery.tag in self._messages
        handed = self._handed[delivery.serial] = Handed(publisher, number, self._core.incarnation, self._redelivered)
        if not delivery.settled:  # the tag of a settled one names nothing
            self._messages[delivery.tag] = handed
