"""The subscriber as applications see it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from oncewire.client.core_effects import DeliverMessage
from oncewire.client.delivery import Delivery
from oncewire.client.errors import ClientClosed, ClientError, UsageError
from oncewire.client.journal_writer import JournalWriter
from oncewire.client.link import LinkOwner
from oncewire.client.outcomes import ACCEPTED, Outcome
from oncewire.client.receiving_link import ReceivingLink
from oncewire.client.source_terms import SourceTerms
from oncewire.client.subscriber_core import SubscriberCore

if TYPE_CHECKING:
    import sqlite3

    from oncewire.client.codec import Codec

BREAK_OFF_S = 3.0
"""For ending the subscription of a cancelled opening: some round trips to etcd. After it the subscription expires."""


class Subscriber(ReceivingLink):
    """Receives the messages of a topic or pattern. Made by ``Client.subscriber()``; use it with ``async with``.

    ``async for delivery in subscriber`` gives deliveries in order; each must be finished. Deliveries of one publisher
    come in the order they were sent, each is given once, whichever routers or connections fail.

    Attributes:
        topic: what it subscribes to.
        name: of the link.
        statistics: counts since it was opened.
        guarantee: what it promises at the peer where it was attached last.
    """

    def __init__(
        self,
        client: LinkOwner,
        name: str,
        topic: str,
        journal: JournalWriter,
        core: SubscriberCore,
        terms: SourceTerms,
        *,
        is_named: bool,
    ) -> None:
        super().__init__(client, name, topic, journal, core, terms, is_named=is_named)
        self.codec: Codec | None = None
        self._queue: deque[Delivery] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()

    # --- receiving ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Subscriber:
        return self

    async def __anext__(self) -> Delivery:
        try:
            await self._until_available()
        except ClientClosed:
            raise StopAsyncIteration from None
        return self._pop()

    async def receive(self, timeout: float | None = None) -> Delivery:
        """The next delivery.

        Raises:
            TimeoutError: none came in `timeout` seconds.
            ClientError: the subscriber failed or was closed.
        """
        await self._until_available(timeout)
        return self._pop()

    async def receive_many(self, limit: int, timeout: float | None = None) -> list[Delivery]:
        """All deliveries that are there, at least one, at most `limit`; for ``transaction``. Errors as `receive`."""
        await self._until_available(timeout)
        queue = self._queue
        found = [queue.popleft() for _ in range(min(limit, len(queue)))]
        if queue:
            self._wake_taker()
        return found

    @property
    def waiting(self) -> int:
        """Deliveries that are here and not yet taken by the application."""
        return len(self._queue)

    @property
    def incarnation(self) -> int:
        """The subscription's incarnation, as last reported by a router; 0 = not yet. See `NewIncarnation`."""
        return self._core.incarnation

    @property
    def granted_timeout(self) -> int | None:
        """Seconds the network keeps the subscription while it is not attached, as last stated; None = not yet.

        It may be less than was asked for: routers have a cap, and a client that asks for less later gets less.
        """
        return self._granted_s

    async def _until_available(self, timeout: float | None = None) -> None:
        self._check_usable()
        if self._queue:  # asyncio's timeout costs more than to take a delivery that is here
            return
        if timeout is not None:
            async with asyncio.timeout(timeout):
                await self._until_available()
        while not self._queue:
            taker: asyncio.Future[None] = self._loop.create_future()
            self._takers.append(taker)
            try:
                await self._wait(taker)
            except asyncio.CancelledError:
                if self._queue and taker not in self._takers:  # it was our turn: let the next one have it
                    self._wake_taker()
                raise
            finally:
                if taker in self._takers:
                    self._takers.remove(taker)

    def _pop(self) -> Delivery:
        delivery = self._queue.popleft()
        if self._queue:
            self._wake_taker()
        return delivery

    def _deliver(self, effect: DeliverMessage) -> None:
        delivery = Delivery(
            self,
            effect.serial,
            effect.tag,
            effect.payload,
            effect.again,
            effect.settled,
            self._core.incarnation,
            effect.message_format,
        )
        if effect.again:
            self._queue.appendleft(delivery)
        else:
            self.statistics.messages += 1
            self._queue.append(delivery)
        if self._takers:
            self._wake_taker()

    def _wake_taker(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    # --- finishing deliveries -----------------------------------------------------------------------------------------

    async def finish(
        self, deliveries: Sequence[Delivery], outcome: Outcome = ACCEPTED, *, effect: Callable[[], object] | None = None
    ) -> None:
        """Record the outcome of deliveries, then notify the network. Returns when it is recorded.

        Args:
            deliveries: not finished yet.
            outcome: of all of them.
            effect: called in the journal's thread, inside the transaction that records the outcome, for journals whose
                database has effects of its own. What it raises must be a JournalError; then nothing is recorded.

        Raises:
            UsageError: one of them was finished before, or an effect without a durable journal; none is finished then.
            ClientError: it could not be recorded.
        """
        self._check_usable()
        if effect is not None and not self._journal.journal.is_durable:
            raise UsageError(
                "the effect cannot be stored with the outcome",
                "the subscriber has no durable journal",
                "open it with a journal that keeps the effects, too",
            )
        self._complete(deliveries, outcome)
        if effect is not None:
            self._effects.append(effect)
        if not self._journal.journal.is_durable:
            self._work_in_turns()
            return
        recorded: asyncio.Future[None] = self._loop.create_future()
        self._recording.append(recorded)
        self._journal.work(self)
        await recorded

    @asynccontextmanager
    async def transaction(self, *deliveries: Delivery) -> AsyncIterator[sqlite3.Connection]:
        """Process deliveries and accept them in one transaction of the journal.

        Yields the journal's SQLite connection inside the transaction: the application's changes to its own tables and
        the acceptance become durable together when the block ends, or, by an exception, neither does (then `release()`
        or process them again). Do not commit inside, and do not wait there for anything that needs the same journal.

        Raises:
            UsageError: the subscriber has no SQLite journal, or a delivery was finished before.
            JournalError: nothing was recorded; the subscriber has failed.
            ClientError: the subscriber failed or was closed, before the block or inside it: nothing was recorded.
        """
        journal = self._journal.journal
        if journal.connection is None:
            raise UsageError(
                "no transaction can be made", "the subscriber has no SQLite journal", "open it with journal=PATH"
            )
        self._check_usable()
        self._check_unfinished(deliveries)
        async with self._journal.transaction(self) as add_changes:
            yield journal.connection
            self._complete(deliveries, ACCEPTED)
            add_changes()

    def _put_back(self, delivery: Delivery) -> None:
        """See ``Delivery.release``."""
        self._check_usable()
        self._check_unfinished([delivery])
        self._perform(self._core.release(delivery.serial))

    def _complete(self, deliveries: Sequence[Delivery], outcome: Outcome) -> None:
        self._check_unfinished(deliveries)
        complete = self._core.complete
        for delivery in deliveries:
            complete(delivery.serial, outcome)
        if outcome.is_accepted:
            self.statistics.accepted += len(deliveries)
        else:
            self.statistics.not_accepted += len(deliveries)

    def _check_unfinished(self, deliveries: Sequence[Delivery]) -> None:
        is_unprocessed = self._core.is_unprocessed
        for delivery in deliveries:
            if not is_unprocessed(delivery.serial):
                raise UsageError(
                    "the delivery cannot be finished",
                    "it was accepted or rejected before, or its subscription has ended",
                    "finish each delivery once",
                )

    # --- the end ------------------------------------------------------------------------------------------------------

    async def suspend(self) -> None:
        """Detach; the network keeps the subscription (for its `timeout`) and everything it is owed.

        Deliveries that are not finished come again when it is opened again. One without a name ends.
        """
        if not await self._begin_closing():
            return
        try:
            await self._journal.drain(self)
        finally:
            self._fail(self._is_over())  # waits for nothing

    async def close(self) -> None:
        """Suspend a subscription with a name, end one without: no process could open it again."""
        await (self._delete() if self._is_worthless() else self.suspend())

    async def unsubscribe(self) -> None:
        """End the subscription for good. Returns when the network has deleted it (E-8).

        Deliveries that are not finished are dropped. If it has a name, its journal keeps what is accepted and that its
        publishers have not settled: a subscriber of the same name and journal gets none of it again (S-1).

        Raises:
            ClientError: it could not be deleted; it ends by itself after its `timeout`.
            ClientClosed: it was suspended before, or its client closed, so that it still exists.
        """
        await self._delete()
        if not self._is_deleted and self._failure is not None:
            raise self._failure

    async def _break_off(self, error: ClientError) -> None:
        """Abandon the opening. A subscription without a name is ended first: publishers would wait until it expires.

        The attach may be on its way to etcd, so a detach is not enough: the router's answer shows that none is left.
        """
        try:
            is_open = self._failure is None and self._session is not None  # what was refused has nothing to end
            if is_open and self._is_worthless() and await self._begin_closing():
                with suppress(ClientError, TimeoutError):
                    async with asyncio.timeout(BREAK_OFF_S):
                        await self._end_subscription()
        finally:
            self._fail(error)

    async def _delete(self) -> None:
        """End the subscription, if its link has not ended otherwise."""
        if not await self._begin_closing() or self._failure is not None:
            return
        self._is_ending = True
        try:
            await self._end_subscription()
        finally:
            self._fail(self._is_over())

    def _release_all(self, error: ClientError) -> None:
        self._queue.clear()
        super()._release_all(error)
