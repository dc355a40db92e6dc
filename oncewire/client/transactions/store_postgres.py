"""A store in a PostgreSQL database, for consumers whose effects are there. Needs psycopg 3: ``oncewire[postgres]``.

The application keeps the tables of its effects in the same database and writes them with the store's connection. An
owner that is paused in the middle of a transaction keeps nobody out: the fence is locked only while it is checked,
right before the commit.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from oncewire.client.errors import (
    StoreCorrupt,
    StoreError,
    StoreFenced,
    StoreFull,
    StoreLocked,
    StoreUnusable,
    UsageError,
)
from oncewire.client.transactions.store import RENEW_AFTER_S, Row, Store
from oncewire.client.transactions.store_schema import SCHEMA

LOCK_SECONDS = 10
"""How long to wait for another owner that is between its check of the fence and the end of its commit."""
CONNECT_SECONDS = 10
"""How long to wait for the server to answer, where the address does not say."""
_SCHEMA_LOCK = 0x6F6E636577697265
"""Key of the advisory lock under which tables are made: two owners that open a new database at once would collide."""
# SQLSTATE, or its class in two characters -> what it is for us
_KINDS: dict[str, type[StoreError]] = {
    "40001": StoreFenced,  # serializable: the fence was raised after this transaction began
    "55P03": StoreLocked,
    "53": StoreFull,
    "XX001": StoreCorrupt,
    "XX002": StoreCorrupt,
}
_FIXES: dict[type[StoreError], str] = {
    StoreFenced: "end this process; the later owner goes on from the last commit",
    StoreLocked: "end the owner that holds the fence, or wait until the server has noticed that it is gone",
    StoreFull: "make room on the server (disk or connections), then open it again",
    StoreCorrupt: "restore the database from a backup",
    StoreUnusable: "check address, user, password, rights and that the server runs; then open it again",
}


def _load_psycopg() -> ModuleType:
    try:
        psycopg = importlib.import_module("psycopg")
    except ImportError as error:
        raise UsageError(
            "a PostgreSQL store cannot be opened",
            f"psycopg 3 cannot be loaded ({error})",
            'run pip install "oncewire[postgres]"',
        ) from error
    return psycopg


class PostgresStore(Store[Any]):
    """Opens a store and raises its fence.

    Args:
        address: a connection string of libpq (``postgresql://user@host/database`` or ``host=... dbname=...``).
        name: distinguishes the stores of one database.
        renew_after: seconds after which a silent output begins a new life.

    Raises:
        UsageError: psycopg is not installed.
        StoreLocked: the owner before holds the fence for longer than LOCK_SECONDS.
        StoreCorrupt: another version wrote it.
        StoreUnusable: the server cannot be reached or refuses.

    Attributes:
        connection: a ``psycopg.Connection``.

    Next: ``restore`` the sequencers and publish ``unconfirmed``.
    """

    def __init__(self, address: str, name: str, *, renew_after: float = RENEW_AFTER_S) -> None:
        super().__init__(name, renew_after=renew_after)
        self._psycopg = _load_psycopg()
        self._transaction: Any = None
        try:
            settings = self._psycopg.conninfo.conninfo_to_dict(address)
        except self._psycopg.Error:  # its text repeats what cannot be read: perhaps the password
            raise UsageError(
                "the store postgresql://... cannot be opened",
                "PostgreSQL's library cannot read this address",
                "write postgresql://USER:PASSWORD@HOST/DATABASE, with special characters as %XX",
            ) from None
        try:
            settings.setdefault("connect_timeout", CONNECT_SECONDS)
            self._settings = settings
            # autocommit: transactions begin and end where we say, and psycopg refuses to end them inside the block.
            self.connection = self._psycopg.connect(autocommit=True, **settings)
        except self._psycopg.Error as error:
            raise self._explain(error) from error
        try:
            self._prepare()
            self.run(f"SET lock_timeout = '{LOCK_SECONDS}s'")
            self._take_over()
            self.run("RESET lock_timeout")
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        # A commit that power loss could undo would break exactly-once; a stricter setting than `on` is kept.
        if self.run("SHOW synchronous_commit")[0][0] in {"off", "local"}:
            self.run("SET synchronous_commit = on")
        self._begin()
        try:
            self.run("SELECT pg_advisory_xact_lock(?)", (_SCHEMA_LOCK,))
            for statement in SCHEMA:
                self.run(statement)
            self._commit()
        except BaseException:
            self._rollback()
            raise

    def _begin(self) -> None:
        transaction = self.connection.transaction()
        try:
            transaction.__enter__()
        except self._psycopg.Error as error:
            raise self._explain(error) from error
        self._transaction = transaction

    def _commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        try:
            transaction.__exit__(None, None, None)
        except self._psycopg.Error as error:
            raise self._explain(error) from error

    def _rollback(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            with suppress(self._psycopg.Error):  # the server drops what a broken connection left
                transaction.__exit__(self._psycopg.Rollback, self._psycopg.Rollback(transaction), None)

    def _is_in_transaction(self) -> bool:
        status = self.connection.info.transaction_status
        # The next statement reports an error that the block swallowed.
        return status in {self._psycopg.pq.TransactionStatus.INTRANS, self._psycopg.pq.TransactionStatus.INERROR}

    def _newest_fence(self) -> int:
        self.run(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        rows = self.run("SELECT fence FROM oncewire_store_fences WHERE store = ? FOR UPDATE", (self.name,))
        return int(rows[0][0])

    def peek_fence(self) -> int:
        """Read the fence; see Store."""
        try:
            with self._psycopg.connect(autocommit=True, **self._settings) as other:
                query = "SELECT fence FROM oncewire_store_fences WHERE store = %s"
                return int(other.execute(query, (self.name,)).fetchone()[0])
        except self._psycopg.Error as error:
            raise self._explain(error) from error

    def run(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement; see Store."""
        try:
            cursor = self.connection.execute(statement.replace("?", "%s"), tuple(parameters) or None)
            return list(cursor.fetchall()) if cursor.description is not None else []
        except self._psycopg.Error as error:
            raise self._explain(error) from error

    def run_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run one statement for each row; see Store."""
        try:
            with self.connection.cursor() as cursor:
                cursor.executemany(statement.replace("?", "%s"), rows)
        except self._psycopg.Error as error:
            raise self._explain(error) from error

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement of the application; see Store."""
        if parameters:
            statement = statement.replace("%", "%%").replace("?", "%s")
        cursor = self.connection.execute(statement, tuple(parameters) or None)
        return list(cursor.fetchall()) if cursor.description is not None else []

    def close(self) -> None:
        """Let go of the connection; see Store."""
        self._failed = True
        with suppress(self._psycopg.Error):
            self.connection.close()

    def _explain(self, error: Exception) -> StoreError:
        code = getattr(error, "sqlstate", None) or ""
        kind = _KINDS.get(code) or _KINDS.get(code[:2], StoreUnusable)
        first_line = str(error).strip().partition("\n")[0] or type(error).__name__
        return kind(f"the store {self.name!r} cannot be used", f"PostgreSQL reports: {first_line}", _FIXES[kind])
