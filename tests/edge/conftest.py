"""Routers and stores for edges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.store.databases import Servers, new_address
from tests.workqueue.queue_world import Database


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture
def postgres(servers: Servers, tmp_path: Path) -> Database:
    """A PostgreSQL database that nobody has used."""
    return Database("postgresql", new_address("postgresql", tmp_path, servers))


@pytest.fixture
def sqlite(tmp_path: Path, servers: Servers) -> Database:
    """A SQLite file that nobody has made."""
    return Database("sqlite", new_address("sqlite", tmp_path, servers))
