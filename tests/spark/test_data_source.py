"""The format as Spark meets it, without a JVM: which class does what, and what is refused before anything is opened."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from bridges.node.errors import BadRequest
from tests.spark.offline_node import OfflineNode

pytestmark = pytest.mark.needs("spark")

OPTIONS = {
    "amqp.urls": "amqp://127.0.0.1:1",
    "bridge.folder": "/none",
    "subscribe": "orders",
    "subscription": "billing",
}


def source(**given: str) -> Any:
    from bridges.spark.data_source import AmqpDataSource

    return AmqpDataSource({**OPTIONS, **given})


def columns(*names: str) -> Any:
    from pyspark.sql.types import BinaryType, StructField, StructType

    return StructType([StructField(name, BinaryType()) for name in names])


KAFKAS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def test_the_format_is_called_amqp_and_its_columns_follow_the_options() -> None:
    assert source().name() == "amqp"
    assert source(includeMetadata="false").schema().endswith("timestampType int")
    assert "headers array<struct<key:string,value:binary>>" in source(includeHeaders="true").schema()


def test_spark_finds_the_format_by_its_package_and_another_name_is_the_same() -> None:
    import pyspark_oncewire
    from bridges.spark.data_source import AmqpDataSource

    assert pyspark_oncewire.DefaultSource.name() == "oncewire"
    assert issubclass(pyspark_oncewire.DefaultSource, AmqpDataSource)


def test_a_schema_that_somebody_gives_must_be_the_formats_own() -> None:
    from bridges.spark.source import AmqpBatchReader, AmqpStreamReader

    assert isinstance(source(includeMetadata="false").streamReader(columns(*KAFKAS)), AmqpStreamReader)
    assert isinstance(source(includeMetadata="false").reader(columns(*KAFKAS)), AmqpBatchReader)
    for made in (source().streamReader, source().reader):
        with pytest.raises(BadRequest, match=r"leave out \.schema\(\)"):
            made(columns("value"))


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(BadRequest, match="what was published cannot be replaced; use outputMode"):
        source().streamWriter(columns("value"), True)


def test_a_reader_goes_to_its_tasks_without_what_it_has_opened(tmp_path: Path) -> None:
    """Spark pickles readers; sockets, threads and files stay where they are."""
    with OfflineNode(tmp_path) as node:
        assert isinstance(node, OfflineNode)
        node.append_numbers("billing", 0, 5)
        path = {"bridge.folder": str(tmp_path), "includeMetadata": "false"}
        reader = source(**path).streamReader(columns(*KAFKAS))
        journal = node.offsets("billing").journal
        reader.commit({"billing": {"journal": journal, "seq": 0}})  # opens the driver's part
        assert reader._opened is not None
        copy = pickle.loads(pickle.dumps(reader))
        assert copy._opened is None
        from pyspark.sql.datasource import InputPartition

        from bridges.spark.reading import Range

        batches = list(copy.read(InputPartition(Range(journal, 1, 4))))
        assert [value for batch in batches for value in batch.column("value").to_pylist()] == [b"1", b"2", b"3"]
        reader.stop()
        reader.stop()
        batch_reader = source(**path).reader(columns(*KAFKAS))
        (partition,) = batch_reader.partitions()
        assert sum(batch.num_rows for batch in batch_reader.read(partition)) == 5
        assert list(batch_reader.read(InputPartition(None))) == []
