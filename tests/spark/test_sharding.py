"""A subscription that several nodes share out, without a JVM: real journals; only Spark's calls are the tests'."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.node.errors import BadRequest, JournalReplaced, OwnedByAnother, RangeTrimmed
from bridges.node.interface import Node
from bridges.node.shard_core import Shard, ShardBy
from bridges.spark.options import SourceOptions, sink_options, source_options
from bridges.spark.progress import join_progress, join_states
from bridges.spark.reading import BatchPlanner, plan_batch_read, read_range
from bridges.spark.sharded_planner import ShardedPlanner
from bridges.spark.sharding import split_rows
from oncewire.wire import Message, Properties, encode_message
from tests.spark.offline_node import OfflineNode
from tests.spark.query_life import SUB, Query

REMOTE = {"bridge.secret": "a secret of some length", "subscribe": "orders", "subscription": SUB}


class ShardNode(OfflineNode):
    """A node whose configuration says which share it keeps."""

    def __init__(self, folder: Path, shard: Shard | None) -> None:
        super().__init__(folder)
        self.shard = shard
        self.by = ShardBy.KEY
        self.topics = ["orders"]
        self.append_messages(SUB, [])

    def receive(self, payloads: Sequence[bytes]) -> None:
        """Messages have arrived; those of its share are kept."""
        shard = self.shard
        self.append_messages(SUB, [one for one in payloads if shard is None or shard.holds(one)])

    def status(self) -> dict[str, Any]:
        """What the source looks at."""
        state = {
            "shard": str(self.shard or ""),
            "shard_by": self.by.value,
            "topics": self.topics,
            "journal": self.offsets(SUB).journal,
            "retention_s": 0.0,
            "last": self.offsets(SUB).last,
        }
        return {"subscriptions": {SUB: state}, "sinks": {}}


def shard_options(count: int, **more: str) -> SourceOptions:
    bridge = ",".join(f"tcp://node-{number}:7072" for number in range(count))
    return source_options({**REMOTE, "bridge": bridge, **more})


def keyed(*numbers: int) -> list[bytes]:
    return [encode_message(Message(b"%d" % n, properties=Properties(group_id=f"key-{n % 10}"))) for n in numbers]


class ShardedQuery(Query):
    """A query's life over several nodes."""

    def __init__(self, nodes: Sequence[ShardNode], query: str = "query-1", **more: str) -> None:
        self.begin(shard_options(len(nodes), **more), nodes, query)

    def start_over(self) -> None:
        """The driver dies and is started again."""
        parts = [
            BatchPlanner(one, node, self.clock) for one, node in zip(self.options.shards(), self.nodes, strict=True)
        ]
        self.planner = ShardedPlanner(self.options, parts, self.clock) if len(parts) > 1 else parts[0]

    def numbers(self, batch: int | None = None) -> list[int]:
        """What a batch has, as numbers."""
        return [int(value) for value in self.run(batch)]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[ShardNode]]:
    made = [ShardNode(tmp_path / f"node-{number}", Shard(number, 3)) for number in range(3)]
    yield made
    for node in made:
        node.close()


def receive(nodes: Sequence[ShardNode], start: int, stop: int) -> None:
    for node in nodes:
        node.receive(keyed(*range(start, stop)))


def lasts(nodes: Sequence[Node]) -> list[int]:
    return [node.offsets(SUB).last for node in nodes]


def test_a_batch_has_the_messages_of_all_nodes_each_once_and_each_key_in_order(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes)
    receive(nodes, 0, 100)
    assert all(lasts(nodes)), "no node is without messages"
    first = query.numbers()
    receive(nodes, 100, 150)
    second = query.numbers()
    assert sorted(first) == list(range(100))
    assert sorted(second) == list(range(100, 150))
    for key in range(10):
        of_key = [number for number in first + second if number % 10 == key]
        assert of_key == sorted(of_key)
    assert query.numbers() == []


def test_offsets_have_an_entry_for_each_node_with_its_journal(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes)
    receive(nodes, 0, 100)
    query.numbers()
    place = query.place(0)
    assert list(place) == [f"{SUB}#0", f"{SUB}#1", f"{SUB}#2"]
    assert [inner["seq"] for inner in place.values()] == lasts(nodes)
    assert [inner["journal"] for inner in place.values()] == [node.offsets(SUB).journal for node in nodes]


def test_a_restart_repeats_the_batch_that_was_written_down(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes)
    receive(nodes, 0, 60)
    assert query.plan()
    receive(nodes, 60, 90)
    query.start_over()
    assert sorted(query.numbers()) == list(range(60))
    query.start_over()
    assert sorted(query.numbers(0)) == list(range(60)), "not committed: again"
    assert sorted(query.numbers()) == list(range(60, 90))


def test_a_node_without_news_stays_where_it_is(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes)
    receive(nodes, 0, 30)
    query.numbers()
    nodes[1].receive(keyed(*range(30, 130)))
    before, found = query.place(0), query.numbers()
    after = query.place(1)
    assert found
    assert [name for name in before if before[name] != after[name]] == [f"{SUB}#1"]
    assert {part.shard for part in query.ranges(1)} == {1}


def test_limits_hold_for_the_batch_and_no_node_is_passed_over(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes, maxOffsetsPerTrigger="10")
    receive(nodes, 0, 100)
    seen: list[int] = []
    while rows := query.numbers():
        assert len(rows) <= 10
        waiting = [last - query.place(len(query.log) - 2)[f"{SUB}#{n}"]["seq"] for n, last in enumerate(lasts(nodes))]
        shards = {part.shard for part in query.ranges(len(query.log) - 1)}
        assert shards == {number for number, left in enumerate(waiting) if left}
        seen += rows
    assert sorted(seen) == list(range(100))


def test_a_batch_waits_for_enough_messages_of_all_nodes_together(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes, minOffsetsPerTrigger="50", maxTriggerDelay="10s")
    receive(nodes, 0, 49)
    assert query.numbers() == []
    receive(nodes, 49, 50)
    assert len(query.numbers()) == 50
    receive(nodes, 50, 60)
    assert query.numbers() == []
    query.clock.now += 10
    assert len(query.numbers()) == 10


def test_available_now_ends_at_what_is_there_at_each_node(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes, minOffsetsPerTrigger="1000")
    receive(nodes, 0, 40)
    query.planner.fix_target()
    receive(nodes, 40, 80)
    assert sorted(query.numbers()) == list(range(40))
    assert query.numbers() == []


def test_bytes_are_shared_out(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes, maxBytesPerTrigger="600")
    receive(nodes, 0, 100)
    batches = []
    while rows := query.numbers():
        batches.append(rows)
    assert sorted(number for rows in batches for number in rows) == list(range(100))
    assert len(batches) > 5


def test_tasks_are_shared_out_among_the_nodes_that_have_something(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes, minPartitions="6")
    receive(nodes, 0, 100)
    query.plan()
    parts = query.ranges(0)
    assert [part.shard for part in parts] == [0, 0, 1, 1, 2, 2]
    query.numbers()
    nodes[2].receive(keyed(*range(100, 200)))
    query.plan()
    assert [part.shard for part in query.ranges(1)] == [2] * 6


def test_each_node_gives_up_what_is_done_with(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes, minBatchesToRetain="1")
    for batch in range(4):
        receive(nodes, batch * 30, batch * 30 + 30)
        query.numbers()
    assert [node.offsets(SUB).trimmed for node in nodes] == [query.place(1)[f"{SUB}#{n}"]["seq"] for n in range(3)]


def test_each_node_has_an_owner_and_a_second_query_is_refused(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes)
    receive(nodes, 0, 30)
    query.numbers()
    assert [node.offsets(SUB).owner for node in nodes] == ["query-1"] * 3
    receive(nodes, 30, 60)
    query.query = "query-2"
    with pytest.raises(OwnedByAnother):
        query.numbers()


def test_a_journal_that_was_replaced_at_one_node_fails_the_query(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes)
    receive(nodes, 0, 30)
    query.numbers()
    nodes[1].replace(SUB)
    receive(nodes, 30, 60)
    query.start_over()
    with pytest.raises(JournalReplaced, match=f"{SUB}#1"):
        query.numbers()


def test_messages_that_are_gone_at_one_node_fail_the_query(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes, maxOffsetsPerTrigger="9")
    receive(nodes, 0, 60)
    query.numbers()
    nodes[2].trim(SUB, nodes[2].offsets(SUB).last)
    with pytest.raises(RangeTrimmed):
        query.numbers()


# --- what is refused --------------------------------------------------------------------------------------------------


def test_nodes_in_another_order_are_refused(nodes: list[ShardNode]) -> None:
    receive(nodes, 0, 30)
    with pytest.raises(BadRequest, match=r"tcp://node-0:7072 as shard 0/3: the node keeps shard 1/3; name all nodes"):
        ShardedQuery([nodes[1], nodes[0], nodes[2]]).numbers()


def test_a_node_that_keeps_all_or_does_not_receive_it_is_refused(nodes: list[ShardNode], tmp_path: Path) -> None:
    whole = ShardNode(tmp_path / "whole", None)
    with pytest.raises(BadRequest, match="the node keeps all messages"):
        ShardedQuery([*nodes[:2], whole]).numbers()
    nodes[0].status = lambda: {"subscriptions": {}}  # type: ignore[method-assign]
    with pytest.raises(BadRequest, match='with shard = "0/3", before anything is published'):
        ShardedQuery(nodes).numbers()
    whole.close()


def test_other_topics_than_the_nodes_have_are_refused(nodes: list[ShardNode]) -> None:
    with pytest.raises(BadRequest, match="cannot be read as topics invoices: tcp://node-0:7072 has the topics orders"):
        ShardedQuery(nodes, subscribe="invoices").numbers()


def test_where_topics_are_shared_out_the_query_names_all_of_them(nodes: list[ShardNode]) -> None:
    for number, node in enumerate(nodes):
        node.by, node.topics = ShardBy.TOPIC, [f"orders.{number}"]
    receive(nodes, 0, 30)
    assert sorted(ShardedQuery(nodes, subscribe="orders.2,orders.0,orders.1").numbers()) == list(range(30))
    with pytest.raises(BadRequest, match=r"none of the nodes has orders\.3; use the topics that the nodes have"):
        ShardedQuery(nodes, subscribe="orders.0,orders.1,orders.2,orders.3").numbers()
    with pytest.raises(BadRequest, match=r"tcp://node-2:7072 has the topics orders\.2; use"):
        ShardedQuery(nodes, subscribe="orders.0,orders.1").numbers()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_checkpoint_of_another_number_of_nodes_is_refused_and_says_what_to_do(
    nodes: list[ShardNode], tmp_path: Path, count: int
) -> None:
    query = ShardedQuery(nodes)
    receive(nodes, 0, 30)
    query.numbers()
    shards = [Shard(number, count) for number in range(count)] if count > 1 else [None]
    more = [ShardNode(tmp_path / f"more-{number}", shard) for number, shard in enumerate(shards)]
    other = ShardedQuery(more)
    other.log, other.committed = query.log, query.committed
    with pytest.raises(BadRequest, match=r"with \d nodes?: it is of a query with 3 nodes: .*see docs/spark-cluster.md"):
        other.numbers()
    for node in more:
        node.close()


def test_a_checkpoint_of_one_node_is_refused_by_several(nodes: list[ShardNode], tmp_path: Path) -> None:
    whole = ShardNode(tmp_path / "whole", None)
    single = ShardedQuery([whole])
    whole.receive(keyed(*range(10)))
    assert single.numbers() == list(range(10))
    query = ShardedQuery(nodes)
    query.log, query.committed = single.log, single.committed
    with pytest.raises(BadRequest, match="with 3 nodes: it is of a query with 1 node: a key would move to another"):
        query.numbers()
    whole.close()


def test_a_sink_and_a_small_limit_and_an_embedded_node_are_refused() -> None:
    two = "tcp://a:1,tcp://b:2"
    secret = {"bridge.secret": "a secret of some length"}
    with pytest.raises(BadRequest, match="a sink is at one node, which decides its batches; name one node"):
        sink_options({"bridge": two, "topic": "out", **secret})
    with pytest.raises(BadRequest, match="there are 3 nodes; give so many at least"):
        shard_options(3, maxOffsetsPerTrigger="2")
    for wrong, why in (
        ("embedded,tcp://a:1", "an embedded node has no shards"),
        ("tcp://a:1, tcp://a:1", "a node is named twice"),
        ("tcp://a:1,", "is no address of a bridge node"),
        (",".join(f"tcp://a:{port}" for port in range(1, 66)), "65 nodes are named, 64 are allowed"),
    ):
        with pytest.raises(BadRequest, match=why):
            source_options({**REMOTE, "bridge": wrong})


# --- positions, batch reads, progress ---------------------------------------------------------------------------------


def test_positions_are_given_for_each_node(nodes: list[ShardNode]) -> None:
    receive(nodes, 0, 100)
    start = json.dumps({f"{SUB}#{number}": last - 2 for number, last in enumerate(lasts(nodes))})
    found = ShardedQuery(nodes, startingOffsets=start).numbers()
    assert len(found) == 6
    with pytest.raises(BadRequest, match="it is of 'billing'; name shards 'billing#0', 'billing#1', 'billing#2'"):
        shard_options(3, startingOffsets=f'{{"{SUB}": 5}}')
    with pytest.raises(BadRequest, match="name shards"):
        shard_options(3, startingOffsets=f'{{"{SUB}#0": 5, "{SUB}#1": 5}}')


def test_a_batch_read_gives_what_all_nodes_have_and_one_node_alone_is_refused(nodes: list[ShardNode]) -> None:
    receive(nodes, 0, 50)
    base = {name: value for name, value in REMOTE.items() if name != "subscribe"}
    bridge = "tcp://a:1,tcp://b:1,tcp://c:1"
    options = source_options({**base, "bridge": bridge}, is_stream=False)
    found = [
        value
        for node, one in zip(nodes, options.shards(), strict=True)
        for part in plan_batch_read(one, node)
        for batch in read_range(one, node, part, query=None)
        for value in batch.column("value").to_pylist()
    ]
    assert sorted(map(int, found)) == list(range(50))
    (alone,) = source_options({**base, "bridge": "tcp://a:1"}, is_stream=False).shards()
    with pytest.raises(BadRequest, match="keeps shard 0/3 of it; name all 3 nodes"):
        plan_batch_read(alone, nodes[0])
    with pytest.raises(BadRequest, match="the node keeps shard 0/3"):
        plan_batch_read(replace(alone, shard=Shard(1, 3)), nodes[0])


def test_progress_finds_each_shard_at_its_node(nodes: list[ShardNode]) -> None:
    query = ShardedQuery(nodes)
    receive(nodes, 0, 30)
    query.numbers()
    receive(nodes, 30, 60)
    progress = {"id": "q", "batchId": 0, "sources": [{"endOffset": query.place(0)}]}
    found = join_progress(progress, join_states([node.status() for node in nodes]))
    assert [one.subscription for one in found.inputs] == [f"{SUB}#0", f"{SUB}#1", f"{SUB}#2"]
    assert sum(one.behind for one in found.inputs) == 30


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8), st.integers(8, 2000))
def test_rows_are_split_within_the_limit_and_everybody_who_has_some_gives_some(waiting: list[int], most: int) -> None:
    shares = split_rows(most, waiting)
    assert sum(shares) <= most
    for share, rows in zip(shares, waiting, strict=True):
        assert (share > 0) == (rows > 0)
        assert share <= rows
    if sum(waiting) <= most:
        assert shares == waiting
