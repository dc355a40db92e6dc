"""A store in a PostgreSQL database, for workers on several machines. Needs psycopg 3: ``oncewire[postgres]``."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from types import ModuleType
from typing import Any

from oncewire.store.contents import Contents
from oncewire.store.dialects import POSTGRES
from oncewire.store.errors import (
    InvalidRequest,
    PartMissing,
    StatementFailed,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnreachable,
    refused_statement,
)
from oncewire.store.migrations import migrate
from oncewire.store.patience import HasSocket, Patience, shut_down
from oncewire.store.rules_core import to_us
from oncewire.store.store import Job, Row
from oncewire.store.transaction import SqlTransaction

CONNECT_SECONDS = 10
"""How long to wait for the server to answer, where the address does not say."""
ANSWER_SETTINGS = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000}
"""A server whose machine or network is gone is noticed in some ten seconds, not when TCP gives up, in hours."""
STATEMENT_SECONDS = 30
"""A statement that takes longer waits for a lock that somebody forgot."""
ANSWER_SECONDS = 40
"""A server that has not answered a statement for so long will not: it would have ended it before. The connection is
broken off."""
STOPPED_SECONDS = 5
"""The server ends a transaction whose process says nothing for so long, unless it has a time of its own: one that was
stopped, or is cut off, would keep the locks of what another process is to take over (W-26)."""
DEADLOCK_TRIES = 10
"""Two transactions that change each other's rows in another order: the server ends one, which then runs again."""
SPELLED_COUNT = 256
"""Statements that are kept as psycopg wants them: ours, with the numbers of rows that are usual."""
PORTIONS = (64, 16, 4, 1)
"""Rows of one statement: any number is a few statements, of few kinds, which the server knows already."""
LARGE_VALUE = 1 << 16
"""Rows with such payloads go one by one: a message to the server has a gigabyte at most, and they gain nothing."""
_LAST_ROW = re.compile(r"\bVALUES\s*(\([^()]*\))\s*\Z")
CHANNEL = "oncewire_store"
_SCHEMA_LOCK = 0x6F6E636577710001
"""Key of the advisory lock under which tables are made: two nodes that open a new database at once would collide."""
# SQLSTATE, or its class in two characters -> what it is for us, and what to do.
_KINDS: dict[str, tuple[type[StoreError], str]] = {
    "55P03": (StoreBusy, "end the program that holds a lock on the store's tables"),
    "57014": (StoreBusy, "end the program that holds a lock on the store's tables"),
    "53": (StoreFull, "make room on the server (disk or connections)"),
    "22": (StatementFailed, "correct the statement or its values"),
    "23": (StatementFailed, "correct the statement or its values"),
    "42": (StatementFailed, "correct the statement or its values; check that this user has the rights"),
    "XX001": (StoreCorrupt, "restore the database from a backup"),
    "XX002": (StoreCorrupt, "restore the database from a backup"),
}
_ELSE = (StoreUnreachable, "check address, user, password, rights and that the server runs; then do it again")
_AGAIN = frozenset({"40P01", "40001"})
_END_STOPPED = f"""
SELECT set_config('idle_in_transaction_session_timeout', '{STOPPED_SECONDS}s', false)
WHERE current_setting('idle_in_transaction_session_timeout') = '0'"""


def _load_psycopg() -> ModuleType:
    try:
        return importlib.import_module("psycopg")
    except ImportError as error:
        raise PartMissing(
            "a PostgreSQL store cannot be opened",
            f"psycopg 3 cannot be loaded ({error})",
            'run pip install "oncewire[postgres]"',
        ) from error


@lru_cache(SPELLED_COUNT)
def numbered(statement: str, has_parameters: bool) -> str:
    """A statement as psycopg wants it."""
    text = POSTGRES.spell(statement)
    if not has_parameters:
        return text
    first, *others = text.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(others, 1))


@lru_cache(SPELLED_COUNT)
def _with_rows(statement: str, count: int) -> str:
    """An insertion of one row as one of several: a third of the cost."""
    found = _LAST_ROW.search(statement)
    assert found is not None
    return statement + f", {found[1]}" * (count - 1)


def _is_large(value: object) -> bool:
    return isinstance(value, bytes | str) and len(value) > LARGE_VALUE


class _RunAgain(StoreError):
    """The server ended the transaction in favour of another one."""


class PostgresStore:
    """A store in a database; see Store.

    Args:
        address: a connection string of libpq (``postgresql://user@host/database``).
        contents: of the store; None = what all have.
        clock: returns Unix time in seconds; None = the server's clock, the same for all machines (W-15).

    Raises:
        PartMissing: psycopg is not installed.
        StoreError: it cannot be opened.
    """

    dialect = POSTGRES
    is_shared = False
    """Whether the application runs statements of its own over the connection, as long as it likes."""

    def __init__(
        self, address: str, *, contents: Contents | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        self._psycopg = _load_psycopg()
        self._address = address
        self._clock = clock
        self._contents = contents or Contents()
        self._listener: Any = None
        self._reply: str | None = None
        """The server's word for what the last statement did."""
        self._pipeline: Any = None
        self._entered = ExitStack()
        self._connection: Any = None
        self._patience = Patience(self._shut_down)
        try:
            self._open()
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._connection = self._connect()
        # Statements whose rows nobody needs go out with the next one that is waited for: few round trips.
        if not self.is_shared and self._psycopg.Pipeline.is_supported():
            self._pipeline = self._entered.enter_context(self._connection.pipeline())

    def _drop(self) -> None:
        if self._connection is None:
            return
        with suppress(self._psycopg.Error):
            self._connection.close()  # first: a pipeline that ends waits for the server
        with suppress(self._psycopg.Error):
            self._entered.close()

    def _connect(self) -> Any:
        try:
            settings = self._psycopg.conninfo.conninfo_to_dict(self._address)
        except self._psycopg.Error:  # its text repeats what cannot be read: perhaps the password
            raise InvalidRequest(
                "the store postgresql://... cannot be opened",
                "PostgreSQL's library cannot read this address",
                "write postgresql://USER:PASSWORD@HOST/DATABASE, with special characters as %XX",
            ) from None
        try:
            settings = {"connect_timeout": CONNECT_SECONDS, **ANSWER_SETTINGS, **settings}
            connection = self._psycopg.connect(autocommit=True, **settings)
        except self._psycopg.Error as error:
            raise self._explain(error) from error
        try:
            with self._explained(CONNECT_SECONDS, connection):
                self._set_up(connection)
        except StoreError:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: Any) -> None:
        # In a pipeline psycopg waits for replies before all is sent that a socket does not take at once: for ever.
        connection.pgconn.nonblocking = 0
        # W-1: a commit that power loss could undo would lose items; a stricter setting than `on` is kept.
        if connection.execute("SHOW synchronous_commit").fetchone()[0] in {"off", "local"}:
            connection.execute("SET synchronous_commit = on")
        if not self.is_shared:
            connection.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")
            connection.execute(_END_STOPPED)

    def _prepare(self) -> None:
        self.execute("BEGIN")
        try:
            self.execute("SELECT pg_advisory_xact_lock(?)", (_SCHEMA_LOCK,))
            migrate(self, "in this database", self._contents.features)
            self.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement."""
        with self._explained():
            cursor = self._send(statement, parameters)
            self._sync()
            self._reply = cursor.statusmessage
            return list(cursor.fetchall()) if cursor.description is not None else []

    def write(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run one statement whose rows nobody needs: no reply is waited for."""
        with self._explained():
            self._send(statement, parameters)
            self._sync()  # else the server would wait for what follows without end, see STOPPED_SECONDS

    def write_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run one statement for each row of parameters: no reply is waited for."""
        start = 0
        if any(_is_large(value) for row in rows for value in row):
            for row in rows:
                self.write(statement, row)
            return
        if _LAST_ROW.search(statement) is None:
            with self._explained():
                self._cursor().executemany(numbered(statement, True), rows)
                self._sync()
            return
        for size in PORTIONS:
            while len(rows) - start >= size:
                values = [value for row in rows[start : start + size] for value in row]
                with self._explained():
                    self._send(_with_rows(statement, size), values)
                    self._sync()
                start += size

    def _send(self, statement: str, parameters: Sequence[object]) -> Any:
        return self._cursor().execute(numbered(statement, bool(parameters)), tuple(parameters) or None)

    def _cursor(self) -> Any:
        # Raw: psycopg would read a long statement anew each time, to find its parameters.
        return self._psycopg.RawCursor(self._connection)

    @contextmanager
    def _explained(self, seconds: float | None = None, connection: Any = None) -> Iterator[None]:
        """Wait for the server's answer, and report errors of the driver as ours.

        Args:
            seconds: then the connection is broken off; None = as a statement may take. A shared one has no limit.
            connection: None = that of transactions.
        """
        connection = connection or self._connection
        seconds = seconds or (math.inf if self.is_shared else ANSWER_SECONDS)
        try:
            with self._patience.within(seconds, connection):
                yield
        except self._psycopg.Error as error:
            raise self._explain(error) from error

    def transact(self, jobs: Sequence[Job]) -> tuple[list[Any], frozenset[str]]:
        """Run jobs in one transaction; see Store."""
        for tries_left in reversed(range(DEADLOCK_TRIES)):
            try:
                return self._transact(jobs)
            except _RunAgain as error:
                if not tries_left:
                    raise StoreBusy(error.what, error.why, "do it again; other workers are in the way") from error
        raise AssertionError

    def _transact(self, jobs: Sequence[Job]) -> tuple[list[Any], frozenset[str]]:
        operations = self._begin(jobs)
        try:
            results = [job(operations) for job in jobs]
            operations.finish()
            for name in sorted(operations.touched):  # W-13: sent by the server when the transaction commits
                self.write("SELECT pg_notify(?, ?)", (CHANNEL, name))
            self._commit()
        except BaseException:
            self._rollback()
            raise
        return results, frozenset(operations.touched)

    def _begin(self, jobs: Sequence[Job]) -> SqlTransaction:
        # A connection that broke while it was idle is replaced: nothing of this transaction has happened.
        if not self._connection.closed:
            with suppress(StoreUnreachable):
                return self._begin_here(jobs)
        self._drop()
        self._open()
        return self._begin_here(jobs)

    def _begin_here(self, jobs: Sequence[Job]) -> SqlTransaction:
        """One round trip: begin, and do what comes first."""
        now = None if self._clock is None else self._clock()
        try:
            with self._explained():
                self._send("BEGIN", ())
                begun = self._contents.begin(self._send, jobs, None if now is None else to_us(now))
                self._sync()
                return begun.transaction(self, now)
        except StoreError:
            self._rollback()
            raise

    def _commit(self) -> None:
        self.execute("COMMIT")
        if self._reply != "COMMIT":  # W-1: the server's reply to the commit of what has failed
            raise StatementFailed(
                "nothing of the transaction has happened",
                "a statement in it failed, and its error was caught",
                "let the error leave the job",
            )

    def _sync(self) -> None:
        if self._pipeline is not None:
            self._pipeline.sync()

    def _rollback(self) -> None:
        with suppress(StoreError), self._explained():  # the errors of statements under way belong to nobody any more
            self._sync()
        with suppress(StoreError), self._explained():  # the server drops what a broken connection left
            self._connection.execute("ROLLBACK")
            self._sync()

    def announce(self, names: frozenset[str]) -> None:
        """Nothing to do: the transaction itself has notified; see Store."""

    def open_notices(self) -> int:
        """Listen on a connection of its own; see Store."""
        if self._listener is None:
            listener = self._connect()
            try:
                with self._explained(CONNECT_SECONDS, listener):
                    listener.execute(f"LISTEN {CHANNEL}")
            except StoreError:
                listener.close()
                raise
            self._listener = listener
        return int(self._listener.fileno())

    def read_notices(self) -> frozenset[str]:
        """Return what was announced; see Store."""
        found = set()
        try:
            connection = self._listener.pgconn
            connection.consume_input()
            while (notice := connection.notifies()) is not None:
                found.add(bytes(notice.extra).decode(errors="replace"))
        except self._psycopg.Error as error:
            self._close_listener()
            raise self._explain(error) from error
        return frozenset(found)

    def _close_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(self._psycopg.Error):
                listener.close()

    def check_room(self) -> None:
        """The server's disk is its limit; see Connection."""

    def break_off(self) -> None:
        """Shut the connection's socket down under whoever waits for it; see Store."""
        self._shut_down(self._connection)

    def _shut_down(self, connection: HasSocket) -> None:
        shut_down(connection, self._psycopg.Error)

    def close(self) -> None:
        """Release the connections; see Store."""
        self._close_listener()
        self._drop()
        self._patience.close()

    def _explain(self, error: Exception) -> StoreError:
        code = getattr(error, "sqlstate", None) or ""
        first_line = str(error).strip().partition("\n")[0] or type(error).__name__
        kind, fix = _KINDS.get(code) or _KINDS.get(code[:2]) or _ELSE
        if not code and isinstance(error, self._psycopg.ProgrammingError):  # psycopg's own complaint
            kind, fix = _KINDS["42"]
        if code in _AGAIN:
            kind = _RunAgain
        if kind is StatementFailed:
            return refused_statement(first_line, "PostgreSQL", fix)
        return kind("the store cannot be used", f"PostgreSQL says: {first_line}", fix)
