"""Every test that asks for `database` or `world` runs on each store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.mongodb import running_mongodb
from tests.support.postgres import running_postgresql
from tests.workqueue.queue_world import Database, World, new_database, new_world

SERVERS = {"postgresql": running_postgresql, "mongodb": running_mongodb}
SQL = ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))]
STORES = [*SQL, pytest.param("mongodb", marks=pytest.mark.needs("mongodb"))]


class Servers:
    """Database servers, each started by the first test that needs it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._addresses: dict[str, str] = {}

    def __call__(self, kind: str) -> str:
        if kind not in self._addresses:
            self._addresses[kind] = self._stack.enter_context(SERVERS[kind]())
        return self._addresses[kind]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Database:
    return new_database(request.param, tmp_path, servers)


@pytest.fixture(params=SQL)
def sql_database(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Database:
    """For what only stores with transactions can do."""
    return new_database(request.param, tmp_path, servers)


@pytest.fixture
def mongo_database(tmp_path: Path, servers: Servers) -> Database:
    """For what only a MongoDB store does."""
    return new_database("mongodb", tmp_path, servers)


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
