"""What the source does, without a JVM: real journals; only Spark's calls are made by the tests."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridges.node.errors import (
    BadRequest,
    JournalReplaced,
    OwnedByAnother,
    RangeHole,
    RangeNotThere,
    RangeTrimmed,
    StorageError,
)
from bridges.spark.offsets import Offset, read_offset
from bridges.spark.options import source_options
from bridges.spark.reading import MAX_TASKS, TASK_ROWS, BatchPlanner, Limits, cut, plan_batch_read
from tests.spark.offline_node import OfflineNode
from tests.spark.query_life import SUB, Clock, Query, numbers, options, read


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OfflineNode]:
    with OfflineNode(tmp_path / "node") as found:
        assert isinstance(found, OfflineNode)
        found.append(SUB, [])
        yield found


# --- where a query begins ---------------------------------------------------------------------------------------------


def test_earliest_begins_with_the_oldest_message_and_latest_behind_the_newest(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 5)
    node.append_numbers("other", 0, 3)
    early, late = Query(node), Query(node, subscription="other", startingOffsets="latest")
    assert early.run() == numbers(0, 5)
    assert late.run() == []
    node.append_numbers("other", 3, 4)
    assert late.run() == ["3"]


def test_the_beginning_stays_where_it_is_whatever_arrives_and_however_often_it_is_asked_for(node: OfflineNode) -> None:
    """Spark asks again when batch 0 is repeated; "latest" computed anew would lose what arrived in between."""
    node.append_numbers(SUB, 0, 5)
    query = Query(node, startingOffsets="latest")
    assert query.place(-1) == query.place(-1)
    node.append_numbers(SUB, 5, 9)
    assert query.plan()
    query.start_over()
    node.append_numbers(SUB, 9, 12)
    assert query.run(0) == numbers(5, 9)
    assert query.run() == numbers(9, 12)


def test_a_position_of_a_checkpoint_can_be_started_from_and_one_of_another_journal_cannot(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 5)
    journal = node.offsets(SUB).journal
    wrong = json.dumps({SUB: {"journal": "ffff", "seq": 3}})
    with pytest.raises(JournalReplaced, match="has another journal"):
        Query(node, startingOffsets=wrong).run()
    query = Query(node, startingOffsets=json.dumps({SUB: {"journal": journal, "seq": 3}}))
    assert query.run() == numbers(3, 5)


def test_a_position_that_is_not_in_the_journal_is_refused(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 5)
    with pytest.raises(BadRequest, match="earliest, latest or one of these positions"):
        Query(node, startingOffsets=f'{{"{SUB}": 99}}').run()


def test_topics_are_subscribed_to_once_for_each_life_of_the_driver(node: OfflineNode) -> None:
    query = Query(node, subscribe="orders, trains")
    query.run()
    query.run()
    assert node.subscribed == [(SUB, ("orders", "trains"))]


# --- how large a batch is ---------------------------------------------------------------------------------------------


def test_a_batch_ends_at_the_limit_of_rows_and_of_bytes_whichever_comes_first(node: OfflineNode) -> None:
    node.append(SUB, ["x" * 100] * 10)
    start = Query(node).place(-1)
    planner = BatchPlanner(options(), node, Clock())

    def rows(**limits: int) -> int:
        node.release(SUB)  # else the first answer stays (J-5)
        return int(planner.latest(start, Limits(**limits))[SUB]["seq"])

    assert rows() == 10
    assert rows(max_rows=4) == 4
    assert rows(max_bytes=450) == 3  # a message costs its bytes and a share of the file
    assert rows(max_rows=2, max_bytes=450) == 2
    assert rows(max_bytes=1) == 1  # one that is too large comes alone: the query must go on


def test_a_batch_waits_for_enough_messages_until_its_time_limit(node: OfflineNode) -> None:
    query = Query(node, minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    node.append_numbers(SUB, 0, 4)
    assert not query.plan()
    query.clock.now += 29.9
    assert not query.plan()
    query.clock.now += 0.1
    assert query.run() == numbers(0, 4)
    node.append_numbers(SUB, 4, 6)
    assert not query.plan(), "the time counts anew for each batch"
    node.append_numbers(SUB, 6, 14)
    assert query.run() == numbers(4, 14)


def test_available_now_reads_what_was_there_and_no_minimum_holds_it_back(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 7)
    query = Query(node, maxOffsetsPerTrigger="3", minOffsetsPerTrigger="2")
    query.planner.fix_target()
    node.append_numbers(SUB, 7, 20)
    assert [query.run() for _ in range(4)] == [numbers(0, 3), numbers(3, 6), numbers(6, 7), []]


def test_an_empty_poll_gives_back_the_very_same_offset(node: OfflineNode) -> None:
    """Spark compares texts: another order of keys would be a new batch."""
    node.append_numbers(SUB, 0, 7)
    query = Query(node, maxOffsetsPerTrigger="3")
    while query.run():
        pass
    start = query.place(2)
    assert json.dumps(query.planner.latest(start, Limits())) == query.log[2]
    assert query.planner.newest() == {SUB: {"journal": node.offsets(SUB).journal, "seq": 7}}


@pytest.mark.needs("spark")
def test_spark_limits_come_as_spark_gives_them() -> None:
    from pyspark.sql.streaming import datasource as streaming

    from bridges.spark.planned_reader import limits_of
    from bridges.spark.source import AmqpStreamReader

    chosen = options(maxOffsetsPerTrigger="5", maxBytesPerTrigger="99", minOffsetsPerTrigger="2")
    assert AmqpStreamReader(chosen).getDefaultReadLimit() == streaming.ReadMaxRows(5)
    assert limits_of(chosen, streaming.ReadMaxRows(3)) == Limits(3, 99, 2)
    assert limits_of(chosen, streaming.ReadMaxBytes(7)) == Limits(5, 7, 2)
    assert limits_of(chosen, streaming.ReadMinRows(4)) == Limits(5, 99, 4)
    assert limits_of(chosen, streaming.ReadAllAvailable()) == Limits()
    assert AmqpStreamReader(options(maxBytesPerTrigger="9")).getDefaultReadLimit() == streaming.ReadMaxBytes(9)
    assert AmqpStreamReader(options(minOffsetsPerTrigger="9")).getDefaultReadLimit() == streaming.ReadMinRows(9)
    assert AmqpStreamReader(options()).getDefaultReadLimit() == streaming.ReadAllAvailable()


# --- tasks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "least", "parts"),
    [
        (0, 4, 0),
        (1, 4, 1),
        (3, 4, 3),
        (10, 4, 4),
        (TASK_ROWS, 1, 1),
        (TASK_ROWS + 1, 1, 2),
        (10_000 * TASK_ROWS, 1, MAX_TASKS),
        (10_000 * TASK_ROWS, 1000, 1000),
    ],
)
def test_a_batch_is_cut_into_equal_parts_without_a_gap(rows: int, least: int, parts: int) -> None:
    found = cut(7, 7 + rows, least)
    assert len(found) == parts
    assert [low for low, _ in found[1:]] == [high for _, high in found[:-1]]
    if found:
        assert (found[0][0], found[-1][1]) == (7, 7 + rows)
        sizes = {high - low for low, high in found}
        assert max(sizes) - min(sizes) <= 1


def test_a_batch_gives_the_same_rows_however_it_is_cut(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 50)
    query = Query(node)
    assert query.run() == numbers(0, 50)
    query.options = options(minPartitions="7")
    query.start_over()
    assert len(query.ranges(0)) == 7
    assert query.run(0) == numbers(0, 50)


def test_a_task_that_is_tried_again_reads_the_same(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 9)
    query = Query(node)
    query.plan()
    parts = query.ranges(0)
    assert query.read(parts) == query.read(parts, first=False) == numbers(0, 9)


# --- what is done with ------------------------------------------------------------------------------------------------


def kept(node: OfflineNode) -> tuple[int, int]:
    """What a journal still has: behind the first, up to the second."""
    marks = node.offsets(SUB)
    return marks.deleted, marks.last


@pytest.mark.parametrize("retained", [0, 1, 2])
def test_batches_are_kept_for_the_configured_time_across_any_number_of_starts(node: OfflineNode, retained: int) -> None:
    query = Query(node, minBatchesToRetain=str(retained))
    for batch in range(6):
        node.append_numbers(SUB, 10 * batch, 10 * batch + 10)
        assert query.run() == numbers(10 * batch, 10 * batch + 10)
        # The batch at work, and what is retained before it.
        assert kept(node) == (10 * max(0, batch - retained), 10 * batch + 10)
        query.start_over()


def test_nothing_is_given_up_before_the_next_batch_is_written_down(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 10)
    query = Query(node, minBatchesToRetain="0")
    query.run()
    query.start_over()
    assert query.run(0) == numbers(0, 10), "its commit was never noted: it is run again"
    assert kept(node) == (0, 10)


def test_a_repeated_batch_gives_nothing_up_that_was_not_committed(node: OfflineNode) -> None:
    query = Query(node, minBatchesToRetain="0")
    for batch in range(2):
        node.append_numbers(SUB, 10 * batch, 10 * batch + 10)
        query.run()
    query.committed = 1
    query.start_over()
    assert query.run(1) == numbers(10, 20)
    assert kept(node) == (10, 20)


def test_offsets_keep_their_form_and_forget_ends_of_another_journal() -> None:
    start = Offset(SUB, "a", 30, (20, 10))
    end = Offset(SUB, "a", 40).after(start, 2)
    assert json.dumps(end.for_spark()) == '{"billing": {"journal": "a", "seq": 40, "ends": "30,20"}}'
    assert read_offset(SUB, end.for_spark()) == end
    assert (end.done_with(0), end.done_with(1), end.done_with(2), end.done_with(3)) == (40, 30, 20, None)
    assert Offset(SUB, "b", 5).after(start, 2).ends == ()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"other": {"journal": "a", "seq": 1}},
        {SUB: 3},
        {SUB: {"seq": 3}},
        {SUB: {"journal": 3, "seq": 3}},
        {SUB: {"journal": "a", "seq": "3"}},
        {SUB: {"journal": "a", "seq": 3, "ends": "x"}},
    ],
)
def test_a_checkpoint_of_something_else_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="the checkpoint cannot be used"):
        read_offset(SUB, given)


def test_a_checkpoint_of_kafkas_connector_is_refused_and_the_error_says_how_to_go_on(node: OfflineNode) -> None:
    query = Query(node)
    query.log.append('{"orders": {"0": 17}}')
    with pytest.raises(BadRequest, match=r"Kafka's connector, which read orders; give a new checkpointLocation"):
        query.plan()


# --- who may read -----------------------------------------------------------------------------------------------------


def test_a_query_of_a_subscription_without_messages_is_told_what_it_will_get(
    node: OfflineNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever comes from Kafka expects what was published before, or takes the pattern for a regular expression."""
    query = Query(node, subscribe="", subscribePattern="sens.*")
    with caplog.at_level(logging.WARNING, "oncewire.spark"):
        assert query.run() == []
    assert "it gets what is published from now on to sens.*" in caplog.text
    assert "startingOffsets=earliest changes nothing" in caplog.text
    assert "a pattern is no regular expression" in caplog.text
    caplog.clear()
    node.append_numbers(SUB, 0, 2)
    Query(node).run()
    assert not caplog.text


def test_a_second_query_on_a_subscription_is_refused_and_takes_nothing_away(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 10)
    first, second = Query(node, minBatchesToRetain="0"), Query(node, "query-2", minBatchesToRetain="0")
    assert first.run() == numbers(0, 10)
    with pytest.raises(OwnedByAnother, match="query query-1 reads this subscription"):
        second.run()
    assert kept(node) == (0, 10)
    node.append_numbers(SUB, 10, 12)
    assert first.run() == numbers(10, 12)


def test_a_new_checkpoint_of_an_old_subscription_is_refused_before_anything_is_read(node: OfflineNode) -> None:
    first = Query(node, minBatchesToRetain="0")
    for batch in range(2):
        node.append_numbers(SUB, 10 * batch, 10 * batch + 10)
        first.run()
    with pytest.raises(OwnedByAnother, match="query query-1 has read it up to position 10"):
        Query(node, "query-2", failOnDataLoss="false").run()


def test_a_subscription_that_is_released_begins_with_the_oldest_message_that_is_kept(node: OfflineNode) -> None:
    first = Query(node, minBatchesToRetain="0")
    for batch in range(2):
        node.append_numbers(SUB, 10 * batch, 10 * batch + 10)
        first.run()
    node.release(SUB)
    assert Query(node, "query-2").run() == numbers(10, 20)
    node.append_numbers(SUB, 20, 21)
    with pytest.raises(OwnedByAnother, match="it was taken from query query-1"):
        first.run()


def test_a_checkpoint_of_another_subscription_is_refused(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 3)
    query = Query(node)
    query.run()
    query.options = options(subscription="other")
    query.start_over()
    with pytest.raises(BadRequest, match="it is of 'billing'"):
        query.plan()


# --- what is lost -----------------------------------------------------------------------------------------------------

Damage = Callable[[OfflineNode], None]


def damaged(node: OfflineNode, statement: str) -> None:
    node.close()
    connection = sqlite3.connect(node.path(SUB))
    with connection:
        connection.execute(statement)
    connection.close()


def without_oldest(node: OfflineNode) -> None:
    """Somebody trimmed by hand."""
    node.trim(SUB, 15)


def restored_copy(node: OfflineNode) -> None:
    """An old copy of the file: the newest messages are gone, and their positions are given again."""
    damaged(node, "DELETE FROM oncewire_journal_messages WHERE entry & 1099511627775 > 8")
    damaged(node, "UPDATE oncewire_journals SET last = 8, kept = 8")


@pytest.mark.parametrize(
    ("damage", "error", "left"),
    [
        (without_oldest, RangeTrimmed, numbers(15, 20)),
        (restored_copy, RangeNotThere, []),
        (lambda node: node.replace(SUB), JournalReplaced, []),
    ],
    ids=["trimmed", "restored", "replaced"],
)
def test_lost_messages_fail_the_query_unless_it_may_go_on_without(
    node: OfflineNode, damage: Damage, error: type[Exception], left: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    node.append_numbers(SUB, 0, 10)
    query = Query(node)
    query.run()
    node.append_numbers(SUB, 10, 20)
    damage(node)
    query.start_over()
    with pytest.raises(error):
        query.run()
    assert len(query.log) == 1, "nothing was written down"
    query.options = options(failOnDataLoss="false")
    query.start_over()
    with caplog.at_level(logging.WARNING, "oncewire.spark"):
        assert query.run() == left
    assert "failOnDataLoss is false" in caplog.text
    node.append_numbers(SUB, 100, 105)
    if damage is not restored_copy:  # there positions up to the checkpoint's are passed over
        assert query.run() == numbers(100, 105)


def test_a_batch_that_was_written_down_and_is_not_there_any_more_fails_or_is_left_out(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 10)
    query = Query(node)
    query.plan()
    node.replace(SUB)
    node.append_numbers(SUB, 100, 103)
    query.start_over()
    # Batch 0 begins where the new journal says, which is no place of the old one.
    with pytest.raises(JournalReplaced, match="the checkpoint of subscription 'billing' cannot be used"):
        query.run(0)
    query.options = options(failOnDataLoss="false")
    query.start_over()
    assert query.run(0) == []
    assert query.run() == numbers(100, 103)


def test_a_batch_that_was_trimmed_after_it_was_written_down_fails_or_is_what_is_left(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 10)
    query = Query(node)
    query.plan()
    parts = query.ranges(0)
    node.trim(SUB, 4)
    with pytest.raises(RangeTrimmed):
        query.read(parts)
    with pytest.raises(RangeTrimmed):
        query.planner.ranges({SUB: {"journal": parts[0].journal, "seq": 0}}, query.place(0))
    query.options = options(failOnDataLoss="false")
    assert query.read(parts) == numbers(4, 10)
    query.start_over()
    start = {SUB: {"journal": parts[0].journal, "seq": 0}}
    assert query.read(query.planner.ranges(start, query.place(0))) == numbers(4, 10)


def test_holes_of_a_damaged_journal_fail_the_query_or_are_passed_over(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 9000)  # more than a chunk
    damaged(node, "DELETE FROM oncewire_journal_messages WHERE (entry & 1099511627775) IN (1, 100, 101, 8500)")
    query = Query(node)
    query.plan()
    parts = query.ranges(0)
    with pytest.raises(RangeHole):
        query.read(parts)
    query.options = options(failOnDataLoss="false")
    expected = [number for number in numbers(0, 9000) if int(number) + 1 not in {1, 100, 101, 8500}]
    assert query.read(parts) == expected


# --- at most once -----------------------------------------------------------------------------------------------------


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[OfflineNode]:
    with OfflineNode(tmp_path / "keeping", retention_s=3600.0) as found:
        assert isinstance(found, OfflineNode)
        found.append(SUB, [])
        yield found


def test_at_most_once_reads_nothing_again_that_a_task_has_begun_with(keeping: OfflineNode) -> None:
    keeping.append_numbers(SUB, 0, 20)
    query = Query(keeping, deliveryGuarantee="at-most-once", minPartitions="2")
    query.plan()
    parts = query.ranges(0)
    values = read(keeping, query.options, parts[0], query.query)
    assert next(values) == "0"
    query.start_over()  # the driver dies while the first task reads
    assert query.run(0) == []
    keeping.append_numbers(SUB, 20, 25)
    assert query.run() == numbers(20, 25)


def test_at_most_once_reads_again_what_no_task_has_begun_with(keeping: OfflineNode) -> None:
    keeping.append_numbers(SUB, 0, 20)
    query = Query(keeping, deliveryGuarantee="at-most-once", minPartitions="2")
    query.plan()
    query.ranges(0)
    query.start_over()
    assert query.run(0) == numbers(0, 20)


def test_at_most_once_gives_nothing_to_a_second_attempt(keeping: OfflineNode) -> None:
    keeping.append_numbers(SUB, 0, 5)
    query = Query(keeping, deliveryGuarantee="at-most-once")
    query.plan()
    assert query.read(query.ranges(0), first=False) == []


def test_at_most_once_is_refused_where_messages_would_be_deleted_before_they_are_read(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 5)
    with pytest.raises(BadRequest, match="set its retention"):
        Query(node, deliveryGuarantee="at-most-once").run()


def test_what_an_operator_trimmed_before_the_first_query_is_nobodys(keeping: OfflineNode) -> None:
    keeping.append_numbers(SUB, 0, 10)
    keeping.trim(SUB, 4)
    assert Query(keeping).run() == numbers(0, 10), "it is kept, though trimmed"


# --- batch reads ------------------------------------------------------------------------------------------------------


def batch_read(node: OfflineNode, **given: str) -> list[str]:
    base = {"amqp.urls": "amqp://127.0.0.1:1", "bridge.folder": "/none", "subscription": SUB}
    chosen = source_options({**base, **given}, is_stream=False)
    return [value for part in plan_batch_read(chosen, node) for value in read(node, chosen, part, None)]


def test_a_batch_read_gives_what_is_there_and_leaves_it_there(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 10)
    stream = Query(node, minBatchesToRetain="0")
    stream.run()
    node.append_numbers(SUB, 10, 20)
    stream.run()
    assert batch_read(node) == numbers(10, 20)
    assert batch_read(node, startingOffsets=f'{{"{SUB}": 12}}', endingOffsets=f'{{"{SUB}": 15}}') == numbers(12, 15)
    assert batch_read(node, startingOffsets="latest") == []
    node.append_numbers(SUB, 20, 21)
    assert stream.run() == ["20"]


def test_a_batch_read_of_what_is_gone_or_not_there_fails_or_is_what_is_left(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 10)
    node.trim(SUB, 4)
    early = {"startingOffsets": f'{{"{SUB}": 2}}'}
    late = {"endingOffsets": f'{{"{SUB}": 99}}'}
    with pytest.raises(RangeTrimmed):
        batch_read(node, **early)
    with pytest.raises(RangeNotThere):
        batch_read(node, **late)
    assert batch_read(node, **early, **late, failOnDataLoss="false") == numbers(4, 10)
    with pytest.raises(BadRequest, match="is before startingOffsets"):
        batch_read(node, startingOffsets="latest", endingOffsets=f'{{"{SUB}": 5}}')
    with pytest.raises(StorageError, match="subscribe first"):
        batch_read(node, subscription="unknown")
    with pytest.raises(JournalReplaced):
        batch_read(node, startingOffsets=json.dumps({SUB: {"journal": "x", "seq": 5}}))
