"""Every test that asks for `database` or `world` runs on each store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.conftest import SQL, servers
from tests.store.databases import Servers, new_address
from tests.workqueue.queue_world import Database, World, new_world

__all__ = ["servers"]
STORES = [*SQL, pytest.param("mongodb", marks=pytest.mark.needs("mongodb"))]


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Database:
    return Database(request.param, new_address(request.param, tmp_path, servers))


@pytest.fixture(params=SQL)
def sql_database(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Database:
    """For what only stores with transactions can do."""
    return Database(request.param, new_address(request.param, tmp_path, servers))


@pytest.fixture
def mongo_database(tmp_path: Path, servers: Servers) -> Database:
    """For what only a MongoDB store does."""
    return Database("mongodb", new_address("mongodb", tmp_path, servers))


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    with new_world(database) as world:
        yield world


@pytest.fixture
def sql_world(sql_database: Database) -> Iterator[World]:
    with new_world(sql_database) as world:
        yield world


@pytest.fixture
def mongo_world(mongo_database: Database) -> Iterator[World]:
    with new_world(mongo_database) as world:
        yield world
