"""Spark's progress and the node's state in one report."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridges.node.errors import BadRequest
from bridges.spark.progress import join_progress, positions
from tests.node.node_process import NodeProcess
from tests.spark.offline_node import OfflineNode
from tests.spark.spark_helpers import Names, RouterChild, node_options, publish_numbers, run_available

PROGRESS = {
    "id": "q-1",
    "name": "billing",
    "batchId": 7,
    "numInputRows": 30,
    "processedRowsPerSecond": 60.0,
    "durationMs": {"triggerExecution": 500, "addBatch": 400},
    "sources": [
        {"endOffset": {"orders": {"journal": "a", "seq": 90, "ends": "60,30"}}},
        {"endOffset": {"0": 5}},
        {"endOffset": None},
        {"endOffset": "17"},
    ],
}
STATE = {
    "subscriptions": {
        "orders": {
            "last": 100,
            "live_bytes": 4096,
            "is_full": True,
            "messages": {"new": 100, "duplicate": 3},
            "new_incarnations": 1,
            "trouble": "amqp://r:5672: refused",
        },
        "others": {"last": 5},
    },
    "sinks": {
        "s": {
            "query": "q-1",
            "waiting_manifests": 2,
            "waiting_bytes": 99,
            "outcomes": {"accepted": 5},
            "trouble": "no router",
        },
        "t": {"query": "q-2", "waiting_manifests": 0, "waiting_bytes": 0},
    },
}


def test_a_report_says_how_far_a_query_is_behind_and_what_it_waits_for() -> None:
    report = join_progress(PROGRESS, STATE)
    (source,), (sink,) = report.inputs, report.outputs
    assert (report.query, report.batch, report.rows, report.seconds) == ("q-1", 7, 30, 0.5)
    assert (source.subscription, source.position, source.newest, source.behind) == ("orders", 90, 100, 10)
    assert (source.kept_bytes, source.is_full, source.repeats, source.losses) == (4096, True, 3, 1)
    assert (sink.sink, sink.waiting_batches, sink.waiting_bytes, sink.outcomes) == ("s", 2, 99, {"accepted": 5})
    assert report.line() == (
        "query billing batch 7: 30 rows in 0.50 s, 60 rows/s; "
        "orders 10 behind, journal full, deleted by the network 1 times, amqp://r:5672: refused; "
        "sink s 2 batches unpublished, no router"
    )


def test_of_a_journal_spark_knows_how_far_a_query_is_behind() -> None:
    """Also where a subscription of the node has the journal's name."""
    ends = {"orders": {"journal": "b", "seq": 40, "begun": 0}, "new": {"journal": "c", "seq": 2, "begun": 2}}
    newest = {"orders": {"journal": "b", "seq": 55, "begun": 55}, "new": {"journal": "c", "seq": 2, "begun": 2}}
    report = join_progress({**PROGRESS, "sources": [{"endOffset": ends, "latestOffset": newest}]}, STATE)
    assert [(each.subscription, each.position, each.behind) for each in report.inputs] == [
        ("orders", 40, 15),
        ("new", 2, 0),
    ]
    assert "orders 15 behind; new 0 behind" in report.line()


def test_a_node_that_cannot_be_asked_leaves_what_spark_knows() -> None:
    report = join_progress({**PROGRESS, "processedRowsPerSecond": "NaN", "durationMs": {}}, {}, "it is away")
    assert (report.inputs, report.outputs, report.rows_per_s, report.seconds) == ((), (), 0.0, 0.0)
    assert report.line().endswith("the node cannot be asked: it is away")


@pytest.mark.parametrize("offset", [None, 5, "5", [], {}, {"0": 5}, {"a": {"seq": "5"}}, {"a": {"seq": 5}}])
def test_offsets_of_other_sources_are_passed_over(offset: object) -> None:
    assert positions(offset) == {}


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[OfflineNode]:
    with OfflineNode(tmp_path / "node") as found:
        assert isinstance(found, OfflineNode)
        yield found


@pytest.mark.needs("spark")
def test_the_files_of_an_embedded_node_notify_how_far_its_queries_are_behind(offline: OfflineNode) -> None:
    from bridges.spark.listener import AmqpListener

    offline.append_numbers("orders", 0, 120)
    listener = AmqpListener({"amqp.urls": "amqp://127.0.0.1:1", "bridge.folder": str(offline.folder)})
    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=json.dumps(PROGRESS))))
    report = listener.newest("q-1")
    assert report is not None
    assert [(source.subscription, source.behind) for source in report.inputs] == [("orders", 30)]
    assert listener.newest("q-2") is None
    listener.close()


@pytest.mark.needs("spark")
def test_a_listener_needs_the_options_of_its_node_only() -> None:
    from bridges.spark.listener import AmqpListener

    with pytest.raises(BadRequest, match=r"bridge\.folder is missing"):
        AmqpListener({"amqp.urls": "amqp://127.0.0.1:1"})
    AmqpListener({"bridge": "tcp://h:1", "bridge.secret": "0123456789abcdef", "subscribe": "x"}).close()


@pytest.mark.spark
def test_a_query_in_spark_is_reported_with_the_nodes_numbers(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    from bridges.spark.listener import AmqpListener

    with node.connect() as client:
        client.subscribe(names.subscription, [names.topic])
    publish_numbers(router.url, names.topic, 0, 50)
    listener = AmqpListener(node_options(node))
    spark.streams.addListener(listener)
    try:
        options = {"subscribe": names.topic, "subscription": names.subscription, **node_options(node)}
        query = run_available(spark.readStream.format("amqp").options(**options).load(), tmp_path / "checkpoint")
        ends_at = time.monotonic() + 30
        while (report := listener.newest(query.id)) is None:
            assert time.monotonic() < ends_at, "no progress was reported"
            time.sleep(0.02)
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    assert (report.rows, report.node_trouble) == (50, "")
    (source,) = report.inputs
    assert (source.subscription, source.position, source.behind) == (names.subscription, 50, 0)
