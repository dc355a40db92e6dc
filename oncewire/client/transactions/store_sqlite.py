"""A store in a SQLite file: write-ahead log, synchronous=FULL.

The application keeps the tables of its effects in the same file. Other than a journal, the file may be open in two
processes: the later one fences the earlier one off.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from oncewire.client.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreUnusable
from oncewire.client.transactions.store import RENEW_AFTER_S, Row, Store
from oncewire.client.transactions.store_schema import SCHEMA

BUSY_SECONDS = 10.0
"""How long to wait for the other owner's transaction, or another program's."""


class SqliteStore(Store[sqlite3.Connection]):
    """Opens a store and raises its fence.

    Args:
        path: the file; made if it does not exist, readable by its owner only.
        name: distinguishes the stores of one file.
        renew_after: seconds after which a silent output begins a new life.

    Raises:
        StoreLocked: another program holds a transaction open for longer than BUSY_SECONDS.
        StoreCorrupt: it is no SQLite database, is damaged, or another version wrote it.
        StoreUnusable: it cannot be opened or written.

    Next: ``restore`` the sequencers and publish ``unconfirmed``.
    """

    def __init__(self, path: str | Path, name: str, *, renew_after: float = RENEW_AFTER_S) -> None:
        super().__init__(name, renew_after=renew_after)
        self.path = Path(path)
        try:
            # Before SQLite makes it with the process's umask: it holds what the application knows.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self.connection = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
            )
        except (OSError, sqlite3.Error) as error:
            raise self._explain(error) from error
        try:
            self._prepare()
            self._take_over()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        mode = self.run("PRAGMA journal_mode=WAL")[0][0]
        if mode != "wal":
            raise StoreUnusable(
                f"the store {self.path} cannot be opened",
                f"SQLite's write-ahead log does not work there (it answered {mode!r})",
                "put the file on a local disk",
            )
        # FULL: a commit that power loss could undo would break exactly-once.
        self.run("PRAGMA synchronous=FULL")
        self.run("BEGIN IMMEDIATE")
        for statement in SCHEMA:
            self.run(statement)
        self.run("COMMIT")

    def _begin(self) -> None:
        # IMMEDIATE: no later owner can raise the fence from here on, and effects that read before they write cannot
        # find that what they read is too old to write on.
        self.run("BEGIN IMMEDIATE")

    def _commit(self) -> None:
        self.run("COMMIT")

    def _rollback(self) -> None:
        if self.connection.in_transaction:
            with suppress(sqlite3.Error):  # what a rollback cannot undo, the next opening does
                self.connection.execute("ROLLBACK")

    def _is_in_transaction(self) -> bool:
        return self.connection.in_transaction

    def _newest_fence(self) -> int:
        rows = self.run("SELECT fence FROM oncewire_store_fences WHERE store = ?", (self.name,))
        return int(rows[0][0])

    def peek_fence(self) -> int:
        """Read the fence; see Store."""
        try:
            with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS)) as other:
                query = "SELECT fence FROM oncewire_store_fences WHERE store = ?"
                return int(other.execute(query, (self.name,)).fetchone()[0])
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def run(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement; see Store."""
        try:
            return self.connection.execute(statement, tuple(parameters)).fetchall()
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def run_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run one statement for each row; see Store."""
        try:
            self.connection.executemany(statement, rows)
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement of the application; see Store."""
        return self.connection.execute(statement, tuple(parameters)).fetchall()

    def close(self) -> None:
        """Let go of the file; see Store."""
        self._failed = True
        self.connection.close()

    def _explain(self, error: Exception) -> StoreError:
        # The extended code's low byte is the primary one.
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
        what = f"the store {self.path} cannot be used"
        why = (error.strerror if isinstance(error, OSError) else None) or f"SQLite reports: {error}"
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(what, why, "make room on the disk, then open it again")
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return StoreLocked(what, why, "end the program that holds a transaction open on this file")
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            return StoreCorrupt(what, why, "restore the file from a backup")
        return StoreUnusable(what, why, "check that the folder exists and that this user may write there")
