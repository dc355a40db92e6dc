"""The databases of applications as stores of consumers: the application's own statements go over the same connection.

Nothing limits how long these take, and one transaction is a block of the application's instead of a job.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Protocol

from oncewire.client import errors
from oncewire.client.errors import ClientError, StoreUnusable, UsageError
from oncewire.store import postgres, sqlite
from oncewire.store.errors import (
    EdgeError,
    InvalidRequest,
    PartMissing,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreVersionUnknown,
)
from oncewire.store.owners import NOBODY, take_over
from oncewire.store.store import Row
from oncewire.store.transaction import Connection, SqlTransaction

LOCK_SECONDS = 10
"""How long to wait for another owner that is between its check of the fence and the end of its commit."""
_END_TRANSACTIONS = """
SELECT pg_terminate_backend(sessions.pid) FROM pg_locks AS locks JOIN pg_stat_activity AS sessions
ON sessions.pid = locks.pid AND sessions.datname = current_database()
WHERE locks.locktype = 'advisory' AND locks.classid::bigint = ?::bigint AND locks.objid::bigint = ?::bigint
AND locks.objsubid = 1 AND sessions.pid <> pg_backend_pid() AND sessions.state <> 'idle'"""
_KINDS: dict[type[EdgeError], type[ClientError]] = {
    InvalidRequest: UsageError,
    PartMissing: UsageError,
    StoreFull: errors.StoreFull,
    StoreBusy: errors.StoreLocked,
    StoreCorrupt: errors.StoreCorrupt,
    StoreVersionUnknown: errors.StoreCorrupt,
}


@contextmanager
def explained() -> Iterator[None]:
    """Errors of the store become those of the client.

    Raises:
        UsageError: the address cannot be used, or a package is missing.
        StoreError: the database fails.
    """
    try:
        yield
    except EdgeError as error:
        raise _KINDS.get(type(error), StoreUnusable)(error.what, error.why, error.fix) from error


class Database(Connection, Protocol):
    """What a store needs of its database. Errors are those of `oncewire.store`."""

    @property
    def connection(self) -> Any:
        """The driver's own."""

    def begin(self) -> None:
        """Start a transaction."""

    def commit(self) -> None:
        """Make it durable."""

    def rollback(self) -> None:
        """Drop it; raises nothing."""

    def is_in_transaction(self) -> bool:
        """Whether the transaction that was begun is still open."""

    def be_quick(self) -> None:
        """From here on the transaction holds the fence: nobody waits for long because of it."""

    def end_transactions(self, owned: str) -> None:
        """What earlier owners have not committed they never can: let go of the rows that it holds (ST-9)."""

    def run(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        """Run a statement of the application; parameters are ?, errors are the driver's."""

    def peek(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        """Run a query over a connection of its own, in any thread, whatever transaction is open."""

    def close(self) -> None:
        """Let go of it."""


def raise_fence(database: Database, owned: str) -> int:
    """Become the owner; returns its fence. Whoever was it before commits nothing any more, and holds up nobody."""
    database.begin()
    try:
        database.be_quick()
        fence = take_over(SqlTransaction(database, time.time()), owned, NOBODY).epoch
        database.commit()
    except BaseException:
        database.rollback()
        raise
    database.end_transactions(owned)
    return fence


class SqliteFile(sqlite.SqliteStore):
    """A file; see Database."""

    @property
    def connection(self) -> sqlite3.Connection:
        """The driver's own."""
        return self._connection

    def is_in_transaction(self) -> bool:
        """Whether one is open; see Database."""
        return self._connection.in_transaction

    def be_quick(self) -> None:
        """Nothing to do: the transaction has held the whole file from its beginning."""

    def end_transactions(self, owned: str) -> None:
        """Nothing to do: nobody can raise the fence while one is open; see Database."""

    def run(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        """Run a statement of the application; see Database."""
        return self._connection.execute(statement, tuple(parameters)).fetchall()

    def peek(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        """Run a query; see Database."""
        try:
            with closing(sqlite3.connect(self.path, timeout=sqlite.BUSY_SECONDS)) as other:
                return other.execute(statement, tuple(parameters)).fetchall()
        except sqlite3.Error as error:
            raise self._explain(error) from error


class PostgresDatabase(postgres.PostgresStore):
    """A database; see Database. An owner that is paused in the middle of a transaction keeps nobody out of it.

    The fence is locked only while it is checked, right before the commit.
    """

    is_shared = True
    _transaction: Any = None

    @property
    def connection(self) -> Any:
        """The driver's own."""
        return self._connection

    def begin(self) -> None:
        """Start a transaction that psycopg refuses to end inside the application's block; see Database."""
        transaction = self._connection.transaction()
        with self._explained():
            transaction.__enter__()
        self._transaction = transaction

    def commit(self) -> None:
        """Make it durable; see Database."""
        transaction, self._transaction = self._transaction, None
        with self._explained():
            transaction.__exit__(None, None, None)

    def rollback(self) -> None:
        """Drop it; see Database."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            with suppress(self._psycopg.Error):  # the server drops what a broken connection left
                transaction.__exit__(self._psycopg.Rollback, self._psycopg.Rollback(transaction), None)

    def is_in_transaction(self) -> bool:
        """Whether one is open; see Database."""
        status = self._connection.info.transaction_status
        # The next statement reports an error that the block swallowed.
        return status in {self._psycopg.pq.TransactionStatus.INTRANS, self._psycopg.pq.TransactionStatus.INERROR}

    def be_quick(self) -> None:
        """Limit how long this waits for the fence, and others for it if this process stops here; see Database."""
        self.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        self.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{postgres.STOPPED_SECONDS}s'")

    def end_transactions(self, owned: str) -> None:
        """End the sessions of earlier owners that are in the middle of one; see Database."""
        high, low = struct.unpack(">II", hashlib.sha256(owned.encode()).digest()[:8])
        # Shared: nobody waits for it. It says whose sessions these are, for as long as they last.
        self.execute("SELECT pg_advisory_lock_shared((?::bigint << 32) | ?::bigint)", (high, low))
        self.execute(_END_TRANSACTIONS, (high, low))

    def run(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        """Run a statement of the application; see Database."""
        if parameters:
            statement = statement.replace("%", "%%").replace("?", "%s")
        cursor = self._connection.execute(statement, tuple(parameters) or None)
        return list(cursor.fetchall()) if cursor.description is not None else []

    def peek(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        """Run a query; see Database."""
        with self._explained(), self._connect() as other:
            return list(other.execute(statement.replace("?", "%s"), tuple(parameters)).fetchall())
