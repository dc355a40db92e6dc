"""The default store: one SQLite file, for processes of one machine. No set-up."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bridges.workqueue.errors import (
    QueueError,
    StatementFailed,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnreachable,
)
from bridges.workqueue.notices import Notices
from bridges.workqueue.refusals import refused_statement
from bridges.workqueue.sql_migrations import migrate
from bridges.workqueue.sql_operations import SqlOperations
from bridges.workqueue.sql_schema import SQLITE, VERSION_TABLE
from bridges.workqueue.store import Job, Row

BUSY_SECONDS = 10.0
"""How long to wait for another process that writes: its transactions are short."""
BUSY_PAUSE_S = 0.02
"""Between attempts where SQLite does not wait by itself."""
CACHE_KIB = 16_384
"""A push of 1000 items with random times changes as many pages of an index, 4 MB; SQLite's 2 MB are too few."""
MAX_BYTES = 64 << 30
"""The largest file, unless the address says otherwise (``?max_bytes=N``): a full disk stops more than a queue."""
# Primary result code -> what it is for us, and what to do.
_KINDS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: (StoreFull, "make room on the disk, or raise max_bytes in the store's address"),
    sqlite3.SQLITE_BUSY: (StoreBusy, "end the program that holds a transaction open on this file"),
    sqlite3.SQLITE_LOCKED: (StoreBusy, "end the program that holds a transaction open on this file"),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "restore the file from a backup"),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "give the path of a queue's file, or of a new one"),
}
for _code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH):
    _KINDS[_code] = (StatementFailed, "correct the statement or its values")
_ELSE = (StoreUnreachable, "check that the folder exists and that this user may write there")


class SqliteStore:
    """A store in a file; see Store.

    Args:
        path: the file; made if there is none, readable by its owner only.
        clock: returns Unix time in seconds (W-15).
        chance: returns random numbers, 0 to 1, for jitter.
        max_bytes: the largest the file may become; pushes then get StoreFull.

    Raises:
        StoreError: it cannot be opened.
    """

    dialect = SQLITE

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._chance = chance
        self._notices = Notices(self.path)
        try:
            # Before SQLite makes it with the process's umask: it holds payloads.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
            )
        except (OSError, sqlite3.Error) as error:
            raise self._explain(error) from error
        try:
            self._prepare(max_bytes)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, max_bytes: int) -> None:
        mode = self._use_write_ahead_log()
        if mode != "wal":
            raise StoreUnreachable(
                f"the store {self.path} cannot be used",
                f"SQLite's write-ahead log does not work there (it answered {mode!r})",
                "put the file on a local disk",
            )
        # W-1: what a commit has decided no power loss may undo.
        self.execute("PRAGMA synchronous=FULL")
        self.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        page_bytes = self.execute("PRAGMA page_size")[0][0]
        self.execute(f"PRAGMA max_page_count={max(1, max_bytes // page_bytes)}")
        self._begin()
        try:
            self.execute(VERSION_TABLE)
            migrate(self, str(self.path))
            self.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise

    def _use_write_ahead_log(self) -> str:
        """Returns the journal mode. SQLite fails at once while another process makes the same change."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return str(self.execute("PRAGMA journal_mode=WAL")[0][0])
            except StoreBusy:
                if time.monotonic() > deadline:
                    raise
            time.sleep(BUSY_PAUSE_S)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement."""
        try:
            return self._connection.execute(self.dialect.spell(statement), tuple(parameters)).fetchall()
        except OverflowError as error:
            raise StatementFailed(
                f"the store {self.path} was not changed", str(error), "use a smaller number"
            ) from error
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def write(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run one statement whose rows nobody needs."""
        self.execute(statement, parameters)

    def transact(self, jobs: Sequence[Job]) -> tuple[list[Any], frozenset[str]]:
        """Run jobs in one transaction; see Store."""
        self._begin()
        try:
            operations = SqlOperations(self, self._clock(), self._chance)
            results = [job(operations) for job in jobs]
            operations.finish()
            self.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise
        return results, frozenset(operations.touched)

    def _begin(self) -> None:
        # IMMEDIATE: a read that becomes a write later could fail, and there is one writer anyway.
        self.execute("BEGIN IMMEDIATE")

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            with suppress(QueueError):  # what a rollback cannot undo, the next opening does
                self.execute("ROLLBACK")

    def announce(self, queues: frozenset[str]) -> None:
        """Notify other processes; see Store."""
        self._notices.send(queues)

    def open_notices(self) -> int:
        """Receive notices; see Store."""
        try:
            return self._notices.open()
        except OSError as error:
            raise self._explain(error) from error

    def read_notices(self) -> frozenset[str]:
        """Return what was announced; see Store."""
        return self._notices.read()

    def close(self) -> None:
        """Release the file; see Store."""
        self._notices.close()
        self._connection.close()

    def _explain(self, error: Exception) -> StoreError:
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF  # the low byte is the primary code
        kind, fix = _KINDS.get(code, _ELSE)
        if kind is StatementFailed:
            return refused_statement(str(error), "SQLite", fix)
        why = f"SQLite says: {error}" if isinstance(error, sqlite3.Error) else str(error)
        return kind(f"the store {self.path} cannot be used", why, fix)
