"""What a publisher and a subscriber have in common: attach, attach again, fail, close.

A link object outlives its attaches. The client calls it with what its connection sees; it runs no task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from oncewire.client.core_effects import AnswerEcho, ProveOwner
from oncewire.client.errors import ClientClosed, ClientError, JournalError, LinkRefused, LinkStolen
from oncewire.client.events import ClientEvent, LinkActive, LinkInterrupted, LinkStatistics
from oncewire.client.failover import LinkEnd, Steals, end_of
from oncewire.client.guarantee import Guarantee, Peer
from oncewire.client.journal_writer import JournalWriter, as_journal_error
from oncewire.client.own_loop import require_loop
from oncewire.wire import (
    NOT_FOUND,
    AmqpError,
    AmqpSession,
    DeliveryReceived,
    DispositionReceived,
    LinkDetached,
    LinkFlow,
    LocalProtocolError,
    ReceiverLink,
    SenderLink,
    Symbol,
    ULong,
    WireError,
    vocabulary,
)

logger = logging.getLogger("oncewire.client")

REFUSALS_BEFORE_MOVING = 3
"""Times in a row a router may say "not here" to one link before the client tries another router: moving takes all links
of the connection along, so it is not done for a passing trouble."""
DETACH_S = 10.0
"""How long to wait for the answer to a detach: a router answers a close when etcd has deleted the key (E-8, I-8)."""
SERVICE = "://"
"""Addresses of services have it behind their prefix."""

# Never on the wire: why a detach has no answer.
NO_CONNECTION = Symbol("oncewire:no-connection")
NO_ANSWER = Symbol("oncewire:no-answer")


class LinkOwner(Protocol):
    """What a link asks of its client.

    Attributes:
        container_id: of the connection.
        open_timeout: seconds a link may take to open.
        max_message_size: bytes of the largest message that subscribers take.
        keeps_links: whether another process may open its links again.
    """

    container_id: str
    open_timeout: float
    max_message_size: int
    keeps_links: bool

    @property
    def _router_name(self) -> str:
        """The router in use, for texts."""

    @property
    def _peer(self) -> Peer:
        """What the connection leads to."""

    @property
    def _map_bound(self) -> int:
        """Entries an unsettled map may have (C-4)."""

    def _flush(self) -> None:
        """Write what the links have to send at the end of this turn."""

    def _jitter(self, tries: int) -> float:
        """Seconds to wait before the next try of something that failed `tries` times."""

    def _may_move(self, error: AmqpError | None, insists: bool) -> bool:
        """Leave the router that does not serve a link, if it names another or the link insists; False = stay."""

    def _notify(self, event: ClientEvent) -> None:
        """Report to the application."""

    def _link_active(self, event: LinkActive) -> None:
        """A link works: so does its router."""

    def _put_off(self, link: ClientLink) -> bool:
        """Call its `_end_turn()` before the output of this turn is written; False: there is none to be written yet."""

    def _forget(self, link: ClientLink) -> None:
        """The link has ended."""


class ClientLink:
    """One link of a client over all its attaches.

    Args:
        client: on whose connection it attaches.
        name: the link's name.
        is_named: the application chose the name: another process may open the same link.
        journal: serves its core's commits.

    Attributes:
        statistics: counts since it was opened.
        topic: the address that it is attached to.
        trouble: why the last attach ended, for errors; empty if none did.
        guarantee: what it promises at the peer where it was attached last.
    """

    topic: str
    guarantee: Guarantee

    def __init__(self, client: LinkOwner, name: str, journal: JournalWriter, *, is_named: bool) -> None:
        self.client = client
        self.name = name
        self._is_named = is_named
        self.statistics = LinkStatistics()
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._session: AmqpSession | None = None
        self._wire: SenderLink | ReceiverLink | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._refusals = 0
        self._steals = Steals()
        self._down_since: float | None = None
        self._failure: ClientError | None = None
        self.trouble = ""
        self._was_active = False
        self._has_attached = False
        self._is_asking = False  # whose the journal is, before an attach (P-b)
        self._leaving: asyncio.Future[AmqpError | None] | None = None
        self._is_closing = False  # the application has closed or suspended it; it may still be in use
        self._over: asyncio.Future[None] = self._loop.create_future()  # done when it has failed or is closed
        # Waiters for something this link may never deliver: notified when it fails.
        self._waiters: set[asyncio.Future[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.suspend())

    # --- what the two kinds do differently ----------------------------------------------------------------------------

    async def close(self) -> None:
        """End the link at the router, too."""
        raise NotImplementedError

    async def suspend(self) -> None:
        """Leave without waiting for what is under way."""
        raise NotImplementedError

    def _attach(self, session: AmqpSession) -> SenderLink | ReceiverLink | None:
        """Send an attach; None if it cannot be sent now (the core is busy, it will ask again)."""
        raise NotImplementedError

    def _attached(self) -> None:
        """The router's attach came and grants something."""
        raise NotImplementedError

    def _lost(self) -> None:
        """The attach is over."""
        raise NotImplementedError

    def _is_granted(self) -> bool:
        """Whether the router's attach names our terminus; if not a refusing detach follows (A-8)."""
        remote = None if self._wire is None else self._wire.remote_attach
        if remote is None:
            return False
        return (remote.target if isinstance(self._wire, SenderLink) else remote.source) is not None

    def _is_worthless(self) -> bool:
        """Whether no process can use what the network keeps for this link."""
        raise NotImplementedError

    def _expired(self) -> None:
        """The router knows no session or subscription of ours any more."""
        raise NotImplementedError

    def _on_flow(self, event: LinkFlow) -> None:
        """A flow came on this link."""
        raise NotImplementedError

    def _on_delivery(self, event: DeliveryReceived) -> None:
        """A delivery came on this link."""
        raise NotImplementedError

    def _on_disposition(self, event: DispositionReceived) -> None:
        """The router sent an update about deliveries of this link."""
        raise NotImplementedError

    @property
    def _wants_commit(self) -> bool:
        """Whether the core has something to write, and may."""
        raise NotImplementedError

    def _take_commit(self) -> Callable[[], None]:
        """Take the core's changes; see JournalUser."""
        raise NotImplementedError

    def _skip_commit(self) -> None:
        """Take the core's changes, which nobody writes; see JournalUser."""
        raise NotImplementedError

    def _commit_done(self) -> None:
        """The changes are durable; see JournalUser."""
        raise NotImplementedError

    def _release_all(self, error: ClientError) -> None:
        """The link has ended: notify all waiters of the core."""
        raise NotImplementedError

    def _work_in_turns(self) -> None:
        """There is something to write, as the application does it message by message.

        What is durable is written in groups anyway. Else what comes first in a turn of the loop is done now, and what
        follows together, before the turn's output is written: a commit of its own for each would cost more than all
        the rest of a message.
        """
        if self._journal.journal.is_durable or not self.client._put_off(self):
            self._journal.work(self)

    def _end_turn(self) -> None:
        """The output of this turn is about to be written; see `LinkOwner._put_off`."""
        self._journal.work(self)

    # --- called by the client -----------------------------------------------------------------------------------------

    def _connected(self, session: AmqpSession) -> None:
        """A connection with a session is there: attach."""
        self._session = session
        self._attach_soon()

    def _connection_lost(self) -> None:
        """The connection is lost; everything waits for the next one."""
        self._session = None
        self._cancel_retry()
        if self._wire is not None:
            self._link_over()
        if self._leaving is not None and not self._leaving.done():
            self._leaving.set_result(AmqpError(NO_CONNECTION))

    def _on_attached(self) -> None:
        """The router's attach came."""
        if self._is_granted():
            self._attached()

    def _on_detached(self, event: LinkDetached) -> None:
        """The link is detached, by the router or at our own request."""
        if event.needs_answer:
            with suppress(LocalProtocolError):
                event.link.detach(True)
        if event.link is not self._wire:
            return
        self._link_over()
        if self._leaving is not None:
            if not self._leaving.done():
                self._leaving.set_result(event.error)
            return
        if self._failure is not None:
            return  # the answer to the detach of a link that has ended: nothing attaches it again
        condition = "" if event.error is None else str(event.error.condition)
        description = "" if event.error is None else event.error.description or ""
        self.trouble = f"{condition or 'detached'}: {description or 'no reason given'}"
        self.client._notify(LinkInterrupted(self.name, condition, description))
        logger.info("link %s was detached: %s %s", self.name, condition or "no error", description)
        self._after_detach(event.error, condition, description)

    def _after_detach(self, error: AmqpError | None, condition: str, description: str) -> None:
        end = end_of(condition, None if error is None else error.info)
        self._refusals += 1
        if condition == NOT_FOUND and self._was_active and SERVICE in self.topic:
            self._retry_later()  # a process of the service is started again, or a path has changed
        elif end is LinkEnd.REFUSED or (condition and not self._was_active and not self.client._peer.is_network):
            self._fail(self._refusal(condition, description))
        elif end is LinkEnd.STOLEN and self._steals.is_too_many(self._loop.time()):
            self._fail(
                LinkStolen(
                    f"the link {self.name!r} was stolen repeatedly",
                    f"another process attaches it as container-id {self.client.container_id!r}"
                    + (f" ({description})" if description else ""),
                    "give each process a container-id of its own",
                    condition,
                )
            )
        elif end in {LinkEnd.EXPIRED, LinkEnd.DELETED}:
            if self._refusals >= REFUSALS_BEFORE_MOVING:
                self._retry_later()  # a fresh attach cannot be expired: something is wrong there
            self._expired()
            if self._retry is None:
                self._attach_soon()
        elif end is LinkEnd.ELSEWHERE and self.client._may_move(error, self._refusals >= REFUSALS_BEFORE_MOVING):
            self._refusals = 0
        else:
            self._retry_later()

    def _refusal(self, condition: str, description: str) -> LinkRefused:
        return LinkRefused(
            f"the link {self.name!r} was refused",
            f"{self.client._router_name} reports {condition}: {description or 'no reason given'}",
            "correct the topic, the name or the permissions",
            condition,
        )

    def _fail(self, error: ClientError) -> None:
        """Give up for good: whoever waits, and whoever comes later, gets the error."""
        if self._failure is not None:
            return
        self._failure = error
        self._cancel_retry()
        self._detach_now(closed=self._is_worthless())
        self._journal.remove(self)
        self.client._forget(self)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._release_all(error)
        self._over.set_result(None)

    async def _break_off(self, error: ClientError) -> None:
        """Abandon the opening; whoever waits gets the error."""
        self._fail(error)

    def _commit_failed(self, error: JournalError) -> None:
        """The journal could not be written: the core depends on that write, so it must not continue."""
        self._fail(error)

    # --- attaching ----------------------------------------------------------------------------------------------------

    def _attach_soon(self) -> None:
        """Attach if there is a session and no attach in progress; again only while a shared journal is ours (P-b)."""
        self._cancel_retry()
        if not (self._has_attached and self._journal.journal.is_shared):
            self._attach_now()
        elif not self._is_asking:
            self._is_asking = True
            self._if_owner(self._attach_now)

    def _attach_now(self) -> None:
        self._is_asking = False
        if self._session is None or self._wire is not None or self._failure is not None or self._leaving is not None:
            return
        try:
            self._wire = self._attach(self._session)
        except WireError as error:
            # The session is ending (its end is on the way to us), or the attach does not fit.
            logger.info("link %s cannot be attached now: %s", self.name, error)
            self._retry_later()
            return
        if self._wire is not None:
            self._has_attached = True
            self._wire.context = self
            self.client._flush()

    def _retry_later(self) -> None:
        self._cancel_retry()
        delay = self.client._jitter(self._refusals)
        self._retry = self._loop.call_later(delay, self._attach_soon)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _link_over(self) -> None:
        self._wire = None
        if self._down_since is None:
            self._down_since = self._loop.time()
        self._lost()

    def _became_active(self, *, resumed: bool, unsettled: int) -> None:
        self._refusals = 0
        self._was_active = True
        gap = 0.0
        if self._down_since is not None:
            gap = self._loop.time() - self._down_since
            self._down_since = None
        statistics = self.statistics
        statistics.longest_gap_s = max(statistics.longest_gap_s, gap)
        if resumed:
            statistics.resumed_links += 1
            statistics.resumed_entries += unsettled
        self.client._link_active(LinkActive(self.name, resumed, unsettled, gap))

    def _prove_life(self, effect: AnswerEcho | ProveOwner) -> None:
        """Answer the router's echo, so that our map counts (A-4); P-b: that of a shared journal while it is ours."""
        wire = self._wire

        def answer() -> None:
            if wire is not None and wire is self._wire and wire.is_attached:
                wire.flow({vocabulary.ECHO: ULong(effect.value)})
                self.client._flush()

        if isinstance(effect, ProveOwner):
            self._if_owner(answer)
        else:
            answer()

    def _if_owner(self, then: Callable[[], None]) -> None:
        """P-b: do this when the journal was read to be still ours; if it is not, or cannot be read, the link ends."""

        def answer(checking: asyncio.Future[None]) -> None:
            if checking.exception() is None:
                then()
            else:
                self._commit_failed(as_journal_error(checking.exception()))

        self._loop.run_in_executor(None, self._journal.journal.check_owner).add_done_callback(answer)

    # --- waiting and leaving ------------------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        """Raise why the link cannot be used from here, or any more, if so."""
        require_loop(self._loop)
        if self._failure is not None:
            raise self._failure

    async def _wait(self, waiter: asyncio.Future[None]) -> None:
        """Wait for a result with a single waiter, or for the link's failure."""
        self._check_usable()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    async def _wait_shared(self, event: asyncio.Future[None]) -> None:
        """Wait for what others may wait for, too, or for the link's failure. Being cancelled leaves it as it is."""
        await asyncio.wait([event, self._over], return_when=asyncio.FIRST_COMPLETED)
        self._check_usable()

    def _detach_now(self, *, closed: bool) -> bool:
        """Send a detach if the link is attached; its answer comes later."""
        if self._wire is None:
            return False
        try:
            self._wire.detach(closed)
        except LocalProtocolError:
            return False
        self.client._flush()
        return True

    async def _begin_closing(self) -> bool:
        """True for the first to close the link, who must see to it that it ends. Others wait until it has."""
        require_loop(self._loop)
        if not self._is_closing:
            self._is_closing = True
            return True
        await asyncio.wait([self._over])
        return False

    async def _leave(self, *, closed: bool) -> AmqpError | None:
        """Detach; of a closing detach wait for the answer, at most DETACH_S, and return the error in it.

        No new attach is made from now on. Without a connection there is no router to notify: it raises. A suspended
        link needs no answer: losing the connection is the same to a router (A-9).
        """
        self._cancel_retry()
        self._leaving = self._loop.create_future()
        if not self._detach_now(closed=closed):
            return AmqpError(NO_CONNECTION)
        if not closed:
            return None
        await asyncio.wait([self._leaving], timeout=DETACH_S)
        return self._leaving.result() if self._leaving.done() else AmqpError(NO_ANSWER)

    def _is_over(self) -> ClientClosed:
        return ClientClosed(
            f"the link {self.name!r} is closed",
            "it was closed or suspended by this program",
            "open it again; unsettled messages resume from its journal",
        )
