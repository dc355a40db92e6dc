"""A journal in a SQLite file: write-ahead log, synchronous=FULL, one process at a time.

The application may keep tables of its own in the same file, so that an effect and the acceptance of the message that
caused it are one transaction (`Delivery.transaction()`), and so are a message and the place in its source
(`Publisher.transaction()`). Tables of the journal start with `oncewire_`.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from oncewire.client.errors import (
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalOwnerError,
    JournalUnusable,
)
from oncewire.client.journal import Journal
from oncewire.client.journal_records import (
    DoneId,
    MessageIdentity,
    PublisherChanges,
    PublisherState,
    StoredMessage,
    SubscriberChanges,
    SubscriberState,
)
from oncewire.client.outcomes import ACCEPTED, Outcome, OutcomeKind, Subscriptions
from oncewire.client.process_lock import HeldElsewhere, hold

VERSION = 2
BUSY_SECONDS = 5.0
"""How long to wait for another program that writes the application's tables of the same file."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_MAKE_ROOM = "make room on the disk (or raise the limit), then start again"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS oncewire_journal (
    version INTEGER NOT NULL, container_id TEXT
);
CREATE TABLE IF NOT EXISTS oncewire_publishers (
    link TEXT PRIMARY KEY, next_number INTEGER NOT NULL, exposed_before INTEGER NOT NULL, session INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS oncewire_messages (
    link TEXT NOT NULL, number INTEGER NOT NULL, payload BLOB NOT NULL, in_doubt INTEGER NOT NULL, outcome TEXT,
    PRIMARY KEY (link, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS oncewire_subscribers (
    link TEXT PRIMARY KEY, incarnation INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS oncewire_deliveries (
    place INTEGER PRIMARY KEY AUTOINCREMENT, link TEXT NOT NULL, tag BLOB NOT NULL, outcome TEXT,
    UNIQUE (link, tag)
);
CREATE TABLE IF NOT EXISTS oncewire_done_ids (
    place INTEGER PRIMARY KEY AUTOINCREMENT, link TEXT NOT NULL, user TEXT NOT NULL, digest BLOB NOT NULL,
    rejected INTEGER NOT NULL, UNIQUE (link, user, digest)
);
"""

T = TypeVar("T")


def outcome_to_text(outcome: Outcome) -> str:
    """Return an outcome as a journal in a database keeps it."""
    return _ACCEPTED_TEXT if outcome is ACCEPTED else _encoded(outcome)


def _encoded(outcome: Outcome) -> str:
    named = outcome.subscriptions
    text = [
        outcome.kind.value,
        outcome.condition,
        outcome.description,
        outcome.in_doubt,
        list(named.names) if named else [],
    ]
    return json.dumps([*text, named.count] if named else text)  # no count: as releases before it wrote all


_ACCEPTED_TEXT = _encoded(ACCEPTED)  # nearly every one


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of each run of consecutive numbers."""
    for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0]):
        found = [number for _, number in run]
        yield found[0], found[-1]


def outcome_from_text(text: str) -> Outcome:
    """Read what ``outcome_to_text`` returned."""
    kind, condition, description, in_doubt, names, *count = json.loads(text)
    named = Subscriptions(count[0] if count else len(names), tuple(names)) if names or count else None
    return Outcome(OutcomeKind(kind), condition, description, in_doubt, named)


class SqliteJournal(Journal):
    """A durable journal.

    Args:
        path: the file; made if it does not exist, readable by its owner only. Beside it `PATH.lock` is kept.

    Raises:
        JournalLocked: another process has it open.
        JournalCorrupt: it is no SQLite database or was written by another version.
        JournalUnusable: it cannot be opened or written.

    Attributes:
        connection: the SQLite connection in autocommit mode. Use it inside `transaction()` of a delivery or
            publisher, or before any link is opened (to make tables).

    Next: close it when its client is closed.
    """

    is_durable = True
    keeps_ids = True
    connection: sqlite3.Connection

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._turn = threading.RLock()
        """Held while the handle is used: SQLite's takes the process along when it is closed in the middle."""
        self._closed = self._is_begun = False
        self._let_go = self._take_lock()
        try:
            # Before SQLite makes it with the process's umask: it holds messages. One that exists is not opened here: to
            # close it would let go of the locks that connections of this process have on it.
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            self.connection = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
            )
        except (OSError, sqlite3.Error) as error:
            self._let_go()
            raise self._unusable(error) from error
        try:
            self._run(self._prepare)
        except BaseException:
            self.close()
            raise

    # --- opening ------------------------------------------------------------------------------------------------------

    def _take_lock(self) -> Callable[[], None]:
        """Hold PATH.lock as long as this process lives; returns what lets go of it."""
        try:
            return hold(self.path.with_name(self.path.name + ".lock"))
        except HeldElsewhere as error:
            raise JournalLocked(
                f"the journal {self.path} cannot be opened",
                f"{error.owner} is using it",
                "stop that process, or give each process a journal of its own",
            ) from error
        except OSError as error:
            raise self._unusable(error) from error

    def _prepare(self) -> None:
        mode = self.connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise JournalUnusable(
                f"the journal {self.path} cannot be opened",
                f"SQLite's write-ahead log does not work there (it answered {mode!r})",
                "put the journal on a local disk",
            )
        # FULL: a commit that power loss could undo would break exactly-once.
        self.connection.execute("PRAGMA synchronous=FULL")
        self.connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
        row = self.connection.execute("SELECT version FROM oncewire_journal").fetchone()
        if row is None:
            self.connection.execute("INSERT INTO oncewire_journal VALUES (?, NULL)", (VERSION,))
        elif row[0] != VERSION:
            raise JournalCorrupt(
                f"the journal {self.path} cannot be opened",
                f"it has version {row[0]}, this program knows version {VERSION}",
                "use the version of Oncewire that wrote it, or another file",
            )

    def owner(self) -> str | None:
        """The container-id it belongs to; see Journal."""
        return self._run(self._read_owner)

    def _read_owner(self) -> str | None:
        owner: str | None = self.connection.execute("SELECT container_id FROM oncewire_journal").fetchone()[0]
        return owner

    def bind(self, container_id: str) -> None:
        """Make the journal this container's; see Journal."""

        def check() -> str | None:
            owner = self._read_owner()
            if owner is None:
                self.connection.execute("UPDATE oncewire_journal SET container_id = ?", (container_id,))
            return owner

        owner = self._run(check)
        if owner is not None and owner != container_id:
            raise JournalOwnerError(
                f"the journal {self.path} cannot be used by container-id {container_id!r}",
                f"it belongs to container-id {owner!r}: its deliveries are known to the network under that name",
                f"connect with container_id={owner!r}, or use another file",
            )

    def open_publisher(self, link_name: str) -> PublisherState:
        """Read a publisher's part; see Journal."""

        def read() -> PublisherState:
            row = self.connection.execute(
                "SELECT next_number, exposed_before, session FROM oncewire_publishers WHERE link = ?", (link_name,)
            ).fetchone()
            if row is None:
                return PublisherState()
            messages = self.connection.execute(
                "SELECT number, payload, in_doubt, outcome FROM oncewire_messages WHERE link = ? ORDER BY number",
                (link_name,),
            )
            stored = tuple(
                StoredMessage(number, payload, bool(in_doubt), outcome_from_text(outcome) if outcome else None)
                for number, payload, in_doubt, outcome in messages
            )
            return PublisherState(row[0], row[1], row[2], stored)

        return self._run(read)

    def open_subscriber(self, link_name: str) -> SubscriberState:
        """Read a subscriber's part; see Journal."""

        def read() -> SubscriberState:
            row = self.connection.execute(
                "SELECT incarnation FROM oncewire_subscribers WHERE link = ?", (link_name,)
            ).fetchone()
            if row is None:
                return SubscriberState()
            entries = self.connection.execute(
                "SELECT tag, outcome FROM oncewire_deliveries WHERE link = ? ORDER BY place", (link_name,)
            )
            ids = self.connection.execute(
                "SELECT user, digest, rejected FROM oncewire_done_ids WHERE link = ? ORDER BY place", (link_name,)
            )
            return SubscriberState(
                row[0],
                tuple((tag, outcome_from_text(outcome) if outcome else None) for tag, outcome in entries),
                tuple(DoneId(MessageIdentity(user, digest), bool(rejected)) for user, digest, rejected in ids),
            )

        return self._run(read)

    # --- writing ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a transaction; see Journal."""

        def begin() -> None:
            self.connection.execute("BEGIN IMMEDIATE")
            self._is_begun = True

        self._run(begin)

    def write_publisher(self, link_name: str, changes: PublisherChanges) -> None:
        """Add a publisher's changes; see Journal."""
        over = [number for number, outcome in changes.decided if outcome.is_accepted]
        over += changes.forgotten
        self._many(
            "INSERT INTO oncewire_messages (link, number, payload, in_doubt) VALUES (?, ?, ?, ?)",
            ((link_name, message.number, message.payload, message.in_doubt) for message in changes.stored),
        )
        self._many(
            "DELETE FROM oncewire_messages WHERE link = ? AND number BETWEEN ? AND ?",
            ((link_name, first, last) for first, last in _runs(over)),  # one for all, nearly always
        )
        self._many(
            "UPDATE oncewire_messages SET outcome = ? WHERE link = ? AND number = ?",
            (
                (outcome_to_text(outcome), link_name, number)
                for number, outcome in changes.decided
                if not outcome.is_accepted
            ),
        )
        self._many(
            "UPDATE oncewire_messages SET in_doubt = 1 WHERE link = ? AND number = ?",
            ((link_name, number) for number in changes.doubted),
        )
        self._many(
            "INSERT OR REPLACE INTO oncewire_publishers VALUES (?, ?, ?, ?)",
            [(link_name, changes.next_number, changes.exposed_before, changes.session)],
        )

    def write_subscriber(self, link_name: str, changes: SubscriberChanges) -> None:
        """Add a subscriber's changes; see Journal."""
        self._many(
            "DELETE FROM oncewire_deliveries WHERE link = ? AND tag = ?",
            ((link_name, tag) for tag in changes.forgotten),
        )
        self._many(
            "INSERT INTO oncewire_deliveries (link, tag, outcome) VALUES (?, ?, ?)"
            " ON CONFLICT (link, tag) DO UPDATE SET outcome = excluded.outcome",  # its place stays
            ((link_name, tag, outcome_to_text(outcome) if outcome else None) for tag, outcome in changes.entries),
        )
        if changes.done_ids or changes.forgotten_ids:
            self._write_ids(link_name, changes)
        self._many("INSERT OR REPLACE INTO oncewire_subscribers VALUES (?, ?)", [(link_name, changes.incarnation)])

    def _write_ids(self, link_name: str, changes: SubscriberChanges) -> None:
        self._many(
            "DELETE FROM oncewire_done_ids WHERE link = ? AND user = ? AND digest = ?",
            ((link_name, each.user, each.digest) for each in changes.forgotten_ids),
        )
        self._many(
            "INSERT OR REPLACE INTO oncewire_done_ids (link, user, digest, rejected) VALUES (?, ?, ?, ?)",
            ((link_name, done.identity.user, done.identity.digest, done.is_rejected) for done in changes.done_ids),
        )

    def commit(self) -> None:
        """Make the transaction durable; see Journal."""

        def commit() -> None:
            if not self.connection.in_transaction:
                raise JournalUnusable(
                    f"nothing was committed to the journal {self.path}",
                    "the transaction was ended inside `transaction()`",
                    "do not call commit() or rollback() there; leave the block to commit, raise to roll back",
                )
            self.connection.execute("COMMIT")

        try:
            self._run(commit)
        finally:
            self._end()

    def rollback(self) -> None:
        """Drop the transaction; see Journal."""
        with self._turn:
            self._drop()
            self._end()

    def _drop(self) -> None:
        if not self._closed and self.connection.in_transaction:  # closing it has dropped the transaction
            with suppress(sqlite3.Error):  # what a rollback cannot undo, the next opening does
                self.connection.execute("ROLLBACK")

    def _end(self) -> None:
        """The transaction has ended, and with it the application's use of the connection."""
        with self._turn:
            self._is_begun = False
            if self._closed:
                self.connection.close()

    def close(self) -> None:
        """Let go of the file; see Journal."""
        with self._turn:
            if self._closed:
                return
            if self._is_begun:
                self._break_off()
            else:
                self.connection.close()
            self._closed = True
            self._let_go()

    def _break_off(self) -> None:
        """Drop the transaction under the application, which may be executing a statement of its own in any thread.

        So the handle stays until the block of `transaction()` ends; nothing can be written with it. What it executes
        now ends first, for SQLite runs one statement of a handle at a time.
        """
        self._drop()
        with suppress(sqlite3.Error):  # then it is the handle of a file that cannot be used
            self.connection.execute("PRAGMA query_only = ON")

    # --- errors -------------------------------------------------------------------------------------------------------

    def _many(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._run(lambda: self.connection.executemany(statement, rows))

    def _run(self, work: Callable[[], T]) -> T:
        """Do it, and turn SQLite's errors into ours; what it began is rolled back."""
        with self._turn:
            if self._closed:
                raise self._was_closed()
            try:
                return work()
            except sqlite3.Error as error:
                self._drop()
                raise self._explain(error) from error

    def explain(self, error: BaseException) -> BaseException:
        """Return what an error of the application's block means; see Journal."""
        return self._was_closed() if self._closed and isinstance(error, sqlite3.Error) else error

    def _was_closed(self) -> JournalError:
        return JournalUnusable(
            f"the journal {self.path} cannot be used",
            "it was closed, while a client used it or a block of `transaction()` was open",
            "leave the block, close the client, and then the journal; opened again, the links resume from it",
        )

    def _explain(self, error: sqlite3.Error) -> JournalError:
        # The extended code's low byte is the primary one.
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
        what = f"the journal {self.path} cannot be used"
        why = f"SQLite reports: {error}"
        if code == sqlite3.SQLITE_FULL:
            return JournalFull(what, why, _MAKE_ROOM)
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return JournalLocked(what, why, "end the program that holds a transaction open on this file")
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            return JournalCorrupt(what, why, "restore the file, or use a new one: what was in flight is then in doubt")
        return self._unusable(error)

    def _unusable(self, error: Exception) -> JournalError:
        what = f"the journal {self.path} cannot be used"
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return JournalFull(what, why, _MAKE_ROOM)
        return JournalUnusable(what, why, "check that the folder exists and that this user may write there")
