"""The database of one owner of a store: every transaction is under its fence, and nothing works behind a failed one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from oncewire.client.errors import StoreError, StoreFenced, StoreUnusable, UsageError
from oncewire.client.transactions.databases import Database, explained, raise_fence
from oncewire.store.store import Row

Connection = TypeVar("Connection")
_FENCE = "SELECT epoch FROM oncewire_owners WHERE name = ?"


class FencedDatabase(Generic[Connection]):
    """Opens a database and raises the fence of a store in it (ST-1).

    Args:
        name: of the store.
        open_database: opens it.

    Attributes:
        name: as given.
        fence: the number this owner raised the fence to.
        lock: held from the begin to the end of each transaction, so that a consumer's two threads take turns.
    """

    def __init__(self, name: str, open_database: Callable[[], Database]) -> None:
        self.name = name
        self.lock = threading.RLock()
        self._owned = f"store {name}"
        self._failed = False
        self._is_inside = False
        with explained():
            self._database = open_database()
        try:
            with explained():
                self.fence = raise_fence(self._database, self._owned)
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> Connection:
        """The driver's own connection; use it inside ``transaction()``."""
        connection: Connection = self._database.connection
        return connection

    def run(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement (parameters are ?) and return its rows; database errors become ours."""
        with explained():
            return self._database.execute(statement, parameters)

    def run_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run one statement for each row of parameters."""
        with explained():
            self._database.write_many(statement, rows)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement of the application inside ``transaction()``; parameters are ? in every database.

        Returns:
            The rows of a query, all of them; an empty list for what returns none.

        Raises:
            The errors of the database's own driver.
        """
        return self._database.run(statement, parameters)

    def _newest_fence(self) -> int:
        """Read the fence in a way that no later owner can raise it before this transaction ends."""
        with explained():
            self._database.be_quick()
            return int(self._database.execute(f"{_FENCE} /*lock*/", (self._owned,))[0][0])

    def peek_fence(self) -> int:
        """Read the fence over a connection of its own, in any thread, whatever transaction is open."""
        with explained():
            return int(self._database.peek(_FENCE, (self._owned,))[0][0])

    def close(self) -> None:
        """Let go of the database, when the transaction of another thread has ended. Closing twice is harmless."""
        with self.lock:  # a driver's handle that is closed in the middle of a statement takes the process along
            self._failed = True
            self._database.close()

    def check_fence(self) -> None:
        """Check that no later owner has opened the store.

        Raises:
            StoreFenced: one has. End this process, or stand by.
            StoreError: it cannot be read.
        """
        self.check_usable()
        with self.guarded():
            pass

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """A transaction that commits only under our own fence (ST-1); whatever fails ends this owner's use.

        Raises:
            StoreFenced: a later owner has opened the store; nothing was committed.
            StoreError: as ``transaction``.
        """
        with self.lock:
            self.check_usable()
            yield from self._one_transaction()

    def _one_transaction(self) -> Iterator[None]:
        with explained():
            self._database.begin()
        try:
            yield
            newest = self._newest_fence()
            if newest != self.fence:
                raise self.fenced(newest)
            with explained():
                self._database.commit()
        except BaseException as error:
            self._failed = True
            self._database.rollback()
            if isinstance(error, Exception):
                self._check_who_broke_it(error)
            raise

    def _check_who_broke_it(self, error: BaseException) -> None:
        """Whatever fails behind a later owner's back: a connection that it ended (ST-9), a row that it has put there.

        Raises:
            StoreFenced: one has opened the store.
        """
        newest = self.fence
        with suppress(StoreError):  # then nothing is known
            newest = self.peek_fence()
        if newest != self.fence:
            raise self.fenced(newest) from error

    def fenced(self, newest: int) -> StoreFenced:
        """Return what a later owner's fence means for this one."""
        return StoreFenced(
            f"the store {self.name!r} commits nothing more from here",
            f"a later owner has opened it (fence {newest}, ours is {self.fence})",
            "end this process; the later owner goes on from the last commit",
        )

    def check_usable(self) -> None:
        """Raises UsageError: a transaction is open; StoreUnusable: it was closed, or something failed in it."""
        if self._is_inside:
            raise UsageError(
                f"the store {self.name!r} cannot do this now",
                "a transaction is open",
                "leave the transaction's block first; ask for outputs before it",
            )
        if self._failed:
            raise StoreUnusable(
                f"the store {self.name!r} cannot be used",
                "it was closed, or a transaction failed, so that what is in memory is ahead of it",
                "close it, open it again and restore from it",
            )
