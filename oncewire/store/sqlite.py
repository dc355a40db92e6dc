"""The default store: one SQLite file, for processes of one machine. No set-up."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from oncewire.store.contents import Contents
from oncewire.store.dialects import SQLITE
from oncewire.store.errors import (
    EdgeError,
    StatementFailed,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnreachable,
    refused_statement,
)
from oncewire.store.migrations import Feature, migrate
from oncewire.store.notices import Notices
from oncewire.store.store import Job, Row

BUSY_SECONDS = 10.0
"""How long to wait for another process that writes: its transactions are short."""
BUSY_PAUSE_S = 0.02
"""Between attempts where SQLite does not wait by itself."""
CACHE_KIB = 16_384
"""A push of 1000 items with random times changes as many pages of an index, 4 MB; SQLite's 2 MB are too few."""
MAX_BYTES = 64 << 30
"""The largest file, unless the address says otherwise (``?max_bytes=N``): a full disk stops more than a store."""
RESERVE_PAGES = 256
"""Beyond max_bytes, for what adds nothing: an item that ends at a full store needs a page before it leaves one."""
_MAKE_ROOM = "make room on the disk, or raise max_bytes in the store's address"
# Primary result code -> what it is for us, and what to do.
_KINDS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: (StoreFull, _MAKE_ROOM),
    sqlite3.SQLITE_BUSY: (StoreBusy, "end the program that holds a transaction open on this file"),
    sqlite3.SQLITE_LOCKED: (StoreBusy, "end the program that holds a transaction open on this file"),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "restore the file from a backup"),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "give the path of a store's file, or of a new one"),
}
for _code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH):
    _KINDS[_code] = (StatementFailed, "correct the statement or its values")
_ELSE = (StoreUnreachable, "check that the folder exists and that this user may write there")


class SqliteConnection:
    """A connection to a file of SQLite as `Connection`: statements in our words, errors in ours.

    Args:
        path: of the file, for errors.
        connection: to it, in autocommit mode.
    """

    dialect = SQLITE

    def __init__(self, path: str | Path, connection: sqlite3.Connection) -> None:
        self.path = Path(path)
        self._connection = connection

    def use(self, features: Sequence[Feature]) -> None:
        """Make the tables of features, or bring them up to date.

        Raises:
            StoreError: the file cannot be used, or is another version's.
        """
        if self._has(features):
            return
        self.begin()
        try:
            migrate(self, str(self.path), features)
            self.commit()
        except BaseException:
            self.rollback()
            raise

    def _has(self, features: Sequence[Feature]) -> bool:
        """Whether nothing is to be changed: whoever opens a file that is used waits for nobody who writes it."""
        if not self.execute("SELECT 1 FROM sqlite_master WHERE name = 'oncewire_versions'"):
            return False
        versions: dict[str, int] = dict(self.execute("SELECT feature, version FROM oncewire_versions"))
        return all(versions.get(feature.name) == len(feature.migrations) for feature in features)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement."""
        try:
            return self._connection.execute(self.dialect.spell(statement), tuple(parameters)).fetchall()
        except (OverflowError, sqlite3.Error) as error:
            raise self._explain(error) from error

    def write(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run one statement whose rows nobody needs."""
        self.execute(statement, parameters)

    def write_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run one statement for each row of parameters."""
        try:
            self._connection.executemany(self.dialect.spell(statement), rows)
        except (OverflowError, sqlite3.Error) as error:
            raise self._explain(error) from error

    def check_room(self) -> None:
        """The file is as large as its disk lets it be; see Connection."""

    def begin(self) -> None:
        """Begin a transaction."""
        # IMMEDIATE: a read that becomes a write later could fail, and there is one writer anyway.
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make it durable."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Drop it; raises nothing."""
        if self._connection.in_transaction:
            with suppress(EdgeError):  # what a rollback cannot undo, the next opening does
                self.execute("ROLLBACK")

    def _explain(self, error: Exception) -> StoreError:
        if isinstance(error, OverflowError):
            return StatementFailed(f"the store {self.path} was not changed", str(error), "use a smaller number")
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF  # the low byte is the primary code
        kind, fix = _KINDS.get(code, _ELSE)
        if kind is StatementFailed:
            return refused_statement(str(error), "SQLite", fix)
        why = f"SQLite says: {error}" if isinstance(error, sqlite3.Error) else str(error)
        return kind(f"the store {self.path} cannot be used", why, fix)


class SqliteStore(SqliteConnection):
    """A store in a file; see Store.

    Args:
        path: the file; made if there is none, readable by its owner only.
        contents: of the store; None = what all have.
        clock: returns Unix time in seconds (W-15).
        max_bytes: of the file; what adds to it then gets StoreFull, and all else has `RESERVE_PAGES` more.

    Raises:
        StoreError: it cannot be opened.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        contents: Contents | None = None,
        clock: Callable[[], float] = time.time,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._contents = contents or Contents()
        self._notices = Notices(self.path)
        try:
            # Before SQLite makes it with the process's umask: it holds payloads. One that exists is not opened here:
            # to close it would let go of the locks that other connections of this process have on it.
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)
        except (OSError, sqlite3.Error) as error:
            raise self._explain(error) from error
        super().__init__(path, connection)
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
        self._max_pages = max(1, max_bytes // page_bytes)
        self.execute(f"PRAGMA max_page_count={self._max_pages + RESERVE_PAGES}")
        self.use(self._contents.features)

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

    def check_room(self) -> None:
        """Refuse what would add to a full file; see Connection."""
        ((pages,),) = self.execute("PRAGMA page_count")
        if pages < self._max_pages:
            return
        ((free,),) = self.execute("PRAGMA freelist_count")
        if pages - free >= self._max_pages:
            raise StoreFull(f"the store {self.path} takes nothing more", "it has reached its max_bytes", _MAKE_ROOM)

    def transact(self, jobs: Sequence[Job]) -> tuple[list[Any], frozenset[str]]:
        """Run jobs in one transaction; see Store."""
        self.begin()
        try:
            operations = self._contents.transaction(self, self._clock())
            results = [job(operations) for job in jobs]
            operations.finish()
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return results, frozenset(operations.touched)

    def break_off(self) -> None:
        """A file has no connection; see Store."""

    def announce(self, names: frozenset[str]) -> None:
        """Notify other processes; see Store."""
        self._notices.send(names)

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
