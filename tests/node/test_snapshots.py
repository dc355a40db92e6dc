"""Where a processor's attempts begin and end: decided once, durable, each where the one before it ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bridges.node.embedded import EmbeddedNode
from bridges.node.errors import BadRequest, SnapshotUnknown
from bridges.node.interface import Node
from bridges.node.model import NodeSettings
from bridges.node.outbox import Outbox
from bridges.node.snapshots import KEPT_SNAPSHOTS, MAX_SNAPSHOT_TEXT
from tests.node.node_process import running_node

NO_ROUTER = "amqp://127.0.0.1:1"


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with closing(Outbox(tmp_path / "p.db", "p")) as opened:
        yield opened


def test_the_first_end_of_an_attempt_is_the_end_of_all_its_repeats(outbox: Outbox) -> None:
    assert outbox.choose_snapshot("0", "5") == "5"
    assert outbox.choose_snapshot("0", "9") == "5"
    with closing(Outbox(outbox.path, "p")) as another_process:
        assert another_process.choose_snapshot("0", "7") == "5"
        assert another_process.choose_snapshot("5", "7") == "7"
    assert outbox.choose_snapshot("5", "6") == "7"


def test_an_attempt_begins_where_the_one_before_it_ended(outbox: Outbox) -> None:
    outbox.choose_snapshot("0", "5")
    for start in ("4", "6"):
        with pytest.raises(SnapshotUnknown, match="its newest attempt ended at 5"):
            outbox.choose_snapshot(start, "8")
    assert outbox.choose_snapshot("5", "8") == "8"


def test_an_attempt_of_nothing_is_refused(outbox: Outbox) -> None:
    with pytest.raises(BadRequest, match="cannot attempt nothing"):
        outbox.choose_snapshot("0", "0")


def test_old_attempts_are_forgotten_and_refused(outbox: Outbox) -> None:
    for place in range(KEPT_SNAPSHOTS + 5):
        outbox.choose_snapshot(str(place), str(place + 1))
    with closing(sqlite3.connect(outbox.path)) as database:
        (count,) = database.execute("SELECT count(*) FROM node_snapshots").fetchone()
    assert count == KEPT_SNAPSHOTS
    assert outbox.choose_snapshot("5", "99") == "6"
    with pytest.raises(SnapshotUnknown):
        outbox.choose_snapshot("4", "5")


def choose(node: Node) -> None:
    """The same for each kind of node."""
    assert node.choose_snapshot("p", '{"a":1}', '{"a":2}') == '{"a":2}'
    assert node.choose_snapshot("p", '{"a":1}', '{"a":3}') == '{"a":2}'
    with pytest.raises(SnapshotUnknown):
        node.choose_snapshot("p", '{"a":1.5}', '{"a":3}')


def test_an_embedded_node_decides_attempts(tmp_path: Path) -> None:
    with EmbeddedNode(NodeSettings("node", tmp_path, (NO_ROUTER,))) as node:
        choose(node)


def test_a_remote_node_decides_attempts_and_is_killed_in_between(tmp_path: Path) -> None:
    with running_node(tmp_path / "node", [NO_ROUTER]) as process, process.connect() as node:
        choose(node)
        process.restart()
        assert node.choose_snapshot("p", '{"a":1}', '{"a":4}') == '{"a":2}'
        assert node.choose_snapshot("p", '{"a":2}', "x" * MAX_SNAPSHOT_TEXT) == "x" * MAX_SNAPSHOT_TEXT
        with pytest.raises(BadRequest, match="'stop' of the request"):
            node.choose_snapshot("p", "y", "x" * (MAX_SNAPSHOT_TEXT + 1))
