"""A world in memory, for tests with many examples."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tests.journal.journal_world import JournalWorld, journal_world
from tests.store.databases import SqlDatabase


@contextmanager
def memory_world() -> Iterator[JournalWorld]:
    """A world of its own, gone at the end."""
    with tempfile.TemporaryDirectory() as folder, journal_world(SqlDatabase("sqlite", f"{folder}/edge.db")) as world:
        yield world
