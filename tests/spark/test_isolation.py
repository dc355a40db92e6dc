"""`isolationLevel` of the source: what a query sees of transactions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bridges.node.errors import BadRequest
from bridges.spark.options import source_options
from bridges.spark.reading import plan_batch_read
from oncewire.client import Message, connect
from oncewire.client.isolation import Isolation
from oncewire.client.transactions.sequence_header import Producer, ProducerId, SequenceHeader
from tests.client.shell_helpers import LONG
from tests.node.node_process import NodeProcess
from tests.spark.offline_node import OfflineNode
from tests.spark.query_life import Query, options
from tests.spark.spark_helpers import Names, RouterChild, node_options


async def _send(url: str, topic: str, messages: list[tuple[bytes, SequenceHeader | None]]) -> None:
    async with connect(url) as client, await client.publisher(topic) as publisher:
        for body, header in messages:
            annotations = {} if header is None else header.annotations()
            await publisher.send(Message(body, annotations=annotations), timeout=LONG)


def test_the_level_is_that_of_the_option_and_none_leaves_it_to_the_subscription() -> None:
    given = {"amqp.urls": "amqp://h", "bridge.folder": "/none", "subscribe": "orders", "subscription": "s"}
    assert source_options(given).isolation is None
    assert source_options({**given, "isolationLevel": "read_committed"}).isolation is Isolation.READ_COMMITTED


def test_a_planner_subscribes_with_the_level(tmp_path: Path) -> None:
    node = OfflineNode(tmp_path)
    Query(node, isolationLevel="read_committed").planner.initial()
    assert node.isolation is Isolation.READ_COMMITTED


def test_a_batch_read_has_no_level_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="a batch read"):
        plan_batch_read(options(isolationLevel="read_committed"), OfflineNode(tmp_path))


@pytest.mark.spark
def test_a_query_of_committed_messages_gets_no_pending_and_no_rolled_back_row(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    frame = (
        spark.readStream.format("amqp")
        .options(
            subscribe=names.topic, subscription=names.committed, isolationLevel="read_committed", **node_options(node)
        )
        .load()
    )
    rows: list[bytes] = []

    def read() -> list[bytes]:
        rows.clear()

        def keep(batch: Any, number: int) -> None:
            rows.extend(bytes(row.value) for row in batch.orderBy("offset").collect())

        writer = frame.writeStream.trigger(availableNow=True).foreachBatch(keep)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(300)
        return list(rows)

    assert read() == []  # subscribed now
    writer, other = Producer(ProducerId("writer", 1)), Producer(ProducerId("other", 1))
    asyncio.run(
        _send(
            router.url,
            names.topic,
            [
                (b"pending 1", writer.pending()),
                (b"never", other.pending()),
                (b"plain", None),
                (b"pending 2", writer.pending()),
                (b"", other.rollback()),
            ],
        )
    )
    assert read() == [b"plain"]
    asyncio.run(_send(router.url, names.topic, [(b"other", other.alone()), (b"", writer.ack())]))
    assert read() == [b"other", b"pending 1", b"pending 2"]
    with node.connect() as client:
        with pytest.raises(BadRequest, match="has the level read_committed"):
            client.subscribe(names.committed, [names.topic], Isolation.READ_UNCOMMITTED)
        assert client.status()["subscriptions"][names.committed]["isolation"] == "read_committed"


@pytest.mark.spark
def test_an_atomic_batch_of_a_sink_comes_whole_to_a_query_of_committed_messages(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    with node.connect() as client:
        client.subscribe(names.rows, [names.topic], Isolation.READ_COMMITTED)
    frame = spark.range(0, 500, 1, 4).selectExpr("cast(id as string) as value")
    frame.write.format("amqp").mode("append").options(
        topic=names.topic, sinkId=names.sink, batchId="1", atomicBatches="true", **node_options(node)
    ).save()
    read = spark.read.format("amqp").options(subscription=names.rows, **node_options(node)).load()
    assert sorted(int(bytes(row.value)) for row in read.collect()) == list(range(500))
