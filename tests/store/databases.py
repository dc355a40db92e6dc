"""SQLite files and PostgreSQL databases that nobody has used, and what other programs see in them."""

from __future__ import annotations

import importlib
import itertools
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncewire.store.contents import Contents
from oncewire.store.errors import StoreUnreachable
from oncewire.store.postgres import PostgresStore
from oncewire.store.sqlite import SqliteStore
from oncewire.store.store import Job
from tests.support.mongodb import running_mongodb
from tests.support.postgres import running_postgresql

SERVERS = {"postgresql": running_postgresql, "mongodb": running_mongodb}
START = 1_790_000_000.0
_names = itertools.count(1)


@dataclass
class Clock:
    """The store's time, moved by the test."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@dataclass
class SqlDatabase:
    """Where a store is: kind, and file or libpq's words."""

    kind: str
    address: str

    @property
    def url(self) -> str:
        if self.kind == "sqlite":
            return f"sqlite:///{self.address}"
        words = dict(word.split("=", 1) for word in self.address.split())
        return f"postgresql:///{words['dbname']}?host={words['host']}&user={words['user']}"

    def open_with(self, contents: Contents | None = None, clock: Clock | None = None) -> SqliteStore | PostgresStore:
        """Open the store."""
        if self.kind == "sqlite":
            return SqliteStore(self.address, contents=contents, clock=clock or time.time)
        return PostgresStore(self.address, contents=contents, clock=clock)

    def connect(self) -> Any:
        """What another program opens it with."""
        if self.kind == "sqlite":
            return sqlite3.connect(self.address, isolation_level=None, timeout=10)
        return importlib.import_module("psycopg").connect(self.address, autocommit=True)

    def run(self, statement: str) -> None:
        """Run a statement of another program's."""
        with closing(self.connect()) as connection:
            connection.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What another program sees in it."""
        with closing(self.connect()) as connection:
            return [tuple(row) for row in connection.execute(query).fetchall()]

    def versions(self) -> dict[str, int]:
        """Of each feature."""
        return dict(self.rows("SELECT feature, version FROM oncewire_versions"))


class Breaking(SqliteStore):
    """Its connection breaks right after so many of the next commits: they have happened, and nobody knows."""

    breaks = 0

    def transact(self, jobs: Sequence[Job]) -> tuple[list[object], frozenset[str]]:
        done = super().transact(jobs)
        if self.breaks:
            self.breaks -= 1
            raise StoreUnreachable("the store cannot be used", "the connection broke", "do it again")
        return done


class Servers:
    """Database servers, each started by the first test that needs it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._addresses: dict[str, str] = {}

    def __call__(self, kind: str) -> str:
        if kind not in self._addresses:
            self._addresses[kind] = self._stack.enter_context(SERVERS[kind]())
        return self._addresses[kind]


def new_address(kind: str, folder: Path, server: Callable[[str], str]) -> str:
    """The address of a database that nobody has used."""
    if kind == "sqlite":
        return str(folder / "queue.db")
    address = server(kind)
    name = f"store_{next(_names)}"
    if kind == "mongodb":
        return f"{address}/{name}"
    with closing(importlib.import_module("psycopg").connect(f"{address} dbname=postgres", autocommit=True)) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    return f"{address} dbname={name}"
