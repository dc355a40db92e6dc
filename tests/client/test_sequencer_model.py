"""Sequencers of every size against a model that looks at everything that ever came."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from oncewire.client.isolation import Isolation
from oncewire.client.transactions.sequence_header import Flag, Producer, ProducerId, SequenceHeader, final_rollback
from oncewire.client.transactions.sequencer import Sequencer
from tests.client.sequence_world import Journal, Model, Reader
from tests.support.effort import rounds

RETENTION_S = 100.0
RINGS = (0, 2, 1000)
UNCHECKED = {"plain", "forged"}
"""Bodies that come as often as they are sent."""
Published = tuple[SequenceHeader, str]


class SequencerMachine(RuleBasedStateMachine):
    """Producers follow their rules; the topic between them and the journal repeats and reorders at will."""

    producers = Bundle("producers")
    published = Bundle("published")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.journal = Journal()
        self.model = Model(RETENTION_S)
        self.readers = [Reader(self.journal, partial(self.make, ring)) for ring in RINGS]
        # One that starts again after every message: nothing may live in memory alone.
        self.forgetful = Reader(self.journal, partial(self.make, 1000))
        self.uncommitted = Reader(self.journal, partial(self.make, 0, Isolation.READ_UNCOMMITTED))
        self.all = [*self.readers, self.forgetful, self.uncommitted]
        self.sent: list[Published] = []
        self.filtered: set[str] = set()
        self.started: list[Producer] = []
        self.lives = 0
        self.dead: set[ProducerId] = set()
        self.fates: dict[str, str] = {}
        self.open: dict[ProducerId, list[str]] = {}

    def make(self, ring: int, isolation: Isolation = Isolation.READ_COMMITTED) -> Sequencer[str]:
        return Sequencer(isolation, ring_messages=ring, producer_retention=RETENTION_S)

    # --- producers ----------------------------------------------------------------------------------------------------

    @rule(target=producers)
    def start(self) -> Producer:
        self.lives += 1
        producer = Producer(ProducerId(f"p{self.lives}", 1000 * self.lives, "ann"))
        self.open[producer.producer] = []
        self.started.append(producer)
        return producer

    @rule(
        target=published,
        producer=producers,
        count=st.integers(1, 4),
        end=st.sampled_from(["ack", "last", "rollback", "none"]),
    )
    def transact(self, producer: Producer, count: int, end: str) -> object:
        """Pending messages, and the end of their transaction or not yet."""
        who = producer.producer
        if who in self.dead:
            return multiple()
        found: list[Published] = []
        for _ in range(count):
            header = producer.pending()
            body = f"{who}/{header.sequence}"
            self.open[who].append(body)
            found.append((header, body))
        if end == "last":
            header = producer.last()
            self.open[who].append(f"{who}/{header.sequence}")
            found.append((header, f"{who}/{header.sequence}"))
        elif end != "none":
            found.append((producer.ack() if end == "ack" else producer.rollback(), "end"))
        if end != "none":
            fate = "dropped" if end == "rollback" else "committed"
            self.fates |= dict.fromkeys(self.open[who], fate)
            self.open[who] = []
        return self.send(*found)

    @rule(target=published, producer=producers)
    def stand_alone(self, producer: Producer) -> object:
        if producer.has_pending or producer.producer in self.dead:
            return multiple()
        header = producer.alone()
        body = f"{producer.producer}/{header.sequence}"
        self.fates[body] = "committed"
        return self.send((header, body))

    @rule(target=published, producer=producers)
    def succeed(self, producer: Producer) -> object:
        """Its owner dies and the next owner ends it; the old one may still write (a zombie), but never acks."""
        if producer.producer in self.dead:
            header = producer.pending()
            self.fates[f"{producer.producer}/{header.sequence}"] = "dropped"
            return self.send((header, f"{producer.producer}/{header.sequence}"))
        self.dead.add(producer.producer)
        self.fates |= dict.fromkeys(self.open[producer.producer], "dropped")
        return self.send((final_rollback(producer.producer, producer.begins), "end"))

    def send(self, *messages: Published) -> object:
        self.sent += messages
        return multiple(*messages)

    @rule(producer=producers)
    def learn(self, producer: Producer) -> None:
        """The producer hears which of its messages are accepted, that is in the journal."""
        arrived = {header for header, _, _ in self.journal.entries}
        for header, body in self.sent:
            is_own = header.producer == producer.producer and header.sequence < producer.next_sequence
            if is_own and (header in arrived or body in self.filtered):
                producer.settle(header.sequence)

    # --- the topic ----------------------------------------------------------------------------------------------------

    @rule(message=published)
    def deliver(self, message: Published) -> None:
        """Any message, at any time, any number of times."""
        if message[1] not in self.filtered:
            self.arrive(*message)

    @rule(message=published)
    def keep_from_the_reader(self, message: Published) -> None:
        """A filter, or a rejection: accounted for, but it never comes. Not for what ends a transaction."""
        header, body = message
        if header.flag in {Flag.ALONE, Flag.CONTINUE} and all(entry[1] != body for entry in self.journal.entries):
            self.filtered.add(body)

    @rule(message=published, ends_all=st.booleans())
    def impersonate(self, message: Published, ends_all: bool) -> None:
        """Another user sends a message under the producer's name, or ends all of its numbers (SQ-8)."""
        header = message[0]
        attacker = replace(header.producer, user="mallory")
        forged = final_rollback(attacker, 1) if ends_all else replace(header, producer=attacker)
        self.arrive(forged, "forged")

    @rule()
    def deliver_without_header(self) -> None:
        self.arrive(None, "plain")

    def arrive(self, header: SequenceHeader | None, body: str) -> None:
        position = self.journal.append(header, body, self.now)
        self.model.feed(position, header, body, self.now)
        for reader in self.all:
            reader.read()
        self.forgetful.restart()

    @rule(reader=st.integers(0, len(RINGS) - 1))
    def restart(self, reader: int) -> None:
        self.readers[reader].restart()

    @rule(seconds=st.sampled_from([10.0, 60.0, 101.0]))
    def wait_and_prune(self, seconds: float) -> None:
        self.now += seconds
        self.model.prune(self.now)
        for reader in self.all:
            reader.sequencer.prune(self.now)
            reader.save()

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def every_size_processes_what_the_model_does(self) -> None:
        for reader in [*self.readers, self.forgetful]:
            assert reader.processed == self.model.processed
        for reader in self.all:
            refused = [place for place, outcome in enumerate(reader.outcomes, 1) if outcome.is_refusal]
            assert refused == self.model.refused

    @invariant()
    def nothing_is_processed_twice_or_after_a_rollback(self) -> None:
        for reader in self.all:
            sequenced = [body for _, body in reader.processed if body not in UNCHECKED]
            assert len(sequenced) == len(set(sequenced))
        processed = {body for _, body in self.model.processed if body not in UNCHECKED}
        assert all(self.fates.get(body) == "committed" for body in processed)

    @invariant()
    def memory_and_journal_are_bounded(self) -> None:
        for reader in [*self.readers, self.forgetful]:
            sequencer = reader.sequencer
            held = sum(len(state.ring) for state in sequencer._states.values())
            assert held == len(sequencer._ring) <= sequencer._ring_messages
            assert 1 <= sequencer.oldest_needed <= sequencer.position + 1
            for state in sequencer._states.values():
                assert bool(state.pending) == bool(state.first_position)
                assert not any(number in state.finished for number in state.waiting)
                assert not any(state.finished.count(*pending) for pending in state.pending.ranges())

    def teardown(self) -> None:
        """When all has arrived, exactly what was committed has been processed, once."""
        if self.model.horizons:
            return
        for message in reversed(self.sent):
            self.deliver(message)
        for producer in self.started:  # the floor of a last word closes what a filter left open
            self.learn(producer)
            if producer.producer not in self.dead and not producer.has_pending:
                self.stand_alone(producer)
                self.deliver(self.sent[-1])
        # An ack that could not promise its floor may wait for ever where a filter kept a message from the reader and
        # its producer has no last word. A store numbers no ack before all its messages are accepted.
        cut_off = {body.partition("/")[0] for body in self.filtered} & {
            str(producer.producer)
            for producer in self.started
            if producer.producer in self.dead or producer.has_pending
        }
        processed = [body for _, body in self.model.processed if body not in UNCHECKED]
        committed = [body for body, fate in self.fates.items() if fate == "committed" and body not in self.filtered]
        assert sorted(body for body in processed if body.partition("/")[0] not in cut_off) == sorted(
            body for body in committed if body.partition("/")[0] not in cut_off
        )
        self.every_size_processes_what_the_model_does()


SequencerMachine.TestCase.settings = settings(max_examples=rounds(100), stateful_step_count=50, deadline=None)
TestSequencersAgreeWithTheModel = SequencerMachine.TestCase


def test_the_floor_on_a_message_that_is_over_closes_what_a_filter_left_open() -> None:
    """The producer's next owner has ended it, so its last message counts for nothing but its floor (SQ-3)."""
    machine = SequencerMachine()
    producer = machine.start()
    machine.transact(producer=producer, count=3, end="ack")
    machine.keep_from_the_reader(message=machine.sent[0])
    machine.learn(producer=producer)
    machine.succeed(producer=producer)
    machine.deliver(message=machine.sent[-1])
    machine.succeed(producer=producer)
    for message in reversed(machine.sent):
        machine.deliver(message=message)
    machine.every_size_processes_what_the_model_does()
    assert sorted(body for _, body in machine.model.processed) == [body for _, body in machine.sent[1:3]]
