"""The service's end of routed links: clients attach to its addresses at any router (protocol rules R-1 to R-7).

A service connects to each of the routers it is given and stays connected. Its handler gets each link that a client
attaches; the link calls the handler's `LinkEvents` from then on, in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from oncewire.client.errors import ClientError
from oncewire.client.failover import Address, parse_url
from oncewire.client.login import sasl_client
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
    LinkAttached,
    LinkDetached,
    LinkFlow,
    ReceiverLink,
    Role,
    SaltedPasswords,
    SaslClient,
    SaslCode,
    SaslOutcome,
    SenderLink,
    SessionEnded,
    StateError,
    Symbol,
    vocabulary,
)

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

    def on_detached(self, event: LinkDetached | None) -> None:
        """The link is over; None = with its session or connection. A close is answered when this returns."""


class ServiceLink:
    """One link of a client. A call on a link that is over does nothing.

    Attributes:
        attach: what the client asks for.
        container_id: of the client, as its router states it.
        user: who has logged in there; None without a login.
        name: of the link at the client.
        events: gets what happens; the handler sets it.
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
        """Answer the attach with the same termini and these terms; see `oncewire.wire.Link.reply`."""
        with suppress(StateError):
            self._link.reply(source=self.attach.source, target=self.attach.target, **terms)
        self._flush()

    def refuse(self, error: AmqpError) -> None:
        """Refuse the attach."""
        with suppress(StateError):
            self._link.refuse(error)
        self._flush()

    def detach(self, closed: bool, error: AmqpError | None = None) -> None:
        """End the link; with `closed` False the client keeps what is unsettled and attaches again."""
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

    def send(self, tag: bytes, payload: bytes, settled: bool) -> int | None:
        """Send a delivery on the client's credit; returns its id, None if the link is over."""
        assert isinstance(self._link, SenderLink)
        with suppress(StateError):
            number = self._link.send(tag, payload, settled=settled)
            self._flush()
            return number
        return None

    def settle(self, number: int, state: DeliveryState) -> None:
        """Settle a delivery that went out."""
        assert isinstance(self._link, SenderLink)
        with suppress(StateError):
            self._link.settle([number], state)
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
    ) -> None:
        self.refusal: AmqpError | None = None
        self.was_open = False
        self._on_link = on_link
        self._on_open = on_open
        self._links: dict[object, ServiceLink] = {}
        self._sasl = sasl
        self.transport = Transport(
            Connection(
                Role.CLIENT,
                container_id=container_id,
                hostname=address.host,
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
            self.was_open = True
            self._on_open()
        elif isinstance(event, SaslOutcome):
            if not event.ok:
                result = self._sasl.result
                if result is not None and result.code != SaslCode.AUTH:
                    return  # the router cannot check it just now
                is_sent = result is None or bool(result.mechanism)
                why = "user or password is wrong" if is_sent or result is None else result.description
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
            events.on_detached(event)
            if event.needs_answer:
                link.detach(True)

    def _lose(self, link: object) -> None:
        found = self._links.pop(link, None)
        if found is not None and found.events is not None:
            found.events.on_detached(None)

    def lose_all(self) -> None:
        for link in list(self._links):
            self._lose(link)


class Service:
    """Serves the addresses of some prefixes at several routers.

    Args:
        urls: ``amqp://[USER:PASSWORD@]HOST[:PORT]`` of each router to connect to (or ``amqps``, ``ws``, ``wss``).
        prefixes: beginnings of the addresses; the routers' setting ``services.prefixes`` has them.
        on_link: called with each link that a client attaches: it sets ``events``, and replies or refuses, now or later.
        container_id: of this process.
        ssl_context: for ``amqps`` and ``wss``; None = Python's default.
        allow_plain: as at ``connect()``.

    Attributes:
        connected: routers that the service is connected to now.

    Raises:
        UsageError: an address cannot be read.
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
    ) -> None:
        self.connected: set[str] = set()
        self._addresses = [parse_url(url) for url in urls]
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
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                for address in self._addresses:
                    tasks.create_task(self._serve_at(address))
        except* ServiceRefused as refused:
            first = refused.exceptions[0]
            assert isinstance(first, ServiceRefused)  # the tasks are one level deep
            raise first from None

    async def wait_connected(self) -> None:
        """Wait until the service is connected to one router at least."""
        while not self.connected:
            self._changed.clear()
            await self._changed.wait()

    async def _serve_at(self, address: Address) -> None:
        delay = BACK_OFF_FIRST_S
        while True:
            connection = _RouterConnection(
                address, self._container_id, self._prefixes, self._on_link, lambda: self._note(address, True),
                sasl_client(address, self._salted, self._allow_plain),
            )  # fmt: skip
            try:
                await self._connect(connection, address)
            except (OSError, TimeoutError) as error:
                logger.debug("%s: %s", address, error)
            finally:
                self._note(address, False)
                connection.lose_all()
            self._check(connection.refusal, address)
            delay = BACK_OFF_FIRST_S if connection.was_open else min(2 * delay, BACK_OFF_CAP_S)
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))

    def _check(self, refusal: AmqpError | None, address: Address) -> None:
        if refusal is None:
            return
        logger.info("%s: %s: %s", address, refusal.condition, refusal.description)
        if refusal.condition in FATAL:
            what = f"{', '.join(self._prefixes)} cannot be served at {address}"
            fix = "give this user the role, or name the prefix in the router's settings; then start again"
            raise ServiceRefused(what, refusal.description or str(refusal.condition), fix)

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
