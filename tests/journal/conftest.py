"""Every test that asks for `world` runs on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.journal.journal_world import JournalWorld, journal_world
from tests.store.conftest import servers, sql_database
from tests.store.databases import SqlDatabase

__all__ = ["servers", "sql_database"]


@pytest.fixture
def world(sql_database: SqlDatabase) -> Iterator[JournalWorld]:
    with journal_world(sql_database) as made:
        yield made
