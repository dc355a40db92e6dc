"""Batch writes without `sinkId` in a real session: each is a new write, and each is published once (O-13)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridges.node.outbox import Outbox
from bridges.spark.options import UNNAMED, sink_options, unnamed_sink
from tests.node.node_process import NodeProcess
from tests.spark.sink_recorder import Recorder
from tests.spark.spark_helpers import Names, RouterChild, node_options

pytestmark = pytest.mark.spark

ROWS = 180
TASKS = 6
"""More than the session has slots: some begin when others are done."""
PADDED = 600_000
"""Octets of a row: a task's rows are more than one body, so it stages some before it has seen them all."""

Work = Callable[[Iterator[Any]], Iterator[Any]]


@pytest.fixture(autouse=True)
def _pickled_by_value() -> Iterator[None]:
    """Functions of this file go to the workers whole: they have no tests to import."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def seen(folder: Path, what: str) -> list[str]:
    return sorted(path.name for path in folder.glob(f"{what}-*"))


def note(folder: Path, what: str) -> int:
    """A task begins; returns the number of its partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    (folder / f"{what}-{context.partitionId()}-{context.taskAttemptId()}").touch()
    return int(context.partitionId())


def noted(folder: Path) -> Work:
    """Of the stage before the shuffle."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        note(folder, "mapped")
        yield from batches

    return work


def faulty(folder: Path) -> Work:
    """The first task fails once, when it has staged; when the second one is done, what was shuffled is lost."""
    import pyarrow as pa

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        partition = note(folder, "written")
        pad = b" " * (PADDED if partition == 0 else 0)
        values = [value for rows in batches for value in rows.column(0).to_pylist()]
        for value in values:
            yield pa.record_batch([pa.array([str(value).encode() + pad], pa.binary())], ["value"])
        if partition == 0 and not (folder / "failed").exists():
            (folder / "failed").touch()
            raise ValueError("the first attempt fails")
        if partition == 1 and not (folder / "lost").exists():
            (folder / "lost").touch()
            for place in os.environ["SPARK_LOCAL_DIRS"].split(","):
                for lost in Path(place).glob("*/shuffle_*"):
                    lost.unlink(missing_ok=True)

    return work


def failing(batches: Iterator[Any]) -> Iterator[Any]:
    """Every attempt fails when it has staged."""
    import pyarrow as pa

    for rows in batches:
        for value in rows.column(0).to_pylist():
            yield pa.record_batch([pa.array([str(value).encode() + b" " * PADDED], pa.binary())], ["value"])
    raise ValueError("it never works")


def save(frame: Any, node: NodeProcess, topic: str, **more: str) -> None:
    frame.write.format("oncewire").options(**node_options(node), topic=topic, **more).mode("append").save()


def staged_bytes(node: NodeProcess) -> int:
    outbox = Outbox(node.folder / "outboxes" / f"{UNNAMED}.db", UNNAMED)
    try:
        return outbox.marks().staged_bytes
    finally:
        outbox.close()


def test_a_batch_write_without_a_sink_is_published_once_though_tasks_and_stages_are_tried_again(
    spark: Any, router: RouterChild, own_node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    before = spark.range(0, ROWS, 1, 2).mapInArrow(noted(tmp_path), "id long")
    frame = before.repartition(TASKS, "id").mapInArrow(faulty(tmp_path), "value binary")
    with Recorder(router.url, names.out) as recorder:
        save(frame, own_node, names.out)
        received = recorder.wait(lambda found: len(found) >= ROWS)
    assert len(seen(tmp_path, "written-0")) > 1, "the first task was not tried again"
    assert len(seen(tmp_path, "mapped")) > 2, "the stage before was not run again"
    assert sorted(int(delivery.text) for delivery in received) == list(range(ROWS))
    assert [delivery.identity[1] for delivery in received] == list(range(1, ROWS + 1))
    assert staged_bytes(own_node) == 0


def test_each_write_without_a_sink_is_a_new_one_of_the_same_producer(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names
) -> None:
    frame = spark.createDataFrame([("x",)], "value string")
    with Recorder(router.url, names.out) as recorder:
        save(frame, node, names.out)
        save(frame, node, names.out)
        received = recorder.wait(lambda found: len(found) >= 2)
    assert [delivery.text for delivery in received] == ["x", "x"]
    assert len({delivery.identity[0] for delivery in received}) == 1
    assert received[0].identity[0].startswith(f"{UNNAMED}/")


def test_a_write_without_a_sink_that_fails_publishes_nothing_and_leaves_nothing(
    spark: Any, router: RouterChild, own_node: NodeProcess, names: Names
) -> None:
    frame = spark.range(0, 30, 1, 1).mapInArrow(failing, "value binary")
    with Recorder(router.url, names.out) as recorder:
        with pytest.raises(Exception, match="it never works"):
            save(frame, own_node, names.out)
        assert staged_bytes(own_node) == 0
        save(spark.createDataFrame([("good",)], "value string"), own_node, names.out)
        recorder.wait(lambda found: len(found) >= 1)
        assert recorder.texts == ["good"]


def test_writes_that_are_published_in_other_ways_have_sinks_of_their_own(tmp_path: Path) -> None:
    given = {"bridge.folder": str(tmp_path), "amqp.urls": "amqp://127.0.0.1:1"}

    def sink(**more: str) -> str:
        return unnamed_sink(sink_options({**given, **more}, is_stream=False))

    assert sink() == sink(deliveryGuarantee="at-least-once") == "unnamed-writes"
    assert sink(deliveryGuarantee="at-most-once", require="2") == "unnamed-writes-at-most-once-require-2"
