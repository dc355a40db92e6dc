"""The links of one client by name and direction, and how one of them is opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeAlias

from oncewire.client.connector import Connector
from oncewire.client.errors import ClientClosed, JournalLocked, LinkRefused, UsageError
from oncewire.client.failover import LinkEnd, end_of
from oncewire.client.journal_writer import JournalWriter
from oncewire.client.journals import JournalSource
from oncewire.client.link import ClientLink
from oncewire.client.publisher import Publisher
from oncewire.client.settled_publisher import SettledPublisher
from oncewire.client.subscriber import Subscriber
from oncewire.wire import AmqpError

OpenLink: TypeAlias = Publisher | SettledPublisher | Subscriber
Key: TypeAlias = tuple[str, bool]
"""Name, and whether it receives: two links of one name may only be of different directions (AMQP 2.6.1)."""


class Links:
    """See the module.

    Args:
        timeout_s: in which a link must open.
        check_open: raises where the client takes no links.
        writer_of: the writer of a journal; None = of nothing that survives.

    Attributes:
        by_key: those that are open, or were added while they open.
    """

    def __init__(
        self,
        timeout_s: float,
        check_open: Callable[[], None],
        writer_of: Callable[[JournalSource | None], JournalWriter],
    ) -> None:
        self._timeout_s = timeout_s
        self._check_open = check_open
        self._writer_of = writer_of
        self._opening: set[Key] = set()
        self.by_key: dict[Key, OpenLink] = {}

    @asynccontextmanager
    async def reserved(
        self, name: str, journal: JournalSource | None, *, receives: bool
    ) -> AsyncIterator[JournalWriter]:
        """Keep a name and hold its journal, in which the former link of that name writes nothing more (S-2).

        Raises:
            UsageError: the name is in use.
            JournalError: the journal cannot be used, or is held by a transaction.
        """
        self._check_open()
        key = (name, receives)
        if key in self.by_key or key in self._opening:
            raise UsageError(f"the link {name!r} cannot be opened", "this client has it open already", "close it first")
        writer = self._writer_of(journal)
        self._opening.add(key)
        try:
            async with AsyncExitStack() as held:
                try:
                    async with asyncio.timeout(self._timeout_s):
                        await held.enter_async_context(writer.at_rest())
                except TimeoutError:
                    raise JournalLocked(
                        f"the link {name!r} cannot be opened",
                        f"a transaction of this program has held its journal for {self._timeout_s:g} s",
                        "leave the block of `transaction()` before a link of the same journal is opened",
                    ) from None
                self._check_open()
                yield writer
        finally:
            self._opening.discard(key)

    def add(self, link: OpenLink, writer: JournalWriter) -> None:
        """It is one of the client's from now on. Raises as `check_open`: the client has ended meanwhile."""
        self._check_open()
        self.by_key[link.name, isinstance(link, Subscriber)] = link
        writer.add(link)
        writer.work(link)

    def forget(self, link: ClientLink) -> None:
        """It has ended."""
        self.by_key.pop((link.name, isinstance(link, Subscriber)), None)

    def publishing(self) -> list[Publisher | SettledPublisher]:
        """Those that send."""
        return [link for link in self.by_key.values() if not isinstance(link, Subscriber)]

    def receiving(self) -> list[Subscriber]:
        """Those that receive."""
        return [link for link in self.by_key.values() if isinstance(link, Subscriber)]

    def refused_with_session(self, error: AmqpError | None) -> OpenLink | None:
        """The link for which a broker has ended the session, as RabbitMQ does where others detach.

        Brokers carry out attaches in order, so it is the first one without a reply. None: all links have one, or the
        error may be another one at the next try.
        """
        if error is None or end_of(str(error.condition), error.info) is not LinkEnd.REFUSED:
            return None
        sent = [(link._wire, link) for link in self.by_key.values() if link._wire is not None]
        waiting = {wire.handle: link for wire, link in sent if wire.remote_attach is None}
        return waiting[min(waiting)] if waiting else None

    async def open(self, link: OpenLink, connector: Connector) -> None:
        """Attach it, and wait until a router has granted it.

        Raises:
            LinkRefused, ClientError: it was refused, or not granted in time; it has ended.
        """
        if connector.session is not None:
            link._connected(connector.session)
        try:
            async with asyncio.timeout(self._timeout_s):
                await link._opened()
        except TimeoutError:
            trouble = link.trouble or connector.cause or "none"
            error = LinkRefused(
                f"the link {link.name!r} did not open within {self._timeout_s:g} s",
                f"{connector.router_name} has not granted it; the last trouble was: {trouble}",
                "look at the router's log; it may have no connection to etcd",
            )
            link._fail(error)
            raise error from None
        except BaseException:
            await link._break_off(
                ClientClosed(f"the link {link.name!r} was not opened", "opening it was broken off", "open it again")
            )
            raise
