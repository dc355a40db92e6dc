"""Writes what the cores want written: at once for a memory journal, in groups and in a thread for a durable one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

from oncewire.client.errors import ClientClosed, JournalError, JournalLocked, JournalOwnerError
from oncewire.client.journal import Journal
from oncewire.client.put_off import ended, in_thread, wait_out

T = TypeVar("T")

PATIENCE_S = 10.0
"""How long a client that closes waits for a block of `transaction()`: a block is local work, of milliseconds. One that
waits for something can wait for ever, and it can commit nothing once its link has ended (S-2)."""


class JournalUser(Protocol):
    """A link whose core is kept in the journal."""

    def _check_usable(self) -> None:
        """Raise why the link has ended, if it has: nothing of it may be written any more (S-2)."""

    @property
    def _wants_commit(self) -> bool:
        """Whether its core has something to write; a link that has ended has not (S-2)."""

    def _take_commit(self) -> Callable[[], None]:
        """Take the core's changes; the callable writes them into the open transaction (it may run in a thread)."""

    def _skip_commit(self) -> None:
        """Take the core's changes, which nobody writes."""

    def _commit_done(self) -> None:
        """The changes taken are durable."""

    def _commit_failed(self, error: JournalError) -> None:
        """They are not: the link cannot continue."""


class JournalWriter:
    """All commits of one journal, one after the other, and the reading of a part between two of them (S-2).

    Args:
        journal: exclusive from now on.

    Raises:
        JournalOwnerError: another client of this process uses it.
    """

    def __init__(self, journal: Journal) -> None:
        if journal.is_claimed:
            raise JournalOwnerError(
                "the journal cannot be used",
                "another client of this process uses it",
                "open a journal of its own for each client",
            )
        journal.is_claimed = True
        self.journal = journal
        self._users: list[JournalUser] = []
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._is_stopped = False
        self._has_claim = True
        self._patience_s: float | None = None
        self._thread = ThreadPoolExecutor(1, "oncewire-journal") if journal.is_durable else None
        self._under_way: asyncio.Future[Any] | None = None

    def add(self, user: JournalUser) -> None:
        """Serve a link."""
        self._users.append(user)

    def remove(self, user: JournalUser) -> None:
        """Stop serving a link."""
        if user in self._users:
            self._users.remove(user)

    def work(self, user: JournalUser) -> None:
        """There may be something to write for `user`. With a memory journal it is done when this returns."""
        if self._thread is None:
            while user._wants_commit:
                user._skip_commit()
                user._commit_done()
        elif user._wants_commit:
            self._wake.set()

    async def run(self) -> None:
        """Commit whenever something is to be written; ends by cancellation only. For durable journals."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            async with self._lock:
                with suppress(JournalError):  # each user was notified in commit_failed
                    await self._commit([user for user in self._users if user._wants_commit])

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Hold the journal while no operation on it is in progress: its content is what was committed (S-2)."""
        async with self._lock:
            yield

    async def read(self, work: Callable[[], T]) -> T:
        """Read from the journal while `at_rest` holds it; in its thread, for a database may take its time."""
        return work() if self._thread is None else await in_thread(self._thread, work)

    @asynccontextmanager
    async def transaction(self, user: JournalUser) -> AsyncIterator[Callable[[], None]]:
        """Hold the journal with a transaction open, for the application's own changes.

        Yields a function to be called last: it adds the core's changes. Leaving the block commits; an exception inside
        rolls everything back and changes nothing, as long as that function was not called.

        Raises:
            ClientError: the link has ended, before the transaction began or inside the block: nothing was written.
            JournalError: nothing became durable.
        """
        async with self._turn():
            self._check_running()
            added = False
            cancelled, error = await self._to_end(self.journal.begin)
            if cancelled and error is None:
                self.journal.rollback()
            _raise(cancelled, error)

            def add_changes() -> None:
                nonlocal added
                user._check_usable()  # S-2: it may have ended inside the block
                self._check_running()
                added = True
                user._take_commit()()

            try:
                user._check_usable()  # S-2: it may have ended while this waited
                yield add_changes
            except BaseException as error:
                meant = self.journal.explain(error)
                self.journal.rollback()
                if added:  # the core counts on changes that are not there
                    user._commit_failed(as_journal_error(meant))
                if meant is not error:
                    raise meant from error
                raise
            await self._finish(self.journal.commit, [user])

    async def drain(self, user: JournalUser) -> None:
        """Write everything the user's core wants written now; nothing if the link ends before its turn comes.

        Raises:
            JournalError: it did not become durable.
            JournalLocked: the client closes, and a block of `transaction()` did not end in time.
        """
        if self._thread is None:
            self.work(user)
            return
        async with self._last_turn():
            while user._wants_commit:
                await self._commit([user])

    async def _commit(self, users: list[JournalUser]) -> None:
        if not users:
            return
        writes = [user._take_commit() for user in users]

        def write_all() -> None:
            self.journal.begin()
            try:
                for write in writes:
                    write()
                self.journal.commit()
            except JournalError:
                self.journal.rollback()
                raise

        await self._finish(write_all, users)

    async def _finish(self, work: Callable[[], None], users: list[JournalUser]) -> None:
        """Run the end of a transaction and notify the users of the result.

        Raises:
            JournalError: it did not become durable.
        """
        cancelled, error = await self._to_end(work)
        for user in users:
            if error is None:
                user._commit_done()
            else:
                user._commit_failed(as_journal_error(error))
        _raise(cancelled, error)

    async def _to_end(self, work: Callable[[], None]) -> tuple[bool, BaseException | None]:
        """Run it in the journal's thread; returns whether this was cancelled meanwhile, and what it raised.

        The cancellation is put off: half a commit is none.
        """
        assert self._thread is not None
        running = self._under_way = asyncio.get_running_loop().run_in_executor(self._thread, work)
        cancelled = await wait_out(running)
        return cancelled, running.exception()

    def hurry(self, patience_s: float = PATIENCE_S) -> None:
        """The client closes: `drain` and `stop` wait no longer than this for a block, and no further one after it."""
        self._patience_s = patience_s

    async def stop(self) -> None:
        """Release the journal when operations in progress have ended. All its links have ended before.

        A block of the application that does not end in time, or when this is cancelled, is left behind: it can commit
        nothing any more, and the journal is released when it ends.
        """
        if self._patience_s is None:
            self.hurry()
        self._is_stopped = True
        try:
            with suppress(JournalLocked):
                async with self._last_turn():
                    pass
        finally:
            try:
                if self._under_way is not None:
                    await ended(self._under_way)  # a commit ends first
            finally:
                if self._thread is not None:
                    self._thread.shutdown(wait=True)
                self._release()

    def _release(self) -> None:
        """Give the journal back, once: another client may have claimed it since."""
        if self._lock.locked():  # whoever holds it does this at the end
            return
        if self._is_stopped and self._has_claim:
            self._has_claim = False
            self.journal.is_claimed = False

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Hold the journal for a block of the application, which `stop` may leave behind."""
        try:
            async with self._lock:
                yield
        finally:
            self._release()

    @asynccontextmanager
    async def _last_turn(self) -> AsyncIterator[None]:
        """Hold the journal for the end of a link or of the client."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._lock.acquire()
        except (TimeoutError, asyncio.CancelledError) as error:
            if self._patience_s is not None:
                self._patience_s = 0.0
            if isinstance(error, TimeoutError):
                raise JournalLocked(
                    "the last changes were not written to the journal",
                    f"a transaction of this program has held it for more than {PATIENCE_S:g} s",
                    "leave the block of `transaction()` before the client is closed",
                ) from None
            raise
        try:
            yield
        finally:
            self._lock.release()
            self._release()

    def _check_running(self) -> None:
        if self._is_stopped:
            raise ClientClosed(
                "nothing was written to the journal", "its client is closed", "open the link again with a new client"
            )


def _raise(cancelled: bool, error: BaseException | None) -> None:
    """A cancellation counts before an error: lost with it, `run` would go on, and its client wait for it for ever."""
    if cancelled:
        raise asyncio.CancelledError from error
    if error is not None:
        raise error


def as_journal_error(error: BaseException | None) -> JournalError:
    """Return what a failure in the journal means for a link."""
    if isinstance(error, JournalError):
        return error
    return JournalError(
        "a transaction of the journal was broken off", repr(error), "open the link again: it resumes from the journal"
    )
