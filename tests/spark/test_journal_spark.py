"""Journals in Spark: format, options, restarts, limits. What the source does in detail is in test_journal_source.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridges.node.errors import BadRequest
from bridges.spark import connection
from tests.spark.journal_edge import JournalEdge
from tests.spark.query_life import numbers
from tests.spark.spark_helpers import forget_last_commit, run_available, run_query, wait_until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JournalEdge]:
    with JournalEdge(tmp_path_factory.mktemp("edge")) as found:
        found.make("orders")
        yield found


def test_two_queries_read_one_journal_and_each_repeats_what_its_checkpoint_says(
    spark: Any, edge: JournalEdge, tmp_path: Path
) -> None:
    edge.append_numbers("orders", 0, 10)

    def run(name: str, **given: str) -> dict[int, list[str]]:
        """Runs to the end of what is there; returns the rows of each batch."""
        batches: dict[int, list[str]] = {}

        def keep(frame: Any, batch: int) -> None:
            batches[batch] = [bytes(row.value).decode() for row in frame.orderBy("offset").collect()]

        frame = spark.readStream.format("oncewire").options(edge=edge.url, journal="orders", **given).load()
        run_query(frame.writeStream.foreachBatch(keep), tmp_path / name)
        return batches

    first = run("first", startingOffsets="earliest", maxOffsetsPerTrigger="4", minPartitions="2")
    assert first == {0: numbers(0, 4), 1: numbers(4, 8), 2: numbers(8, 10)}
    assert run("late") == {0: []}  # a stream starts at latest, as Kafka's
    edge.append_numbers("orders", 10, 15)
    assert run("late") == {1: numbers(10, 15)}
    assert run("first") == {3: numbers(10, 15)}
    # As if the driver had been killed before Spark noted its commit: the batch is repeated as it was.
    edge.append_numbers("orders", 15, 17)
    assert forget_last_commit(tmp_path / "first") == 3
    assert run("first") == {3: numbers(10, 15), 4: numbers(15, 17)}
    # The same of the first batch, whose beginning Spark asks for again.
    assert run("later") == {0: []}
    assert forget_last_commit(tmp_path / "later") == 0
    edge.append_numbers("orders", 17, 19)
    assert run("later") == {0: [], 1: numbers(17, 19)}


@pytest.mark.slow
def test_a_query_waits_for_an_edge_that_is_killed_and_reads_each_message_once(spark: Any, tmp_path: Path) -> None:
    seen: list[str] = []
    with JournalEdge(tmp_path) as edge:
        edge.make("orders")
        edge.append_numbers("orders", 0, 3000)
        frame = spark.readStream.format("oncewire").options(edge=edge.url, journal="orders")
        frame = frame.options(startingOffsets="earliest", maxOffsetsPerTrigger="100", minPartitions="2").load()

        def keep(rows: Any, _batch: int) -> None:
            seen.extend(bytes(row.value).decode() for row in rows.collect())

        def has_seen(count: int) -> bool:
            return len(seen) >= count

        query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            for kill in range(3):
                wait_until(query, partial(has_seen, 500 * (kill + 1)))
                edge.end()
                edge.append_numbers("orders", 3000 + kill, 3001 + kill)  # its store is there without it
                edge.start(int(edge.url.rpartition(":")[2]))
            wait_until(query, partial(has_seen, 3003))
        finally:
            query.stop()
    assert sorted(seen) == sorted(numbers(0, 3003))


def test_a_journal_is_a_table_for_sql_and_errors_say_what_to_do_first(
    spark: Any, edge: JournalEdge, tmp_path: Path
) -> None:
    edge.make("payments")
    edge.append_numbers("payments", 0, 5)
    spark.sql(f"CREATE TABLE payments USING oncewire OPTIONS (edge '{edge.url}', journal 'payments')")
    try:
        sums = spark.sql("SELECT sum(CAST(CAST(value AS STRING) AS INT)) s, max(offset) o FROM payments").collect()
        assert (sums[0].s, sums[0].o) == (10, 5)
        frame = spark.readStream.option("startingOffsets", "earliest").table("payments")
        query = run_available(frame, tmp_path / "checkpoint")
        assert [progress.numInputRows for progress in query.recentProgress] == [5]
    finally:
        spark.sql("DROP TABLE payments")
    edge.trim("payments", 5)
    edge.append_numbers("payments", 5, 6)
    edge.trim("payments", 6)
    frame = spark.readStream.format("oncewire").options(edge=edge.url, journal="payments").load()
    with pytest.raises(Exception, match="STREAM_FAILED") as caught:
        run_available(frame, tmp_path / "checkpoint")
    assert "cannot be read from position 6" in str(caught.value).split("\n", 1)[0]


def test_a_checkpoint_that_kafkas_connector_has_left_is_refused_in_the_first_line(
    spark: Any, edge: JournalEdge, tmp_path: Path
) -> None:
    edge.make("moved")
    edge.append_numbers("moved", 0, 3)
    frame = spark.readStream.format("oncewire").options(edge=edge.url, journal="moved").load()
    run_available(frame, tmp_path / "checkpoint")
    offsets = tmp_path / "checkpoint" / "offsets" / "0"
    *head, _ = offsets.read_text().splitlines()
    offsets.write_text("\n".join([*head, '{"moved":{"0":3}}']))
    offsets.with_name(".0.crc").unlink()
    with pytest.raises(Exception, match="STREAM_FAILED") as caught:
        run_available(frame, tmp_path / "checkpoint")
    assert "it is of a query of Kafka's connector" in str(caught.value).split("\n", 1)[0]


def test_a_connection_of_the_configuration_is_options_and_one_that_is_missing_is_named(
    spark: Any, edge: JournalEdge
) -> None:
    edge.make("visits")
    edge.append_numbers("visits", 0, 3)
    settings = {"spark.oncewire.shop.edge": edge.url, "spark.oncewire.shop.includeMetadata": "false"}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        given = connection(spark, "shop")
        assert given == {"edge": edge.url, "includeMetadata": "false"}
        frame = spark.read.format("oncewire").options(**given).option("journal", "visits").load()
        assert (frame.count(), "subject" in frame.columns) == (3, False)
        with pytest.raises(BadRequest, match=r"no connection 'shops': .* has shop; set spark\.oncewire\.shops\.edge"):
            connection(spark, "shops")
    finally:
        for key in settings:
            spark.conf.unset(key)
