"""Every test that asks for `database` or `world` runs on each store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.postgres import running_postgresql
from tests.workqueue.queue_world import Database, World, new_database

STORES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))]


class Server:
    """A PostgreSQL server, started by the first test that needs it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._address = ""

    def __call__(self) -> str:
        self._address = self._address or self._stack.enter_context(running_postgresql())
        return self._address


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    with ExitStack() as stack:
        yield Server(stack)


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path, postgresql_server: Server) -> Database:
    return new_database(request.param, tmp_path, postgresql_server)


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    world = World(database)
    yield world
    world.store.close()
