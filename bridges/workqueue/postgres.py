"""A store in a PostgreSQL database, for workers on several machines. Needs psycopg 3: ``oncewire[postgres]``."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from types import ModuleType
from typing import Any

from bridges.workqueue import sql_statements as sql
from bridges.workqueue.errors import (
    InvalidRequest,
    PartMissing,
    StatementFailed,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnreachable,
)
from bridges.workqueue.items import Commit
from bridges.workqueue.merging_core import Needs, first_needs
from bridges.workqueue.refusals import refused_statement
from bridges.workqueue.rules_core import to_us
from bridges.workqueue.sql_base import Ahead
from bridges.workqueue.sql_migrations import migrate
from bridges.workqueue.sql_operations import SqlOperations
from bridges.workqueue.sql_schema import POSTGRES, VERSION_TABLE
from bridges.workqueue.store import Job, Row

CONNECT_SECONDS = 10
"""How long to wait for the server to answer, where the address does not say."""
STATEMENT_SECONDS = 30
"""A statement that takes longer waits for a lock that somebody forgot."""
DEADLOCK_TRIES = 10
"""Two transactions that settle each other's items in another order: the server ends one, which then runs again."""
MAX_USED = 8
"""Queues whose settings are read in advance."""
SPELLED_COUNT = 256
"""Statements that are kept as psycopg wants them: ours, with the numbers of items that are usual."""
CHANNEL = "oncewire_queue"
_SCHEMA_LOCK = 0x6F6E636577710001
"""Key of the advisory lock under which tables are made: two nodes that open a new database at once would collide."""
# SQLSTATE, or its class in two characters -> what it is for us, and what to do.
_KINDS: dict[str, tuple[type[StoreError], str]] = {
    "55P03": (StoreBusy, "end the program that holds a lock on the queue's tables"),
    "57014": (StoreBusy, "end the program that holds a lock on the queue's tables"),
    "53": (StoreFull, "make room on the server (disk or connections)"),
    "22": (StatementFailed, "correct the statement or its values"),
    "23": (StatementFailed, "correct the statement or its values"),
    "42": (StatementFailed, "correct the statement or its values; check that this user has the rights"),
    "XX001": (StoreCorrupt, "restore the database from a backup"),
    "XX002": (StoreCorrupt, "restore the database from a backup"),
}
_ELSE = (StoreUnreachable, "check address, user, password, rights and that the server runs; then do it again")
_AGAIN = frozenset({"40P01", "40001"})


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
def _spelled(statement: str, has_parameters: bool) -> str:
    """A statement as psycopg wants it."""
    text = POSTGRES.spell(statement)
    if not has_parameters:
        return text
    first, *others = text.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(others, 1))


def _array(numbers: Iterable[int]) -> str:
    """Numbers as PostgreSQL reads them; psycopg takes longer for a list."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _parameters(now_us: int | None, commits: Sequence[Commit]) -> tuple[object, ...]:
    """Those of COMMIT_AHEAD."""
    items = _array(each.handle.item for each in commits)
    changed = [each for each in commits if each.result is not None or each.payload is not None]
    return (
        now_us,
        items,
        _array(each.handle.reservation for each in commits),
        items,
        _array(each.handle.item for each in changed),
        [each.result for each in changed],
        [each.payload for each in changed],
    )


class _RunAgain(StoreError):
    """The server ended the transaction in favour of another one."""


class PostgresStore:
    """A store in a database; see Store.

    Args:
        address: a connection string of libpq (``postgresql://user@host/database``).
        clock: returns Unix time in seconds; None = the server's clock, the same for all machines (W-15).
        chance: returns random numbers, 0 to 1, for jitter.

    Raises:
        PartMissing: psycopg is not installed.
        StoreError: it cannot be opened.
    """

    dialect = POSTGRES

    def __init__(
        self, address: str, *, clock: Callable[[], float] | None = None, chance: Callable[[], float] = random.random
    ) -> None:
        self._psycopg = _load_psycopg()
        self._address = address
        self._clock = clock
        self._chance = chance
        self._listener: Any = None
        self._used: tuple[str, ...] = ()
        """Queues of the last transaction: the next one asks for their settings at its beginning."""
        self._reply: str | None = None
        """The server's word for what the last statement did."""
        self._pipeline: Any = None
        self._entered = ExitStack()
        self._connection: Any = None
        self._open()
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._connection = self._connect()
        # Statements whose rows nobody needs go out with the next one that is waited for: few round trips.
        if self._psycopg.Pipeline.is_supported():
            self._pipeline = self._entered.enter_context(self._connection.pipeline())

    def _drop(self) -> None:
        with suppress(self._psycopg.Error):
            self._entered.close()
        with suppress(self._psycopg.Error):
            self._connection.close()

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
            settings.setdefault("connect_timeout", CONNECT_SECONDS)
            # Raw: psycopg would read a long statement anew each time, to find its parameters.
            connection = self._psycopg.connect(autocommit=True, cursor_factory=self._psycopg.RawCursor, **settings)
            # W-1: a commit that power loss could undo would lose items; a stricter setting than `on` is kept.
            if connection.execute("SHOW synchronous_commit").fetchone()[0] in {"off", "local"}:
                connection.execute("SET synchronous_commit = on")
            connection.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")
        except self._psycopg.Error as error:
            raise self._explain(error) from error
        return connection

    def _prepare(self) -> None:
        self.execute("BEGIN")
        try:
            self.execute("SELECT pg_advisory_xact_lock(?)", (_SCHEMA_LOCK,))
            self.execute(VERSION_TABLE)
            migrate(self, "in this database")
            self.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement."""
        try:
            cursor = self._send(statement, parameters)
            self._sync()
            self._reply = cursor.statusmessage
            return list(cursor.fetchall()) if cursor.description is not None else []
        except self._psycopg.Error as error:
            raise self._explain(error) from error

    def write(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run one statement whose rows nobody needs: it goes to the server together with the next ones."""
        try:
            self._send(statement, parameters)
        except self._psycopg.Error as error:
            raise self._explain(error) from error

    def _send(self, statement: str, parameters: Sequence[object]) -> Any:
        return self._connection.execute(_spelled(statement, bool(parameters)), tuple(parameters) or None)

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
        operations = self._begin(first_needs(jobs))
        try:
            results = [job(operations) for job in jobs]
            operations.finish()
            for queue in sorted(operations.touched):  # W-13: sent by the server when the transaction commits
                self.write("SELECT pg_notify(?, ?)", (CHANNEL, queue))
            self._commit()
        except BaseException:
            self._rollback()
            raise
        self._used = operations.queues_used()[:MAX_USED]
        return results, frozenset(operations.touched)

    def _begin(self, needs: Needs) -> SqlOperations:
        # A connection that broke while it was idle is replaced: nothing of this transaction has happened.
        if not self._connection.closed:
            with suppress(StoreUnreachable):
                return self._begin_here(needs)
        self._drop()
        self._open()
        return self._begin_here(needs)

    def _begin_here(self, needs: Needs) -> SqlOperations:
        """One round trip: begin, do what comes first, and read settings that are likely needed."""
        now = None if self._clock is None else self._clock()
        now_us = None if now is None else to_us(now)
        try:
            self._send("BEGIN", ())
            committed = self._send(sql.COMMIT_AHEAD, _parameters(now_us, needs.commits)) if needs.commits else None
            reserved = {
                (job.queue, job.count, job.timeout): self._send(
                    sql.RESERVE_AHEAD,
                    (job.queue, job.queue, now_us, job.queue, job.count, job.count, to_us(job.timeout)),
                )
                for job in needs.reservations
            }
            # After them: nothing that was found ready is due later than the transaction's time.
            clock = self._send(sql.CLOCK_AND_QUEUES, (list(self._used),))
            self._sync()
            rows = clock.fetchall()
            now = float(rows[0][0]) if now is None else now
            ahead = Ahead(
                {name: settings for _, name, *settings in rows if name is not None},
                (tuple(each.handle.item for each in needs.commits), committed.fetchall() if committed else ()),
                {which: cursor.fetchall() for which, cursor in reserved.items()},
            )
        except self._psycopg.Error as error:
            self._rollback()
            raise self._explain(error) from error
        return SqlOperations(self, now, self._chance, ahead)

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
        with suppress(self._psycopg.Error):  # the errors of statements under way belong to nobody any more
            self._sync()
        with suppress(self._psycopg.Error):  # the server drops what a broken connection left
            self._connection.execute("ROLLBACK")
            self._sync()

    def announce(self, queues: frozenset[str]) -> None:
        """Nothing to do: the transaction itself has notified; see Store."""

    def open_notices(self) -> int:
        """Listen on a connection of its own; see Store."""
        if self._listener is None:
            listener = self._connect()
            try:
                listener.execute(f"LISTEN {CHANNEL}")
            except self._psycopg.Error as error:
                listener.close()
                raise self._explain(error) from error
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

    def close(self) -> None:
        """Release the connections; see Store."""
        self._close_listener()
        self._drop()

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
