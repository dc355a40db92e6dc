"""Messages that never came, and checkpoints that lost their newest files: what the source makes of them. No JVM."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridges.node.errors import SubscriptionEnded, SubscriptionGap
from bridges.spark.option_values import Guarantee
from bridges.spark.options import source_options
from bridges.spark.processor_join_core import Join, input_journals
from bridges.spark.processor_reader import AttemptReader
from bridges.spark.processor_restart_core import is_hopeless
from bridges.spark.reading import plan_batch_read
from tests.spark.offline_node import OfflineNode
from tests.spark.query_life import SUB, Query, numbers, options


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OfflineNode]:
    with OfflineNode(tmp_path / "node") as found:
        assert isinstance(found, OfflineNode)
        found.append(SUB, [])
        yield found


def with_gap(node: OfflineNode, subscription: str = SUB, topic: str = "orders") -> None:
    """Ten messages, then one was missed, then ten more."""
    node.append(subscription, numbers(0, 10), topic, incarnation=5)
    node.append(subscription, numbers(11, 21), topic, incarnation=8)


# --- gaps -------------------------------------------------------------------------------------------------------------


def test_a_query_reads_up_to_a_gap_and_fails_there_with_its_place(node: OfflineNode) -> None:
    with_gap(node)
    query = Query(node)
    assert query.run() == numbers(0, 10)
    for _ in range(2):  # as often as it is started again
        with pytest.raises(SubscriptionGap) as caught:
            query.run()
        assert re.fullmatch(
            r"messages of topic 'orders' are missing from subscription 'billing': between the positions 10 and 11: "
            r"the bridge node was disconnected for longer than its timeout_s, or its subscription had been ended; it "
            r"was created again, noted at 2023-11-14 22:13:20\+00:00; to continue without them start the query with "
            r"failOnDataLoss=false .*",
            str(caught.value),
        )
        assert len(query.log) == 1, "nothing was written down"
        query.start_over()


def test_a_query_that_may_lose_data_goes_over_the_gap_and_says_so_and_needs_it_no_more_behind_it(
    node: OfflineNode, caplog: pytest.LogCaptureFixture
) -> None:
    with_gap(node)
    query = Query(node, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "oncewire.spark"):
        assert query.run() == [*numbers(0, 10), *numbers(11, 21)]
    assert "between the positions 10 and 11" in caplog.text
    assert "failOnDataLoss is false" in caplog.text
    query.options = options()
    query.start_over()
    node.append(SUB, ["21"], incarnation=8)
    assert query.run() == ["21"]


def test_a_batch_that_was_planned_over_a_gap_is_repeated_only_by_who_may_lose_data(node: OfflineNode) -> None:
    with_gap(node)
    query = Query(node, failOnDataLoss="false")
    query.plan()
    query.options = options()
    query.start_over()
    with pytest.raises(SubscriptionGap):
        query.ranges(0)
    query.options = options(failOnDataLoss="false")
    query.start_over()
    assert query.run(0) == [*numbers(0, 10), *numbers(11, 21)]


def test_a_batch_read_over_a_gap_fails_or_is_what_is_there(node: OfflineNode) -> None:
    with_gap(node)

    def rows(**given: str) -> int:
        base = {"amqp.urls": "amqp://127.0.0.1:1", "bridge.folder": "/none", "subscription": SUB}
        parts = plan_batch_read(source_options({**base, **given}, is_stream=False), node)
        return sum(part.high - part.low for part in parts)

    with pytest.raises(SubscriptionGap, match="between the positions 10 and 11"):
        rows()
    assert rows(endingOffsets=f'{{"{SUB}": 10}}') == 10
    assert rows(startingOffsets=f'{{"{SUB}": 11}}') == 9
    assert rows(failOnDataLoss="false") == 20


@pytest.mark.parametrize("join", [None, Join.ALTS, Join.ZIP])
def test_a_processor_stops_at_a_gap_of_any_input_or_goes_over_it(node: OfflineNode, join: Join | None) -> None:
    topics = ["orders"] if join is None else ["orders", "payments"]
    journals = input_journals("p", topics, join)
    for each in journals:
        if join is Join.ZIP and each.topics == ("orders",):
            node.append(each.subscription, numbers(0, 20), "orders", incarnation=1)
        else:
            with_gap(node, each.subscription, each.topics[-1])
    reader = AttemptReader(node, "p", journals)
    first = reader.next_end(reader.initial(), None)
    assert [place["seq"] for place in first.values()] == [10] * len(journals)
    with pytest.raises(SubscriptionGap, match=f"messages of topic '{topics[-1]}' are missing"):
        reader.next_end(first, None)
    passing = AttemptReader(node, "p", journals, fails_at_gaps=False)
    second = passing.next_end(first, None)
    assert [place["seq"] for place in second.values()] == [20] * len(journals)
    with pytest.raises(SubscriptionGap):
        reader.tasks(first, second, 2)
    assert sum(task.steps for task in passing.tasks(first, second, 2)) == 10


def test_no_restart_repairs_a_gap_or_brings_back_what_an_operator_has_ended() -> None:
    assert is_hopeless("bridges.node.errors.SubscriptionGap: messages of topic 'orders' are missing")
    assert is_hopeless("bridges.node.errors.SubscriptionEnded: no more messages come from subscription 'billing'")


def test_a_query_reads_what_an_ended_subscription_has_and_fails_behind_it(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 5)
    node.ended = "an operator has released it"
    query = Query(node, maxOffsetsPerTrigger="3", failOnDataLoss="false")
    assert [query.run() for _ in range(2)] == [numbers(0, 3), numbers(3, 5)]
    with pytest.raises(SubscriptionEnded, match="not receive it any more: an operator has released it"):
        query.run()


def test_a_processor_fails_when_an_input_that_it_has_read_has_ended(node: OfflineNode) -> None:
    (journal,) = input_journals("p", ["orders"], None)
    node.append_numbers(journal.subscription, 0, 5)
    node.ended = "an operator has released it"
    reader = AttemptReader(node, "p", [journal])
    end = reader.next_end(reader.initial(), None)
    assert [place["seq"] for place in end.values()] == [5]
    with pytest.raises(SubscriptionEnded):
        reader.next_end(end, None)


# --- checkpoints that lost their newest files -------------------------------------------------------------------------


def forget_newest(query: Query, batches: int) -> list[str]:
    """The power fails: the newest files of the offset log, and of the commit log, were not on the disk yet."""
    lost = query.log[-batches:]
    del query.log[-batches:]
    query.committed = min(query.committed, len(query.log))
    query.start_over()
    return lost


@pytest.mark.parametrize("guarantee", [each.value for each in Guarantee if each is not Guarantee.AT_MOST_ONCE])
def test_batches_whose_offsets_are_lost_are_planned_as_they_were(node: OfflineNode, guarantee: str) -> None:
    """J-5: more has arrived since, and the limit is another one: the same ends, down to the text of the offsets."""
    query = Query(node, maxOffsetsPerTrigger="7", deliveryGuarantee=guarantee)
    node.append_numbers(SUB, 0, 20)
    before = [query.run() for _ in range(3)]
    lost = forget_newest(query, 2)
    node.append_numbers(SUB, 20, 40)
    query.options = options(maxOffsetsPerTrigger="30", deliveryGuarantee=guarantee)
    query.start_over()
    assert [query.run() for _ in range(2)] == before[1:]
    assert query.log[-2:] == lost
    assert query.run() == numbers(20, 40)


def test_a_batch_whose_offsets_were_never_written_is_planned_as_it_was(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 5)
    query = Query(node)
    query.plan()
    lost = forget_newest(query, 1)
    node.append_numbers(SUB, 5, 9)
    assert query.run() == numbers(0, 5)
    assert query.log == lost
    assert json.loads(query.log[0])[SUB]["seq"] == 5
