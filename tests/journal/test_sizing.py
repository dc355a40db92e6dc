"""What a journal takes on disk, as docs/how-to/sizing.md says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridges.journal import log
from tests.journal.journal_world import NAME, JournalWorld, journal_world
from tests.store.databases import SqlDatabase

PORTION = 1_000
LITTLE = 1 << 18
"""Bytes of tables and of pages that are not full."""


def fill(world: JournalWorld, body_bytes: int, count: int) -> None:
    for _ in range(0, count, PORTION):
        world.append(*["x" * body_bytes] * min(PORTION, count))


@pytest.mark.parametrize(
    ("body_bytes", "count"), [(10, 8_000), (100, 8_000), (1_000, 3_000), (2_100, 2_000), (9_000, 500)]
)
def test_a_file_takes_no_more_than_twice_what_its_journals_count(tmp_path: Path, body_bytes: int, count: int) -> None:
    file = tmp_path / "edge.db"
    with journal_world(SqlDatabase("sqlite", str(file))) as world:
        world.make()
        fill(world, body_bytes, count)
        counted = world.do(lambda do: log.state(do, NAME)).kept_bytes
    assert counted >= count * body_bytes
    assert file.stat().st_size <= 2 * counted + LITTLE


def test_what_is_trimmed_leaves_room_in_the_file_that_later_messages_take(tmp_path: Path) -> None:
    file = tmp_path / "edge.db"
    with journal_world(SqlDatabase("sqlite", str(file))) as world:
        world.make(max_messages=4_000, max_bytes=1 << 30)
        fill(world, 1_000, 5_000)
        while world.do(lambda do: log.maintain(do, NAME)):
            pass
        world.store.close()
        full = file.stat().st_size
        assert full >= 5_000 * 1_000, "it has not shrunk"
    with journal_world(SqlDatabase("sqlite", str(file))) as world:
        for _ in range(4):
            fill(world, 1_000, 1_000)
            while world.do(lambda do: log.maintain(do, NAME)):
                pass
    assert file.stat().st_size <= full + LITTLE
