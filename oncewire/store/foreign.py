"""W-29: what a store writes on a connection of the application's, whose transaction the application begins and ends.

Each kind of connection is one small class that runs a statement with parameters. It is chosen by the name of the
connection's type: no package is imported that the application does not use. The work is that of the store itself, on
the same tables, so the rows are the same.

* The work is done in a savepoint. Whatever fails in it leaves nothing, and the application's transaction goes on.
* Work does not wait. On a connection that is awaited it is run again and again, each time with one more reply, until
  it is done: as each `Job` it is repeatable.
* Notices (W-13) are part of the transaction in PostgreSQL. In SQLite they are sent before the commit: whoever looks
  waits for the end of the transaction, for it has the file's lock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from oncewire.store.contents import CLOCK, Contents
from oncewire.store.dialects import POSTGRES, SQLITE, Dialect
from oncewire.store.errors import InvalidRequest
from oncewire.store.notices import Notices
from oncewire.store.postgres import CHANNEL, numbered
from oncewire.store.store import Row

T = TypeVar("T")
SAVEPOINT: Final = "oncewire"
SUPPORTED: Final = (
    "give a connection of sqlite3, psycopg or asyncpg, or a Connection, Session, AsyncConnection or AsyncSession of "
    "SQLAlchemy, with a transaction of SQLite or PostgreSQL"
)
_NO_TABLE = ("no such table: oncewire_", 'relation "oncewire_')


class Foreign(Protocol):
    """A connection that does not wait: in a program without an event loop, or inside a `run_sync`."""

    dialect: Dialect

    def begin(self) -> None:
        """Check that a transaction is open, or open the one that the next statement would open.

        Raises:
            InvalidRequest: each statement would be a transaction of its own.
        """

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement in our words (`?`, `/*bytes*/`), and return its rows. Errors are the driver's."""


class ForeignAsync(Protocol):
    """A connection to be awaited."""

    dialect: Dialect

    def begin(self) -> None:
        """See Foreign."""

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """See Foreign."""


class _OfSqlite3:
    dialect = SQLITE

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def begin(self) -> None:
        if self._connection.in_transaction:
            return
        if self._connection.isolation_level is None or getattr(self._connection, "autocommit", None) is True:
            raise _no_transaction("its isolation_level is None, and no BEGIN was executed")
        self._connection.execute("BEGIN IMMEDIATE")  # as its next INSERT would, but a SAVEPOINT would not

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        found: list[Row] = cursor.execute(SQLITE.spell(statement), tuple(parameters)).fetchall()
        return found


class _OfPsycopg:
    dialect = POSTGRES

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._psycopg = sys.modules["psycopg"]

    def begin(self) -> None:
        is_idle = self._connection.info.transaction_status == self._psycopg.pq.TransactionStatus.IDLE
        if is_idle and self._connection.autocommit:
            raise _no_transaction("it has autocommit, and no transaction() is open")

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        cursor = self._psycopg.RawCursor(self._connection, row_factory=self._psycopg.rows.tuple_row)
        cursor.execute(numbered(statement, bool(parameters)), tuple(parameters) or None)
        return list(cursor.fetchall()) if cursor.description is not None else []


class _OfPsycopgAsync(_OfPsycopg):
    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:  # type: ignore[override]
        cursor = self._psycopg.AsyncRawCursor(self._connection, row_factory=self._psycopg.rows.tuple_row)
        await cursor.execute(numbered(statement, bool(parameters)), tuple(parameters) or None)
        return list(await cursor.fetchall()) if cursor.description is not None else []


class _OfAsyncpg:
    dialect = POSTGRES

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def begin(self) -> None:
        if not self._connection.is_in_transaction():
            raise _no_transaction("no transaction() is open")

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        rows = await self._connection.fetch(numbered(statement, bool(parameters)), *parameters)
        return [tuple(row) for row in rows]


class _OfSqlalchemy:
    """A Connection, or a Session, whose connection it uses: in the transaction that it has, or begins by itself."""

    def __init__(self, connection: Any) -> None:
        if hasattr(connection, "get_bind"):  # a Session
            connection = connection.connection()
        self._connection = connection
        known = {"sqlite": SQLITE, "postgresql": POSTGRES}
        name = connection.dialect.name
        if name not in known:
            raise _refused(f"a database of {name} is not supported")
        self.dialect = known[name]
        self._style = connection.dialect.paramstyle

    def begin(self) -> None:
        driver = self._connection.connection.driver_connection
        if self.dialect is SQLITE and not driver.in_transaction:
            if driver.isolation_level is None:
                raise _no_transaction("its isolation_level is AUTOCOMMIT")
            self._connection.exec_driver_sql("BEGIN IMMEDIATE")
        adapted = self._connection.connection.dbapi_connection
        level = str(getattr(adapted, "isolation_level", ""))
        if getattr(driver, "autocommit", False) is True or level.lower() == "autocommit":
            raise _no_transaction("its isolation_level is AUTOCOMMIT")

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        text = self.dialect.spell(statement)
        if self._style == "numeric_dollar":
            text = numbered(statement, bool(parameters))
        elif self._style in ("format", "pyformat") and parameters:
            text = text.replace("%", "%%").replace("?", "%s")
        result = self._connection.exec_driver_sql(text, tuple(parameters) or None)
        return [tuple(row) for row in result] if result.returns_rows else []


_KINDS: Final[Mapping[tuple[str, str], Callable[[Any], Foreign]]] = {
    ("sqlite3", "Connection"): _OfSqlite3,
    ("psycopg", "Connection"): _OfPsycopg,
    ("sqlalchemy", "Connection"): _OfSqlalchemy,
    ("sqlalchemy", "Session"): _OfSqlalchemy,
    ("sqlalchemy", "scoped_session"): _OfSqlalchemy,
}
_ASYNC_KINDS: Final[Mapping[tuple[str, str], Callable[[Any], ForeignAsync]]] = {
    ("psycopg", "AsyncConnection"): _OfPsycopgAsync,
    ("asyncpg", "Connection"): _OfAsyncpg,
    ("asyncpg", "PoolConnectionProxy"): _OfAsyncpg,
}
_RUN_SYNC: Final = {
    ("sqlalchemy", "AsyncConnection"),
    ("sqlalchemy", "AsyncSession"),
    ("sqlalchemy", "async_scoped_session"),
}


def within(connection: object, contents: Contents, work: Callable[[Any], T]) -> T:
    """Do the work of a store in the transaction of this connection, which does not wait.

    Args:
        connection: of sqlite3, psycopg or SQLAlchemy.
        contents: make what the work gets.
        work: as a job of the store.

    Raises:
        InvalidRequest: there is no transaction, or no store in this database, or the connection is of another kind.
        EdgeError: of the work. Other errors are the driver's. Nothing of the work has happened.
    """
    for key in _names_of(connection):
        if key in _KINDS:
            return _within(_KINDS[key](connection), contents, work)
        if key in _ASYNC_KINDS or key in _RUN_SYNC:
            raise _refused(f"a {key[1]} of {key[0]} is to be awaited", "await the function whose name ends with _async")
    raise _refused(f"a {_shown(connection)} is no connection that is supported")


async def within_async(connection: object, contents: Contents, work: Callable[[Any], T]) -> T:
    """The same, of any connection that is supported, also of those that are awaited. Errors as `within`."""
    for key in _names_of(connection):
        if key in _ASYNC_KINDS:
            return await _within_async(_ASYNC_KINDS[key](connection), contents, work)
        if key in _RUN_SYNC:
            run_sync: Callable[[Callable[[Any], T]], Awaitable[T]] = connection.run_sync  # type: ignore[attr-defined]
            return await run_sync(lambda found: _within(_OfSqlalchemy(found), contents, work))
    return within(connection, contents, work)


def _within(foreign: Foreign, contents: Contents, work: Callable[[Any], T]) -> T:
    foreign.begin()
    foreign.execute(f"SAVEPOINT {SAVEPOINT}")
    try:
        result = _done(_Statements(foreign.dialect, foreign.execute), contents, work)
    except BaseException as error:
        with suppress(Exception):
            foreign.execute(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
            foreign.execute(f"RELEASE SAVEPOINT {SAVEPOINT}")
        _explain(error)
        raise
    foreign.execute(f"RELEASE SAVEPOINT {SAVEPOINT}")
    return result


async def _within_async(foreign: ForeignAsync, contents: Contents, work: Callable[[Any], T]) -> T:
    foreign.begin()
    await foreign.execute(f"SAVEPOINT {SAVEPOINT}")
    try:
        replies: list[list[Row]] = []
        while True:
            replaying = _Replaying(replies)
            try:
                result = _done(_Statements(foreign.dialect, replaying.execute), contents, work)
                break
            except _Wanted as wanted:
                replies.append(await foreign.execute(wanted.statement, wanted.parameters))
    except BaseException as error:
        with suppress(Exception):
            await foreign.execute(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
            await foreign.execute(f"RELEASE SAVEPOINT {SAVEPOINT}")
        _explain(error)
        raise
    await foreign.execute(f"RELEASE SAVEPOINT {SAVEPOINT}")
    return result


class _Wanted(BaseException):
    """The next statement of work that is run again with its reply. No handler of errors in the work may take it."""

    def __init__(self, statement: str, parameters: Sequence[object]) -> None:
        super().__init__(statement)
        self.statement = statement
        self.parameters = parameters


class _Replaying:
    """Gives the replies that have come, and asks for the first that has not."""

    def __init__(self, replies: Sequence[list[Row]]) -> None:
        self._replies = iter(replies)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        for reply in self._replies:
            return reply
        raise _Wanted(statement, parameters)


class _Statements:
    """What work does with a connection; see `oncewire.store.transaction.Connection`."""

    def __init__(self, dialect: Dialect, execute: Callable[[str, Sequence[object]], list[Row]]) -> None:
        self.dialect = dialect
        self._execute = execute

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        return self._execute(statement, parameters)

    def write(self, statement: str, parameters: Sequence[object] = ()) -> None:
        self._execute(statement, parameters)

    def write_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        for row in rows:
            self._execute(statement, row)

    def check_room(self) -> None:
        """The limit of a file is that of the connections that the store opens."""


def _done(connection: _Statements, contents: Contents, work: Callable[[Any], T]) -> T:
    is_file = connection.dialect is SQLITE
    do = contents.transaction(connection, time.time() if is_file else float(connection.execute(CLOCK)[0][0]))
    result = work(do)
    do.finish()
    if is_file:
        ((_, _, path),) = [row for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
        if path:
            Notices(Path(path)).send(frozenset(do.touched))
    else:
        for name in sorted(do.touched):
            connection.write("SELECT pg_notify(?, ?)", (CHANNEL, name))
    return result


def _names_of(connection: object) -> list[tuple[str, str]]:
    """Package and name of its type, and of those that it is derived from."""
    return [(each.__module__.partition(".")[0], each.__name__) for each in type(connection).__mro__]


def _shown(connection: object) -> str:
    kind = type(connection)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _refused(why: str, fix: str = SUPPORTED) -> InvalidRequest:
    return InvalidRequest("nothing was written on this connection", why, fix)


def _no_transaction(why: str) -> InvalidRequest:
    return _refused(
        f"no transaction is open on it: {why}",
        "begin one, write your own rows in it, and commit: what is added goes with them",
    )


def _explain(error: BaseException) -> None:
    """Says what to do where the database has no store: the driver names a table that the application does not know."""
    if isinstance(error, Exception) and any(text in str(error) for text in _NO_TABLE):
        raise _refused(
            f"there is no store in this database: {str(error).strip().partition(chr(10))[0]}",
            "open the store once at this database's address, by Queue.open, QueueStore.open or an edge: that makes the "
            "tables",
        ) from error
