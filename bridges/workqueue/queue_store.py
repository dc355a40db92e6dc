"""A store of queues for asyncio: jobs in transactions, and waiting for items until they are due, or a notice."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

from bridges.workqueue.errors import QueueError, StoreUnreachable
from bridges.workqueue.group_commit import GroupCommit
from bridges.workqueue.mongodb_operations import MongoStore
from bridges.workqueue.notices import EVERYTHING
from bridges.workqueue.opening import open_any_store
from bridges.workqueue.store import Operations, Store
from oncewire.client.put_off import ended

T = TypeVar("T")

POLL_S = 1.0
"""W-13: a MongoDB store is asked once in so long, for each queue that somebody here waits for; it sends no notices."""


class QueueStore:
    """An open store. Made by ``QueueStore.open``; for one event loop.

    Args:
        store: the database.
    """

    def __init__(self, store: Store | MongoStore) -> None:
        self._direct = store if isinstance(store, MongoStore) else None
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._notices = -1
        self._listening: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._due: dict[str, float | None] = {}
        """When something can be taken from a queue, as its waiters know it; of a store that is polled."""
        self._closing: asyncio.Task[None] | None = None
        self._store = None if isinstance(store, MongoStore) else store
        self._group: GroupCommit | None = None
        if self._store is not None:
            self._group = GroupCommit(self._store, self._wake_from_thread, self._deliver_from_thread)
        self._finished: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()

    @property
    def has_transactions(self) -> bool:
        """Whether a job may be several operations."""
        return self._store is not None

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[QueueStore]:
        """Open the store at an address (see open_any_store) for the block.

        Raises:
            QueueError: it cannot be opened.
        """
        opened = cls(await open_any_store(url))
        try:
            yield opened
        finally:
            await opened.close()

    async def transact(self, job: Callable[[Operations], T]) -> T:
        """Run a job in a transaction; durable on return (W-1).

        The job runs in the store's thread, together with others, and again after a failure of another one: it has no
        effect but in the transaction. It may write the application's own tables with ``execute``.

        Raises:
            QueueError: nothing has happened. After StoreUnreachable the commit may have happened: repeat operations
                with handles, they have no second effect (W-5).
        """
        self._check_open()
        if self._direct is not None:
            done, touched = await self._direct.perform(job)
            self._wake(touched)
            return done
        waiter, future = self._submit(job)
        try:
            return await waiter
        except asyncio.CancelledError:
            future.cancel()
            raise

    def start(self, job: Callable[[Operations], T]) -> asyncio.Future[T]:
        """Begin a transaction, in this step of the loop: what all tasks begin in it is one group.

        It goes on when its caller is cancelled.
        """
        self._check_open()
        return asyncio.ensure_future(self.transact(job)) if self._group is None else self._submit(job)[0]

    def _submit(self, job: Callable[[Operations], T]) -> tuple[asyncio.Future[T], Future[T]]:
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

    def transact_blocking(self, job: Callable[[Operations], T]) -> T:
        """Do the same from another thread, which waits; for stores with transactions of several operations."""
        self._check_open()
        assert self._group is not None
        result: T = self._group.submit(job).result()
        return result

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StoreUnreachable("the store cannot be used", "it was closed", "open it again")

    async def seconds_to_due(self, queue: str) -> float | None:
        """Return how long it is until something can be taken; None = nothing waits."""
        if self._direct is not None:
            due = self._due[queue] = await self._next_due(self._direct, queue)
            now, _ = await self._direct.perform(lambda do: do.now)
        else:
            due, now = await self.transact(lambda do: (do.next_due(queue), do.now))
        return None if due is None else due - now

    @staticmethod
    async def _next_due(store: MongoStore, queue: str) -> float | None:
        due, _ = await store.perform(lambda do: do.next_due(queue))
        return due

    @contextmanager
    def waiting(self, queue: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever items of a queue may have become ready earlier than was known (W-13)."""
        event = asyncio.Event()
        self._waiters.setdefault(queue, set()).add(event)
        try:
            yield event
        finally:
            self._waiters[queue].discard(event)
            if not self._waiters[queue]:
                del self._waiters[queue]
                self._due.pop(queue, None)

    async def listen(self) -> None:
        """Receive the notices of other processes from now on, or poll a store that sends none while somebody waits.

        Raises:
            QueueError: the store cannot send any.
        """
        if self._direct is not None:
            if self._closing is None and (self._polling is None or self._polling.done()):
                self._polling = self._loop.create_task(self._poll(self._direct))
            return
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

    async def _poll(self, store: MongoStore) -> None:
        """W-13: wake those who wait for a queue when another process has changed what can be taken there, and when."""
        while True:
            await asyncio.sleep(POLL_S)
            if not self._waiters:
                return
            for queue in [*self._waiters]:
                try:
                    due = await self._next_due(store, queue)
                except QueueError:  # those who wait look now, and meet it
                    self._wake(frozenset({queue}))
                    continue
                if due is not None and due != self._due.get(queue, due):
                    self._due[queue] = due
                    self._wake(frozenset({queue}))

    def _read_notices(self) -> None:
        assert self._store is not None
        try:
            queues = self._store.read_notices()
        except QueueError:  # the next one who waits listens anew, and those who wait look now
            self._loop.remove_reader(self._notices)
            self._notices, self._listening = -1, None
            queues = EVERYTHING
        self._wake(queues)

    def _wake_from_thread(self, queues: frozenset[str]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(self._wake, queues)

    def _wake(self, queues: frozenset[str]) -> None:
        names = self._waiters.keys() if queues & EVERYTHING else queues & self._waiters.keys()
        for name in names:
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
            with suppress(QueueError):  # it belongs to those who wait
                await self._listening
        if self._notices >= 0:
            self._loop.remove_reader(self._notices)
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait({self._polling})
        if self._direct is not None:
            await self._direct.close()
        if self._group is not None and self._store is not None:
            await asyncio.to_thread(self._group.close)
            self._store.close()


async def until_set(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but no longer; Python 3.11's `wait_for` may lose a cancellation that comes with it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
