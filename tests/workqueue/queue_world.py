"""Stores of work queues under a clock of the test's own, and the operations one at a time."""

from __future__ import annotations

import importlib
import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bridges.workqueue import Commit, Handle, NewItem, Operations, Rollback, Search, Taken
from bridges.workqueue.items import HistoryEntry
from bridges.workqueue.postgres import PostgresStore
from bridges.workqueue.sqlite import SqliteStore
from bridges.workqueue.store import Store

T = TypeVar("T")
START = 1_790_000_000.0
_names = itertools.count(1)


@dataclass
class Clock:
    """The store's time, moved by the test."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@dataclass
class Database:
    """Where a store is: kind, and file or libpq's words."""

    kind: str
    address: str

    @property
    def url(self) -> str:
        if self.kind == "sqlite":
            return f"sqlite:///{self.address}"
        words = dict(word.split("=", 1) for word in self.address.split())
        return f"postgresql:///{words['dbname']}?host={words['host']}&user={words['user']}"

    def open(self, clock: Clock | None = None, chance: float = 1.0) -> Store:
        if self.kind == "sqlite":
            return (
                SqliteStore(self.address, clock=clock, chance=lambda: chance)
                if clock
                else SqliteStore(self.address)
            )
        return PostgresStore(self.address, clock=clock, chance=lambda: chance)

    def connect(self) -> Any:
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


def new_database(kind: str, folder: Path, server: Callable[[], str]) -> Database:
    """A database that nobody has used."""
    if kind == "sqlite":
        return Database(kind, str(folder / "queue.db"))
    address = server()
    name = f"workqueue_{next(_names)}"
    with closing(
        importlib.import_module("psycopg").connect(f"{address} dbname=postgres", autocommit=True)
    ) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    return Database(kind, f"{address} dbname={name}")


@dataclass
class World:
    """A store with the queue `work`, and each operation as a transaction of its own."""

    database: Database
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store = self.database.open(self.clock)
        self.do(lambda do: do.configure("work"))

    def do(self, job: Callable[[Operations], T]) -> T:
        (result,), _ = self.store.transact([job])
        return result  # type: ignore[no-any-return]

    def configure(self, queue: str = "work", **settings: float) -> None:
        self.do(lambda do: do.configure(queue, **settings))

    def push(self, *payloads: bytes, queue: str = "work", **options: Any) -> list[int]:
        items = [NewItem(payload, **options) for payload in payloads]
        return [pushed.item for pushed in self.do(lambda do: do.push(queue, items))]

    def reserve(self, count: int = 1, timeout: float = 30.0, queue: str = "work") -> list[Taken]:
        return self.do(lambda do: do.reserve(queue, count, timeout))

    def take(self, queue: str = "work", timeout: float = 30.0) -> Handle:
        (taken,) = self.reserve(1, timeout, queue)
        return taken.handle

    def pop(self, count: int = 1, queue: str = "work") -> list[bytes]:
        return [taken.payload for taken in self.do(lambda do: do.pop(queue, count))]

    def commit(self, handle: Handle, result: bytes | None = None, payload: bytes | None = None) -> None:
        self.do(lambda do: do.commit([Commit(handle, result, payload)]))

    def rollback(
        self, handle: Handle, delay: float | None = None, reason: str = "", is_failure: bool = True
    ) -> None:
        self.do(lambda do: do.rollback([Rollback(handle, delay, reason, is_failure)]))

    def history(self, queue: str = "work", **wanted: Any) -> list[HistoryEntry]:
        return list(self.do(lambda do: do.history(Search(queue, **wanted))).entries)
