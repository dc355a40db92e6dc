"""From a store's outbox to topics: each message that a transaction decided on is published exactly once (W-22)."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from bridges.store import statements as sql
from bridges.store.client_journals import OutboxJournal
from bridges.store.crash_points import CrashPoint, passed
from bridges.store.outbox import OUTBOX_NOTICE
from bridges.store.topic_link import RETRY_S, TAKES_OVER, Tenure, TopicLink
from oncewire.client import Client, LinkRefused, NotAccepted, Publisher, UsageError
from oncewire.client.login import TokenSource
from oncewire.client.outcomes import counted
from oncewire.client.publisher import SESSION_TIMEOUT_S
from oncewire.store.open_store import LONGEST_SLEEP_S, OpenStore, until_set
from oncewire.store.owners import Owner
from oncewire.store.store import Row, Transaction

logger = logging.getLogger("oncewire.store")

INFLIGHT = 1000
"""Messages of a topic without outcome; the routers' window is 1,024 (C-1)."""
GROUP = 250
"""Messages read at once: a window is filled in four portions, so one is prepared while another is on its way."""
NAME = "publisher of the outbox"


class OutboxPublisher(TopicLink):
    """Publishes what transactions of a store have decided on, in the order of their commits for each topic.

    One process at a time: the one that began last (W-23); the others stand by (W-26).

    Args:
        store: with the outbox.
        routers: URLs, tried in turn.
        ssl_context: for URLs that ask for TLS; None = Python's default.
        token: as at ``connect()``; None = log in with what the URLs have.
        hostname: as at ``connect()``: the virtual host of the topics.
        session_timeout: seconds the network keeps the sessions while no process runs this. If none runs for longer,
            messages without outcome may have been published: they stay in the outbox with the outcome *unknown* (W-24).
        require: subscriptions that the topic of a message must have; with fewer its messages wait (W-28). 0 = none: a
            message to a topic without a subscription counts as published.
        tenure: how this process comes to publish.
    """

    def __init__(
        self,
        store: OpenStore[Any],
        routers: str | Sequence[str],
        *,
        ssl_context: ssl.SSLContext | None = None,
        token: TokenSource | None = None,
        hostname: str | None = None,
        session_timeout: int = SESSION_TIMEOUT_S,
        require: int = 0,
        tenure: Tenure = TAKES_OVER,
    ) -> None:
        super().__init__(store, NAME, routers, ssl_context, token, hostname, tenure)
        self._session_timeout = session_timeout
        self._require = require
        self._released: dict[str, asyncio.Event] = {}
        self._waiting: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._progress = asyncio.Event()

    async def flush(self) -> None:
        """Wait until every message in the outbox has its outcome; `run` runs meanwhile, here or in another process."""
        while True:
            self._progress.clear()
            if not await self._store.transact(_topics_at_work):
                return
            await until_set(self._progress, RETRY_S)  # while this one stands by, another process gets the outcomes

    async def _serve(self, client: Client, owner: Owner) -> None:
        """Keep a task for each topic that has messages."""
        on_released = self._note_released if self._require else None
        journal = OutboxJournal(self._store, owner, self._progressed, on_released)
        at_work: dict[str, asyncio.Task[None]] = {}
        try:
            with self._store.waiting(OUTBOX_NOTICE) as changed:
                while True:
                    await self._store.listen()
                    changed.clear()
                    for topic in await self._store.transact(_topics_at_work):
                        if topic not in at_work:
                            at_work[topic] = asyncio.create_task(self._publish_topic(client, journal, topic))
                    await self._sleep(changed, at_work.values())
        finally:
            for task in at_work.values():
                task.cancel()
            await asyncio.gather(*at_work.values(), return_exceptions=True)

    async def _sleep(self, changed: asyncio.Event, tasks: Iterable[asyncio.Future[Any]]) -> None:
        """Wait for a notice of new messages, or the failure of a task (W-13)."""
        notice = asyncio.create_task(changed.wait())
        try:
            done, _ = await asyncio.wait([notice, *tasks], timeout=LONGEST_SLEEP_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            notice.cancel()
        for task in done:
            task.result()

    async def _publish_topic(self, client: Client, journal: OutboxJournal, topic: str) -> None:
        while True:
            try:
                publisher = await client.publisher(
                    topic,
                    name=topic,
                    journal=journal,
                    window=INFLIGHT,
                    timeout=self._session_timeout,
                    require=self._require or None,
                )
                try:
                    await self._publish(publisher, journal, topic)
                    await self._wait_for_subscriptions(publisher, journal)
                finally:
                    await publisher.suspend()
            except (LinkRefused, UsageError) as error:  # of this topic only; its messages wait
                self._complain(f"topic {topic!r}: {error}")
            await asyncio.sleep(RETRY_S)

    async def _publish(self, publisher: Publisher, journal: OutboxJournal, topic: str) -> None:
        """Publish until something is released (W-28)."""
        for sending in publisher.recovered:
            sending.was_awaited = True
        self._released[topic] = asyncio.Event()
        with self._store.waiting(OUTBOX_NOTICE) as changed:
            while topic not in journal.released:
                await self._store.listen()
                changed.clear()
                if publisher.statistics.accepted:
                    self._waiting.discard(topic)
                first = publisher.next_number
                rows = await self._store.transact(partial(_rows_from, topic=topic, first=first))
                if rows:
                    passed(CrashPoint.ROWS_READ)
                    # W-22: the row's number is the number of the client's message, and so its delivery tag.
                    assert [number for number, _ in rows] == [*range(first, first + len(rows))]
                    try:
                        sendings = await publisher._submit_stored([bytes(row[1]) for row in rows])  # noqa: SLF001
                    except NotAccepted:  # something was released, and is being recorded
                        return
                    for sending in sendings:
                        sending.was_awaited = True  # the journal notes its outcome
                else:
                    await self._idle(publisher, topic, changed)

    async def _wait_for_subscriptions(self, publisher: Publisher, journal: OutboxJournal) -> None:
        """W-28: when all that was sent has its outcome, another session sends again what was sent to nobody."""
        topic = publisher.topic
        if topic not in self._waiting:
            self._waiting.add(topic)
            wanted = counted(self._require, "subscription")
            logger.warning("%s: the topic %r has fewer than %s; its messages wait", NAME, topic, wanted)
        if await publisher.end_released():
            await self._store.transact(journal.send_released(topic))
            journal.released.discard(topic)

    async def _idle(self, publisher: Publisher, topic: str, changed: asyncio.Event) -> None:
        """Wait for new messages; a failure while others are on their way ends it, too, and so does a release."""
        on_the_way: list[asyncio.Task[Any]] = []
        if publisher.unfinished:
            released = self._released[topic].wait()
            on_the_way = [asyncio.create_task(publisher.flush()), asyncio.create_task(released)]
        try:
            await self._sleep(changed, on_the_way)
        finally:
            for task in on_the_way:
                task.cancel()

    def _note_released(self, topic: str) -> None:
        """Called in the journal's thread."""
        self._loop.call_soon_threadsafe(self._released[topic].set)

    def _progressed(self, decided: int) -> None:
        """Called in the journal's thread."""
        self.done += decided  # one transaction at a time writes it
        self._loop.call_soon_threadsafe(self._progress.set)


def _rows_from(do: Transaction, topic: str, first: int) -> list[Row]:
    return do.execute(sql.NEXT_ROWS, (topic, first, GROUP))


def _topics_at_work(do: Transaction) -> list[str]:
    return [topic for (topic,) in do.execute(sql.TOPICS_AT_WORK)]
