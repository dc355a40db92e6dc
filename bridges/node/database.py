"""The node's files: stores of an edge (`oncewire.store`) in SQLite, one for each subscription and sink."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bridges.node.errors import BadRequest, StorageError
from oncewire.store.contents import Contents
from oncewire.store.errors import EdgeError, InvalidRequest, closed_store
from oncewire.store.migrations import Feature
from oncewire.store.sqlite import SqliteConnection, SqliteStore
from oncewire.store.transaction import SqlTransaction

NO_LIMIT = 1 << 43
"""Bytes of a file: journals and outboxes have limits of their own."""


class _Contents(Contents):
    """The tables of some features and no others."""

    def __init__(self, features: Sequence[Feature]) -> None:
        super().__init__()
        self.features = tuple(features)


class NodeFile:
    """A file, for any thread: one at a time is in a block.

    Args:
        file: the file, with its tables.

    Attributes:
        file: the same.
    """

    def __init__(self, file: SqliteConnection) -> None:
        self.file = file
        self._lock = threading.RLock()
        """Held while the handle is used, so that none is closed in the middle of a statement."""
        self._is_closed = False

    @contextmanager
    def using(self) -> Iterator[None]:
        """Whatever is done with the file, by one thread at a time.

        Raises:
            StorageError: it failed, or the file was closed.
        """
        with self._lock, storage_errors():
            if self._is_closed:
                raise closed_store()
            yield

    @contextmanager
    def transaction(self, now: float | None = None) -> Iterator[SqlTransaction]:
        """A transaction that writes: durable when the block ends, undone when it raises; `now` None = the clock's.

        Raises:
            StorageError: it could not be begun, executed or committed.
        """
        with self.using():
            self.file.begin()
            try:
                yield self.inside(now)
                self.file.commit()
            except BaseException:
                self.file.rollback()
                raise

    @contextmanager
    def looking(self) -> Iterator[SqlTransaction]:
        """Statements that only read, each for itself.

        Raises:
            StorageError: one could not be executed.
        """
        with self.using():
            yield self.inside()

    def inside(self, now: float | None = None) -> SqlTransaction:
        """What is done in a transaction that somebody else has begun on the connection; errors are the store's."""
        return SqlTransaction(self.file, time.time() if now is None else now)

    def close(self) -> None:
        """Let go of a file that `open_file` opened, when what another thread does there has ended."""
        assert isinstance(self.file, SqliteStore)
        with self._lock:
            self._is_closed = True
            self.file.close()


def open_file(path: Path, *features: Feature) -> NodeFile:
    """Open a file, made if need be, readable by its owner only; a commit is on the disk when it returns.

    Raises:
        StorageError: it cannot be opened, or another version of Oncewire made it.
    """
    with storage_errors():
        return NodeFile(SqliteStore(path, contents=_Contents(features), max_bytes=NO_LIMIT))


def adopted(connection: sqlite3.Connection, path: Path, *features: Feature) -> NodeFile:
    """Make the file of a connection that somebody else has opened, and closes, a file of the node.

    Raises:
        StorageError: it cannot be used, or another version of Oncewire made it.
    """
    with storage_errors():
        file = SqliteConnection(path, connection)
        file.use(features)
        return NodeFile(file)


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turn errors of the store into those of the node."""
    try:
        yield
    except InvalidRequest as error:
        raise BadRequest(error.what, error.why, error.fix) from error
    except EdgeError as error:
        raise StorageError(error.what, error.why, error.fix) from error
