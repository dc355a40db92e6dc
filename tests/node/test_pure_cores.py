"""The ledger of producers, group commit and the gate of depth: pure decisions."""

from __future__ import annotations

import random

import pytest

from bridges.node.group_commit_core import DepthGate, GroupCommit
from bridges.node.producers_core import MAX_GAPS, Identity, Judgement, ProducerLedger, ProducerRow

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
    assert row.seen == "[[200,200]]"


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
