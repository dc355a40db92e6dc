"""AMQP access to the queues of a store: what serves ``queue://NAME`` at routers (docs/workqueue.md, AMQP access)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from bridges.store.push_core import ToPush
from bridges.store.push_link import PushLink
from bridges.store.serving import AddressService, Kind, Served
from bridges.workqueue import amqp_core as core
from bridges.workqueue.amqp_messages import PREFIX, item_of, queue_of
from bridges.workqueue.errors import QueueError, UnknownQueue
from bridges.workqueue.items import Commit, Handle, NewItem, Pushed, Rollback, Taken
from bridges.workqueue.queue import SHORTEST_SLEEP_S, TIMEOUT_S
from bridges.workqueue.queue_store import QueueStore
from bridges.workqueue.store import Operations
from oncewire.client.service import ServiceLink
from oncewire.store.errors import InvalidRequest, LinkStolen, PayloadTooLarge, StoreError
from oncewire.store.open_store import LONGEST_SLEEP_S, until_set
from oncewire.store.rules_core import check_seconds
from oncewire.wire import (
    DeliveryReceived,
    DispositionReceived,
    LinkDetached,
    LinkFlow,
    SenderSettleMode,
    Source,
    vocabulary,
)

RETRY_S = 1.0
"""Before a store that failed is asked again."""
TRIES = 30
"""Attempts to make a worker's outcome durable; then its reservation runs out."""
PART_ERRORS = (InvalidRequest, LinkStolen, PayloadTooLarge, UnknownQueue)
"""Errors of one delivery that have written nothing: the others of its transaction go on (W-14)."""

T = TypeVar("T")


class QueueTarget:
    """A queue that a client sends to.

    Args:
        queue: its name.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue

    def check(self, do: Operations) -> None:
        """See PushTarget."""
        do.next_due(self._queue)

    def decode(self, event: DeliveryReceived) -> NewItem:
        """See PushTarget."""
        return item_of(event.payload)

    def push(self, do: Operations, items: Sequence[ToPush], link: str | None, generation: int) -> list[Any]:
        """See PushTarget; each item by itself (W-14)."""

        def one(each: ToPush) -> Pushed:
            if link is None:
                return do.push(self._queue, [each.item])[0]
            return do.push_delivery(self._queue, each.item, link, generation, each.tag)

        return [_part(lambda each=each: one(each)) for each in items]  # type: ignore[misc]


def queue_link(service: AddressService, link: ServiceLink) -> Served:
    """The queue's end of a link that a client attached.

    Raises:
        InvalidRequest: the address names no queue, or the attach asks for what cannot be.
    """
    queue = queue_of(link.address)
    source = link.attach.source
    if isinstance(source, Source) and source.filter:
        raise InvalidRequest("the link was refused", "queues apply no filters", "attach without filters")
    if link.is_sending:
        return TakeLink(service, link, queue)
    return PushLink(service.start, service.store, link, QueueTarget(queue))


ADDRESSES: dict[str, Kind] = {PREFIX: queue_link}


class TakeLink:
    """A client that receives from a queue."""

    def __init__(self, service: AddressService, link: ServiceLink, queue: str) -> None:
        self.link = link
        self.queue = queue
        self.is_over = False
        self._bridge = service
        self._store: QueueStore = service.store  # type: ignore[assignment]  # what the edge opened for queues
        self._core = core.TakeCore(link.attach.snd_settle_mode == SenderSettleMode.SETTLED)
        wanted = (link.attach.properties or {}).get(vocabulary.QUEUE_TIMEOUT)
        if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int)):
            why = f"{vocabulary.QUEUE_TIMEOUT} is no number"
            raise InvalidRequest("the link was refused", why, "give milliseconds")
        self._timeout_s = TIMEOUT_S if wanted is None else int(wanted) / 1000
        check_seconds("a timeout", self._timeout_s, zero=False)
        self._changed = asyncio.Event()
        self._registered = ExitStack()
        self._waiter: asyncio.Task[None] | None = None
        self._early: LinkFlow | None = None
        self._is_open = False

    async def open(self) -> None:
        """Answer the attach."""
        try:
            await self._open()
        except QueueError as error:
            self.is_over = True
            self.link.refuse(core.error_of(error))

    async def _open(self) -> None:
        unsettled = self.link.attach.unsettled
        for operation in core.presented(unsettled):
            await self._settle_one(operation)
        await self._store.transact(lambda do: do.next_due(self.queue))
        await self._store.listen()
        if self.is_over:
            return
        self._changed = self._registered.enter_context(self._store.waiting(self.queue))
        mode = SenderSettleMode.SETTLED if self._core.is_pop else SenderSettleMode.UNSETTLED
        settles = self.link.attach.rcv_settle_mode
        self.link.reply(unsettled=None if unsettled is None else {}, rcv_settle_mode=settles, snd_settle_mode=mode)
        self._is_open = True
        if self._early is not None:
            self.on_flow(self._early)

    async def _settle_one(self, operation: Commit | Rollback) -> None:
        def job(do: Operations) -> None:
            _apply(do, operation)

        with suppress(QueueError):  # it was settled before, or is another worker's by now
            await self._store.transact(job)

    def on_delivery(self, event: DeliveryReceived) -> None:
        """A receiver sends nothing."""

    def on_flow(self, event: LinkFlow) -> None:
        """See `LinkEvents`."""
        if not self._is_open:
            self._early = event
        elif event.credit_limit is not None:
            self._do(self._core.on_flow(self.link.credit_limit, event.drain))

    def on_disposition(self, event: DispositionReceived) -> None:
        """See `LinkEvents`."""
        self._do(self._core.on_disposition(event))

    def on_detached(self, _event: LinkDetached | None) -> None:
        """See `LinkEvents`."""
        self.is_over = True
        self._do(self._core.on_detached())
        self._stop_waiting()
        self._registered.close()

    def _stop_waiting(self) -> None:
        if self._waiter is not None and self._waiter is not asyncio.current_task():
            self._waiter.cancel()
        self._waiter = None

    def _do(self, effects: Iterable[core.TakeEffect]) -> None:
        for effect in effects:
            if isinstance(effect, core.Send):
                number = self.link.send(effect.tag, effect.payload, effect.settled)
                if number is not None:
                    self._core.sent(effect.item, number)
            elif isinstance(effect, core.Take):
                self._stop_waiting()
                self._bridge.start(self._take(effect.count))
            elif isinstance(effect, core.Wait):
                self._waiter = self._bridge.start_task(self._wait())
            elif isinstance(effect, core.Settle):
                self._bridge.start(self._settle(effect.outcomes))
            elif isinstance(effect, core.Answer):
                self.link.settle([effect.number], effect.state)
            elif isinstance(effect, core.Drained):
                self.link.drained()
            elif isinstance(effect, core.GiveBack):
                self._bridge.start(self._give_back(effect.handles))
            else:
                self.link.detach(effect.closed, effect.error)

    async def _take(self, count: int) -> None:
        def job(do: Operations) -> list[Taken]:
            return do.pop(self.queue, count) if self._core.is_pop else do.reserve(self.queue, count, self._timeout_s)

        self._changed.clear()
        found: list[Taken] | QueueError
        try:
            found = await self._store.transact(job)
        except QueueError as error:
            found = error
        self._do(self._core.on_taken(count, found))

    async def _wait(self) -> None:
        """W-13: until the next item is due, or a notice."""
        try:
            await self._store.listen()
            due_s = await self._store.seconds_to_due(self.queue)
            due_s = LONGEST_SLEEP_S if due_s is None else due_s
            await until_set(self._changed, min(LONGEST_SLEEP_S, max(due_s, SHORTEST_SLEEP_S)))
        except QueueError:
            await asyncio.sleep(RETRY_S)
        self._do(self._core.on_ready())

    async def _settle(self, outcomes: list[core.Outcome]) -> None:
        def job(do: Operations) -> list[QueueError | None]:
            return [_failure(lambda each=each: _apply(do, each.operation)) for each in outcomes]  # type: ignore[misc]

        results: list[QueueError | None] = []
        for _ in range(TRIES):
            try:
                results = await self._store.transact(job)
                break
            except QueueError as error:  # W-5: an operation that is repeated has no second effect
                results = [error] * len(outcomes)
                await asyncio.sleep(RETRY_S)
        self._do(self._core.on_settled(outcomes, results))

    async def _give_back(self, handles: list[Handle]) -> None:
        rollbacks = [Rollback(handle, 0.0, is_failure=False) for handle in handles]
        with suppress(QueueError):  # the reservation runs out
            await self._store.transact(lambda do: do.rollback(rollbacks))


def _apply(do: Operations, operation: Commit | Rollback) -> None:
    if isinstance(operation, Commit):
        do.commit([operation])
    else:
        do.rollback([operation])


def _part(work: Callable[[], T]) -> T | QueueError:
    try:
        return work()
    except PART_ERRORS as error:
        return error


def _failure(work: Callable[[], None]) -> QueueError | None:
    try:
        work()
    except StoreError:
        raise
    except QueueError as error:  # a past handle: found before anything was written
        return error
    return None
