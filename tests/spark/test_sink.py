"""The sink in a real session: batches that Spark runs again, owners, batch writes, rows that cannot be sent."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from oncewire.client.transactions.sequencer import Batch, Sequencer
from tests.node.node_process import NodeProcess
from tests.spark.sink_recorder import Recorder
from tests.spark.spark_helpers import Names, RouterChild, forget_last_commit, node_options, run_available

pytestmark = pytest.mark.spark


def write_lines(folder: Path, name: str, *lines: str) -> None:
    """Input of a batch: each file is one (`lines_of`), in the order of their numbers."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    changed_s = 1_700_000_000 + int(name)  # Spark goes by the time of the last change
    os.utime(folder / name, (changed_s, changed_s))


def lines_of(spark: Any, folder: Path) -> Any:
    return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder))


def embedded_options(router: RouterChild, folder: Path) -> dict[str, str]:
    return {"bridge": "embedded", "bridge.folder": str(folder), "bridge.name": "test", "amqp.urls": router.url}


def write_stream(frame: Any, checkpoint: Path, topic: str, **options: str) -> Any:
    return run_available(frame, checkpoint, format="amqp", topic=topic, **options)


def refused(frame: Any, checkpoint: Path, topic: str, **options: str) -> str:
    """Run a query that must fail; returns why, on one line."""
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        write_stream(frame, checkpoint, topic, **options)
    return re.sub(r"\s+", " ", str(caught.value))


@pytest.mark.parametrize("kind", ["node", "embedded"])
def test_a_batch_that_spark_runs_again_publishes_nothing_anew(
    kind: str, spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    """The driver dies between the sink's commit and Spark's own note; rows and partitions differ at the second try."""
    from pyspark.sql.functions import concat, rand

    options = node_options(node) if kind == "node" else embedded_options(router, tmp_path / "embedded")
    for number in range(3):
        write_lines(tmp_path / "in", f"{number}", *(f"{number}.{n}" for n in range(20)))

    def run(partitions: int) -> None:
        frame = lines_of(spark, tmp_path / "in").repartition(partitions, rand())
        frame = frame.select(concat("value", rand().cast("string")).alias("value"))
        write_stream(frame, tmp_path / "checkpoint", names.out, sinkId=names.sink, **options)

    with Recorder(router.url, names.out) as recorder:
        run(1)
        before = recorder.wait(lambda found: len(found) == 60)
        assert forget_last_commit(tmp_path / "checkpoint") == 2
        run(3)
        write_lines(tmp_path / "in", "3", "behind")
        run(2)
        after = recorder.wait(lambda found: len(found) > 60)
    assert after[:60] == before
    assert [re.sub(r"0\..*", "", delivery.text) for delivery in after[60:]] == ["behind"]
    assert [delivery.identity[1] for delivery in after] == list(range(1, 62))


def test_at_least_once_publishes_again_what_is_computed_again(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    write_lines(tmp_path / "in", "0", "a", "b")
    options = {**node_options(node), "sinkId": names.sink, "deliveryGuarantee": "at-least-once"}
    with Recorder(router.url, names.out) as recorder:
        for _ in range(2):
            write_stream(lines_of(spark, tmp_path / "in"), tmp_path / "checkpoint", names.out, **options)
            forget_last_commit(tmp_path / "checkpoint")
        found = recorder.wait(lambda found: len(found) >= 4)
    assert sorted(delivery.text for delivery in found) == ["a", "a", "b", "b"]
    assert len({delivery.identity for delivery in found}) == 4


def test_a_second_query_or_a_new_checkpoint_is_refused_unless_it_takes_over(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    write_lines(tmp_path / "in", "0", "old")
    options = {**node_options(node), "sinkId": names.sink}
    frame = lines_of(spark, tmp_path / "in")
    with Recorder(router.url, names.out) as recorder:
        write_stream(frame, tmp_path / "first", names.out, **options)
        why = refused(frame, tmp_path / "second", names.out, **options)
        assert f"cannot write to sink {names.sink}" in why
        assert "give each query its own sinkId" in why
        assert recorder.texts == ["old"]
        write_stream(frame, tmp_path / "second", names.out, takeover="true", **options)
        assert [delivery.text for delivery in recorder.wait(lambda found: len(found) == 2)] == ["old", "old"]
        write_lines(tmp_path / "in", "1", "late")
        why = refused(lines_of(spark, tmp_path / "in"), tmp_path / "first", names.out, **options)
        assert "has taken the sink over" in why
        assert len(recorder.received) == 2


def test_the_default_sink_is_the_query_itself(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    write_lines(tmp_path / "in", "0", "x")
    with Recorder(router.url, names.out) as recorder:
        query = write_stream(lines_of(spark, tmp_path / "in"), tmp_path / "c", names.out, **node_options(node))
        (delivery,) = recorder.wait(lambda found: len(found) == 1)
    assert delivery.identity[0].startswith(f"{query.id}/0/")


def test_staged_commits_do_not_wait_for_subscribers(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    for number in range(3):
        write_lines(tmp_path / "in", f"{number}", f"{number}")
    options = {**node_options(node, "unix"), "sinkId": names.sink, "commitMode": "staged"}
    with Recorder(router.url, names.out, held=True) as recorder:
        write_stream(lines_of(spark, tmp_path / "in"), tmp_path / "c", names.out, **options)
        with node.connect() as client:
            assert client.status()["sinks"][names.sink]["waiting_manifests"] == 3
        recorder.release()
        assert [delivery.text for delivery in recorder.wait(lambda found: len(found) == 3)] == ["0", "1", "2"]


def test_published_commits_wait_for_subscribers_as_long_as_is_allowed(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    write_lines(tmp_path / "in", "0", "x")
    options = {**node_options(node), "sinkId": names.sink}
    frame = lines_of(spark, tmp_path / "in")
    with Recorder(router.url, names.out, held=True) as recorder:
        why = refused(frame, tmp_path / "c", names.out, publishTimeout="1s", **options)
        assert "batch 0" in why
        assert "not published within publishTimeout (1 s)" in why
        recorder.release()
        write_stream(frame, tmp_path / "c", names.out, **options)
        assert recorder.texts == ["x"]


def test_a_row_that_cannot_be_sent_is_named_and_nothing_of_its_batch_leaves(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    from pyspark.sql.functions import col, lit, when

    write_lines(tmp_path / "in", "0", *(f"row {n}" for n in range(30)))
    topics = when(col("value") == "row 17", lit(None)).otherwise(lit(names.out))
    frame = lines_of(spark, tmp_path / "in").withColumn("topic", topics)
    options = {**node_options(node), "sinkId": names.sink}
    with Recorder(router.url, names.out) as recorder:
        from pyspark.errors import StreamingQueryException

        with pytest.raises(StreamingQueryException) as caught:
            run_available(frame, tmp_path / "c", format="amqp", **options)
        assert f"row 17 of partition 0 in batch 0 cannot be published by sink {names.sink}" in str(caught.value)
        assert "its topic is null or empty" in str(caught.value)
        assert recorder.texts == []
        write_stream(frame, tmp_path / "c", names.out, **options)  # repaired: the option goes before the column
        assert len(recorder.wait(lambda found: len(found) == 30)) == 30


def test_an_atomic_batch_is_read_whole_or_not_at_all(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    for number in range(3):
        write_lines(tmp_path / "in", f"{number}", *(f"{number}.{n}" for n in range(50)))
    frame = lines_of(spark, tmp_path / "in").repartition(3)
    with Recorder(router.url, names.out) as recorder:
        write_stream(frame, tmp_path / "c", names.out, sinkId=names.sink, atomicBatches="true", **node_options(node))
        received = recorder.wait(lambda found: len(found) == 150)
    sequencer: Sequencer[str] = Sequencer()
    commits: list[list[str]] = []
    for position, delivery in enumerate(received, 1):
        step = sequencer.feed(position, delivery.header, delivery.text, float(position))
        for effect in step.effects:
            assert isinstance(effect, Batch)
            commits.append([placed.message for placed in effect.messages])
    assert [sorted(commit) for commit in commits] == [sorted(f"{number}.{n}" for n in range(50)) for number in range(3)]


def test_a_batch_write_with_a_batch_id_is_published_once_however_often_it_runs(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names
) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql.functions import col, lit

    frame = spark.range(40).select(col("id").cast("string").alias("value"), lit("k").alias("key"))
    writer = frame.write.format("amqp").mode("append").options(**node_options(node), topic=names.out, sinkId=names.sink)
    with Recorder(router.url, names.out) as recorder:
        for _ in range(2):
            writer.option("batchId", "7").save()
        assert sorted(recorder.texts, key=int) == [str(n) for n in range(40)]
        properties = recorder.received[0].message.properties
        assert properties is not None
        assert properties.group_id == "k"
        writer.option("batchId", "8").save()
        assert len(recorder.texts) == 80
        with pytest.raises(AnalysisException, match="give a larger batchId"):
            writer.option("batchId", "6").save()
        with pytest.raises(Exception, match="use mode append"):
            writer.option("batchId", "9").mode("overwrite").save()
        assert len(recorder.texts) == 80


def test_batch_writes_without_a_batch_id_are_published_each(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names
) -> None:
    writer = spark.createDataFrame([("x",)], "value string").write.format("amqp").mode("append")
    writer = writer.options(**node_options(node), topic=names.out, sinkId=names.sink)
    with Recorder(router.url, names.out) as recorder:
        writer.save()
        writer.save()
        assert recorder.texts == ["x", "x"]
