"""What each `deliveryGuarantee` loses and doubles, of source and sink together, at the same two crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
ROWS = 10


@pytest.fixture(scope="module")
def keeping_node(router: RouterChild, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that keeps messages after they were given up: at-most-once reads them then."""
    folder = tmp_path_factory.mktemp("keeping") / "node"
    with running_node(folder, [router.url], "defaults.retention_s = 3600\n") as process:
        yield process


@pytest.mark.parametrize(
    ("guarantee", "read_and_failed", "decided_and_forgotten"),
    [("exactly-once", 1, 1), ("at-least-once", 1, 2), ("at-most-once", 0, 1)],
)
def test_each_guarantee_loses_and_doubles_what_it_says_at_the_same_crashes(
    guarantee: str,
    read_and_failed: int,
    decided_and_forgotten: int,
    spark: Any,
    router: RouterChild,
    keeping_node: NodeProcess,
    names: Names,
    tmp_path: Path,
) -> None:
    """Batch 0: its task fails when it has read. Batch 1: published, and the driver dies before it has noted that."""
    failed = str(tmp_path / "failed")

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if b"0" in batch.column(0).to_pylist() and not Path(failed).exists():
                Path(failed).touch()
                raise RuntimeError("the first attempt of the first batch has read its rows, and fails")
            yield batch

    given = {"deliveryGuarantee": guarantee, **node_options(keeping_node)}
    with keeping_node.connect() as client:
        client.subscribe(names.subscription, [names.topic])

    def run() -> None:
        frame = (
            spark.readStream.format("amqp")
            .options(**given, subscribe=names.topic, subscription=names.subscription, maxOffsetsPerTrigger=str(ROWS))
            .load()
            .select("value")
            .mapInArrow(fail_once, "value binary")
        )
        run_available(frame, tmp_path / "checkpoint", format="amqp", topic=names.out, sinkId=names.sink, **given)

    with Recorder(router.url, names.out) as recorder:
        publish_numbers(router.url, names.topic, 0, 2 * ROWS)
        run()
        assert Path(failed).exists()
        assert forget_last_commit(tmp_path / "checkpoint") == 1
        run()
        received = Counter(
            int(delivery.text)
            for delivery in recorder.wait(lambda found: len(found) >= ROWS * (read_and_failed + decided_and_forgotten))
        )
    expected = Counter(dict.fromkeys(range(ROWS), read_and_failed))
    expected += Counter(dict.fromkeys(range(ROWS, 2 * ROWS), decided_and_forgotten))
    assert received == +expected
