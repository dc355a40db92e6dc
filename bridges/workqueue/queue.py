"""A work queue for asyncio: what applications import."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from bridges.store.outbox import NewMessage
from bridges.workqueue.errors import QueueEmpty, QueueError
from bridges.workqueue.items import (
    DEFAULT_PRIORITY,
    Commit,
    Ending,
    Handle,
    Json,
    NewItem,
    Page,
    Pushed,
    QueueSettings,
    Rollback,
    Schedule,
    Search,
    Statistics,
    Taken,
    Target,
    decode,
    encode,
)
from bridges.workqueue.merging_core import CommitJob, NextJob, ReserveJob
from bridges.workqueue.messages import new_message
from bridges.workqueue.outbox import commit_async, push_async
from bridges.workqueue.queue_store import QueueStore
from bridges.workqueue.store import Operations
from oncewire.client.bodies import Body
from oncewire.client.put_off import ended, wait_out
from oncewire.store.errors import InvalidRequest, StoreUnreachable
from oncewire.store.open_store import LONGEST_SLEEP_S, until_set

T = TypeVar("T")

SHORTEST_SLEEP_S = 0.05
"""Something is ready, and another transaction is taking it: it ends soon, and no notice is sent."""
TIMEOUT_S = 30.0
"""How long a reservation holds, unless the caller says otherwise."""


def unix_time(when: datetime | float | None) -> float | None:
    """Return a time in Unix seconds.

    Raises:
        InvalidRequest: a datetime without a time zone.
    """
    if not isinstance(when, datetime):
        return when
    if when.tzinfo is None:
        raise InvalidRequest(f"the time {when} cannot be used", "it has no time zone", "give datetime.now(UTC) or so")
    return when.timestamp()


def _roll_back(do: Operations, rollback: Rollback) -> None:
    do.rollback([rollback])


class Reserved:
    """An item that this worker has reserved.

    Args:
        queue: where it was taken.
        taken: the item.

    Attributes:
        taken: id and reservation (`handle`), `retries`, `priority`, times.
        result: noted in the history by the commit, unless None; set it before the end of the block.
        is_settled: whether it was committed, rolled back or moved.
    """

    def __init__(self, queue: Queue, taken: Taken) -> None:
        self._queue = queue
        self._changed: bytes | None = None
        self._messages: list[NewMessage] = []
        self.taken = taken
        self.result: bytes | Json | None = None
        self.is_settled = False

    @property
    def handle(self) -> Handle:
        """What settles the item, in this process or another."""
        return self.taken.handle

    @property
    def payload(self) -> bytes:
        """The bytes, with the changes of `replace`."""
        return self.taken.payload if self._changed is None else self._changed

    @property
    def json(self) -> Json:
        """The payload's value.

        Raises:
            ValueError: it is no JSON.
        """
        return decode(self.payload)

    def replace(self, payload: bytes | Json) -> None:
        """Give the item another payload; commit and move store it."""
        self._changed = encode(payload)

    def publish(self, topic: str, body: Body | Json) -> None:
        """Publish a message in the transaction that commits or moves the item, and not if it fails (W-21).

        Args:
            topic: where it goes; `OutboxPublisher` sends it.
            body: bytes, an ``oncewire.wire.Message``, or a value that becomes JSON.
        """
        self._messages.append(new_message(topic, body))

    def as_commit(self) -> Commit:
        """What commits the item, for a transaction of the application's own."""
        result = None if self.result is None else encode(self.result)
        return Commit(self.handle, result, self._changed, tuple(self._messages))

    async def __aenter__(self) -> Self:
        """A block that commits the item at its end, and rolls it back at an exception."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or roll back, unless the block has settled the item.

        Raises:
            AlreadyReassigned: the block took longer than the reservation held (W-5).
        """
        if self.is_settled:
            return
        if error is not None:
            is_failure = not isinstance(error, asyncio.CancelledError)  # else the worker stops
            reason = f"{type(error).__name__}: {error}" if is_failure else ""
            await self._queue.give_back([Rollback(self.handle, None if is_failure else 0.0, reason, is_failure)])
            return
        committing = asyncio.ensure_future(self._commit_surely())
        await ended(committing)
        committing.result()

    async def _commit_surely(self) -> None:
        try:
            await self.commit()
        except StoreUnreachable:  # whether it happened is not known; a second time has no second effect (W-5)
            await self.commit()

    async def extend(self, timeout: float = TIMEOUT_S) -> None:
        """Make the reservation run out `timeout` seconds from now."""
        await self._queue.extend(self.handle, timeout)

    async def commit(self, result: bytes | Json | None = None, *, connection: object = None) -> None:
        """The item is done.

        With `connection`, one of the application's own with a transaction in the same database, it is done if that
        commits; after a rollback it comes back when its reservation runs out. See `bridges.workqueue.outbox`.
        """
        if result is not None:
            self.result = result
        if connection is not None:
            await commit_async(connection, self.as_commit())
        else:
            await self._queue.commit_many([self.as_commit()])
        self.is_settled = True

    async def commit_and_reserve(self, timeout: float = TIMEOUT_S) -> Reserved | None:
        """The item is done, and the next one is reserved, in one transaction: half the durable writes.

        Not for MongoDB stores. After StoreUnreachable `commit` again (W-5); what was reserved comes back in time.

        Args:
            timeout: of the next reservation, in seconds.

        Returns:
            the next item of the queue; None if none is ready.
        """
        following = await self._queue.commit_and_reserve([self.as_commit()], 1, timeout)
        self.is_settled = True
        return following[0] if following else None

    async def rollback(self, reason: str = "", *, delay: float | None = None, is_failure: bool = True) -> None:
        """Give the item back: after `delay` seconds, or after the back-off; see Rollback."""
        await self._queue.rollback_many([Rollback(self.handle, delay, reason, is_failure)])
        self.is_settled = True

    async def move(self, *targets: str | Target, delay: float = 0.0) -> list[int]:
        """Move the item to a queue, or fork it into several, in one step (W-10). Returns the ids there.

        Args:
            targets: names of queues, or Targets where one gets a payload, time or priority of its own.
            delay: for targets that are names.
        """
        whole = [
            Target(target, self._changed, delay)
            if isinstance(target, str)
            else Target(
                target.queue,
                self._changed if target.payload is None else target.payload,
                target.delay,
                target.when,
                target.priority,
            )
            for target in targets
        ]
        items = await self._queue.move(self.handle, whole, self._messages)
        self.is_settled = True
        return items


class Queue:
    """One queue of a store. All methods raise QueueError, and then nothing has happened.

    Args:
        store: where it is.
        name: of the queue.
    """

    def __init__(self, store: QueueStore, name: str) -> None:
        self.store = store
        self.name = name

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, name: str, **settings: float) -> AsyncIterator[Queue]:
        """Open a store and a queue in it for the block; the queue is made if there is none.

        Args:
            url: of the store; see open_store.
            name: of the queue.
            settings: changes of the queue's settings; see QueueSettings.
        """
        async with QueueStore.open(url) as store:
            queue = cls(store, name)
            await queue.configure(**settings)
            yield queue

    async def configure(self, **settings: float) -> QueueSettings:
        """Make the queue if there is none, and change settings; returns all of them."""
        return await self.store.transact(lambda do: do.configure(self.name, **settings))

    async def transact(self, job: Callable[[Operations], T]) -> T:
        """Run several operations, and the application's own statements, as one transaction; see QueueStore."""
        return await self.store.transact(job)

    async def push(
        self,
        payload: bytes | Json,
        *,
        delay: float = 0.0,
        when: datetime | float | None = None,
        priority: int = DEFAULT_PRIORITY,
        key: str | None = None,
        connection: object = None,
    ) -> Pushed:
        """Add an item: bytes, or a value that is stored as JSON; see NewItem.

        With `connection`, one of the application's own with a transaction in the same database, it is added if that
        commits; see `bridges.workqueue.outbox`.
        """
        item = NewItem(encode(payload), delay, unix_time(when), priority, key)
        if connection is not None:
            return (await push_async(connection, self.name, item))[0]
        return (await self.push_many([item]))[0]

    async def push_many(self, items: Sequence[NewItem]) -> list[Pushed]:
        """Add items, all or none."""
        return await self.store.transact(lambda do: do.push(self.name, items))

    async def pop(self, *, wait: float | None = 0.0) -> Taken | None:
        """Take the next ready item for good: it is never delivered twice, and is lost if this process crashes now.

        Args:
            wait: seconds to wait for one; None = for ever.

        Returns:
            the item, or None if none became ready.
        """
        found = await self._take(lambda do: do.pop(self.name, 1), wait)
        return found[0] if found else None

    def reserve(
        self, timeout: float = TIMEOUT_S, *, wait: float | None = None
    ) -> AbstractAsyncContextManager[Reserved]:
        """Reserve the next item for a block: committed at its end, rolled back at an exception.

        Args:
            timeout: seconds after which others may reserve it, too; `extend` gives more.
            wait: seconds to wait for an item; None = for ever.

        Raises:
            QueueEmpty: no item became ready.
            AlreadyReassigned: at the end of the block, when it took longer than the reservation held (W-5).
        """
        return self._reserve(timeout, wait)

    @asynccontextmanager
    async def _reserve(self, timeout: float, wait: float | None) -> AsyncIterator[Reserved]:
        found = await self.reserve_many(1, timeout, wait=wait)
        if not found:
            raise QueueEmpty(f"no item of {self.name!r} was reserved", f"none became ready in {wait:g} s", "wait on")
        async with found[0] as item:
            yield item

    async def items(self, timeout: float = TIMEOUT_S) -> AsyncIterator[Reserved]:
        """Reserve one item after the other: ``async for item in queue.items(): async with item: ...``.

        The inner block commits its item, or rolls it back at an exception. Without it settle each item: what is not
        settled comes back when its reservation runs out.

        Args:
            timeout: of each reservation, in seconds.
        """
        while True:
            for item in await self.reserve_many(1, timeout, wait=None):
                yield item

    async def give_back(self, rollbacks: Sequence[Rollback]) -> None:
        """Give items back, each for itself, also when this is cancelled. What fails matters less than what led here."""
        with suppress(QueueError):  # the reservations run out by themselves
            giving = [self.store.start(partial(_roll_back, rollback=each)) for each in rollbacks]
            cancelled = await wait_out(*giving)
            for each in giving:
                each.exception()  # seen
            if cancelled:
                raise asyncio.CancelledError

    async def reserve_many(self, count: int, timeout: float = TIMEOUT_S, *, wait: float | None = 0.0) -> list[Reserved]:
        """Reserve up to `count` ready items; none if none becomes ready in `wait` seconds. The caller settles each."""
        found = await self._take(ReserveJob(self.name, count, timeout), wait, gives_back=True)
        return [Reserved(self, taken) for taken in found]

    async def commit_and_reserve(
        self, commits: Sequence[Commit], count: int, timeout: float = TIMEOUT_S
    ) -> list[Reserved]:
        """End reserved items as done, and reserve up to `count` ready ones, in one transaction; see Reserved."""
        job = NextJob(CommitJob(tuple(commits)), ReserveJob(self.name, count, timeout))
        return [Reserved(self, taken) for taken in await self._take_now(job, gives_back=True)]

    async def _take(
        self, job: Callable[[Operations], list[Taken]], wait: float | None, *, gives_back: bool = False
    ) -> list[Taken]:
        ends_at = None if wait is None else asyncio.get_running_loop().time() + wait
        if wait == 0.0:
            return await self._take_now(job, gives_back)
        with self.store.waiting(self.name) as changed:
            while True:
                await self.store.listen()  # anew, where the connection that brought notices broke
                changed.clear()
                found = await self._take_now(job, gives_back)
                left = LONGEST_SLEEP_S if ends_at is None else ends_at - asyncio.get_running_loop().time()
                if found or left <= 0:
                    return found
                # W-13: until the next item is due, a notice, or the bound.
                due_s = await self.store.seconds_to_due(self.name)
                due_s = LONGEST_SLEEP_S if due_s is None else due_s
                await until_set(changed, min(left, LONGEST_SLEEP_S, max(due_s, SHORTEST_SLEEP_S)))

    async def _take_now(self, job: Callable[[Operations], list[Taken]], gives_back: bool) -> list[Taken]:
        taking = self.store.start(job)
        if not await wait_out(taking):
            return taking.result()
        # The transaction went on in its thread; what it has reserved for nobody is given back.
        if taking.exception() is None and gives_back:
            await self.give_back([Rollback(taken.handle, 0.0, is_failure=False) for taken in taking.result()])
        raise asyncio.CancelledError

    async def extend(self, handle: Handle, timeout: float = TIMEOUT_S) -> float:
        """Make a reservation run out `timeout` seconds from now; returns that time."""
        return await self.store.transact(lambda do: do.extend([handle], timeout))

    async def commit_many(self, commits: Sequence[Commit]) -> None:
        """End reserved items as done, all or none."""
        await self.store.transact(CommitJob(tuple(commits)))

    async def rollback_many(self, rollbacks: Sequence[Rollback]) -> None:
        """Give reserved items back, all or none."""
        await self.store.transact(lambda do: do.rollback(rollbacks))

    async def move(self, handle: Handle, targets: Sequence[Target], messages: Sequence[NewMessage] = ()) -> list[int]:
        """Move or fork a reserved item (W-10), and publish messages with it (W-21)."""
        return await self.store.transact(lambda do: do.move(handle, targets, messages))

    async def history(
        self,
        *,
        ending: Ending | None = None,
        since: datetime | float | None = None,
        until: datetime | float | None = None,
        fields: Mapping[str, Json] | None = None,
        limit: int = 100,
        before: tuple[int, int] | None = None,
    ) -> Page:
        """Search ended items, newest first; see Search."""
        search = Search(self.name, ending, unix_time(since), unix_time(until), fields or {}, limit, before)
        return await self.store.transact(lambda do: do.history(search))

    async def replay(self, entries: Sequence[int], *, delay: float = 0.0) -> list[int]:
        """Push the payloads of history entries again, all or none (W-16); returns the new ids."""
        return await self.store.transact(lambda do: do.replay(entries, delay))

    async def discard(self, entries: Sequence[int]) -> None:
        """Give up dead letters, all or none."""
        await self.store.transact(lambda do: do.discard(entries))

    async def schedule(
        self,
        name: str,
        cron: str,
        payload: bytes | Json = None,
        *,
        timezone: str = "UTC",
        priority: int = DEFAULT_PRIORITY,
    ) -> Schedule:
        """Push a payload again and again; another schedule of that name is replaced (W-12). See Schedule."""
        wanted = Schedule(name, self.name, cron, timezone, encode(payload), priority)
        return await self.store.transact(lambda do: do.schedule(wanted))

    async def unschedule(self, name: str) -> None:
        """Delete a schedule."""
        await self.store.transact(lambda do: do.unschedule(name))

    async def schedules(self) -> list[Schedule]:
        """Return the queue's schedules."""
        return await self.store.transact(lambda do: do.schedules(self.name))

    async def statistics(self) -> Statistics:
        """Return the queue in numbers."""
        return await self.store.transact(lambda do: do.statistics(self.name))
