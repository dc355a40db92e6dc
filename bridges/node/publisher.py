"""Publishes an outbox: a link for each topic, resumed with its unsettled map whatever ends in between."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bridges.node.errors import NodeError
from bridges.node.model import INFLIGHT
from bridges.node.outbox_journal import OutboxJournal
from bridges.node.signals import Signal
from oncewire.client import (
    Client,
    ClientError,
    ClientEvent,
    Connected,
    Disconnected,
    LinkRefused,
    NotAccepted,
    Publisher,
    UsageError,
    connect,
)
from oncewire.client.login import TokenSource
from oncewire.client.outcomes import counted
from oncewire.client.publisher import SESSION_TIMEOUT_S

logger = logging.getLogger("oncewire.bridge")

POLL_S = 1.0
"""How long a batch that another process decided may go unnoticed; what this process decides wakes the publisher."""
RETRY_S = 2.0
"""Pause after a failure that the client did not recover from by itself."""
_GROUPS_IN_WINDOW = 4
"""A window is filled by as many groups, so that one is on its way while the next is prepared."""


def _terms(journal: OutboxJournal) -> tuple[bool, int]:
    """What the newest commit wants: whether rows in doubt are sent again, and subscriptions that rows need."""
    return journal.resends_in_doubt(), journal.required()


@dataclass(slots=True)
class PublisherNumbers:
    """What a publisher has done since it was made.

    Attributes:
        outcomes: rows by the outcome they ended with.
        unfinished: rows that were sent and have no outcome.
        trouble: topic -> why nothing can be published there just now; the empty topic = to no topic at all.
    """

    outcomes: dict[str, int] = field(default_factory=dict)
    unfinished: int = 0
    trouble: dict[str, str] = field(default_factory=dict)


class SinkPublisher:
    """Publishes one sink's decided batches, in order within each topic.

    Args:
        path: the outbox.
        sink: its id; also the container-id, so that a second publisher of the same sink steals the links.
        routers: URLs, tried in turn.
        tls: for URLs that ask for TLS; None = Python's default.
        token: as for `connect()`; None = log in with what the URLs have.
        inflight: rows of a topic that may be without outcome.
        session_timeout_s: how long the network keeps the session while this process is disconnected.
    """

    def __init__(
        self,
        path: Path,
        sink: str,
        routers: Sequence[str],
        *,
        tls: ssl.SSLContext | None = None,
        token: TokenSource | None = None,
        inflight: int = INFLIGHT,
        session_timeout_s: int = SESSION_TIMEOUT_S,
    ) -> None:
        self._path = path
        self._sink = sink
        self._routers = routers
        self._tls = tls
        self._token = token
        self._inflight = inflight
        self._session_timeout_s = session_timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work = Signal()
        self.progress = Signal()
        self._unfinished: dict[str, int] = {}
        self.numbers = PublisherNumbers()

    def wake(self) -> None:
        """A batch was decided."""
        self._work.notify()

    async def run(self) -> None:
        """Publish until cancelled. After a failure that the client cannot recover from it retries from the outbox."""
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                await self._open_and_serve()
            except* (ClientError, NodeError) as errors:
                self._complain("", errors.exceptions[0])
            await asyncio.sleep(RETRY_S)

    async def _open_and_serve(self) -> None:
        journal = OutboxJournal(self._path, self._sink, self._progressed)
        journal.outcomes = self.numbers.outcomes
        try:
            async with connect(
                self._routers,
                container_id=self._sink,
                ssl_context=self._tls,
                token=self._token,
                on_event=self._on_event,
            ) as client:
                await self._serve(client, journal)
        finally:
            journal.close()

    async def _serve(self, client: Client, journal: OutboxJournal) -> None:
        """Keep a task for each topic that has rows."""
        at_work: dict[str, asyncio.Task[None]] = {}
        self.numbers.trouble.pop("", None)
        async with asyncio.TaskGroup() as group:
            while True:
                seen = self._work.count
                for topic in await asyncio.to_thread(journal.topics_at_work):
                    if topic not in at_work:
                        at_work[topic] = group.create_task(self._publish_topic(client, journal, topic))
                await self._work.wait(seen, POLL_S)

    async def _publish_topic(self, client: Client, journal: OutboxJournal, topic: str) -> None:
        while True:
            try:
                await self._publish(client, journal, topic)
            except (LinkRefused, UsageError) as error:  # affects this topic only
                self._complain(topic, error)
                await asyncio.sleep(RETRY_S)

    async def _publish(self, client: Client, journal: OutboxJournal, topic: str) -> None:
        """Publish until a commit wants what is in doubt, or without subscriptions, treated in another way."""
        terms = await asyncio.to_thread(_terms, journal)
        publisher = await client.publisher(
            topic,
            name=topic,
            journal=journal,
            window=self._inflight,
            # O-8: what is sent again has the same identity; subscribers that dedup by it find copies.
            resend_in_doubt=terms[0],
            require=terms[1] or None,
            timeout=self._session_timeout_s,
        )
        for sending in publisher.recovered:
            sending.was_awaited = True
        if not terms[1]:
            self.numbers.trouble.pop(topic, None)
        while True:
            seen = self._work.count
            if journal.has_released(topic):
                await self._wait_for_subscriptions(publisher, journal, terms[1])
                return
            if publisher.statistics.accepted:
                self.numbers.trouble.pop(topic, None)
            if await asyncio.to_thread(_terms, journal) != terms:
                with suppress(NotAccepted):
                    await publisher.flush()
                await publisher.suspend()
                return
            try:
                has_more = await self._submit(publisher, journal, topic)
            except NotAccepted:  # something was released, and is being recorded
                await self._wait_for_subscriptions(publisher, journal, terms[1])
                return
            if not has_more:
                self._count_unfinished(topic, publisher.unfinished)
                await self._work.wait(seen, POLL_S)

    async def _submit(self, publisher: Publisher, journal: OutboxJournal, topic: str) -> bool:
        """Hand on the next rows; False = there are none."""
        number = publisher.next_number
        rows = await asyncio.to_thread(journal.rows_from, topic, number)
        if rows is None:
            return False
        group = max(1, self._inflight // _GROUPS_IN_WINDOW)
        end = rows.first + len(rows.payloads)
        while number < end:
            stop = min(end, number + group)
            payloads = journal.annotated(topic, rows, number, stop)
            for sending in await publisher._submit_stored(payloads):  # noqa: SLF001 - not for applications
                sending.was_awaited = True  # its outcome is counted by the journal
            number = stop
            self._count_unfinished(topic, publisher.unfinished)
        return True

    async def _wait_for_subscriptions(self, publisher: Publisher, journal: OutboxJournal, required: int) -> None:
        """O-12: rows were sent to nobody; when all that was sent has its outcome, another session sends them again."""
        wanted = counted(required, "subscription")
        self._complain(publisher.topic, f"it has fewer than {wanted} (require): its rows wait until it has as many")
        if await publisher.end_released():
            journal.send_released(publisher.topic)
        await asyncio.sleep(RETRY_S)

    def _count_unfinished(self, topic: str, count: int) -> None:
        self._unfinished[topic] = count
        self.numbers.unfinished = sum(self._unfinished.values())

    def _progressed(self) -> None:
        """Called in the journal's thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.progress.notify)

    def _on_event(self, event: ClientEvent) -> None:
        if isinstance(event, Disconnected):
            self.numbers.trouble[""] = f"{event.address}: {event.cause}"
        elif isinstance(event, Connected):
            self.numbers.trouble.pop("", None)

    def _complain(self, topic: str, error: BaseException | str) -> None:
        text = str(error)
        if self.numbers.trouble.get(topic) != text:
            self.numbers.trouble[topic] = text
            where = f" to topic {topic!r}" if topic else ""
            logger.warning("sink %s cannot publish%s just now: %s", self._sink, where, text)
