"""Every test that asks for `sql_database` runs on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.store.databases import Servers, SqlDatabase, new_address

SQL = ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(params=SQL)
def sql_database(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> SqlDatabase:
    return SqlDatabase(request.param, new_address(request.param, tmp_path, servers))
