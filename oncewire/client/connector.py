"""Keeps one connection to one of the routers: dials, opens, begins a session, and starts over when it is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from oncewire.client import defaults
from oncewire.client.errors import AuthenticationFailed, UsageError
from oncewire.client.events import ClientEvent, Connected, Disconnected
from oncewire.client.failover import Address, Failover, reported_address
from oncewire.client.guarantee import Peer, peer_of
from oncewire.client.link import ClientLink
from oncewire.client.login import TokenSource, refusal_of, sasl_client, token_of
from oncewire.client.transport import Transport
from oncewire.transport.connecting import connect
from oncewire.transport.tls import fault_of
from oncewire.wire import (
    CONNECTION_REDIRECT,
    NOT_IMPLEMENTED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
    AmqpSession,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOpened,
    ConnectionState,
    DeliveryAborted,
    DeliveryBegun,
    DeliveryEnded,
    DeliveryPart,
    DeliveryReceived,
    DispositionReceived,
    Event,
    Fields,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    LocalProtocolError,
    Role,
    SaslClient,
    SaslCode,
    SaslOutcome,
    SessionBegun,
    SessionEnded,
    Symbol,
    unsettled_map_bound,
    vocabulary,
)

if TYPE_CHECKING:
    from oncewire.wire.scram import SaltedPasswords

logger = logging.getLogger("oncewire.client")

ATTEMPT_S = 5.0
"""How long one router may take from the first byte to its session: a stopped process still takes connections."""
CLOSE_S = 1.0
"""How long to wait for the answer to close."""


class Owner(Protocol):
    """Who has the links."""

    def _session_begun(self, session: AmqpSession) -> None:
        """Links may be attached."""

    def _session_refused(self, error: AmqpError | None) -> None:
        """The peer has ended the session; all links are still there."""

    def _session_lost(self) -> None:
        """All links have ended."""

    def _notify(self, event: ClientEvent) -> None:
        """Notify the application."""


MIN_FRAME_SIZE = 4096
"""Smallest `max_frame_size`, as routers have it. An attach and its reply are one frame each (C-4): container-id, topic
and name of 255 bytes each and what else stands in them, beside a map with as many entries as the frame bounds it to.
With less, links attach until they have something unsettled, and then never again."""
MAX_FRAME_SIZE = (1 << 32) - 1
"""AMQP's field is an uint (2.7.1)."""


class ConnectOptions(NamedTuple):
    """How to connect.

    Attributes:
        ssl_context: for TLS; None = Python's default.
        idle_time_out_s: silence after which a router counts as unreachable.
        max_frame_size: bytes.
        allow_plain: send password or token as it is, also without TLS to another machine.
        token: the token of each login; None = log in with what the address has.
        hostname: the virtual host that the open asks for; None = the address's host.
        max_message_size: bytes of the largest message that subscribers take.
    """

    ssl_context: ssl.SSLContext | None
    idle_time_out_s: float
    max_frame_size: int
    allow_plain: bool = False
    token: TokenSource | None = None
    hostname: str | None = None
    max_message_size: int = defaults.MAX_MESSAGE_SIZE

    def check(self) -> None:
        """Look whether they can be used.

        Raises:
            UsageError: they cannot.
        """
        if not MIN_FRAME_SIZE <= self.max_frame_size <= MAX_FRAME_SIZE:
            raise UsageError(
                f"max_frame_size={self.max_frame_size} cannot be used",
                "a link attaches with its unsettled deliveries in one frame"
                if self.max_frame_size < MIN_FRAME_SIZE
                else "AMQP knows no larger frames than 4,294,967,295 bytes",
                f"give at least {MIN_FRAME_SIZE}, or leave it out: it is {defaults.MAX_FRAME_SIZE} then",
            )
        if self.max_message_size < 1:
            raise UsageError(
                f"max_message_size={self.max_message_size} cannot be used",
                "subscribers would get nothing",
                f"give a number of bytes, or leave it out: it is {defaults.MAX_MESSAGE_SIZE} then",
            )


class Connector:
    """See the module.

    Args:
        owner: notified about sessions.
        failover: where to connect.
        container_id: ours.
        options: how to connect.

    Attributes:
        cause: the last trouble, for errors; empty if there was none.
        connections: how many sessions were begun.
    """

    def __init__(self, owner: Owner, failover: Failover, *, container_id: str, options: ConnectOptions) -> None:
        self.cause = ""
        self.connections = 0
        self._owner = owner
        self._failover = failover
        self._container_id = container_id
        self._options = options
        self._salted: SaltedPasswords = {}
        self._loop = asyncio.get_running_loop()
        self._address: Address | None = None
        self._transport: Transport | None = None
        self._sasl: SaslClient | None = None
        self._forbidden = ""
        self._begun: asyncio.Future[None] | None = None
        self._session: AmqpSession | None = None
        self._stopping: asyncio.Future[None] = self._loop.create_future()

    # --- what others may ask ------------------------------------------------------------------------------------------

    @property
    def session(self) -> AmqpSession | None:
        """The session that links can be attached to now."""
        return self._session

    @property
    def router_name(self) -> str:
        """The router in use, for texts."""
        remote = None if self._transport is None else self._transport.engine.remote_container_id
        where = "no router" if self._address is None else str(self._address)
        return where if remote is None else f"{remote} at {where}"

    @property
    def peer(self) -> Peer:
        """What the connection leads to."""
        return peer_of(None if self._transport is None else self._transport.engine.remote_open)

    @property
    def map_bound(self) -> int:
        """Entries an unsettled map may have, ours in the router's frame and its reply in ours (C-4)."""
        assert self._transport is not None
        return unsettled_map_bound(min(self._transport.engine.send_frame_size, self._options.max_frame_size))

    def flush(self) -> None:
        """Write the links' output at the end of this turn."""
        if self._transport is not None:
            self._transport.mark_dirty()

    def put_off(self, link: ClientLink) -> bool:
        """Call its `_end_turn()` before the output of this turn is written; False: there is none to be written yet."""
        transport = self._transport
        if transport is None or not transport.is_dirty:
            return False
        transport.put_off[link] = None
        return True

    def leave_router(self, redirect: AmqpError | None) -> None:
        """Drop this connection and continue with the next router, or the one a redirect names."""
        if self._address is None or self._transport is None:
            return
        if redirect is not None:
            self._follow(redirect, self._address)
        self._failover.failed(self._address, "it serves other links, but not this one")
        self._close_engine()

    # --- the loop -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Say goodbye and end `run()`."""
        if not self._stopping.done():
            self._stopping.set_result(None)

    async def run(self) -> None:
        """Connect again and again until `stop()`.

        Raises:
            AuthenticationFailed: a router refused user and password, or the first connection of this user.
        """
        first = True
        while not self._stopping.done():
            address, delay = self._failover.next_try(first=first)
            first = False
            if await self._stopped_within(delay):
                return
            self._address = address
            self.cause = ""
            try:
                await self._connect(address)
            except (OSError, TimeoutError) as error:
                self.cause = self.cause or _text(error)
            finally:
                self._transport = None
            if self._stopping.done():
                return
            self.cause = self.cause or "the connection was lost"
            self._failover.failed(address, self.cause)
            logger.info("not connected to %s: %s", address, self.cause)
            if self._forbidden and not self.connections:
                fix = "connect to another virtual host, or as another user; the router's log names user and setting"
                raise AuthenticationFailed(f"{address} refused the connection", self._forbidden, fix)
            if self._sasl is not None and self._sasl.result is not None:
                self._check_authentication(self._sasl, address)
            self._owner._notify(Disconnected(str(address), self.cause))

    async def _stopped_within(self, seconds: float) -> bool:
        if seconds > 0:
            await asyncio.wait([self._stopping], timeout=seconds)
        return self._stopping.done()

    def _check_authentication(self, sasl: SaslClient, address: Address) -> None:
        result = sasl.result
        if self._options.token is not None and self.connections:
            return  # it has worked before: the token of a later login may be right again
        if result is not None and not result.ok and result.code == SaslCode.AUTH:
            why, fix = refusal_of(result, address, self._options.token is not None)
            raise AuthenticationFailed(f"{address} refused the login", why, fix)

    async def _connect(self, address: Address) -> None:
        """One connection from its first byte to its end."""
        self._begun = self._loop.create_future()
        self._sasl, token = None, None
        self._forbidden = ""
        if self._options.token is not None:
            async with asyncio.timeout(ATTEMPT_S):
                token = await token_of(self._options.token)
        context = self._options.ssl_context
        if address.tls and context is None:
            context = ssl.create_default_context()
        transport = self._transport = Transport(self._engine(address, token), self._on_event)
        await connect(transport, address.host, address.port, ATTEMPT_S, context if address.tls else None, address.path)
        try:
            waiting = {transport.closed, self._begun, self._stopping}
            await asyncio.wait(waiting, timeout=ATTEMPT_S, return_when=asyncio.FIRST_COMPLETED)
            if not self._begun.done() and not transport.closed.done() and not self._stopping.done():
                self.cause = f"it did not answer within {ATTEMPT_S:g} s"
                return
            await asyncio.wait([transport.closed, self._stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                if not transport.closed.done():
                    await transport.close(CLOSE_S if self._session is not None else 0.0)
            finally:
                self._session_lost()
        transport.closed.result()  # a fault of our own code

    def _engine(self, address: Address, token: str | None) -> Connection:
        hostname = self._options.hostname or address.host
        self._sasl = sasl_client(address, self._salted, self._options.allow_plain, token, hostname)
        return Connection(
            Role.CLIENT,
            container_id=self._container_id,
            hostname=hostname,
            max_frame_size=self._options.max_frame_size,
            idle_time_out_ms=round(self._options.idle_time_out_s * 1000),
            desired_capabilities=[vocabulary.EXACTLY_ONCE],  # C-6: it sends again what a session window holds back
            properties={Symbol("product"): "oncewire.client", Symbol("version"): _version()},
            sasl=self._sasl,
            now=self._loop.time(),
        )

    def _session_lost(self) -> None:
        if self._session is not None:
            self._session = None
            self._owner._session_lost()

    def _close_engine(self) -> None:
        assert self._transport is not None
        self._session_lost()
        try:
            self._transport.engine.close()
        except LocalProtocolError:
            self._transport.abort()
        self._transport.mark_dirty()
        # A router that does not answer must not hold the links up.
        self._loop.call_later(CLOSE_S, self._transport.abort)

    # --- events -------------------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if isinstance(event, DeliveryReceived):
            _link_of(event.link.context)._on_delivery(event)
        elif isinstance(event, DispositionReceived):
            _link_of(event.link.context)._on_disposition(event)
        elif isinstance(event, (LinkFlow, LinkAttached, LinkDetached)):
            self._on_link_event(event)
        elif not isinstance(event, (DeliveryBegun, DeliveryPart, DeliveryEnded, DeliveryAborted)):  # none is asked for
            self._on_connection_event(event)

    def _on_link_event(self, event: LinkFlow | LinkAttached | LinkDetached) -> None:
        link = event.link.context
        if not isinstance(link, ClientLink):  # begun by the peer: nothing can be attached to here
            if isinstance(event, LinkAttached):
                event.link.refuse(AmqpError(NOT_IMPLEMENTED, "this container takes no links"))
        elif isinstance(event, LinkFlow):
            link._on_flow(event)
        elif isinstance(event, LinkAttached):
            link._on_attached()
        else:
            link._on_detached(event)

    def _on_connection_event(
        self, event: SaslOutcome | ConnectionOpened | ConnectionClosed | ConnectionLost | SessionBegun | SessionEnded
    ) -> None:
        assert self._address is not None
        if isinstance(event, ConnectionOpened):
            self._learn(event.open.properties or {}, self._address)
            assert self._transport is not None
            # What was read with the open may hold the close already, of a router that is leaving.
            if self._transport.engine.state is ConnectionState.OPENED:
                self._transport.engine.begin()
        elif isinstance(event, SessionBegun):
            self._session = event.session
            self.connections += 1
            if self._begun is not None and not self._begun.done():
                self._begun.set_result(None)
            assert self._transport is not None
            self._owner._notify(Connected(str(self._address), self._transport.engine.remote_container_id or ""))
            self._owner._session_begun(event.session)
        elif isinstance(event, SessionEnded):
            self.cause = _error_text("the session was ended", event.error)
            if self._session is not None:
                self._owner._session_refused(event.error)
                self._close_engine()
        elif isinstance(event, (ConnectionClosed, ConnectionLost)):
            what = "the connection was closed" if isinstance(event, ConnectionClosed) else "the connection was lost"
            assert self._transport is not None
            self.cause = self.cause or self._transport.tls_fault or _error_text(what, event.error)
            is_closed_by_router = isinstance(event, ConnectionClosed)  # a refused login is lost, not closed
            if is_closed_by_router and event.error is not None and event.error.condition == UNAUTHORIZED_ACCESS:
                self._forbidden = event.error.description or str(UNAUTHORIZED_ACCESS)
            if event.error is not None and event.error.condition == CONNECTION_REDIRECT:
                self._follow(event.error, self._address)
            self._session_lost()

    def _follow(self, redirect: AmqpError, address: Address) -> None:
        """Try the router a redirect names next; those it lists besides are fresher than what the open said."""
        info = redirect.info or {}
        self._learn(info, address)
        reported = reported_address(info, address)
        if reported is not None:
            self._failover.prefer(reported)

    def _learn(self, reported: Fields, address: Address) -> None:
        listed = reported.get(vocabulary.FAILOVER_LIST)
        if isinstance(listed, list):
            found = [reported_address(entry, address) for entry in listed if isinstance(entry, dict)]
            self._failover.learn([*(other for other in found if other is not None), address])


def _link_of(context: object) -> ClientLink:
    assert isinstance(context, ClientLink)
    return context


def _error_text(what: str, error: AmqpError | None) -> str:
    if error is None:
        return what
    return f"{what} ({error.condition}{': ' + error.description if error.description else ''})"


def _text(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {ATTEMPT_S:g} s"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {fault_of(error)}"
    if isinstance(error, ConnectionError) and error.errno:
        # asyncio puts its own words in the place of the system's.
        return os.strerror(error.errno)
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return str(error) or type(error).__name__


@cache
def _version() -> str:
    from importlib import metadata  # slow to import, and needed once

    try:
        return metadata.version("oncewire")
    except metadata.PackageNotFoundError:
        return "unknown"
