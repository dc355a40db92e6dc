"""Staging and committing without a JVM: sizes of what is staged, rows that are named, what a batch waits for."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridges.node.arrow_bodies import decode_rows
from bridges.node.embedded import EmbeddedNode
from bridges.node.errors import BadRequest
from bridges.node.model import NodeSettings, StagedPart, Writer
from bridges.node.outbox import Outbox
from bridges.spark import staging
from bridges.spark.options import SinkOptions, sink_options
from bridges.spark.staging import Attempt, NotPublished, Staging, check_sink, commit_batch, stage_batches, writer_of
from oncewire.wire import encode_data_message

QUERY, RUN = "query", "run"


def options_of(folder: Path, **more: str) -> SinkOptions:
    given = {"bridge.folder": str(folder), "amqp.urls": "amqp://127.0.0.1:1", "sinkId": "sink", **more}
    return sink_options(given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "node"


def node_in(folder: Path) -> EmbeddedNode:
    return EmbeddedNode(NodeSettings("node", folder, ("amqp://127.0.0.1:1",)))


def attempt(name: str = "a", batch: int = 3, partition: int = 1) -> Attempt:
    return Attempt("sink", Writer(QUERY, RUN), batch, partition, name)


def rows(**columns: list[Any]) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def bodies(folder: Path) -> list[list[str]]:
    """Values of each staged body, in order."""
    outbox = Outbox(folder / "outboxes" / "sink.db", "sink")
    with outbox._file.looking() as do:
        found = do.execute(
            "SELECT body FROM node_bodies JOIN node_parts ON id = part ORDER BY partition, attempt, chunk"
        )
    outbox.close()
    return [[payload[5:].decode() for payload in decode_rows(body).payloads] for (body,) in found]


def test_a_task_stages_its_rows_in_bodies_of_limited_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(encode_data_message(b"0"))
    monkeypatch.setattr(staging, "CHUNK_BYTES", 3 * size)
    with node_in(folder) as node:
        collected = Staging(node, attempt(), 1.0)
        for group in ("01", "2", "345678"):
            payloads = [encode_data_message(value.encode()) for value in group]
            collected.add(["out"] * len(payloads), payloads)
        assert collected.finish() == StagedPart(1, "a", 3, 9)
    assert bodies(folder) == [["0", "1", "2"], ["3", "4", "5"], ["6", "7", "8"]]


def test_a_task_without_rows_stages_nothing_and_its_batch_is_done(folder: Path) -> None:
    options = options_of(folder, topic="out")
    with node_in(folder) as node:
        part = stage_batches(node, attempt(), options, iter([rows(value=[b"x"]).slice(0, 0)]))
        assert part == StagedPart(1, "a", 0, 0)
        assert commit_batch(node, options, "sink", Writer(QUERY, RUN), 3, [part]).is_done


def test_what_is_staged_for_a_decided_batch_is_read_and_dropped(folder: Path) -> None:
    options = options_of(folder, topic="out")
    with node_in(folder) as node:
        node.commit("sink", Writer(QUERY, RUN), 3, [])
        batches = iter([rows(value=[b"x"]), rows(value=[b"y"])])
        stage_batches(node, attempt(), options, batches)
        assert next(batches, None) is None
    assert bodies(folder) == []


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"value": [b"", b"", b""], "topic": ["a", "b", None]}, "its topic is null or empty"),
        ({"value": [b"", b"", b""], "topic": ["a", "b", "c|d"]}, "'c|d' is no topic: it has no '|'"),
        ({"value": [b"", b"", b""], "topic": ["a", "b", "c.#"]}, "'c.#' is no topic: it is a pattern"),
        ({"value": [b"", b"", b""], "topic": ["a", "b", "c" * 256]}, "it has 1 to 255 bytes"),
        ({"value": [b"", b"", b""], "topic": ["a", "b", "." * 16]}, "it has 16 parts at most"),
        ({"value": [b"", b"", b"x" * 200], "topic": ["a", "b", "c"]}, "the message has 205 bytes, 100 are allowed"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(
    folder: Path, columns: dict[str, list[Any]], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MAX_ROW_BYTES", 100)
    good = rows(value=[b"1"] * 10, topic=["a"] * 10)
    with node_in(folder) as node, pytest.raises(BadRequest) as caught:
        stage_batches(node, attempt(), options_of(folder), [good, rows(**columns)])
    assert str(caught.value).startswith("row 12 of partition 1 in batch 3 cannot be published by sink sink: ")
    assert fault in str(caught.value)


def test_a_batch_says_what_it_waits_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(staging, "ASK_S", 0.05)
    options = options_of(folder, topic="out", publishTimeout="500ms")
    with node_in(folder) as node, caplog.at_level(logging.WARNING, "oncewire.bridge"):
        part = stage_batches(node, attempt(), options, [rows(value=[b"x"])])
        for _ in range(2):  # the second time the batch is decided
            with pytest.raises(NotPublished, match="start the query again, it resumes where it was"):
                commit_batch(node, options, "sink", Writer(QUERY, RUN), 3, [part])
    assert "batch 3 of sink sink waits to be published" in caplog.text


@pytest.mark.needs("spark")
@pytest.mark.parametrize("is_decided", [True, False])
def test_an_abort_takes_nothing_back_whether_the_batch_was_decided_or_not(folder: Path, is_decided: bool) -> None:
    """O-6: Spark calls abort behind a commit that raised, and its next run commits the same batch again."""
    from pyspark.sql.types import StructType

    from bridges.spark.sink import AmqpStreamWriter, StagedMessage

    given = {"bridge.folder": str(folder), "amqp.urls": "amqp://127.0.0.1:1", "sinkId": "sink", "topic": "out"}
    options = options_of(folder, topic="out", publishTimeout="10ms")
    writer = AmqpStreamWriter(given, StructType().add("value", "binary"))
    with node_in(folder) as node:
        part = stage_batches(node, attempt(), options, [rows(value=[b"x", b"y"])])
        if is_decided:
            with pytest.raises(NotPublished):
                commit_batch(node, options, "sink", Writer(QUERY, RUN), 3, [part])
        writer.abort([StagedMessage("sink", QUERY, RUN, part), None], 3)
        assert bodies(folder) == [["x", "y"]]
        found = node.commit("sink", Writer(QUERY, RUN), 3, [part])
        assert (found.is_first, found.rows) == (not is_decided, 2)


def test_staged_commits_need_a_node_that_lives_on(folder: Path) -> None:
    with pytest.raises(BadRequest, match="would not be published"):
        check_sink(options_of(folder, commitMode="staged"))
    away = {"bridge": "tcp://node:7072", "bridge.secret": "0123456789abcdef", "commitMode": "staged"}
    check_sink(sink_options(away))


@pytest.mark.parametrize(
    ("guarantee", "repeats", "resends"),
    [("exactly-once", False, True), ("at-least-once", True, True), ("at-most-once", False, False)],
)
def test_guarantees_differ_in_what_comes_again(folder: Path, guarantee: str, repeats: bool, resends: bool) -> None:
    options = options_of(folder, deliveryGuarantee=guarantee, atomicBatches="true")
    assert writer_of(options, QUERY, RUN) == Writer(QUERY, RUN, takeover=False, repeats=repeats)
    publishing = staging.publishing_of(options)
    assert (publishing.resends_in_doubt, publishing.is_atomic) == (resends, True)
