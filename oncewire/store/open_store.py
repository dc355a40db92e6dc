"""An open store for asyncio: jobs in transactions, and waiting for what another task or process changes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Generic, Self, TypeVar

from oncewire.client.put_off import ended, in_thread
from oncewire.store.contents import Contents
from oncewire.store.errors import EdgeError, StoreUnreachable, closed_store
from oncewire.store.group_commit import GroupCommit
from oncewire.store.merging_core import Merge, unmerged
from oncewire.store.notices import EVERYTHING
from oncewire.store.opening import open_store
from oncewire.store.store import Store, Transaction

T = TypeVar("T")
Work = TypeVar("Work", bound=Transaction)

LONGEST_SLEEP_S = 60.0
"""A notice may be lost with the process that sends it: nobody waits longer than this without looking (W-13)."""


class OpenStore(Generic[Work]):
    """An open store, for one event loop. `Work` is what its jobs get.

    Args:
        store: the database; None = a subclass runs the jobs.
        merge: makes fewer jobs of those that wait together.
    """

    def __init__(self, store: Store | None, merge: Merge = unmerged) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._notices = -1
        self._listening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._store = store
        self._group: GroupCommit | None = None
        if store is not None:
            self._group = GroupCommit(store, merge, self._wake_from_thread, self._deliver_from_thread)
        self._finished: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, contents: Contents | None = None) -> AsyncIterator[Self]:
        """Open the store at an address (see open_store) for the block.

        Args:
            url: the address.
            contents: of the store; None = as this class has them.

        Raises:
            EdgeError: it cannot be opened.
        """
        opened = cls(await cls._opened(url, contents))
        try:
            yield opened
        finally:
            await opened.close()

    @classmethod
    async def _opened(cls, url: str, contents: Contents | None) -> Any:
        """Return the store for the constructor; cancelled, it leaves none open."""
        return await in_thread(None, lambda: open_store(url, contents), lambda store: store.close())

    @property
    def has_transactions(self) -> bool:
        """Whether a job may be several operations."""
        return self._store is not None

    async def transact(self, job: Callable[[Work], T]) -> T:
        """Run a job in a transaction; durable on return (W-1).

        The job runs in the store's thread, together with others, and again after a failure of another one: it has no
        effect but in the transaction. It may write the application's own tables with ``execute``.

        Raises:
            EdgeError: nothing has happened. After StoreUnreachable the commit may have happened.
        """
        self._check_open()
        waiter, future = self._submit(job)
        try:
            return await waiter
        except asyncio.CancelledError:
            future.cancel()
            raise

    async def transact_within(self, seconds: float, job: Callable[[Work], T]) -> T:
        """The same, in some time; a store that takes longer is broken off from, and all who wait for it fail.

        Raises:
            StoreUnreachable: it has not answered; the transaction may have happened.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self.transact(job)
        except TimeoutError:
            assert self._store is not None
            self._store.break_off()
            fix = "check the connection to its server; it is tried again"
            raise StoreUnreachable("the store cannot be used", f"it has not answered for {seconds:g} s", fix) from None

    def start(self, job: Callable[[Work], T]) -> asyncio.Future[T]:
        """Begin a transaction, in this step of the loop: what all tasks begin in it is one group.

        It goes on when its caller is cancelled.
        """
        self._check_open()
        return self._submit(job)[0]

    def _submit(self, job: Callable[[Work], T]) -> tuple[asyncio.Future[T], Future[T]]:
        assert self._group is not None
        waiter: asyncio.Future[T] = self._loop.create_future()
        future = self._group.submit(job)
        future.add_done_callback(lambda done: self._finished.append((waiter, done)))
        return waiter, future

    def _deliver_from_thread(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Deliver all that a group has done: to wake the loop for each job would cost more than the job."""
        while self._finished:
            waiter, done = self._finished.popleft()
            if waiter.done():  # cancelled
                continue
            error = done.exception()
            if error is None:
                waiter.set_result(done.result())
            else:
                waiter.set_exception(error)

    def transact_blocking(self, job: Callable[[Work], T]) -> T:
        """Do the same from another thread, which waits."""
        self._check_open()
        assert self._group is not None
        result: T = self._group.submit(job).result()
        return result

    def _check_open(self) -> None:
        if self._closing is not None:
            raise closed_store()

    @contextmanager
    def waiting(self, name: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever what has this name, such as a queue, may have changed (W-13)."""
        event = asyncio.Event()
        self._waiters.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            self._waiters[name].discard(event)
            if not self._waiters[name]:
                del self._waiters[name]

    async def listen(self) -> None:
        """Receive the notices of other processes from now on.

        Raises:
            EdgeError: the store cannot send any.
        """
        if self._listening is None and self._closing is None:
            self._listening = self._loop.create_task(self._listen())
        if self._listening is not None:
            await asyncio.shield(self._listening)  # others wait for it, too, and `close`

    async def _listen(self) -> None:
        assert self._store is not None
        try:
            self._notices = await asyncio.to_thread(self._store.open_notices)
        except BaseException:
            self._listening = None
            raise
        self._loop.add_reader(self._notices, self._read_notices)

    def _read_notices(self) -> None:
        assert self._store is not None
        try:
            names = self._store.read_notices()
        except EdgeError:  # the next one who waits listens anew, and those who wait look now
            self._loop.remove_reader(self._notices)
            self._notices, self._listening = -1, None
            names = EVERYTHING
        self._wake(names)

    def _wake_from_thread(self, names: frozenset[str]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(self._wake, names)

    def _wake(self, names: frozenset[str]) -> None:
        known = self._waiters.keys()
        for name in known if names & EVERYTHING else names & known:
            for event in self._waiters[name]:
                event.set()

    async def close(self) -> None:
        """Finish what was begun and release the store, also when this is cancelled; again: wait for the same."""
        if self._closing is None:
            self._wake(EVERYTHING)
            self._closing = self._loop.create_task(self._release())
        await ended(self._closing)
        self._closing.result()

    async def _release(self) -> None:
        if self._listening is not None:
            with suppress(EdgeError):  # it belongs to those who wait
                await self._listening
        if self._notices >= 0:
            self._loop.remove_reader(self._notices)
        if self._group is not None and self._store is not None:
            await asyncio.to_thread(self._group.close)
            await asyncio.to_thread(self._store.close)


async def until_set(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but no longer; Python 3.11's `wait_for` may lose a cancellation that comes with it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
