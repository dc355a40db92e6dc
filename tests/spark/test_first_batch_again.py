"""A first batch that Spark repeats is its own query's, whatever became of its messages meanwhile. No JVM."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridges.node.errors import OwnedByAnother, RangeTrimmed
from tests.spark.offline_node import OfflineNode
from tests.spark.query_life import SUB, Query, numbers


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OfflineNode]:
    with OfflineNode(tmp_path / "node") as found:
        assert isinstance(found, OfflineNode)
        found.append(SUB, [])
        yield found


def begin(query: Query) -> None:
    """Read the first batch, and end before Spark has noted it."""
    assert query.plan()
    assert query.read(query.ranges(0))
    query.start_over()


def drop_all(node: OfflineNode) -> None:
    """J-15."""
    journal = node._files.journal(SUB)
    assert journal.drop_unread(time.time())
    journal.delete_expired(time.time())


def test_a_query_whose_first_batch_was_begun_and_then_dropped_is_told_what_it_lost(node: OfflineNode) -> None:
    query = Query(node)
    node.append_numbers(SUB, 0, 10)
    begin(query)
    drop_all(node)
    with pytest.raises(RangeTrimmed, match="everything up to 10 was trimmed"):
        query.run(0)


def test_it_goes_on_with_what_is_left_where_it_may(node: OfflineNode) -> None:
    query = Query(node, failOnDataLoss="false")
    node.append_numbers(SUB, 0, 10)
    begin(query)
    drop_all(node)
    node.append_numbers(SUB, 10, 12)
    assert query.run(0) == []
    assert query.run() == numbers(10, 12)


def test_another_query_is_still_refused_where_the_first_batch_was_dropped(node: OfflineNode) -> None:
    node.append_numbers(SUB, 0, 10)
    begin(Query(node))
    drop_all(node)
    node.append_numbers(SUB, 10, 12)
    with pytest.raises(OwnedByAnother, match="query query-1 reads this subscription"):
        Query(node, "query-2", failOnDataLoss="false").run()


def test_a_query_that_has_finished_batches_is_named_though_later_ones_were_dropped(node: OfflineNode) -> None:
    first = Query(node, minBatchesToRetain="0")
    for batch in range(2):
        node.append_numbers(SUB, 10 * batch, 10 * batch + 10)
        first.run()
    drop_all(node)
    with pytest.raises(OwnedByAnother, match="query query-1 has read it up to position 10"):
        Query(node, "query-2").run()


def test_the_first_batch_of_a_query_that_took_over_is_its_own_though_its_messages_were_read_before(
    tmp_path: Path,
) -> None:
    """With retention it begins in front of what the former query has released."""
    with OfflineNode(tmp_path / "keeping", retention_s=3600.0) as node:
        assert isinstance(node, OfflineNode)
        node.append(SUB, [])
        first = Query(node, minBatchesToRetain="0")
        for batch in range(2):
            node.append_numbers(SUB, 10 * batch, 10 * batch + 10)
            first.run()
        node.release(SUB)
        second = Query(node, "query-2")
        begin(second)
        assert second.run(0) == numbers(0, 20)
