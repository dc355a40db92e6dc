"""A router of the tests and what it shares with others; databases for stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.client.store_world import Database, new_postgres_database
from tests.client.wire_server import Network, WireServer
from tests.support.postgres import running_postgresql


@pytest.fixture
async def network() -> Network:
    return Network()


@pytest.fixture
async def server(network: Network) -> AsyncIterator[WireServer]:
    async with WireServer(network) as running:
        yield running


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    with running_postgresql() as address:
        yield address


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgresql"))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database of each kind that stores can be in."""
    if request.param == "sqlite":
        return Database("sqlite", str(tmp_path / "store.db"))
    return new_postgres_database(request.getfixturevalue("postgresql"))
