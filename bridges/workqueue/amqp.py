"""AMQP access to the queues of a store: serves ``queue://NAME`` at routers (docs/workqueue.md, AMQP access)."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from bridges.workqueue import amqp_core as core
from bridges.workqueue.amqp_messages import PREFIX, queue_of
from bridges.workqueue.errors import (
    InvalidRequest,
    LinkStolen,
    NeedsTransactions,
    PayloadTooLarge,
    QueueError,
    StoreError,
    UnknownQueue,
)
from bridges.workqueue.items import Commit, Handle, LinkState, Pushed, Rollback, Taken
from bridges.workqueue.queue import LONGEST_SLEEP_S, SHORTEST_SLEEP_S, TIMEOUT_S
from bridges.workqueue.queue_store import QueueStore, until_set
from bridges.workqueue.rules_core import check_seconds
from bridges.workqueue.store import Operations
from oncewire.client.login import TokenSource
from oncewire.client.service import Service, ServiceLink
from oncewire.wire import (
    NOT_IMPLEMENTED,
    AmqpError,
    DeliveryReceived,
    DispositionReceived,
    LinkDetached,
    LinkFlow,
    ReceiverSettleMode,
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


class QueueBridge:
    """Serves all queues of a store.

    Args:
        store: where they are.
        urls: of the routers.
        container_id: of this process.
        ssl_context: for URLs that ask for TLS; None = Python's default.
        token: as at ``connect()``; None = log in with what the URLs have.
        hostname: as at ``connect()``: the virtual host whose clients it serves.

    Raises:
        NeedsTransactions: the store has none.
        UsageError: a URL cannot be read, or has a user beside `token`.
    """

    def __init__(
        self,
        store: QueueStore,
        urls: Sequence[str],
        container_id: str,
        *,
        ssl_context: ssl.SSLContext | None = None,
        token: TokenSource | None = None,
        hostname: str | None = None,
    ) -> None:
        if not store.has_transactions:
            raise NeedsTransactions(
                "queues cannot be served over AMQP",
                "a delivery that is pushed exactly once needs a transaction, and a MongoDB store has none",
                "use a SQLite or PostgreSQL store",
            )
        self.service = Service(
            urls,
            [PREFIX],
            self._on_link,
            container_id=container_id,
            ssl_context=ssl_context,
            token=token,
            hostname=hostname,
        )
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            ServiceRefused: a router does not let this process serve ``queue://``.
        """
        try:
            await self.service.run()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a piece of work of a link beside the others."""
        self.start_task(work)  # type: ignore[unused-awaitable]  # its end is awaited in `run`

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """The same, for work that may be cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_link(self, link: ServiceLink) -> None:
        try:
            queue = queue_of(link.address)
            events = (TakeLink if link.is_sending else PushLink)(self, self._store, link, queue)
        except InvalidRequest as error:
            link.refuse(core.error_of(error))
            return
        link.events = events
        self.start(events.open())


class _QueueLink:
    """What both kinds of links share: jobs in the store, and the end."""

    def __init__(self, bridge: QueueBridge, store: QueueStore, link: ServiceLink, queue: str) -> None:
        self.link = link
        self.queue = queue
        self.is_over = False
        self._bridge = bridge
        self._store = store
        source = link.attach.source
        if isinstance(source, Source) and source.filter:
            raise InvalidRequest("the link was refused", "queues apply no filters", "attach without filters")

    async def open(self) -> None:
        """Answer the attach."""
        try:
            await self._open()
        except QueueError as error:
            self.is_over = True
            self.link.refuse(core.error_of(error))

    async def _open(self) -> None:
        raise NotImplementedError

    def _terms(self) -> dict[str, Any]:
        attach = self.link.attach
        return {"rcv_settle_mode": attach.rcv_settle_mode, "snd_settle_mode": attach.snd_settle_mode}


class PushLink(_QueueLink):
    """A client that sends to a queue."""

    def __init__(self, bridge: QueueBridge, store: QueueStore, link: ServiceLink, queue: str) -> None:
        super().__init__(bridge, store, link, queue)
        attach = link.attach
        self._core = core.PushCore(attach.rcv_settle_mode == ReceiverSettleMode.SECOND)
        identity = f"{len(link.container_id)}:{link.container_id}{link.user or ''}|{link.name}"
        self._key = hashlib.sha256(identity.encode()).hexdigest()

    async def _open(self) -> None:
        attach, key = self.link.attach, self._key
        if attach.incomplete_unsettled:
            why = "its unsettled map is not complete"
            fix = "raise the client's max-frame-size, so that its attach holds the whole map"
            self.link.refuse(AmqpError(NOT_IMPLEMENTED, f"the link was refused: {why}; {fix}"))
            return
        tags = list(attach.unsettled or ())

        def job(do: Operations) -> LinkState:
            do.next_due(self.queue)  # UnknownQueue
            return do.resume_link(key, tags)

        state = LinkState(0, frozenset())
        if self._core.is_exactly_once:
            state = await self._store.transact(job)
        else:
            await self._store.transact(lambda do: do.next_due(self.queue))
        if self.is_over:
            return
        known = self._core.on_resumed(state)
        self.link.reply(unsettled=None if attach.unsettled is None else known, **self._terms())
        self._do(self._core.begin())

    def on_delivery(self, event: DeliveryReceived) -> None:
        """See `LinkEvents`."""
        self._do(self._core.on_delivery(event))

    def on_flow(self, event: LinkFlow) -> None:
        """A sender's flow states nothing that is needed here."""

    def on_disposition(self, event: DispositionReceived) -> None:
        """See `LinkEvents`."""
        self._do(self._core.on_disposition(event))

    def on_detached(self, _event: LinkDetached | None) -> None:
        """See `LinkEvents`."""
        self.is_over = True
        self._core.on_detached()

    def _do(self, effects: Iterable[core.PushEffect]) -> None:
        for effect in effects:
            if isinstance(effect, core.Push):
                self._bridge.start(self._push(effect.items, effect.left))
            elif isinstance(effect, core.Settled):
                self._bridge.start(self._forget(effect.tags))
            elif isinstance(effect, core.Dispose):
                self.link.dispose(effect.numbers, effect.state, effect.settled)
            elif isinstance(effect, core.Grant):
                self.link.grant(effect.credit)
            else:
                self.is_over = True
                self.link.detach(effect.closed, effect.error)

    async def _push(self, items: list[core.ToPush], left: frozenset[bytes]) -> None:
        def one(do: Operations, each: core.ToPush) -> Pushed:
            if self._core.is_exactly_once:
                return do.push_delivery(self.queue, each.item, self._key, self._core.generation, each.tag)
            return do.push(self.queue, [each.item])[0]

        def job(do: Operations) -> list[Pushed | QueueError]:
            if left:
                do.settle_deliveries(self._key, self._core.generation, sorted(left))
            return [_part(lambda each=each: one(do, each)) for each in items]  # type: ignore[misc]

        try:
            results = await self._store.transact(job)
        except QueueError as error:
            results = [error] * len(items)
        self._do(self._core.on_pushed(items, results))

    async def _forget(self, tags: list[bytes]) -> None:
        generation = self._core.generation
        with suppress(QueueError):  # they are forgotten with the next attach, or with the link
            await self._store.transact(lambda do: do.settle_deliveries(self._key, generation, tags))


class TakeLink(_QueueLink):
    """A client that receives from a queue."""

    def __init__(self, bridge: QueueBridge, store: QueueStore, link: ServiceLink, queue: str) -> None:
        super().__init__(bridge, store, link, queue)
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
        terms = {**self._terms(), "snd_settle_mode": mode}
        self.link.reply(unsettled=None if unsettled is None else {}, **terms)
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
                self.link.settle(effect.number, effect.state)
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
