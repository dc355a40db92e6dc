"""Two nodes that share out a topic, in Spark: real nodes, a real router. The details are in test_sharding.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_process import NodeProcess, running_node
from tests.spark.sink_recorder import Recorder
from tests.spark.spark_helpers import (
    Names,
    RouterChild,
    forget_last_commit,
    node_options,
    publish_numbers,
    run_available,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def nodes(router: RouterChild, names: Names, tmp_path: Path) -> Iterator[list[NodeProcess]]:
    """Two nodes with one secret; each is configured with its shard of the subscription."""
    secret = tmp_path / "secret"
    secret.write_text("a secret of some length\n")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                running_node(
                    tmp_path / f"node-{number}",
                    [router.url],
                    f'secret_file = "{secret}"\n[[subscription]]\nname = "{names.orders}"\n'
                    f'topics = ["{names.orders}"]\nshard = "{number}/2"\n',
                )
            )
            for number in range(2)
        ]


def test_every_row_comes_once_whichever_node_is_killed_and_nodes_in_another_order_are_refused(
    spark: Any, router: RouterChild, nodes: list[NodeProcess], names: Names, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    at = [node.announced["tcp"] for node in nodes]

    def rows(bridge: list[str]) -> Any:
        one = {**node_options(nodes[0]), "bridge": ",".join(bridge)}
        frame = spark.readStream.format("amqp").options(**one, subscribe=names.orders, subscription=names.orders)
        return frame.option("maxOffsetsPerTrigger", 150).load().select("value")

    checkpoint = tmp_path / "checkpoint"
    sink = {"format": "amqp", "topic": names.out, "sinkId": names.out, **node_options(nodes[0])}
    with Recorder(router.url, names.out) as recorder:
        publish_numbers(router.url, names.orders, 0, 400)
        run_available(rows(at), checkpoint, **sink)
        for node in nodes:
            node.restart()
        forget_last_commit(checkpoint)
        publish_numbers(router.url, names.orders, 400, 600)
        query = run_available(rows(at), checkpoint, **sink)
        recorder.wait(lambda found: len(found) >= 600)
        assert sorted(map(int, recorder.texts)) == list(range(600))
        with nodes[0].connect() as first, nodes[1].connect() as second:
            positions = [node.offsets(names.orders).last for node in (first, second)]
        ends = query.lastProgress["sources"][0]["endOffset"]
        reported = json.loads(ends) if isinstance(ends, str) else ends
        assert [reported[f"{names.orders}#{number}"]["seq"] for number in range(2)] == positions
        assert sum(positions) == 600
        assert all(positions)
        with pytest.raises(StreamingQueryException, match=r"as shard 0/2: the node keeps shard 1/2"):
            run_available(rows(at[::-1]), tmp_path / "another", **sink)
