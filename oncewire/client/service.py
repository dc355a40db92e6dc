"""The service's end of routed links: clients attach to its addresses at any router (protocol rules R-1 to R-7).

A service connects to each of the routers it is given and stays connected. Its handler gets each link that a client
attaches; the link calls the handler's `LinkEvents` from then on, in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from oncewire.client.errors import ClientError
from oncewire.client.failover import Address, parse_url
from oncewire.client.login import TokenSource, check_login, refusal_of, sasl_client, token_of
from oncewire.client.transport import Transport
from oncewire.transport.connecting import connect
from oncewire.wire import (
    AmqpError,
    Attach,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOpened,
    DeliveryReceived,
    DeliveryState,
    DispositionReceived,
    Event,
    Fields,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    ReceiverLink,
    Role,
    SaslClient,
    SaslCode,
    SaslOutcome,
    SenderLink,
    SessionEnded,
    StateError,
    Symbol,
    vocabulary,
)
from oncewire.wire.scram import SaltedPasswords

CONNECT_S = 5.0
"""For the TCP connection, and TLS where there is one."""
IDLE_TIME_OUT_S = 5.0
"""A router that is silent for longer counts as unreachable."""
BACK_OFF_FIRST_S = 0.1
BACK_OFF_CAP_S = 2.0
"""Longest wait before a router is tried again: its clients have no service meanwhile."""
CLOSE_S = 1.0
MAX_CHANNEL = 4095
"""Each routed link has a session of its own."""
WINDOW_FRAMES = 64
"""Transfer frames that one link may have under way toward the service."""
SERVED_S = 1.0
"""A router that does not let a client serve closes its connection at once; one that closes it later means the login."""
FATAL = frozenset({"amqp:not-allowed", "amqp:unauthorized-access"})
"""Reasons of a router to close the connection of a service: trying again does not help."""

logger = logging.getLogger("oncewire.client")


class ServiceRefused(ClientError):
    """A router does not let this client serve the addresses, or refuses its login."""


class LinkEvents(Protocol):
    """What happens on one link."""

    def on_delivery(self, event: DeliveryReceived) -> None:
        """The client has sent a delivery."""

    def on_flow(self, event: LinkFlow) -> None:
        """The client has granted credit, or asks to drain it."""

    def on_disposition(self, event: DispositionReceived) -> None:
        """The client states outcomes, or settles."""

    def on_detached(self, event: LinkDetached | None) -> bool | None:
        """The link is over; None = with its session or connection.

        A close is answered when this returns, unless it returns True: then `ServiceLink.detach` answers it later.
        """


class ServiceLink:
    """One link of a client. A call on a link that is over does nothing.

    Attributes:
        attach: what the client asks for.
        container_id: of the client, as its router states it.
        user: who has logged in there; None without a login.
        name: of the link at the client.
        events: gets what happens; the handler sets it.
        on_over: called when a link with `events` is over.
    """

    def __init__(self, link: ReceiverLink | SenderLink, flush: Callable[[], None]) -> None:
        assert link.remote_attach is not None
        self.attach: Attach = link.remote_attach
        properties = self.attach.properties or {}
        self.container_id = str(properties.get(vocabulary.ROUTER_CONTAINER, ""))
        user = properties.get(vocabulary.ROUTER_USER)
        self.user = None if user is None else str(user)
        self.name = str(properties.get(vocabulary.ROUTER_LINK, link.name))
        self.events: LinkEvents | None = None
        self.on_over: Callable[[], None] | None = None
        self._link = link
        self._flush = flush

    @property
    def is_sending(self) -> bool:
        """Whether the service sends on it."""
        return isinstance(self._link, SenderLink)

    @property
    def address(self) -> str | None:
        """What the client attached to."""
        node: Any = self.attach.source if self.is_sending else self.attach.target
        return getattr(node, "address", None)

    @property
    def credit_limit(self) -> int:
        """Deliveries that the client allows by now, in all since the attach; see `oncewire.wire.SenderLink`."""
        assert isinstance(self._link, SenderLink)
        return self._link.credit_limit

    def reply(self, **terms: Any) -> None:
        """Answer the attach with these terms, and the same termini where they name none; see `Link.reply`."""
        with suppress(StateError):
            self._link.reply(**{"source": self.attach.source, "target": self.attach.target, **terms})
        self._flush()

    def refuse(self, error: AmqpError) -> None:
        """Refuse the attach."""
        with suppress(StateError):
            self._link.refuse(error)
        self._flush()

    def detach(self, closed: bool, error: AmqpError | None = None) -> None:
        """End the link, or answer its close; `closed` False: the client keeps what is unsettled and attaches again."""
        with suppress(StateError):
            self._link.detach(closed, error)
        self._flush()

    def grant(self, credit: int) -> None:
        """Let the client send so many deliveries more than came until now."""
        assert isinstance(self._link, ReceiverLink)
        with suppress(StateError):
            self._link.grant(credit)
        self._flush()

    def dispose(self, numbers: Sequence[int], state: DeliveryState, settled: bool) -> None:
        """State the outcome of deliveries that came."""
        assert isinstance(self._link, ReceiverLink)
        with suppress(StateError):
            self._link.dispose(numbers, state, settled)
        self._flush()

    def send(self, tag: bytes, payload: bytes, settled: bool, **terms: Any) -> int | None:
        """Send a delivery on the client's credit; returns its id, None if the link is over.

        `terms`: of a delivery that is resumed, or has another format; see `oncewire.wire.SenderLink.send`.
        """
        assert isinstance(self._link, SenderLink)
        with suppress(StateError):
            number = self._link.send(tag, payload, settled=settled, **terms)
            self._flush()
            return number
        return None

    def send_many(
        self, deliveries: Iterable[tuple[bytes, bytes, int]], settled: bool, *, resume: bool = False
    ) -> list[int]:
        """Send deliveries on the client's credit; returns the ids of those that went out before the link was over.

        `deliveries`: tag, payload and message-format of each.
        """
        assert isinstance(self._link, SenderLink)
        send, numbers = self._link.send, []
        with suppress(StateError):
            for tag, payload, message_format in deliveries:
                numbers.append(send(tag, payload, settled=settled, resume=resume, message_format=message_format))
        self._flush()
        return numbers

    def settle(self, numbers: Sequence[int], state: DeliveryState) -> None:
        """Settle deliveries that went out, in ascending order: neighbours are one range."""
        assert isinstance(self._link, SenderLink)
        with suppress(StateError):
            self._link.settle(numbers, state)
        self._flush()

    def state(self, properties: Fields) -> None:
        """State properties of the link to a client that receives (AMQP 2.7.4)."""
        assert isinstance(self._link, SenderLink)
        with suppress(StateError):
            self._link.flow(properties)
        self._flush()

    def drained(self) -> None:
        """Give all credit back: there is nothing more to send now."""
        assert isinstance(self._link, SenderLink)
        with suppress(StateError):
            self._link.drained()
        self._flush()


class _RouterConnection:
    """One connection to one router."""

    def __init__(
        self,
        address: Address,
        container_id: str,
        prefixes: Sequence[str],
        on_link: Callable[[ServiceLink], None],
        on_open: Callable[[], None],
        sasl: SaslClient,
        has_token: bool,
        hostname: str,
    ) -> None:
        self.refusal: AmqpError | None = None
        self.opened_at: float | None = None
        self._address = address
        self._has_token = has_token
        self._on_link = on_link
        self._on_open = on_open
        self._links: dict[object, ServiceLink] = {}
        self._sasl = sasl
        self.transport = Transport(
            Connection(
                Role.CLIENT,
                container_id=container_id,
                hostname=hostname,
                channel_max=MAX_CHANNEL,
                idle_time_out_ms=round(IDLE_TIME_OUT_S * 1000),
                incoming_window=WINDOW_FRAMES,
                desired_capabilities=[vocabulary.SERVICE],
                properties={vocabulary.SERVES: list(prefixes)},
                sasl=sasl,
                now=asyncio.get_running_loop().time(),
            ),
            self._on_event,
        )

    def _on_event(self, event: Event) -> None:
        if isinstance(event, DeliveryReceived | DispositionReceived | LinkFlow | LinkDetached):
            link = self._links.get(event.link)
            if link is not None and link.events is not None:
                self._on_link_event(link, link.events, event)
        elif isinstance(event, LinkAttached) and isinstance(event.link, ReceiverLink | SenderLink):
            link = self._links[event.link] = ServiceLink(event.link, self.transport.mark_dirty)
            self._on_link(link)
        elif isinstance(event, SessionEnded):
            for each in event.session.links:
                self._lose(each)
        elif isinstance(event, ConnectionOpened):
            self.opened_at = asyncio.get_running_loop().time()
            self._on_open()
        elif isinstance(event, SaslOutcome):
            if not event.ok:
                result = self._sasl.result
                if result is not None and result.code != SaslCode.AUTH:
                    return  # the router cannot check it just now
                why = "user or password is wrong"
                if result is not None and (self._has_token or not result.mechanism):
                    why = refusal_of(result, self._address, True)[0] if self._has_token else result.description
                self.refusal = AmqpError(Symbol("amqp:unauthorized-access"), why)
        elif isinstance(event, ConnectionClosed | ConnectionLost):
            self.refusal = self.refusal or event.error
            self.lose_all()

    def _on_link_event(self, link: ServiceLink, events: LinkEvents, event: Any) -> None:
        if isinstance(event, DeliveryReceived):
            events.on_delivery(event)
        elif isinstance(event, DispositionReceived):
            events.on_disposition(event)
        elif isinstance(event, LinkFlow):
            events.on_flow(event)
        else:
            del self._links[event.link]
            answers_itself = events.on_detached(event)
            if link.on_over is not None:
                link.on_over()
            if not answers_itself and event.needs_answer:
                link.detach(True)

    def _lose(self, link: object) -> None:
        found = self._links.pop(link, None)
        if found is not None and found.events is not None:
            found.events.on_detached(None)
            if found.on_over is not None:
                found.on_over()

    def lose_all(self) -> None:
        for link in list(self._links):
            self._lose(link)


class _Verdict:
    """Whether a router's refusal of the connections to it, one after the other, is final."""

    def __init__(self, address: Address, prefixes: Sequence[str], has_token: bool) -> None:
        self._address = address
        self._prefixes = prefixes
        self._has_token = has_token
        self._was_open = False
        self._closed_at_once = 0

    def check(self, connection: _RouterConnection) -> None:
        """Judge a connection that has ended.

        Raises:
            ServiceRefused: trying again does not help.
        """
        refusal, opened_at = connection.refusal, connection.opened_at
        if opened_at is not None:
            is_at_once = asyncio.get_running_loop().time() - opened_at < SERVED_S
            self._was_open, self._closed_at_once = True, self._closed_at_once + 1 if is_at_once else 0
        if refusal is None:
            return
        logger.info("%s: %s: %s", self._address, refusal.condition, refusal.description)
        # A later token may be admitted; not where none ever was, nor where each is closed at once: the role lacks.
        may_change = self._was_open if opened_at is None else self._closed_at_once < 2
        if refusal.condition not in FATAL or (self._has_token and may_change):
            return
        what = f"{', '.join(self._prefixes)} cannot be served at {self._address}"
        fix = "give this user the role, or name the prefix in the router's settings; then start again"
        if self._has_token and opened_at is None:
            fix = "get a new token; the router's log has the reason"
        raise ServiceRefused(what, refusal.description or str(refusal.condition), fix)


class Service:
    """Serves the addresses of some prefixes at several routers.

    Args:
        urls: ``amqp://[USER:PASSWORD@]HOST[:PORT]`` of each router to connect to (or ``amqps``, ``ws``, ``wss``).
        prefixes: beginnings of the addresses; the routers' setting ``services.prefixes`` has them.
        on_link: called with each link that a client attaches: it sets ``events``, and replies or refuses, now or later.
        container_id: of this process.
        ssl_context: for ``amqps`` and ``wss``; None = Python's default.
        allow_plain: as at ``connect()``.
        token: as at ``connect()``: the token of each login in place of user and password. When it expires the router
            closes the connection; the service connects with a new one. Clients' links end with their connection and
            are attached again.
        hostname: as at ``connect()``: the virtual host whose clients it serves.

    Attributes:
        connected: routers that the service is connected to now.

    Raises:
        UsageError: an address cannot be read, or has a user beside `token`.
    """

    def __init__(
        self,
        urls: Sequence[str],
        prefixes: Sequence[str],
        on_link: Callable[[ServiceLink], None],
        *,
        container_id: str,
        ssl_context: ssl.SSLContext | None = None,
        allow_plain: bool = False,
        token: TokenSource | None = None,
        hostname: str | None = None,
    ) -> None:
        self.connected: set[str] = set()
        self._addresses = [parse_url(url) for url in urls]
        check_login(self._addresses, token)
        self._token = token
        self._hostname = hostname
        self._prefixes = prefixes
        self._on_link = on_link
        self._container_id = container_id
        self._ssl_context = ssl_context
        self._allow_plain = allow_plain
        self._salted: SaltedPasswords = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled; a router that is lost is tried again.

        Raises:
            ServiceRefused: a router does not let this client serve.
            UsageError: the login cannot be sent to an address.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                for address in self._addresses:
                    tasks.create_task(self._serve_at(address))
        except* ClientError as refused:
            first = refused.exceptions[0]
            assert isinstance(first, ClientError)  # the tasks are one level deep
            raise first from None

    async def wait_connected(self) -> None:
        """Wait until the service is connected to one router at least."""
        while not self.connected:
            self._changed.clear()
            await self._changed.wait()

    async def _serve_at(self, address: Address) -> None:
        delay, verdict = BACK_OFF_FIRST_S, _Verdict(address, self._prefixes, self._token is not None)
        while True:
            connection: _RouterConnection | None = None
            try:
                connection = await self._make(address)
                await self._connect(connection, address)
            except (OSError, TimeoutError) as error:
                logger.debug("%s: %s", address, error)
            finally:
                self._note(address, False)
                if connection is not None:
                    connection.lose_all()
            if connection is not None:
                verdict.check(connection)
            was_open = connection is not None and connection.opened_at is not None
            delay = BACK_OFF_FIRST_S if was_open else min(2 * delay, BACK_OFF_CAP_S)
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))

    async def _make(self, address: Address) -> _RouterConnection:
        token = None
        if self._token is not None:
            async with asyncio.timeout(CONNECT_S):
                token = await token_of(self._token)
        hostname = self._hostname or address.host
        return _RouterConnection(
            address,
            self._container_id,
            self._prefixes,
            self._on_link,
            lambda: self._note(address, True),
            sasl_client(address, self._salted, self._allow_plain, token, hostname),
            self._token is not None,
            hostname,
        )

    async def _connect(self, connection: _RouterConnection, address: Address) -> None:
        transport = connection.transport
        tls = (self._ssl_context or ssl.create_default_context()) if address.tls else None
        await connect(transport, address.host, address.port, CONNECT_S, tls, address.path)
        try:
            await asyncio.shield(transport.closed)
        finally:
            if not transport.closed.done():
                await transport.close(CLOSE_S)

    def _note(self, address: Address, is_connected: bool) -> None:
        (self.connected.add if is_connected else self.connected.discard)(str(address))
        self._changed.set()
