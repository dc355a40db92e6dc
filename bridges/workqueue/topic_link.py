"""What a feed and the publisher of the outbox have in common.

They connect, resume after any failure, and end when another process takes over.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress

from bridges.workqueue.errors import NeedsTransactions, QueueError, TakenOver
from bridges.workqueue.queue import LONGEST_SLEEP_S
from bridges.workqueue.queue_store import QueueStore
from bridges.workqueue.topic_journal import OWNERS_NOTICE, Owner, take_over
from oncewire.client import (
    Client,
    ClientError,
    ClientEvent,
    Connected,
    DeliveryGivenUp,
    JournalOwnerError,
    LinkInterrupted,
    NewIncarnation,
    SessionExpired,
    UsageError,
    connect,
)
from oncewire.client.login import TokenSource
from oncewire.client.put_off import ended

logger = logging.getLogger("oncewire.workqueue")

RETRY_S = 0.5
"""Pause after a failure that the client did not recover from by itself."""


class TopicLink(ABC):
    """Runs between topics and one store.

    Args:
        store: with the queues; open for as long as this runs.
        name: of what is run; in the store it stands for all that the network knows of it.
        routers: URLs, tried in turn.
        ssl_context: for URLs that ask for TLS; None = Python's default.
        token: as at ``connect()``; None = log in with what the URLs have.
        hostname: as at ``connect()``: the virtual host of the topics.

    Attributes:
        trouble: why it does not run just now; empty = it does.
    """

    def __init__(
        self,
        store: QueueStore,
        name: str,
        routers: str | Sequence[str],
        ssl_context: ssl.SSLContext | None = None,
        token: TokenSource | None = None,
        hostname: str | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._routers = [routers] if isinstance(routers, str) else list(routers)
        self._ssl_context = ssl_context
        self._token = token
        self._hostname = hostname
        self._doubts: asyncio.Event | None = None  # set when another process may have taken over
        self.trouble = ""

    async def run(self) -> None:
        """Run until cancelled. After a failure it resumes from the store.

        Raises:
            TakenOver: another process runs it since (W-23).
            NeedsTransactions: it is a MongoDB store.
            UsageError: an address of a router cannot be read.
        """
        owner: Owner | None = None
        while True:
            try:
                if owner is None:
                    owner = await self._store.transact(lambda do: take_over(do, self._name))
                await self._run_once(owner)
            except JournalOwnerError as error:
                raise TakenOver(error.what, error.why, error.fix) from error
            except (TakenOver, NeedsTransactions, UsageError):
                raise
            except (ClientError, QueueError) as error:
                self._complain(str(error))
            await asyncio.sleep(RETRY_S)

    async def _run_once(self, owner: Owner) -> None:
        """Serve until something fails; also when that another process has taken over shows in nothing else."""
        tasks = [asyncio.create_task(self._connect(owner)), asyncio.create_task(self._watch(owner))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await ended(*tasks)
        for task in reversed(tasks):  # that it was taken over explains what else has failed
            if not task.cancelled():
                task.result()

    async def _connect(self, owner: Owner) -> None:
        async with self._client(owner) as client:
            await self._serve(client, owner)

    def _client(self, owner: Owner) -> Client:
        return connect(
            self._routers, container_id=owner.container, ssl_context=self._ssl_context, token=self._token,
            hostname=self._hostname, on_event=self._on_event,
        )  # fmt: skip

    async def _watch(self, owner: Owner) -> None:
        """W-23: look when the store announces a new owner, and when a router took a link away."""
        with self._store.waiting(OWNERS_NOTICE) as self._doubts:
            while True:
                await self._store.listen()
                self._doubts.clear()
                await self._store.transact(owner.check)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._doubts.wait(), LONGEST_SLEEP_S)

    @abstractmethod
    async def _serve(self, client: Client, owner: Owner) -> None:
        """Work until something fails."""

    def _on_event(self, event: ClientEvent) -> None:
        if isinstance(event, Connected):
            self.trouble = ""
        elif isinstance(event, LinkInterrupted):
            if self._doubts is not None:
                self._doubts.set()
        elif isinstance(event, NewIncarnation):
            logger.error("%s: its subscription expired; messages sent in between are missing", self._name)
        elif isinstance(event, DeliveryGivenUp):
            logger.warning("%s: a message was settled by the network before it was pushed", self._name)
        elif isinstance(event, SessionExpired):
            logger.error("%s: its session expired with %d messages without outcome", self._name, event.messages)

    def _complain(self, text: str) -> None:
        if text != self.trouble:
            self.trouble = text
            logger.warning("%s does not run just now: %s", self._name, text)
