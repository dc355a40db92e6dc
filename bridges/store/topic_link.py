"""What a feed and the publisher of the outbox have in common.

They connect and resume after any failure. When another process takes over they stand by until that one is gone.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from oncewire.client import (
    Client,
    ClientError,
    ClientEvent,
    Connected,
    DeliveryGivenUp,
    Disconnected,
    JournalOwnerError,
    LinkInterrupted,
    NewIncarnation,
    SessionExpired,
    UsageError,
    connect,
)
from oncewire.client.login import TokenSource
from oncewire.client.put_off import ended
from oncewire.store.errors import EdgeError, NeedsTransactions, StoreError, SubscriptionEnded, TakenOver
from oncewire.store.open_store import OpenStore, until_set
from oncewire.store.owners import ENDED, OWNERS_NOTICE, Owner, lease_left, make_way, take_over
from oncewire.store.store import Transaction

logger = logging.getLogger("oncewire.store")

RETRY_S = 0.5
"""Pause after a failure that the client did not recover from by itself."""
RENEW_S = 5.0
"""How often an owner renews its lease of 15 s."""
GIVE_BACK_S = 2.0
"""How long an end waits for the store: whoever stands by takes over without it, too, but later."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """How a process comes to run what one process runs at a time, and how long it keeps that.

    Attributes:
        stands_by: wait for the owner's lease from the start, in place of taking over from it (W-26).
        lease_s: how long an owner that is not heard of counts as running it; None = 15 s, renewed every 5 s.
    """

    stands_by: bool = False
    lease_s: float | None = None

    @property
    def renew_s(self) -> float:
        """How often an owner renews its lease: two renewals may be late."""
        return RENEW_S if self.lease_s is None else self.lease_s / 3


TAKES_OVER = Tenure()


BEGINS = "it begins"


class TopicLink(ABC):
    """Runs between topics and one store.

    Args:
        store: open for as long as this runs.
        name: of what is run; in the store it stands for all that the network knows of it.
        routers: URLs, tried in turn.
        ssl_context: for URLs that ask for TLS; None = Python's default.
        token: as at ``connect()``; None = log in with what the URLs have.
        hostname: as at ``connect()``: the virtual host of the topics.
        tenure: how this process comes to run it.

    Attributes:
        trouble: why it does not run just now; empty = it does, or stands by.
        is_owner: whether this process runs it, as far as it knows; if not, it stands by.
        tenures: how often it has become that.
        done: messages that it has taken, or published, so far.
    """

    def __init__(
        self,
        store: OpenStore[Any],
        name: str,
        routers: str | Sequence[str],
        ssl_context: ssl.SSLContext | None = None,
        token: TokenSource | None = None,
        hostname: str | None = None,
        tenure: Tenure = TAKES_OVER,
    ) -> None:
        self._store = store
        self._name = name
        self._routers = [routers] if isinstance(routers, str) else list(routers)
        self._ssl_context = ssl_context
        self._token = token
        self._hostname = hostname
        self._doubts: asyncio.Event | None = None  # set when another process may have taken over
        self._tenure = tenure
        self.trouble = ""
        self.is_owner = False
        self.tenures = 0
        self.done = 0

    async def run(self) -> None:
        """Run until cancelled. After a failure it resumes from the store.

        It takes over from the process that runs it (W-23), or stands by first, as its tenure says. When another one
        takes over it stands by, and runs again when that one is gone (W-26). Both are logged.

        Raises:
            TakenOver: its subscription was ended, here (SubscriptionEnded) or elsewhere.
            NeedsTransactions: it is a MongoDB store.
            UsageError: an address of a router cannot be read.
        """
        owner: Owner | None = None
        self.trouble = BEGINS
        take = self._stand_by if self._tenure.stands_by else self._begin
        try:
            while True:
                try:
                    if owner is None:
                        owner = await take()
                        take = self._stand_by
                        self.is_owner = True
                        self.tenures += 1
                    await self._run_once(owner)
                except JournalOwnerError as error:
                    owner = None
                    self.is_owner = False
                    self._complain(f"{error.why}; this one stands by")
                    continue
                except (TakenOver, NeedsTransactions, UsageError) as error:
                    self._complain(str(error))
                    if owner is not None and isinstance(error, SubscriptionEnded):
                        await self._store.transact(partial(owner.give_back, lease=ENDED))
                        owner = None
                    raise
                except (ClientError, EdgeError) as error:
                    self._complain(str(error))
                await asyncio.sleep(RETRY_S)
        finally:
            self.is_owner = False
            if owner is not None:
                await self._give_back(owner)

    async def _begin(self) -> Owner:
        """W-23: whoever begins last runs it."""

        def begin(do: Transaction) -> tuple[float | None, Owner]:
            return lease_left(do, self._name), take_over(do, self._name, self._tenure.lease_s)

        left, owner = await self._store.transact(begin)
        if left:
            logger.warning("%s: this process has taken over from one that runs it", self._name)
        return owner

    async def _stand_by(self) -> Owner:
        """W-26: wait until the owner gives its lease back, or has not renewed it."""

        def look(do: Transaction) -> tuple[Owner | None, float]:
            left = lease_left(do, self._name)
            if left is None:
                raise TakenOver(f"{self._name} ends here", "its subscription was ended", "run it again to subscribe")
            return (None, left) if left else (take_over(do, self._name, self._tenure.lease_s), 0.0)

        with self._store.waiting(OWNERS_NOTICE) as changed:
            while True:
                await self._store.listen()
                changed.clear()
                owner, left = None, await self._store.transact(lambda do: make_way(do, self._name))
                if not left:
                    owner, left = await self._store.transact(look)
                if owner is not None:
                    logger.warning("%s: this process has taken over, the one before is gone", self._name)
                    return owner
                self.trouble = ""
                await until_set(changed, left)

    async def _give_back(self, owner: Owner) -> None:
        with suppress(EdgeError, TimeoutError):
            async with asyncio.timeout(GIVE_BACK_S):
                await self._store.transact(owner.give_back)

    async def _run_once(self, owner: Owner) -> None:
        """Serve until something fails; also when that another process has taken over shows in nothing else.

        Raises:
            JournalOwnerError: another process has taken over.
            SubscriptionEnded: this one has ended it for good.
        """
        tasks = [asyncio.create_task(self._connect(owner)), asyncio.create_task(self._watch(owner))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await ended(*tasks)
        for task in reversed(tasks):  # that it was taken over explains what else has failed
            if not task.cancelled():
                try:
                    task.result()
                except SubscriptionEnded:
                    raise
                except TakenOver as error:
                    raise JournalOwnerError(error.what, error.why, error.fix) from error

    async def _connect(self, owner: Owner) -> None:
        if self.trouble in ("", BEGINS):
            self.trouble = "no router has answered yet"
        async with self._client(owner) as client:
            await self._serve(client, owner)

    def _client(self, owner: Owner) -> Client:
        return connect(
            self._routers,
            container_id=owner.container,
            ssl_context=self._ssl_context,
            token=self._token,
            hostname=self._hostname,
            on_event=self._on_event,
        )

    async def _watch(self, owner: Owner) -> None:
        """Renew the lease (W-26); at once when the store announces a new owner, or a router took a link away."""
        with self._store.waiting(OWNERS_NOTICE) as self._doubts:
            while True:
                await self._store.listen()
                self._doubts.clear()
                try:
                    await self._store.transact_within(owner.lease_s, owner.renew)
                except StoreError:  # W-26: perhaps a newer owner has stopped with the lock of the row
                    await self._store.transact_within(owner.lease_s, lambda do: make_way(do, self._name))
                    raise
                await until_set(self._doubts, self._tenure.renew_s)

    @abstractmethod
    async def _serve(self, client: Client, owner: Owner) -> None:
        """Work until something fails."""

    def _on_event(self, event: ClientEvent) -> None:
        if isinstance(event, Connected):
            self.trouble = ""
        elif isinstance(event, Disconnected):
            self.trouble = f"{event.address}: {event.cause}"
        elif isinstance(event, LinkInterrupted):
            if self._doubts is not None:
                self._doubts.set()
        elif isinstance(event, NewIncarnation):
            logger.error("%s: its subscription expired; messages sent in between are missing", self._name)
        elif isinstance(event, DeliveryGivenUp):
            logger.warning("%s: a message was settled by the network before it was stored", self._name)
        elif isinstance(event, SessionExpired):
            logger.error("%s: its session expired with %d messages without outcome", self._name, event.messages)

    def _complain(self, text: str) -> None:
        if text != self.trouble:
            self.trouble = text
            logger.warning("%s does not run just now: %s", self._name, text)
