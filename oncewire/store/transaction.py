"""One transaction of a SQL store, as jobs get it. A feature with methods of its own extends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from oncewire.store.dialects import Dialect
from oncewire.store.rules_core import to_us
from oncewire.store.store import Row

T = TypeVar("T")

CHUNK = 200
"""Ids or rows of one statement: far below SQLite's limit of parameters, and few round trips."""


class Connection(Protocol):
    """A database connection inside a transaction."""

    dialect: Dialect

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement, ``?`` for parameters; errors of the driver come as StoreError."""
        ...

    def write(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run one statement whose rows nobody needs; its error may come with a later statement or the commit."""
        ...

    def write_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run one statement for each row of parameters, as `write` does."""
        ...

    def check_room(self) -> None:
        """Refuse, with StoreFull, what would add to a store that has reached its limit."""
        ...


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield ids or rows in the portions of one statement."""
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]


class SqlTransaction:
    """One transaction of a SQL store; see Transaction.

    Args:
        connection: inside a transaction.
        now: time of the transaction (W-15).
    """

    def __init__(self, connection: Connection, now: float) -> None:
        self.now = now
        self.touched: set[str] = set()
        self._now_us = to_us(now)
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement; see Transaction."""
        return self._connection.execute(statement, parameters)

    def write(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement whose rows nobody needs; see Transaction."""
        self._connection.write(statement, parameters)

    def write_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a statement for each row; see Transaction."""
        self._connection.write_many(statement, rows)

    def check_room(self) -> None:
        """Refuse to add to a full store; see Transaction."""
        self._connection.check_room()

    def finish(self) -> None:
        """Do what is left to do before the transaction commits: here nothing."""
