"""The client: one connection at a time to one of several routers, with all links of a container on it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack, overload

from oncewire.client.connector import ConnectOptions, Connector
from oncewire.client.defaults import PREFETCH, SUBSCRIPTION_TIMEOUT_S, WINDOW, WINDOW_BYTES
from oncewire.client.errors import ClientClosed, ClientError, ConnectFailed, UsageError
from oncewire.client.events import ClientEvent, ClientStatistics, LinkActive
from oncewire.client.failover import BACK_OFF_CAP_S, BACK_OFF_FIRST_S, Failover
from oncewire.client.guarantee import Peer
from oncewire.client.journal_writer import PATIENCE_S, JournalWriter
from oncewire.client.journals import Journals, JournalSource, random_container_id
from oncewire.client.link import ClientLink
from oncewire.client.link_names import choose_name
from oncewire.client.links import Links, OpenLink
from oncewire.client.login import check_login
from oncewire.client.opening import Opening, first_of, resolved
from oncewire.client.own_loop import require_loop
from oncewire.client.publisher import Publisher
from oncewire.client.publisher_core import PublisherCore
from oncewire.client.publisher_terms import PublisherTerms, publisher_of
from oncewire.client.put_off import ended
from oncewire.client.settled_publisher import SettledPublisher
from oncewire.client.source_terms import Start, journal_terms, member_name, source_terms
from oncewire.client.subscriber import Subscriber
from oncewire.client.subscriber_cores import check_terms, core_of
from oncewire.wire import LINK_REDIRECT, AmqpError, AmqpSession

if TYPE_CHECKING:
    from oncewire.client.codec import CodecSource
    from oncewire.client.codec_publisher import CodecPublisher

logger = logging.getLogger("oncewire.client")

MAX_CONTAINER_ID_BYTES = 255
"""Open is the first frame and has 512 bytes at most (2.4.1), which include the host's name."""


class Client:
    """What ``connect()`` makes. Not for use from several threads or event loops.

    Attributes:
        container_id: the identity in use, once it is connected.
        loop: the event loop it was started in, for `asyncio.run_coroutine_threadsafe`; None = it was not.
        statistics: what happened so far.
        open_timeout: seconds a link may take to open.
        max_message_size: bytes of the largest message that subscribers take.
        keeps_links: False = subscriptions end with this client, also those with a name: no process opens them again.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        container_id: str | None,
        journal: JournalSource | None = None,
        timeout: float,
        options: ConnectOptions,
        on_event: Callable[[ClientEvent], None] | None,
    ) -> None:
        options.check()
        if container_id is not None and len(container_id.encode()) > MAX_CONTAINER_ID_BYTES:
            raise UsageError(
                f"the container_id of {len(container_id.encode())} bytes cannot be used",
                f"the first frame of a connection holds {MAX_CONTAINER_ID_BYTES} bytes of it at most",
                "choose a shorter one",
            )
        self._random = random.Random()
        self._failover = Failover(urls, self._random.uniform)
        check_login(self._failover.addresses, options.token)
        self._is_random = container_id is None and journal is None
        self._wanted_id = container_id
        self.container_id = container_id or random_container_id()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.statistics = ClientStatistics()
        self.open_timeout = timeout
        self.max_message_size = options.max_message_size
        self.keeps_links = True
        self._options = options
        self._on_event = on_event
        self._links = Links(timeout, self._check_open, self._writer)
        self._journals = Journals(journal)
        self._runner: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._connector: Connector | None = None
        self._first_session: asyncio.Future[None] | None = None
        self._failure: ClientError | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> Client:
        """Connect. Called by ``await client`` and ``async with client``.

        Raises:
            ConnectFailed: no router could be reached in time.
            AuthenticationFailed: a router refused user and password.
        """
        self._check_alive()
        if self._runner is not None:
            return self
        loop = self.loop = asyncio.get_running_loop()
        if self._journals.default is not None:
            self.container_id = await self._kept_id()
        self._connector = Connector(self, self._failover, container_id=self.container_id, options=self._options)
        first = self._first_session = loop.create_future()
        self._runner = loop.create_task(self._run(self._connector), name=f"oncewire {self.container_id}")
        try:
            await asyncio.wait([first, self._runner], timeout=self.open_timeout, return_when=asyncio.FIRST_COMPLETED)
            self._check_alive()
            if not first.done():
                raise ConnectFailed(self._failover.attempts, self.open_timeout)
        except BaseException:
            await self._stop()
            raise
        return self

    async def _kept_id(self) -> str:
        try:
            return self._journals.container_id(self._wanted_id)
        except BaseException:
            await self._journals.close()
            raise

    async def _run(self, connector: Connector) -> None:
        """The one task of a client: keeps the connection, and holds the journals' writers."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    await connector.run()
                finally:
                    self._journals.cancel()
        except* ClientError as errors:
            error = first_of(errors)
            assert isinstance(error, ClientError)
            self._fail(error)
        except* Exception as errors:
            logger.exception("the client failed")
            self._fail(
                ClientError("the client failed", repr(first_of(errors)), "report this; connect again to continue")
            )

    def _fail(self, error: ClientError) -> None:
        """Nothing works any more; the first reason counts."""
        self._failure = self._failure or error
        for link in list(self._links.by_key.values()):
            link._fail(self._failure)

    def _check_loop(self) -> None:
        if self.loop is not None:
            require_loop(self.loop)

    def _check_alive(self) -> None:
        self._check_loop()
        if self._failure is not None:
            raise self._failure

    def __await__(self) -> Generator[object, None, Client]:
        return self.start().__await__()

    async def __aenter__(self) -> Client:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.abandon())

    async def close(self) -> None:
        """Close all links (publishers wait for their outcomes), then the connection.

        For a block of `transaction()` that is still open it waits 10 s at most, and no longer when it is cancelled.
        Such a block fails at its end and writes nothing; a journal that the application opened is in use until then.
        Cancelled, it closes everything nevertheless: it waits for no outcome, and a second at most for a router.

        Raises:
            JournalLocked: a block was still open; everything is closed nevertheless.
            NotAccepted, ClientError: from closing a publisher; everything is closed nevertheless.
        """
        self._begin_leaving()
        try:
            with self._journals.hurried_if_cancelled():
                for publisher in self._links.publishing():
                    await publisher.close()
                for subscriber in self._links.receiving():
                    await subscriber.close()
        finally:
            await self._abandon()

    async def abandon(self) -> None:
        """Suspend all links and close the connection; waits for blocks of `transaction()` alone, as `close` does."""
        self._begin_leaving()
        await self._abandon()

    def _begin_leaving(self) -> None:
        self._check_loop()
        self._journals.hurry()
        self.keeps_links &= not self._is_random

    async def _abandon(self) -> None:
        try:
            with suppress(TimeoutError), self._journals.hurried_if_cancelled():
                async with asyncio.timeout(PATIENCE_S):  # a link may be waiting for a block since before
                    for link in list(self._links.by_key.values()):
                        with suppress(ClientError):
                            await link.suspend()
        finally:
            await self._stop()

    async def _stop(self) -> None:
        """End the runner and everything it started; nothing is left behind. Called again it waits for the same."""
        if self._runner is None or self._connector is None:
            return
        self._fail(ClientClosed("the client is closed", "this program closed it", "connect again with a new client"))
        self._connector.stop()
        if self._connector.session is None:  # no session to close: it may be dialling
            self._runner.cancel()
        try:
            with self._journals.hurried_if_cancelled():
                await ended(self._runner)  # a router has CLOSE_S to answer
        finally:
            await self._journals.close()

    # --- links --------------------------------------------------------------------------------------------------------

    @overload
    def publisher(self, topic: str, **terms: Unpack[PublisherTerms]) -> Opening[Publisher]: ...
    @overload
    def publisher(
        self, topic: str, *, codec: CodecSource | None, **terms: Unpack[PublisherTerms]
    ) -> Opening[CodecPublisher]: ...
    def publisher(
        self,
        topic: str,
        *,
        name: str | None = None,
        journal: JournalSource | None = None,
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
        resend_in_doubt: bool = False,
        exactly_once: bool = True,
        require: int | None = None,
        require_processed: int | None = None,
        timeout: int | None = None,
        codec: CodecSource | None = None,
    ) -> Opening[Any]:
        """Open a publisher, with ``await`` or ``async with``; that returns when a router has granted it.

        Args:
            topic: where its messages go.
            name: of the link; with the container-id the identity that a later process resumes. None = random.
            journal: where unsettled messages are kept: a path or a SqliteJournal survives this process. None = that of
                the client, if the link has a name, else nothing that survives.
            window: messages that may wait for their outcome; `send` and `submit` wait beyond it.
            window_bytes: bytes of them.
            resend_in_doubt: when the network has deleted the session (after `timeout` seconds offline), send what was
                unsettled again, marked `x-opt-topic-in-doubt`, instead of reporting "outcome unknown".
            exactly_once: False = at-least-once, for routers that do not know the capability.
            require: subscriptions that a message must have when it arrives at a router. With fewer it is *released*,
                with what was sent behind it: sent to nobody. Where fewer have processed it at the end, for they ended,
                it is *unknown*. Outcomes name who is done with it; 0 = only that; None = not even that (I-3c).
            require_processed: likewise subscriptions that process it: those of journals, work queues and whatever
                else only stores messages for others do not count (I-3g).
            timeout: seconds the network keeps the session without its link. None = a day; 600 where name or container
                is random: no other process can open it.
            codec: encodes bodies: a dataclass, a model of pydantic, `dict` for any JSON, or a `Codec`.

        Raises:
            LinkRefused, ClientError: it was refused, or no router granted it in time.
            JournalError: the journal cannot be used.
            UsageError: the name is in use in this client.
        """
        link_name, journal = self._named("pub", name, journal)
        make = publisher_of(codec)

        async def opening() -> Publisher:
            async with self._links.reserved(link_name, journal, receives=False) as writer:
                core = PublisherCore(
                    window=window,
                    window_bytes=window_bytes,
                    resend_in_doubt=resend_in_doubt,
                    exactly_once=exactly_once,
                    require=0 if require is None and require_processed is not None else require,
                    require_processed=require_processed or 0,
                    recovered=await writer.read(lambda: writer.journal.open_publisher(link_name)),
                    is_shared=writer.journal.is_shared,
                )
                core.holds_released = writer.journal.keeps_released
                publisher = make(
                    self,
                    link_name,
                    topic,
                    writer,
                    core,
                    exactly_once=exactly_once,
                    timeout_s=timeout,
                    is_named=name is not None and not self._is_random,
                )
                self._links.add(publisher, writer)
            await self._links.open(publisher, self._connected)
            return publisher

        return Opening(opening())

    def settled_publisher(self, topic: str, *, name: str | None = None) -> Opening[SettledPublisher]:
        """Open a publisher whose messages are sent at most once, with ``await`` or ``async with``.

        Args:
            topic: where its messages go.
            name: of the link; None = random. No other publisher of this client may have it.

        Raises:
            LinkRefused, ClientError: it was refused, or no router granted it in time.
            UsageError: the name is in use in this client.
        """
        link_name = choose_name("pub", name, self.container_id, is_random=self._is_random, has_journal=False)

        async def opening() -> SettledPublisher:
            async with self._links.reserved(link_name, None, receives=False) as writer:
                publisher = SettledPublisher(self, link_name, topic, writer, is_named=name is not None)
                self._links.add(publisher, writer)
            await self._links.open(publisher, self._connected)
            return publisher

        return Opening(opening())

    def subscriber(
        self,
        topic: str,
        *,
        name: str | None = None,
        journal: JournalSource | None = None,
        prefetch: int = PREFETCH,
        exactly_once: bool = True,
        settled: bool = False,
        timeout: int | None = SUBSCRIPTION_TIMEOUT_S,
        selector: str | None = None,
        share: str | None = None,
        by_group: bool = False,
        deduplicate: bool = False,
        stores: bool = False,
        codec: CodecSource | None = None,
    ) -> Opening[Subscriber]:
        """Subscribe, with ``await`` or ``async with``.

        That returns when the network has confirmed it: every message sent from then on is owed to it.

        Args:
            topic: a topic, or a pattern (`*` one token, `#` the rest).
            name: of the subscription; with the container-id the identity that a later process resumes. None = random:
                the subscription ends when it is closed.
            journal: where processed deliveries are kept: a path or a SqliteJournal survives this process. None = that
                of the client, if the link has a name.
            prefetch: deliveries that may arrive ahead of the application; beyond the ones it resumes with.
            exactly_once: False = at-least-once, for routers that do not know the capability.
            settled: True = at-most-once: each message comes settled, no publisher waits for it, and what has no room
                in `prefetch` or finds no connection is lost. `accept()` only makes room.
            timeout: seconds the network keeps it while the subscriber is disconnected, and publishers of the topic
                may have to wait for it; None = the longest the network allows.
            selector: a condition of Jakarta Messaging, such as ``color = 'red' AND size > 3``: routers send only
                messages for which it is true. Another selector is another subscription.
            share: name of a shared subscription: each message goes to one of its subscribers, of any client. What one
                had goes to others when it has not come back within `timeout`.
            by_group: with `share`: what a publisher sends with one group-id goes to one subscriber at a time, in order.
            deduplicate: process a message once although its publisher sends it again, as stock clients do when they
                have lost their connection: by its user and its `message-id`, of each user the last 2,048 (D-3).
            stores: this program keeps messages for others, who process them later: what it accepts is *stored*, and
                publishers that wait for *processed* do not count it (I-3g).
            codec: reads bodies, as a publisher's encodes them, into ``Delivery.value``.

        Raises:
            LinkRefused, ClientError: it was refused, or no router granted it in time.
            JournalError: the journal cannot be used.
            UsageError: the name is in use in this client, or the arguments do not go together.
        """
        check_terms(settled=settled, has_journal=journal is not None, deduplicate=deduplicate)
        terms = source_terms(selector, share, by_group=by_group)._replace(
            stores=stores, exactly_once=exactly_once and not settled, settled=settled, timeout_s=timeout
        )
        link_name, kept_in = self._named("sub", name, journal)
        link_name, kept_in = member_name(share, link_name), None if settled else kept_in
        found = resolved(codec)

        async def opening() -> Subscriber:
            async with self._links.reserved(link_name, kept_in, receives=True) as writer:
                core = await core_of(writer, link_name, prefetch, terms.exactly_once, deduplicate=deduplicate)
                subscriber = Subscriber(self, link_name, topic, writer, core, terms, is_named=name is not None)
                subscriber.codec = found
                self._links.add(subscriber, writer)
            await self._links.open(subscriber, self._connected)
            return subscriber

        return Opening(opening())

    def journal(
        self,
        source: str,
        *,
        start: Start = "first",
        name: str | None = None,
        journal: JournalSource | None = None,
        prefetch: int = PREFETCH,
        settled: bool = False,
        codec: CodecSource | None = None,
    ) -> Opening[Subscriber]:
        """Read what an edge keeps of topics, in order, with ``await`` or ``async with``.

        Args:
            source: name of the edge's journal.
            start: `first` (the oldest message that is kept), `last` (the newest), `next` (what comes from now on), also
                `earliest` and `latest`, a position, or a datetime (UTC where it has no zone). A reader that has a
                cursor goes on there, whatever start it states.
            name: of the link; with the container-id it names a cursor at the edge, where the next process goes on.
                None = random, and the cursor ends when the reader is closed.
            journal: of this program, as of a subscriber: with it the next process gets each message once.
            prefetch: messages that may come ahead of the application.
            settled: True = no cursor: the reader keeps its position itself, and when it is connected anew it goes on
                behind the newest message it has. `accept()` only makes room, as for a settled subscriber.
            codec: as of a subscriber.

        Raises:
            LinkRefused, ClientError: there is no such journal, nobody can start there, or no edge answered in time.
            JournalError: the program's own journal cannot be used.
            UsageError: `start` is none, the name is in use in this client, or the arguments do not go together.
        """
        from oncewire.client.journal_reader import JournalReader  # here, because few programs read journals

        check_terms(settled=settled, has_journal=journal is not None, deduplicate=False)
        terms, found = journal_terms(start)._replace(exactly_once=not settled, settled=settled), resolved(codec)
        link_name, kept_in = self._named("sub", name, journal)

        async def opening() -> Subscriber:
            async with self._links.reserved(link_name, None if settled else kept_in, receives=True) as writer:
                core = await core_of(writer, link_name, prefetch, not settled, deduplicate=False)
                reader = JournalReader(self, link_name, source, writer, core, terms, is_named=name is not None)
                reader.codec = found
                self._links.add(reader, writer)
            await self._links.open(reader, self._connected)
            return reader

        return Opening(opening())

    def _named(self, kind: str, name: str | None, journal: JournalSource | None) -> tuple[str, JournalSource | None]:
        """Name and journal of a link, as they were given or as the client has them."""
        has_journal = journal is not None
        link_name = choose_name(kind, name, self.container_id, is_random=self._is_random, has_journal=has_journal)
        return link_name, journal if has_journal or name is None else self._journals.default

    def _check_open(self) -> None:
        self._check_alive()
        if self._runner is None:
            raise UsageError("no link can be opened", "the client is not connected", "use `async with connect(...)`")

    @property
    def _connected(self) -> Connector:
        assert self._connector is not None, "the client has started"
        return self._connector

    def _writer(self, journal: JournalSource | None) -> JournalWriter:
        assert self._group is not None
        return self._journals.writer(journal, self.container_id, self._group.create_task)

    @property
    def links(self) -> list[OpenLink]:
        """Its open publishers and subscribers: each has `name`, `topic` and `statistics`."""
        return list(self._links.by_key.values())

    # --- what links ask of their client -------------------------------------------------------------------------------

    @property
    def _router_name(self) -> str:
        """The router in use, for texts."""
        return "no router" if self._connector is None else self._connector.router_name

    @property
    def _peer(self) -> Peer:
        """What the connection leads to."""
        return self._connected.peer

    @property
    def _map_bound(self) -> int:
        """Entries an unsettled map may have (C-4)."""
        return self._connected.map_bound

    def _flush(self) -> None:
        """Write the links' output at the end of this turn."""
        self._connected.flush()

    def _put_off(self, link: ClientLink) -> bool:
        """Call its `_end_turn()` before the output of this turn is written, if there is any."""
        return self._connected.put_off(link)

    def _jitter(self, tries: int) -> float:
        """Seconds to wait before the next try of something that failed `tries` times."""
        return self._random.uniform(0.0, min(BACK_OFF_CAP_S, BACK_OFF_FIRST_S * 2 ** min(tries, 16)))

    def _may_move(self, error: AmqpError | None, insists: bool) -> bool:
        """Leave the router that does not serve a link, if it names another or the link insists; False = stay."""
        redirect = error if error is not None and error.condition == LINK_REDIRECT else None
        if redirect is None and (not insists or len(self._failover.addresses) < 2):
            return False
        self._connected.leave_router(redirect)
        return True

    def _notify(self, event: ClientEvent) -> None:
        """Notify the application; what its function raises is its own affair."""
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:
                logger.exception("on_event failed for %s", event)

    def _link_active(self, event: LinkActive) -> None:
        """A link works: so does its router."""
        self._failover.succeeded()
        self.statistics.resumed_links += event.resumed
        self.statistics.longest_gap_s = max(self.statistics.longest_gap_s, event.gap_s)
        self._notify(event)

    def _forget(self, link: ClientLink) -> None:
        """The link has ended."""
        self._links.forget(link)

    # --- events from the connector ------------------------------------------------------------------------------------

    def _session_begun(self, session: AmqpSession) -> None:
        """Attach all links."""
        self.statistics.connections += 1
        if self._first_session is not None and not self._first_session.done():
            self._first_session.set_result(None)
        for link in list(self._links.by_key.values()):
            link._connected(session)

    def _session_refused(self, error: AmqpError | None) -> None:
        """A broker may mean one of the links, which would be refused again and again."""
        link = None if self._peer.is_network else self._links.refused_with_session(error)
        if link is not None and error is not None:
            link._fail(link._refusal(str(error.condition), error.description or ""))

    def _session_lost(self) -> None:
        """All links wait for the next session."""
        for link in list(self._links.by_key.values()):
            link._connection_lost()
