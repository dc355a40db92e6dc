"""What the node's SQLite files share: how they are opened, and SQLite's errors in our words."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from bridges.node.errors import NodeError, OwnedByAnother, StorageError
from oncewire.client import ClientError

BUSY_SECONDS = 10.0
"""How long to wait for another process that writes the same file: its transactions are short."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def open_database(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a file in autocommit mode, made if need be, readable by its owner only.

    A commit is on the disk when it returns (write-ahead log, synchronous=FULL). Any thread may use the connection, one
    at a time.

    Raises:
        StorageError: it cannot be opened, or SQLite's write-ahead log does not work there.
    """
    with storage_errors(path):
        if read_only:
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=BUSY_SECONDS,
            )
        else:
            # Before SQLite makes it with the process's umask: it holds messages.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)
    try:
        with storage_errors(path):
            mode = connection.execute("PRAGMA journal_mode" + ("" if read_only else "=WAL")).fetchone()[0]
            # J-1, J-5, O-2: what a commit has decided no power loss may undo.
            connection.execute("PRAGMA synchronous=FULL")
        if mode != "wal":
            raise StorageError(
                f"{path} cannot be used",
                f"SQLite's write-ahead log does not work there (it answered {mode!r})",
                "put the file on a local disk",
            )
    except BaseException:
        connection.close()
        raise
    return connection


def take_lock(path: Path) -> BinaryIO:
    """Hold PATH.lock until it is closed: the kernel lets go of it whatever kills the process.

    Raises:
        OwnedByAnother: another process, or another part of this one, holds it.
        StorageError: it cannot be made.
    """
    lock_path = path.with_name(path.name + ".lock")
    with storage_errors(lock_path):
        lock = os.fdopen(os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(b"%d\n" % os.getpid())
    except BlockingIOError:
        owner = lock.read(32).decode(errors="replace").strip() or "unknown"
        lock.close()
        raise OwnedByAnother(
            f"{path} cannot be used", f"process {owner} is using it", "stop that process first"
        ) from None
    except OSError as error:
        lock.close()
        raise StorageError(
            f"{lock_path} cannot be used", error.strerror or str(error), "put the file on a local disk"
        ) from error
    return lock


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """A write transaction: durable when the block ends, undone when it raises.

    Raises:
        StorageError: it could not be begun, executed or committed.
    """
    with storage_errors(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                with suppress(sqlite3.Error):  # what a rollback cannot undo, the next opening does
                    connection.execute("ROLLBACK")
            raise


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the system into StorageError."""
    try:
        yield
    except sqlite3.Error as error:
        if isinstance(error, sqlite3.ProgrammingError) and "closed database" in str(error):
            raise StorageError(f"{path} cannot be used", "it was closed meanwhile", "open the node again") from error
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF  # the low byte is the primary code
        raise StorageError(f"{path} cannot be used", f"SQLite reports: {error}", _fix(code)) from error
    except (NodeError, ClientError):  # some of ours are an OSError, too
        raise
    except OSError as error:
        fix = "check that the folder exists and that this user may write there"
        if error.errno in _NO_ROOM:
            fix = "make room on the disk (or raise the limit), then start again"
        raise StorageError(f"{path} cannot be used", error.strerror or str(error), fix) from error


def _fix(code: int) -> str:
    if code == sqlite3.SQLITE_FULL:
        return "make room on the disk, then start again"
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return "end the program that holds a transaction open on this file"
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return "restore the file; with a new one what was in flight is in doubt"
    return "check that the folder exists and that this user may write there"
