"""A file that one process at a time holds; whatever ends the process, the system lets go of it.

Where there is `flock` that is what holds it, and the file names the process. Elsewhere (Windows) the file is an empty
database in which SQLite holds an exclusive transaction: its lock is the system's, too.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:
    HAS_FLOCK = False
else:
    HAS_FLOCK = True

MODE = 0o600


class HeldElsewhere(Exception):
    """Another process has the lock; `owner` says which, as far as it is known."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


def hold(path: Path) -> Callable[[], None]:
    """Take the lock, and return what lets go of it.

    Raises:
        HeldElsewhere: it is taken, by another process or by this one.
        OSError: the file cannot be opened or written.
    """
    return _hold_by_flock(path) if HAS_FLOCK else _hold_by_sqlite(path)


def _hold_by_flock(path: Path) -> Callable[[], None]:
    lock = os.open(path, os.O_RDWR | os.O_CREAT, MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise HeldElsewhere(f"process {owner}") from error
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        os.close(lock)
        raise
    return lambda: os.close(lock)


def _hold_by_sqlite(path: Path) -> Callable[[], None]:
    with suppress(FileExistsError):
        # One that exists is not opened here: to close it would let go of the locks that this process has on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, MODE))
    try:
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        try:
            database.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error:
            database.close()
            raise
    except sqlite3.Error as error:
        if (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            raise HeldElsewhere("another process") from error
        raise OSError(str(error)) from error
    return database.close
