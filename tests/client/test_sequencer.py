"""Claims about the sequencer, each shown by the journal that makes it true."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from oncewire.client import UsageError
from oncewire.client.isolation import Isolation
from oncewire.client.transactions.sequence_header import (
    LAST_SEQUENCE,
    MAX_BORN_MS,
    MAX_NAME_BYTES,
    Flag,
    HeaderError,
    Producer,
    ProducerId,
    SequenceHeader,
    final_rollback,
    read_header,
)
from oncewire.client.transactions.sequencer import Outcome, Sequencer
from oncewire.client.transactions.sequencer_state import JournalHole, Reread, StateError, decode_state
from oncewire.wire import Message, Symbol, decode_message, encode_message
from oncewire.wire.vocabulary import FLOOR, PRODUCER, SEQUENCE, TRANSACTION
from tests.client.sequence_world import Journal, Reader
from tests.support.annotating import annotate

A = ProducerId("a", 1000)
B = ProducerId("b", 2000)
Entry = SequenceHeader | None


def read(entries: Iterable[Entry], **settings: object) -> Reader:
    """A reader that has read these; the body of each is producer and number."""
    reader = Reader(Journal(), lambda: Sequencer(**settings))  # type: ignore[arg-type]
    add(reader, entries)
    return reader


def add(reader: Reader, entries: Iterable[Entry], now: float = 0.0) -> list[Outcome]:
    before = len(reader.outcomes)
    for header in entries:
        reader.journal.append(header, f"{header.producer.name}{header.sequence}" if header else "plain", now)
    reader.read()
    return reader.outcomes[before:]


def bodies(reader: Reader) -> list[str]:
    return [body for _, body in reader.processed]


def test_pending_messages_are_processed_together_when_their_ack_comes_and_not_before() -> None:
    a = Producer(A)
    reader = read([a.pending(), a.pending()])
    assert bodies(reader) == []
    add(reader, [a.ack()])
    assert bodies(reader) == ["a1", "a2"]
    assert reader.sequencer.oldest_needed == reader.journal.end + 1


def test_no_producer_waits_for_another_one() -> None:
    a, b = Producer(A), Producer(B)
    reader = read([a.pending(), b.pending(), a.pending(), b.ack(), b.alone(), None])
    assert bodies(reader) == ["b1", "b3", "plain"]
    add(reader, [a.ack()])
    assert bodies(reader)[3:] == ["a1", "a2"]


def test_a_message_that_overtakes_earlier_ones_of_its_producer_loses_none_of_them() -> None:
    a = Producer(A)
    one, two, three = a.alone(), a.alone(), a.alone()
    assert bodies(read([three, one, three, two, one])) == ["a3", "a1", "a2"]


def test_an_ack_that_overtakes_its_messages_waits_for_all_of_them() -> None:
    a = Producer(A)
    one, two, ack = a.pending(), a.pending(), a.ack()
    reader = read([one, ack, ack])
    assert reader.outcomes == [Outcome.BEGAN, Outcome.WAITING, Outcome.DUPLICATE]
    assert bodies(reader) == []
    add(reader, [two])
    assert bodies(reader) == ["a1", "a2"]


def test_the_last_message_of_a_decided_transaction_commits_the_others_and_itself() -> None:
    a = Producer(A)
    one, two, last = a.pending(), a.pending(), a.last()
    assert bodies(read([one, two, last, last])) == ["a1", "a2", "a3"]
    late = read([last, one, one, two])
    assert late.outcomes[0] is Outcome.WAITING
    assert bodies(late) == ["a3", "a1", "a2"]  # in order of position
    assert bodies(read([Producer(B).last()])) == ["b1"]


@pytest.mark.parametrize("ring", [0, 1, 2, 3])
def test_a_last_message_is_committed_from_memory_where_the_others_are_there(ring: int) -> None:
    a = Producer(A)
    reader = read([a.pending(), a.pending(), a.last()], ring_messages=ring)
    assert bodies(reader) == ["a1", "a2", "a3"]
    assert (reader.outcomes[-1] is Outcome.COMMITTED) == (ring >= 2)
    assert reader.sequencer._ring == {}


def test_a_floor_ends_the_wait_for_messages_that_a_filter_kept_away() -> None:
    a = Producer(A)
    _, two = a.pending(), a.pending()
    a.settle(1)
    a.settle(2)
    ack = a.ack()
    assert ack.floor == ack.sequence
    reader = read([two, ack])
    assert bodies(reader) == ["a2"]


def test_an_old_ack_that_comes_again_does_not_end_a_later_transaction() -> None:
    a = Producer(A)
    first = [a.pending(), a.ack()]
    reader = read([*first, a.pending(), first[1], a.pending(), first[1], a.ack()])
    assert bodies(reader) == ["a1", "a3", "a4"]


def test_an_ack_that_comes_again_commits_nothing_twice() -> None:
    a = Producer(A)
    messages = [a.pending(), a.pending(), a.ack()]
    assert bodies(read([*messages, *messages, *reversed(messages)])) == ["a1", "a2"]


def test_what_was_rolled_back_is_never_processed_even_when_it_comes_later() -> None:
    a = Producer(A)
    one, two, rollback = a.pending(), a.pending(), a.rollback()
    reader = read([two, rollback, one, two, a.pending(), a.ack()])
    assert bodies(reader) == ["a4"]


def test_the_next_owner_ends_a_producer_of_which_it_does_not_know_how_far_it_came() -> None:
    old = Producer(A)
    committed = [old.pending(), old.ack()]
    abandoned = [old.pending(), old.pending()]
    end = final_rollback(A, committed[1].sequence + 1)
    zombie = [old.pending() for _ in range(3)]
    # The end may even overtake the ack of what was committed before it.
    reader = read([committed[0], abandoned[0], end, abandoned[1], committed[1], *zombie, old.ack()])
    assert bodies(reader) == ["a1"]
    assert reader.sequencer.oldest_needed == reader.journal.end + 1


def test_messages_without_a_header_are_processed_each_time_they_come() -> None:
    assert bodies(read([None, None])) == ["plain", "plain"]


def test_a_reader_of_uncommitted_messages_gets_each_once_as_it_comes() -> None:
    a = Producer(A)
    one, two = a.pending(), a.pending()
    reader = read([one, one, two, a.rollback(), a.pending(), a.ack()], isolation=Isolation.READ_UNCOMMITTED)
    assert bodies(reader) == ["a1", "a2", "a4"]
    assert reader.sequencer._ring == {}


def test_committed_messages_are_what_a_reader_sees_by_default() -> None:
    assert Sequencer[str]().isolation is Isolation.READ_COMMITTED


@pytest.mark.parametrize("ring", [0, 1, 5, 6])
def test_a_transaction_larger_than_the_ring_is_read_from_the_journal_again(ring: int) -> None:
    a, b = Producer(A), Producer(B)
    entries = [b.pending()]
    for _ in range(5):
        header = a.pending()
        entries += [header, header]
    reader = read([*entries, a.ack()], ring_messages=ring)
    assert bodies(reader) == [f"a{number}" for number in range(1, 6)]
    assert (reader.outcomes[-1] is Outcome.COMMITTED) == (ring >= 5)
    assert len(reader.sequencer._ring) <= 1


def test_a_journal_that_was_trimmed_too_far_is_noticed_and_the_oldest_needed_place_prevents_it() -> None:
    a = Producer(A)
    reader = read([None, a.pending(), a.pending()], ring_messages=0)
    assert reader.sequencer.oldest_needed == 2
    step = reader.sequencer.feed(4, a.ack(), "end", 0.0)
    (reread,) = step.effects
    assert isinstance(reread, Reread)
    assert (reread.first_position, reread.last_position) == (2, 4)
    assert reread.wants(reader.journal.at(3)[0])
    with pytest.raises(JournalHole, match=r"\[\(1, 1\)\] of producer a@1000 .* positions 2 and 4"):
        reread.finish()


def test_a_restart_in_the_middle_of_a_transaction_changes_nothing() -> None:
    a = Producer(A)
    one, two, ack = a.pending(), a.pending(), a.ack()
    reader = read([one])
    reader.restart()
    add(reader, [ack, one])
    reader.restart()
    add(reader, [two])
    reader.restart()
    add(reader, [one, two, ack])
    assert bodies(reader) == ["a1", "a2"]


def test_a_forgotten_producer_is_refused_and_never_taken_for_a_new_one() -> None:
    a, b = Producer(A), Producer(B)
    one = a.alone()
    reader = read([one, b.alone()], producer_retention=60.0)
    add(reader, [b.alone()], now=50.0)
    (forgotten,) = reader.sequencer.prune(61.0)
    assert (forgotten.producer, forgotten.dropped) == (A, 0)
    reader.save()
    reader.restart()
    assert add(reader, [one, a.alone(), b.alone()], now=61.0) == [
        Outcome.REFUSED_PRUNED,
        Outcome.REFUSED_PRUNED,
        Outcome.DELIVERED,
    ]
    assert Outcome.REFUSED_PRUNED.is_refusal
    # A new life of the same writer is a new producer.
    assert add(reader, [Producer(ProducerId("a", 1001)).alone()], now=61.0) == [Outcome.DELIVERED]
    assert bodies(reader) == ["a1", "b1", "b2", "b3", "a1"]


def test_an_abandoned_transaction_is_given_up_after_the_retention_and_its_late_ack_is_refused() -> None:
    a = Producer(A)
    reader = read([a.pending(), a.pending()], producer_retention=60.0)
    (forgotten,) = reader.sequencer.prune(60.5)
    assert forgotten.dropped == 2
    assert reader.sequencer.oldest_needed == 3
    assert reader.sequencer._ring == {}
    assert add(reader, [a.ack()], now=61.0) == [Outcome.REFUSED_PRUNED]
    assert bodies(reader) == []


def test_one_producer_more_than_there_is_room_for_is_refused_and_disturbs_no_other() -> None:
    a, b = Producer(A), Producer(B)
    reader = read([a.alone(), b.alone(), a.alone()], max_producers=1)
    assert reader.outcomes == [Outcome.DELIVERED, Outcome.REFUSED_CROWDED, Outcome.DELIVERED]
    assert reader.sequencer.producers == (A,)


def test_holes_are_bounded_and_a_floor_always_makes_room() -> None:
    a = Producer(A)
    headers = [a.alone() for _ in range(100)]
    reader = read(headers[1::2], max_ranges=10)
    assert reader.outcomes.count(Outcome.REFUSED_TANGLED) == 40
    assert len(reader.processed) == 10
    assert add(reader, headers[:1]) == [Outcome.DELIVERED]  # closes a hole
    reported = SequenceHeader(A, 101, Flag.ALONE, floor=101)
    assert add(reader, [reported]) == [Outcome.DELIVERED]
    assert reader.sequencer._states[A].range_count == 1


def test_what_ends_a_transaction_has_room_among_any_number_of_holes() -> None:
    a = Producer(A)
    reader = read([a.pending(), a.pending()], max_ranges=1)
    assert add(reader, [a.ack()]) == [Outcome.COMMITTED]
    late = SequenceHeader(A, 9, Flag.ACK, 7)
    assert add(reader, [late]) == [Outcome.REFUSED_TANGLED]


def test_a_damaged_state_is_refused_with_its_producer_named() -> None:
    for text in ("", "[]", "[[],[],[],0]", "[[[2,1]],[],[],0,0]", '{"a":1}'):
        with pytest.raises(StateError, match="producer a@1000 cannot be read"):
            decode_state(A, text)


# --- headers ----------------------------------------------------------------------------------------------------------


def test_a_header_survives_the_wire() -> None:
    a = Producer(A)
    a.alone()
    a.settle(1)
    for header in (a.pending(), a.last(), a.pending(), a.ack(), a.rollback(), a.alone(), final_rollback(A, 7)):
        wire = encode_message(Message(b"body", annotations=header.annotations()))
        assert read_header(decode_message(wire).annotations) == header
    assert read_header({}) is None


@pytest.mark.parametrize(
    ("text", "producer"),
    [
        ("a@b@7", ProducerId("a@b", 7)),
        ("sink", ProducerId("sink", 0)),
        ("a@b", ProducerId("a@b", 0)),
        ("@7", ProducerId("@7", 0)),
    ],
)
def test_a_producer_that_does_not_notify_its_birth_is_as_old_as_can_be(text: str, producer: ProducerId) -> None:
    header = read_header({PRODUCER: text, SEQUENCE: 5, FLOOR: 2})
    assert header == SequenceHeader(producer, 5, Flag.ALONE, floor=2)


def test_a_router_passes_on_all_that_a_sequencer_needs() -> None:
    header = SequenceHeader(A, 9, Flag.ACK, begins=3, floor=9)
    sent = encode_message(Message(b"", annotations=header.annotations()))
    arrived = decode_message(annotate(sent, "publisher", b"tag", 1, ""))
    assert read_header(arrived.annotations) == header


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({PRODUCER: 7}, "x-opt-topic-producer is a string"),
        ({PRODUCER: ""}, "1 to 256 bytes"),
        ({PRODUCER: "x" * (MAX_NAME_BYTES + 1)}, "1 to 256 bytes"),
        ({PRODUCER: f"a@{MAX_BORN_MS + 1}"}, "born at 0 to"),
        ({TRANSACTION: "maybe"}, "is continue, or last, ack or rollback and a number, not 'maybe'"),
        ({TRANSACTION: "ack x"}, "is continue, or last, ack or rollback and a number"),
        ({TRANSACTION: "ack 1 2"}, "is continue, or last, ack or rollback and a number"),
        ({TRANSACTION: "ack " + "9" * 30}, "is continue, or last, ack or rollback and a number"),
        ({TRANSACTION: 3}, "is continue, or last, ack or rollback and a number"),
        ({SEQUENCE: 0}, "is 1 to"),
        ({SEQUENCE: LAST_SEQUENCE}, "is 1 to"),
        ({SEQUENCE: True}, "x-opt-topic-seq is a whole number"),
        ({TRANSACTION: "continue 3"}, "only what ends a transaction begins"),
        ({TRANSACTION: "ack 6"}, "begins at 1 to its own number, not at 6"),
        ({TRANSACTION: "rollback"}, "begins at 1 to its own number, not at 0"),
        ({FLOOR: 6}, "floor of message 5"),
    ],
)
def test_a_malformed_header_is_refused_with_a_sentence(change: dict[Symbol, object], said: str) -> None:
    good: dict[Symbol, object] = {PRODUCER: "a@1", SEQUENCE: 5}
    assert read_header(good) is not None
    with pytest.raises(HeaderError, match=said):
        read_header(good | change)


def test_a_message_cannot_stand_alone_inside_a_transaction() -> None:
    a = Producer(A)
    a.pending()
    assert a.has_pending
    with pytest.raises(UsageError, match="its messages from 1 on are pending"):
        a.alone()
    a.ack()
    assert a.alone().sequence == 3


def test_the_floor_is_the_lowest_number_that_is_not_settled() -> None:
    a = Producer(A)
    assert a.all_settled
    for _ in range(3):
        a.alone()
    a.settle(2)
    assert a.floor == 1
    a.settle(1)
    assert a.floor == 3
    a.settle(3)
    assert a.floor == a.next_sequence == 4
