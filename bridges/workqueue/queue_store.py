"""A store of queues for asyncio: one with transactions, or a MongoDB store, which is polled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from bridges.workqueue.errors import QueueError
from bridges.workqueue.merging_core import merge
from bridges.workqueue.mongodb_operations import MongoStore
from bridges.workqueue.opening import open_any_store
from bridges.workqueue.store import Operations
from oncewire.store.contents import Contents
from oncewire.store.open_store import OpenStore
from oncewire.store.store import Store

T = TypeVar("T")

POLL_S = 1.0
"""W-13: a MongoDB store is asked once in so long, for each queue that somebody here waits for; it sends no notices."""


class QueueStore(OpenStore[Operations]):
    """An open store. Made by ``QueueStore.open``; for one event loop.

    Args:
        store: the database.
    """

    def __init__(self, store: Store | MongoStore) -> None:
        self._direct = store if isinstance(store, MongoStore) else None
        self._polling: asyncio.Task[None] | None = None
        self._due: dict[str, float | None] = {}
        """When something can be taken from a queue, as its waiters know it; of a store that is polled."""
        super().__init__(None if isinstance(store, MongoStore) else store, merge)

    @property
    def has_transactions(self) -> bool:
        """Whether a job may be several operations."""
        return self._direct is None

    @classmethod
    async def _opened(cls, url: str, contents: Contents | None) -> Store | MongoStore:
        return await open_any_store(url, contents)

    async def transact(self, job: Callable[[Operations], T]) -> T:
        """Run a job in a transaction; durable on return (W-1).

        The job runs in the store's thread, together with others, and again after a failure of another one: it has no
        effect but in the transaction. It may write the application's own tables with ``execute``.

        Raises:
            QueueError: nothing has happened. After StoreUnreachable the commit may have happened: repeat operations
                with handles, they have no second effect (W-5).
        """
        if self._direct is None:
            return await super().transact(job)
        self._check_open()
        done, touched = await self._direct.perform(job)
        self._wake(touched)
        return done

    def start(self, job: Callable[[Operations], T]) -> asyncio.Future[T]:
        """Begin a transaction, in this step of the loop; see OpenStore."""
        if self._direct is None:
            return super().start(job)
        self._check_open()
        return asyncio.ensure_future(self.transact(job))

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
    def waiting(self, name: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever items of a queue may have become ready earlier than was known (W-13)."""
        try:
            with super().waiting(name) as event:
                yield event
        finally:
            if name not in self._waiters:
                self._due.pop(name, None)

    async def listen(self) -> None:
        """Receive the notices of other processes from now on, or poll a store that sends none while somebody waits.

        Raises:
            QueueError: the store cannot send any.
        """
        if self._direct is None:
            await super().listen()
        elif self._closing is None and (self._polling is None or self._polling.done()):
            self._polling = self._loop.create_task(self._poll(self._direct))

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

    async def _release(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait({self._polling})
        if self._direct is not None:
            await self._direct.close()
        await super()._release()
