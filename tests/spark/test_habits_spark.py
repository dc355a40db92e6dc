"""What who comes from Kafka's connector does on the first day: it works, or the first line says what to do instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridges.spark import publish_batches
from tests.node.node_process import NodeProcess
from tests.spark.spark_helpers import (
    Names,
    RouterChild,
    forget_last_commit,
    node_options,
    publish,
    publish_numbers,
    run_available,
    run_query,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def given(node: NodeProcess, names: Names) -> dict[str, str]:
    """Options of a subscription that is there."""
    with node.connect() as client:
        client.subscribe(names.subscription, [names.topic])
    return {**node_options(node), "subscribe": names.topic, "subscription": names.subscription}


def stream(spark: Any, given: dict[str, str], **more: str) -> Any:
    return spark.readStream.format("amqp").options(**given, **more).load()


def first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]


def values(spark: Any, node: NodeProcess, subscription: str) -> list[str]:
    frame = spark.read.format("amqp").options(**node_options(node), subscription=subscription).load()
    return [bytes(row.value).decode() for row in frame.orderBy("offset").collect()]


def test_available_now_ends_with_what_the_watermark_has_closed(
    spark: Any, router: RouterChild, given: dict[str, str], names: Names, tmp_path: Path
) -> None:
    """Spark's last batch has no data: it writes the windows that the data before has closed."""
    publish_numbers(router.url, names.topic, 0, 2)
    publish_numbers(router.url, names.topic, 2, 4)
    counts = stream(spark, given).withWatermark("timestamp", "0 seconds").groupBy("timestamp").count()
    query = run_query(
        counts.writeStream.format("memory").queryName("closed").outputMode("append"), tmp_path / "checkpoint"
    )
    assert [progress.numInputRows for progress in query.recentProgress] == [4, 0]
    written = sum(row["count"] for row in spark.table("closed").collect())
    assert 0 < written < 4  # the newest window stays open


def test_the_first_line_of_an_error_says_what_and_what_to_do(
    spark: Any, router: RouterChild, given: dict[str, str], names: Names, tmp_path: Path
) -> None:
    for more, said in (
        ({"maxOffsetsPerTrigger": "abc"}, "it is no whole number; give a number of messages, from 1"),
        ({"maxOffsetPerTriger": "5"}, "the option 'maxOffsetPerTriger' cannot be used"),
        ({"startingOffsets": '{"sensors": {"0": 5}}'}, f"name subscription '{names.subscription}'"),
    ):
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
            stream(spark, given, **more)
        assert said in first_line(caught.value)
    publish_numbers(router.url, names.topic, 0, 3)
    run_available(stream(spark, given), tmp_path / "first")
    with pytest.raises(Exception, match="STREAM_FAILED") as caught:
        run_available(stream(spark, given), tmp_path / "second")
    assert f"run `oncewire bridge release NODE {names.subscription} --keep`" in first_line(caught.value)


def test_changed_rows_are_published_by_foreach_batch_each_batch_once(
    spark: Any, router: RouterChild, node: NodeProcess, given: dict[str, str], names: Names, tmp_path: Path
) -> None:
    with node.connect() as client:
        client.subscribe(names.results, [names.result])
    counts = stream(spark, given).groupBy("value").count().selectExpr("value key", "string(count) value")
    with pytest.raises(Exception, match="STREAM_FAILED") as caught:
        run_query(
            counts.writeStream.format("amqp").options(**node_options(node), topic=names.result).outputMode("complete"),
            tmp_path / "c",
        )
    assert "use outputMode('update').foreachBatch(publish_batches(...))" in first_line(caught.value)
    with pytest.raises(Exception, match="requirement failed: oncewire does not support Update mode"):
        run_query(
            counts.writeStream.format("oncewire")
            .options(**node_options(node), topic=names.result)
            .outputMode("update"),
            tmp_path / "u",
        )

    def update(checkpoint: str) -> None:
        publishing = publish_batches({**node_options(node), "topic": names.result, "sinkId": names.sink})
        run_query(counts.writeStream.outputMode("update").foreachBatch(publishing), tmp_path / checkpoint)

    publish(router.url, names.topic, ["a", "b", "a"])
    update("checkpoint")
    publish(router.url, names.topic, ["b"])
    update("checkpoint")
    assert sorted(values(spark, node, names.results)) == ["1", "2", "2"]
    forget_last_commit(tmp_path / "checkpoint")
    update("checkpoint")
    assert sorted(values(spark, node, names.results)) == ["1", "2", "2"]
    given["subscription"] = names.another
    counts = stream(spark, given).selectExpr("value")
    with pytest.raises(Exception, match="give each query its own sinkId"):
        update("another")  # its batches have the numbers of the first query's


def test_a_table_of_the_catalog_is_read_and_written_and_a_view_too(
    spark: Any, router: RouterChild, node: NodeProcess, given: dict[str, str], names: Names, tmp_path: Path
) -> None:
    publish_numbers(router.url, names.topic, 0, 2)
    written = {**given, "topic": names.topic, "sinkId": names.sink}
    options = ", ".join(f"'{key}' '{value}'" for key, value in written.items())
    spark.sql(f"CREATE TABLE orders USING amqp OPTIONS ({options})")
    try:
        assert [bytes(row.value) for row in spark.read.table("orders").collect()] == [b"0", b"1"]
        assert spark.read.option("startingOffsets", "latest").table("orders").count() == 0
        spark.sql("INSERT INTO orders (value) VALUES (CAST('2' AS BINARY))")
        query = run_available(spark.readStream.table("orders"), tmp_path / "checkpoint")
        assert sum(progress.numInputRows for progress in query.recentProgress) == 3
        with pytest.raises(Exception, match=r"a table cannot have the option bridge\.secret"):
            spark.sql("CREATE TABLE more USING amqp OPTIONS (bridge 'tcp://a:1', 'bridge.secret' 'hidden')")
    finally:
        spark.sql("DROP TABLE orders")
    options = ", ".join(f"'{key}' '{value}'" for key, value in given.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW recent USING amqp OPTIONS ({options})")
    assert spark.sql("SELECT CAST(value AS STRING) FROM recent ORDER BY offset").collect()[2].value == "2"
