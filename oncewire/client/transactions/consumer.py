"""A function between topics or journals and a database: each message once, whatever fails.

Rules, beside those of the store, the sequencer and of journals (``journal_inputs``):

* CO-1 A delivery is accepted in the transaction that records its message in the journal of the input.
* CO-2 A message is deleted from the journal once it was processed and no open transaction of its producer needs it.
* CO-3 A transaction waits for no subscription: what it publishes is under way while the next one works.
* CO-4 A function that raises has changed nothing. What precedes the message is processed, then it is called again, and
  stops the consumer when it keeps raising.
* CO-5 The older of two owners of a store stops as soon as the younger one attaches its links.
* CO-6 The store blocks a thread, never the event loop.
* CO-7 Where the consumer says so, a message at which the function has failed `attempts` times is set aside: the
  transaction that records it as processed decides on its dead letter, or keeps it in the store, and has no other effect
  of it.
* CO-10 Of the shards that several processes ask for each owns as many as the others, or one more; nothing moves without
  need.
* CO-11 Who has not renewed within the lease owns nothing: another process takes over, and the former one commits
  nothing.
* CO-12 A message that was set aside and is to be retried is moved to the end of the input by its consumer, in one
  transaction, as one that nobody has numbered.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

from oncewire.client.codec import CodecSource, codec_of
from oncewire.client.errors import ClientError, LinkRefused, ProcessFailed, StoreCorrupt, StoreFenced, UsageError
from oncewire.client.events import ClientEvent, ConsumerStatistics
from oncewire.client.login import TokenSource
from oncewire.client.put_off import ended
from oncewire.client.source_terms import Start, journal_terms
from oncewire.client.transactions.failed_messages import FailedMessages
from oncewire.client.transactions.incarnation import LEAVE_S, Incarnation, Plan, Process, open_incarnation
from oncewire.client.transactions.messages import ReceivedMessage, Transaction
from oncewire.client.transactions.opening import StoreThread
from oncewire.client.transactions.receiving import Network
from oncewire.client.transactions.sequencer import RING_MESSAGES
from oncewire.client.transactions.shards import Shards

logger = logging.getLogger("oncewire.client")

BATCH = 500
"""Positions that one transaction reads: enough to spread the cost of a commit, and a moment's work to repeat."""
ATTEMPTS = 5
"""Times a function may fail at one place before the consumer stops: some seconds with the back-off."""
BACK_OFF_FIRST_S = 0.1
BACK_OFF_CAP_S = 30.0
"""A failed consumer opens its store again after 0.1 s, then twice as long each time, up to this; jittered."""
_FINAL = (UsageError, StoreFenced, StoreCorrupt, LinkRefused)
"""What another attempt would meet again."""


class Consumer:
    """Processes the messages of topics and journals: effects in a database, and messages out, exactly once.

    Pass a function to ``run``, or make a subclass with ``process`` (and ``finalize``). Each transaction reads what has
    arrived. Its effects, the place in the input and the messages to publish commit together; then the messages are
    published while the next transaction works. After a crash, or in another process, it continues from the last commit.

    Args:
        routers: addresses as for ``connect()``.
        store: ``sqlite:///FILE`` or ``postgresql://USER@HOST/DATABASE``: the application's database.
        name: of the consumer: the same in each process and each incarnation, and no other consumer's.
        topics: topics or patterns to subscribe to.
        journals: journals of edges to read. A mapping says where to start in each.
        start: where to start in a journal that the consumer has not read before, as at ``Client.journal``: `first`,
            `last`, `next`, a position, or a datetime. Its own position counts afterwards, whatever this is.
        schema: statements to run when the store is opened, such as CREATE TABLE IF NOT EXISTS.
        shards: decides which of several processes with this name is active; None: the one that was started last.
        timeout: seconds the network keeps the subscriptions while no process is connected; publishers of the topics
            wait that long for it. None = the longest the network allows.
        attempts: times the function may fail at one place before ``run`` raises, or the message is set aside.
        dead_letters: topic to publish a message to that failed so often; the consumer goes on with the next one.
        skip: keep such a message in the table ``oncewire_store_refused`` instead, and go on.
        require: subscriptions that a topic must have to which it publishes; with fewer its messages wait in the store.
            0: a message to a topic without a subscription counts as published. Dead letters require one.
        batch: positions that one transaction reads at most.
        ring_messages: pending messages kept in memory for each topic; more are read from the journal again.
        ssl_context: for ``amqps``.
        on_event: called with what happens to connections and links.
        token: as for ``connect()``.
        codec: reads bodies into ``ReceivedMessage.value`` and encodes what is published, as of a publisher.
        leave_timeout: seconds that ``run`` waits after ``stop`` for readers to accept what it published; with the rest
            the next process goes on.
    """

    def __init__(
        self,
        routers: str | Sequence[str],
        *,
        store: str,
        name: str,
        topics: Sequence[str] = (),
        journals: Sequence[str] | Mapping[str, Start] = (),
        start: Start = "first",
        schema: Sequence[str] = (),
        shards: Shards | None = None,
        timeout: int | None = None,
        attempts: int = ATTEMPTS,
        dead_letters: str | None = None,
        skip: bool = False,
        require: int = 0,
        batch: int = BATCH,
        ring_messages: int = RING_MESSAGES,
        ssl_context: ssl.SSLContext | None = None,
        on_event: Callable[[ClientEvent], None] | None = None,
        token: TokenSource | None = None,
        codec: CodecSource | None = None,
        leave_timeout: float = LEAVE_S,
    ) -> None:
        if isinstance(topics, str) or isinstance(journals, str) or not (topics or journals):
            raise UsageError(
                f"the consumer {name!r} cannot be made",
                "topics is a list, and so is journals; one of them has a name or more",
                'give topics=["orders"] or journals=["orders"]',
            )
        starts = dict(journals) if isinstance(journals, Mapping) else dict.fromkeys(journals, start)
        for each in starts.values():
            _ = journal_terms(each)
        network = Network(routers, ssl_context, on_event, token)
        failed = FailedMessages(name, attempts, dead_letters, skip=skip)
        self._plan = Plan(
            network=network,
            store=store,
            name=name,
            topics=tuple(topics),
            schema=tuple(schema),
            timeout_s=timeout,
            batch=batch,
            ring_messages=ring_messages,
            failed=failed,
            require=require,
            journals=starts,
            codec=codec_of(codec),
            leave_s=leave_timeout,
        )
        self._shards = shards
        self._attempts = attempts
        self._thread = StoreThread()
        self._incarnation: Incarnation | None = None
        self._stop = asyncio.Event()
        self._running: asyncio.Task[object] | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self._plan.name

    @property
    def statistics(self) -> ConsumerStatistics:
        """What it has processed since it was made."""
        return self._plan.statistics

    @property
    def is_idle(self) -> bool:
        """Whether all that has come is processed, and all that it published is accepted. False while it is not open.

        What is on its way to it is not known here.
        """
        return self._incarnation is not None and self._incarnation.is_idle

    # --- what a subclass overrides ------------------------------------------------------------------------------------

    def process(self, tx: Transaction, message: ReceivedMessage) -> object:
        """Process one message. Called in a thread; it may run again for a message whose transaction did not commit."""
        raise UsageError(
            f"the consumer {self._plan.name!r} has nothing to do", "it has no function", "pass one to run()"
        )

    def finalize(self, tx: Transaction) -> object:
        """The transaction is about to commit: write what was gathered in it. Called in a thread."""

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open the store and subscribe: what is published from now on is processed. With shards that is up to ``run``.

        Raises:
            UsageError: the address, the name or the topics cannot be used.
            StoreError: the store cannot be opened.
            ClientError: no router can be reached, or it refuses.
        """
        try:
            if self._shards is None:
                self._incarnation = await open_incarnation(self._plan, self._thread)
        except BaseException:
            self._thread.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave. The network keeps the subscriptions for the next process. A ``run`` that goes on is cancelled."""
        async with AsyncExitStack() as leaving:
            leaving.callback(self._thread.stop)
            leaving.push_async_callback(self._close)
            if self._running is not None and self._running is not asyncio.current_task():
                self._running.cancel()
                await ended(self._running)

    async def run(self, process: Process | None = None) -> None:
        """Process messages until ``stop``.

        Whatever fails, the transaction in progress is rolled back, and the store is opened again after a back-off.

        Args:
            process: called with the transaction and the message, in a thread; None: the method of that name.

        Raises:
            ProcessFailed: it raised `attempts` times at one place. Correct it and start again: nothing is lost. With
                `dead_letters` or `skip` the message is set aside instead.
            StoreFenced: another process has opened the store under this name. With shards this one stands by instead.
            UsageError, StoreCorrupt, LinkRefused: a retry would not help; see the text.
        """
        work = process or self.process
        if inspect.iscoroutinefunction(work):
            raise UsageError(
                f"the consumer {self._plan.name!r} cannot call {getattr(work, '__name__', work)!r}",
                "it is a coroutine function, and statements of a database block",
                "write `def`: it is called in a thread",
            )
        self._running = asyncio.current_task()
        try:
            while not self._stop.is_set():
                async with self._ownership() as handed_over:
                    if handed_over is not None:
                        await self._own(work, handed_over)
        finally:
            self._running = None

    def stop(self) -> None:
        """Let ``run`` return after the transaction in progress. What is published and not accepted is not lost."""
        self._stop.set()

    async def unsubscribe(self) -> None:
        """End the subscriptions for good: publishers wait for this consumer no longer. Not while it runs.

        Raises:
            ClientError: one could not be ended; it ends by itself after `timeout`.
        """
        incarnation = self._incarnation or await open_incarnation(self._plan, self._thread)
        self._incarnation = None
        await incarnation.close(unsubscribe=True)

    # --- owning the store ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _ownership(self) -> AsyncIterator[asyncio.Event | None]:
        """Until the end of this block no other process should be active; None if it was stopped while it stood by."""
        if self._shards is None:
            yield asyncio.Event()
            return
        async with AsyncExitStack() as owned:
            entering = asyncio.ensure_future(owned.enter_async_context(self._shards.own(self._plan.name)))
            stopping = asyncio.ensure_future(self._stop.wait())
            try:
                await asyncio.wait([entering, stopping], return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                if not entering.done():
                    entering.cancel()
                    await asyncio.gather(entering, return_exceptions=True)
            if entering.cancelled():
                yield None
                return
            handed_over = entering.result()
            logger.info("this process owns the consumer %r", self._plan.name)
            yield handed_over
        logger.info("this process no longer owns the consumer %r", self._plan.name)

    async def _own(self, work: Process, handed_over: asyncio.Event) -> None:
        """Be the owner, one incarnation after the other, until stopped or handed over."""
        failures = 0
        while not self._stop.is_set() and not handed_over.is_set():
            try:
                self._incarnation = self._incarnation or await open_incarnation(self._plan, self._thread)
                if failures:
                    self._incarnation.begin_small()
                await self._run_until_stopped(self._incarnation, work, handed_over)
            except StoreFenced as error:
                logger.warning("%s", error)
                if self._shards is None:
                    raise
                return
            except _FINAL as error:  # logged, too: nobody may await the task that runs it
                logger.error("the consumer %r ends: %s", self._plan.name, error)
                raise
            except ClientError as error:
                failures = 1 if self._incarnation is not None and self._incarnation.transactions else failures + 1
                goes_on = not isinstance(error, ProcessFailed) or self._plan.failed.note(error)
                if not goes_on and failures >= self._attempts:
                    logger.error("the consumer %r ends after %d attempts: %s", self._plan.name, failures, error)
                    raise
                logger.warning("failure %d, the store is opened again: %s", failures, error)
                await self._close()
                await self._back_off(failures, handed_over)
            finally:
                await self._close()

    async def _run_until_stopped(self, incarnation: Incarnation, work: Process, handed_over: asyncio.Event) -> None:
        async def stop_it(event: asyncio.Event) -> None:
            await event.wait()
            incarnation.stop()

        stoppers = [asyncio.ensure_future(stop_it(event)) for event in (self._stop, handed_over)]
        try:
            await incarnation.run(work, self.finalize)
        finally:
            for stopper in stoppers:
                stopper.cancel()
            await asyncio.gather(*stoppers, return_exceptions=True)

    async def _close(self) -> None:
        incarnation, self._incarnation = self._incarnation, None
        if incarnation is not None:
            await incarnation.close()

    async def _back_off(self, failures: int, handed_over: asyncio.Event) -> None:
        delay = min(BACK_OFF_CAP_S, BACK_OFF_FIRST_S * 2 ** (failures - 1))
        events = [asyncio.ensure_future(event.wait()) for event in (self._stop, handed_over)]
        try:
            await asyncio.wait(events, timeout=delay * random.uniform(0.5, 1.0), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for event in events:
                event.cancel()
            await asyncio.gather(*events, return_exceptions=True)
