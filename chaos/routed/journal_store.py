"""The store of journals: SQLite in memory, and the shipped statements of `bridges.journal` and `bridges.store`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from bridges.journal.contents import JOURNALS
from oncewire.store.dialects import SQLITE
from oncewire.store.migrations import migrate
from oncewire.store.store import Row
from oncewire.store.tables import BASE
from oncewire.store.transaction import SqlTransaction

START = 1_790_000_000.0


@cache
def _spelled(statement: str) -> str:
    return SQLITE.spell(statement)


class SqlConnection:
    """SQLite in memory; see `oncewire.store.transaction.Connection`."""

    dialect = SQLITE

    def __init__(self) -> None:
        self.raw = sqlite3.connect(":memory:", isolation_level=None)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement."""
        return self.raw.execute(_spelled(statement), tuple(parameters)).fetchall()

    def write(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run one statement whose rows nobody needs."""
        self.raw.execute(_spelled(statement), tuple(parameters))

    def write_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run one statement for each row of parameters."""
        self.raw.executemany(_spelled(statement), rows)

    def check_room(self) -> None:
        """Memory has some."""


@cache
def _empty() -> bytes:
    connection = SqlConnection()
    migrate(connection, "memory", (BASE, JOURNALS))
    return connection.raw.serialize()


class JournalStore:
    """What all edges of a run share.

    Attributes:
        now: the step of the run.
        listeners: called with the names that a transaction has touched, once it has committed.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.listeners: dict[str, Callable[[frozenset[str]], None]] = {}
        self._connection = SqlConnection()
        self._connection.raw.deserialize(_empty())

    def peek(self, job: Callable[[Any], Any]) -> Any:
        """Run a job that reads."""
        return job(SqlTransaction(self._connection, START + self.now))

    def transact(self, job: Callable[[Any], Any], skew: float = 0.0) -> Any:
        """Run a job in a transaction, at a time by the clock of who asks."""
        do = SqlTransaction(self._connection, START + self.now + skew)
        self._connection.write("BEGIN")
        try:
            result = job(do)
            do.finish()
        except BaseException:
            self._connection.write("ROLLBACK")
            raise
        self._connection.write("COMMIT")
        names = frozenset(do.touched)
        for listener in list(self.listeners.values()) if names else ():
            listener(names)
        return result

    def close(self) -> None:
        """Free the memory."""
        self._connection.raw.close()
