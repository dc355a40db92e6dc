"""Serves addresses of a store at routers: each link that a client attaches goes to the kind of its prefix (R-1)."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from bridges.store.amqp_errors import error_of
from oncewire.client.login import TokenSource
from oncewire.client.put_off import ended
from oncewire.client.service import LinkEvents, Service, ServiceLink
from oncewire.store.errors import EdgeError, InvalidRequest, LimitReached, NeedsTransactions
from oncewire.store.open_store import OpenStore
from oncewire.store.store import Transaction

MAX_LINKS_OF_USER = 1024
"""Of one process: a reader's link holds up to a MiB of messages, and a router has some 4,000 links to one process."""


class Served(LinkEvents, Protocol):
    """The store's end of one link."""

    async def open(self) -> None:
        """Answer the attach."""


Kind: TypeAlias = Callable[["AddressService", ServiceLink], Served]
"""Makes the end of a link, or raises InvalidRequest where the attach asks for what cannot be."""


class AddressService:
    """Serves addresses of a store.

    Args:
        store: what the addresses are in.
        urls: of the routers.
        kinds: what serves the addresses of each prefix.
        container_id: of this process.
        ssl_context: for URLs that ask for TLS; None = Python's default.
        token: as at ``connect()``; None = log in with what the URLs have.
        hostname: as at ``connect()``: the virtual host whose clients it serves.
        answers_within: seconds in which the store must answer, or clients are left to other processes; None = there
            are none.

    Raises:
        NeedsTransactions: the store has none.
        UsageError: a URL cannot be read, or has a user beside `token`.

    Attributes:
        store: what the addresses are in.
        service: its connections.
    """

    def __init__(
        self,
        store: OpenStore[Any],
        urls: Sequence[str],
        kinds: Mapping[str, Kind],
        container_id: str,
        *,
        ssl_context: ssl.SSLContext | None = None,
        token: TokenSource | None = None,
        hostname: str | None = None,
        answers_within: float | None = None,
    ) -> None:
        if not store.has_transactions:
            raise NeedsTransactions(
                f"{', '.join(kinds)} cannot be served over AMQP",
                "a delivery that is stored exactly once needs a transaction, and a MongoDB store has none",
                "use a SQLite or PostgreSQL store",
            )
        self.store = store
        self.service = Service(
            urls,
            list(kinds),
            self._on_link,
            container_id=container_id,
            ssl_context=ssl_context,
            token=token,
            hostname=hostname,
        )
        self._answers_within = answers_within
        self._kinds = kinds
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: Counter[str] = Counter()

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            ServiceRefused: a router does not let this process serve the prefixes.
            EdgeError: the store does not answer: clients are left to processes that it answers.
        """
        try:
            if self._answers_within is None:
                await self.service.run()
            else:
                await self._run_while_answered(self._answers_within)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run_while_answered(self, seconds: float) -> None:
        await self.store.transact_within(seconds, _nothing)  # nobody is to come in before it does
        tasks = [asyncio.create_task(self.service.run()), asyncio.create_task(self._watch(seconds))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await ended(*tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _watch(self, seconds: float) -> None:
        """End with the store's error when it has answered nothing for so long."""
        loop = asyncio.get_running_loop()
        answered = loop.time()
        while True:
            await asyncio.sleep(seconds / 3)
            try:
                await self.store.transact_within(seconds, _nothing)
                answered = loop.time()
            except EdgeError:
                if loop.time() - answered >= seconds:
                    raise

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
        address = link.address or ""
        kind = next((kind for prefix, kind in self._kinds.items() if address.startswith(prefix)), None)
        try:
            if kind is None:
                fix = f"attach to an address that begins with {' or '.join(self._kinds)}"
                raise InvalidRequest("the link was refused", f"{address!r} is not served here", fix)
            served = kind(self, link)
            if link.user is not None:
                self._count(link, link.user)
        except (InvalidRequest, LimitReached) as error:
            link.refuse(error_of(error))
            return
        link.events = served
        self.start(served.open())

    def _count(self, link: ServiceLink, user: str) -> None:
        """Those of who has not logged in count by address at routers (`limits.max_links`, `quota.rules`)."""
        if self._links[user] >= MAX_LINKS_OF_USER:
            why = f"this user has {MAX_LINKS_OF_USER} links to this process"
            raise LimitReached("the link was refused", why, "end one of them")
        self._links[user] += 1

        def leave() -> None:
            self._links[user] -= 1
            if not self._links[user]:
                del self._links[user]

        link.on_over = leave


def _nothing(_do: Transaction) -> None:
    """A transaction that shows that the store answers."""
