"""Ranges, the ledger of producers, group commit and the gate of depth: pure decisions."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.node.group_commit_core import DepthGate, GroupCommit
from bridges.node.producers_core import MAX_GAPS, Identity, Judgement, ProducerLedger, ProducerRow
from bridges.node.range_set_core import RangeSet

# --- ranges -----------------------------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.sampled_from(["add", "below", "store"]), st.integers(0, 40)), max_size=60)


@given(STEPS)
def test_a_range_set_holds_what_a_set_holds(steps: list[tuple[str, int]]) -> None:
    ranges, model = RangeSet(), set[int]()
    for step, number in steps:
        if step == "add":
            assert ranges.add(number) == (number not in model)
            model.add(number)
        elif step == "below":
            ranges.discard_below(number)
            model = {kept for kept in model if kept >= number}
        else:
            ranges = RangeSet.from_bytes(ranges.to_bytes())
        assert list(ranges) == sorted(model)
        assert all((number in ranges) == (number in model) for number in range(42))
        missing = next(n for n in range(number, 100) if n not in model)
        assert ranges.first_missing(number) == missing
        assert ranges.range_count == sum(n - 1 not in model for n in model)


@pytest.mark.parametrize("octets", [b"1234567", RangeSet().to_bytes() + b"\0" * 15])
def test_damaged_ranges_are_refused(octets: bytes) -> None:
    with pytest.raises(ValueError, match="length"):
        RangeSet.from_bytes(octets)


def test_ranges_out_of_order_are_refused() -> None:
    numbers = [5, 6, 6, 7]
    with pytest.raises(ValueError, match="out of order"):
        RangeSet.from_bytes(b"".join(number.to_bytes(8, "big") for number in numbers))


# --- producers --------------------------------------------------------------------------------------------------------


def test_each_message_of_a_producer_is_new_once_whatever_overtakes_what() -> None:
    """A mark of the highest number would drop an overtaken message; nothing here does."""
    rng = random.Random(4)
    ledger = ProducerLedger()
    for _ in range(200):
        unsettled = list(range(50))
        sent = [n for n in unsettled for _ in range(rng.choice([1, 1, 2, 3]))]
        rng.shuffle(sent)
        producer = f"p{rng.random()}"
        new = [n for n in sent if ledger.judge(Identity(producer, n, 0)) is Judgement.NEW]
        assert sorted(new) == unsettled


def test_a_copy_from_below_the_floor_is_a_duplicate_and_nothing_below_is_remembered() -> None:
    ledger = ProducerLedger()
    for number in range(0, 100, 2):
        assert ledger.judge(Identity("p", number, 0)) is Judgement.NEW
    assert ledger.judge(Identity("p", 200, 150)) is Judgement.NEW
    assert ledger.judge(Identity("p", 13, 0)) is Judgement.DUPLICATE
    (row,) = ledger.changes()
    assert row == ProducerRow("p", 150, row.seen)
    assert list(RangeSet.from_bytes(row.seen)) == [200]


def test_a_message_that_raises_the_floor_is_still_found_to_be_a_copy() -> None:
    ledger = ProducerLedger()
    assert ledger.judge(Identity("p", 7, 0)) is Judgement.NEW
    assert ledger.judge(Identity("p", 7, 5)) is Judgement.DUPLICATE
    assert ledger.judge(Identity("p", 6, 7)) is Judgement.NEW  # a floor above itself is taken as itself


def test_the_ledger_goes_on_from_what_was_stored() -> None:
    ledger = ProducerLedger()
    for number in (0, 1, 5):
        ledger.judge(Identity("p", number, 0))
    again = ProducerLedger(ledger.changes())
    assert ledger.changes() == []
    judged = [again.judge(Identity("p", number, 0)) for number in (0, 1, 2, 5)]
    assert judged == [Judgement.DUPLICATE, Judgement.DUPLICATE, Judgement.NEW, Judgement.DUPLICATE]


def test_too_many_producers_and_a_floor_that_stands_still_are_refused() -> None:
    ledger = ProducerLedger(max_producers=2)
    for number in range(0, 2 * MAX_GAPS, 2):
        ledger.judge(Identity("p", number, 0))
    assert ledger.judge(Identity("p", 3 * MAX_GAPS, 0)) is Judgement.TOO_MANY_GAPS
    assert ledger.judge(Identity("p", 3 * MAX_GAPS, 3 * MAX_GAPS - 5)) is Judgement.NEW
    assert ledger.judge(Identity("q", 0, 0)) is Judgement.NEW
    assert ledger.judge(Identity("r", 0, 0)) is Judgement.TOO_MANY_PRODUCERS


# --- groups and depth -------------------------------------------------------------------------------------------------


def test_a_group_is_written_when_its_first_message_has_waited_or_it_is_full() -> None:
    group = GroupCommit(wait_s=0.005, count=4)
    group.arrived(1, now=1.0)
    assert group.wait_s(1.002) == pytest.approx(0.003)
    group.arrived(2, now=1.004)
    assert group.wait_s(1.004) == pytest.approx(0.001)
    assert group.wait_s(1.006) == 0.0
    group.written()
    group.arrived(4, now=2.0)
    assert group.wait_s(2.0) == 0.0


def test_a_full_journal_takes_messages_again_only_when_it_is_clearly_less_full() -> None:
    gate = DepthGate(1000)
    assert [gate.is_open(depth) for depth in (999, 1000, 950, 900, 899, 950, 1000)] == [
        True,
        False,
        False,
        False,
        True,
        True,
        False,
    ]
