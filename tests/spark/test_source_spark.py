"""The source in Spark: real sessions, real nodes, real routers. What it does in detail is in test_source.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_process import NodeProcess
from tests.spark.spark_helpers import (
    QUERY_S,
    Names,
    RouterChild,
    checkpoint_batches,
    forget_last_commit,
    node_options,
    publish_numbers,
    wait_until,
)

pytestmark = pytest.mark.spark


class Pipeline:
    """A subscription with messages, and queries that write what they read to files."""

    def __init__(self, spark: Any, router: RouterChild, node: NodeProcess, names: Names, folder: Path) -> None:
        self.spark, self.router, self.node, self.folder = spark, router, node, folder
        self.topic, self.subscription = names.topic, names.subscription
        self.checkpoint = folder / "checkpoint"
        self.client = node.connect()
        self.client.subscribe(self.subscription, [self.topic])
        self.sent = 0

    def send(self, count: int) -> None:
        """Publish the next numbers; they are in the journal when this returns."""
        publish_numbers(self.router.url, self.topic, self.sent, self.sent + count)
        self.sent += count

    def options(self, **given: str) -> dict[str, str]:
        return {"subscribe": self.topic, "subscription": self.subscription, **node_options(self.node), **given}

    def frame(self, **given: str) -> Any:
        return self.spark.readStream.format("amqp").options(**self.options(**given)).load()

    def run(self, **given: str) -> list[dict[str, Any]]:
        """Read what is there; returns the progress of each batch. Rows are added to `rows()`."""

        def keep(frame: Any, batch: int) -> None:
            rows = [(row.offset, bytes(row.value).decode()) for row in frame.collect()]
            (self.folder / f"batch-{batch}.json").write_text(json.dumps(rows))

        writer = self.frame(**given).writeStream.trigger(availableNow=True).foreachBatch(keep)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        try:
            assert query.awaitTermination(QUERY_S), "the query did not end"
            return [json.loads(progress.json) for progress in query.recentProgress]
        finally:
            query.stop()

    def batches(self) -> list[list[int]]:
        """The numbers of each batch that was run, in order."""
        files = sorted(self.folder.glob("batch-*.json"), key=lambda path: int(path.stem[6:]))
        return [[int(value) for _, value in json.loads(path.read_text())] for path in files]

    def failure(self, **given: str) -> str:
        """Run a query that fails; returns what it says."""
        from pyspark.errors import StreamingQueryException

        with pytest.raises(StreamingQueryException) as caught:
            self.run(**given)
        return str(caught.value)


@pytest.fixture
def pipeline(spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path) -> Iterator[Pipeline]:
    found = Pipeline(spark, router, node, names, tmp_path)
    yield found
    found.client.close()


def numbers(start: int, stop: int) -> list[int]:
    return list(range(start, stop))


def test_a_restart_goes_on_and_a_batch_whose_commit_is_forgotten_comes_again_as_it_was(pipeline: Pipeline) -> None:
    pipeline.send(100)
    progress = pipeline.run(maxOffsetsPerTrigger="30", minPartitions="2")
    whole = [numbers(0, 30), numbers(30, 60), numbers(60, 90), numbers(90, 100)]
    assert pipeline.batches() == whole
    place = progress[-1]["sources"][0]["endOffset"][pipeline.subscription]
    assert (place["seq"], place["ends"]) == (100, "90,60")
    (pipeline.folder / "batch-3.json").unlink()
    pipeline.send(30)
    assert forget_last_commit(pipeline.checkpoint) == 3
    pipeline.run(minPartitions="3")
    assert pipeline.batches() == [*whole, numbers(100, 130)]
    assert checkpoint_batches(pipeline.checkpoint) == [0, 1, 2, 3, 4]
    assert pipeline.client.offsets(pipeline.subscription).trimmed == 60  # given up by a task while it was reading


def test_batch_0_comes_again_as_it_was_though_it_began_with_latest(pipeline: Pipeline) -> None:
    pipeline.send(10)
    assert pipeline.client.initial_offset(pipeline.subscription, "latest") == 10
    pipeline.send(5)
    pipeline.run(startingOffsets="latest")
    assert pipeline.batches() == [numbers(10, 15)]
    pipeline.send(5)
    assert forget_last_commit(pipeline.checkpoint) == 0
    pipeline.run(startingOffsets="latest")
    assert pipeline.batches() == [numbers(10, 15), numbers(15, 20)]


def test_an_embedded_node_receives_while_its_query_runs_and_is_owed_the_rest(
    spark: Any, router: RouterChild, names: Names, tmp_path: Path
) -> None:
    options = {
        "subscribe": names.topic,
        "subscription": names.subscription,
        "amqp.urls": router.url,
        "bridge.folder": str(tmp_path / "embedded"),
        "bridge.name": names.node,
    }

    def start() -> Any:
        frame = spark.readStream.format("amqp").options(**options).load().selectExpr("string(value)")
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def rows() -> list[int]:
        return sorted(int(row.value) for row in spark.read.parquet(str(tmp_path / "rows")).collect())

    first = start()
    try:
        wait_until(first, lambda: first.lastProgress is not None)  # batch 0: it is subscribed now
        publish_numbers(router.url, names.topic, 0, 20)
        wait_until(first, lambda: rows() == numbers(0, 20))
    finally:
        first.stop()
    with ThreadPoolExecutor() as threads:
        publishing = threads.submit(publish_numbers, router.url, names.topic, 20, 30)
        second = start()
        try:
            publishing.result(QUERY_S)
            wait_until(second, lambda: rows() == numbers(0, 30))
        finally:
            second.stop()


def test_rows_have_kafkas_columns_and_the_messages_properties(pipeline: Pipeline) -> None:
    pipeline.send(2)
    frame = pipeline.frame(includeHeaders="true")
    assert frame.columns[:8] == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    query = (
        frame.selectExpr("string(value)", "topic", "offset", "timestampType", "producer", "headers", "key")
        .writeStream.format("memory")
        .queryName("seen")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(pipeline.checkpoint))
        .start()
    )
    assert query.awaitTermination(QUERY_S)
    rows = pipeline.spark.table("seen").collect()
    assert [(row.value, row.topic, row.offset, row.timestampType, row.headers, row.key) for row in rows] == [
        ("0", pipeline.topic, 1, 1, None, None),
        ("1", pipeline.topic, 2, 1, None, None),
    ]
    assert all("test-publisher" in row.producer for row in rows)


def test_a_second_query_and_a_new_checkpoint_are_refused_and_the_first_goes_on(pipeline: Pipeline) -> None:
    pipeline.send(10)
    pipeline.run()
    pipeline.checkpoint = pipeline.folder / "another checkpoint"
    said = pipeline.failure()
    assert "reads this subscription" in said
    assert "give each query its own subscription" in said
    pipeline.checkpoint = pipeline.folder / "checkpoint"
    pipeline.send(5)
    pipeline.run()
    assert pipeline.batches() == [numbers(0, 10), numbers(10, 15)]


def test_a_batch_read_gives_what_the_journal_holds(pipeline: Pipeline) -> None:
    pipeline.send(20)

    def read(**given: str) -> list[int]:
        options = {**pipeline.options(), **given}
        del options["subscribe"]
        frame = pipeline.spark.read.format("amqp").options(**options).load()
        return [int(bytes(row.value)) for row in frame.select("value").collect()]

    assert read() == numbers(0, 20)
    assert read(startingOffsets="latest") == []
    assert read(startingOffsets=json.dumps({pipeline.subscription: 5}), minPartitions="3") == numbers(5, 20)


def test_an_option_that_does_not_exist_is_refused_with_the_nearest_one(pipeline: Pipeline) -> None:
    with pytest.raises(Exception, match="did you mean maxOffsetsPerTrigger"):
        pipeline.frame(maxOffsetPerTriger="5")
