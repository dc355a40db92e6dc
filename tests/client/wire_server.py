"""The reference router behind real sockets: the wire engine as a server, enough of a router to test a client's shell.

`Network` is what routers share (etcd, and here also their memory); a `WireServer` is one listening router. Tests shape
its behaviour through attributes: refusals, silence, redirects, capabilities.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from oncewire.client.delivery_states import outcome_of
from oncewire.client.outcomes import Outcome
from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    Connection,
    ConnectionState,
    DeliveryReceived,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    LocalProtocolError,
    ReceiverLink,
    Rejected,
    Role,
    SaslServer,
    SenderLink,
    Source,
    Symbol,
    Target,
    UInt,
    ULong,
)
from oncewire.wire.vocabulary import (
    ASK,
    ASKED,
    CONFIRMED,
    ECHO,
    EXACTLY_ONCE,
    INCARNATION,
    OWING,
    OWING_COUNT,
    RESUME,
    SESSION,
)
from tests.client.reference_router import Ingress, Pipe, ReferenceRouter

TICK_S = 0.1


@dataclass
class Network:
    """What survives a router: topics with sessions and subscriptions."""

    topics: dict[str, ReferenceRouter] = field(default_factory=dict)
    confirm: bool = True
    """False: attaches are answered, the barrier never completes."""
    window: int = 8
    outcomes: deque[Any] = field(default_factory=deque)
    """States reported instead of accepted for the next messages."""

    def topic(self, name: str) -> ReferenceRouter:
        if name not in self.topics:
            self.topics[name] = ReferenceRouter([], self.window)
        return self.topics[name]


class Attachment:
    """One client link at a server."""

    def __init__(self, session: ServerConnection, link: SenderLink | ReceiverLink, topic: str) -> None:
        self.connection = session
        self.link = link
        self.topic = topic
        self.pipe = Pipe()
        self.ids: dict[bytes, int] = {}
        container = session.engine.remote_container_id
        self.identity = f"{container}/{link.name}"


class ServerConnection(asyncio.Protocol):
    def __init__(self, server: WireServer) -> None:
        self.server = server
        sasl = SaslServer({"ANONYMOUS", "PLAIN"} if server.anonymous else {"PLAIN"}, verify=server.verify)
        self.engine = Connection(
            Role.SERVER,
            container_id=server.name,
            max_frame_size=server.max_frame_size,
            offered_capabilities=(EXACTLY_ONCE,) if server.capable else (),
            properties=server.properties,
            sasl=sasl,
            now=asyncio.get_running_loop().time(),
        )
        self.transport: asyncio.Transport | None = None
        self.reads = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connections.append(self)
        self._tick()

    def _tick(self) -> None:
        """What is due, such as the empty frames that a client waits for (2.4.5), at its shortest time-out in tests."""
        assert self.transport is not None
        if self.transport.is_closing():
            return
        loop = asyncio.get_running_loop()
        if not self.server.is_silent:
            self.engine.handle_timer(loop.time())
            self.flush()
        loop.call_later(TICK_S, self._tick)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if self.server.is_silent:
            return
        self.engine.receive_data(data, asyncio.get_running_loop().time())
        for event in self.engine.events():
            self.handle(event)
        self.server.pump_all()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.remove(self)
        for attachment in [a for a in self.server.attachments if a.connection is self]:
            self.server.gone(attachment)

    def flush(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        data = self.engine.data_to_send()
        if data:
            self.transport.write(data)
        if self.engine.state is ConnectionState.ENDED:
            self.transport.close()

    def handle(self, event: Any) -> None:
        if isinstance(event, LinkAttached):
            self.server.attach(self, event.link)
        elif isinstance(event, (LinkFlow, DeliveryReceived, DispositionReceived)):
            attachment = event.link.context
            if isinstance(attachment, Attachment):
                self.server.receive(attachment, event)
                self.server.pump(attachment)  # before what follows in the same read, such as a detach
        elif isinstance(event, LinkDetached):
            attachment = event.link.context
            if event.needs_answer:
                self.server.close_link(event.link, attachment)
            if isinstance(attachment, Attachment):
                self.server.gone(attachment)


class WireServer:
    """One router. Use with ``async with``."""

    def __init__(self, network: Network, name: str = "r0", port: int = 0) -> None:
        self.network = network
        self.name = name
        self.port = port
        self.connections: list[ServerConnection] = []
        self.attachments: list[Attachment] = []
        self.refuse: deque[AmqpError] = deque()
        """Errors for the next attaches."""
        self.close_errors: deque[AmqpError] = deque()
        """Errors for the answers to the next closing detaches."""
        self.capable = True
        self.anonymous = True
        self.is_silent = False
        self.max_frame_size = 1 << 20
        self.max_message_size = 1 << 20
        self.properties: dict[Symbol, object] | None = None
        self.dispositions = 0
        """Frames with outcomes of subscribers."""
        self.presented: list[tuple[str, int]] = []
        """(link name, entries of its map) of each attach."""
        self.verify: Callable[[str, str], bool] = lambda user, password: (user, password) == ("ann", "secret")
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ServerConnection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def kill(self) -> None:
        """The router dies: no more connections, all memory of the network is lost with it."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for topic in self.network.topics.values():
            topic.crash()
        self.drop_connections()

    def drop_connections(self) -> None:
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def __aenter__(self) -> WireServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    # --- links --------------------------------------------------------------------------------------------------------

    def attach(self, connection: ServerConnection, link: Any) -> None:
        remote = link.remote_attach
        self.presented.append((link.name, len(remote.unsettled or {})))
        if self.refuse:
            with suppress(LocalProtocolError):  # the client detaches it already
                link.refuse(self.refuse.popleft())
            return
        identity = f"{connection.engine.remote_container_id}/{link.name}"
        if isinstance(link, SenderLink) and remote.source is None:
            topics = [name for name, topic in self.network.topics.items() if identity in topic.incarnations]
            if not topics:
                link.refuse(AmqpError(Symbol("amqp:not-found")))
                return
            link.context = Attachment(connection, link, topics[0])
            link.reply(source=Source(address=topics[0]), target=remote.target)
            return
        address = remote.target.address if isinstance(link, ReceiverLink) else remote.source.address
        topic = self.network.topic(address)
        attachment = Attachment(connection, link, address)
        link.context = attachment
        self.attachments.append(attachment)
        if isinstance(link, ReceiverLink):
            attachment.pipe.up.append(("attach", remote.unsettled or {}))
        else:
            topic.subscribe(attachment.identity)
            states = {tag: outcome_of(state) for tag, state in (remote.unsettled or {}).items()}
            attachment.pipe.up.append(("attach", states))

    def close_link(self, link: Any, attachment: Any) -> None:
        """I-8, E-8: the key is deleted, then the close is answered."""
        if self.close_errors:
            link.detach(True, self.close_errors.popleft())
            return
        if isinstance(link, SenderLink) and isinstance(attachment, Attachment):
            topic = self.network.topic(attachment.topic)
            if attachment.identity in topic.incarnations:
                topic.unsubscribe(attachment.identity)
        elif isinstance(attachment, Attachment):
            self.network.topic(attachment.topic).expire_session()
        with suppress(LocalProtocolError):  # refused since: the attach came in the same read as its detach
            link.detach(True)

    def gone(self, attachment: Attachment) -> None:
        if attachment in self.attachments:
            self.attachments.remove(attachment)
            topic = self.network.topic(attachment.topic)
            topic.publisher_lost(attachment.pipe)
            topic.subscriber_lost(attachment.identity, attachment.pipe)

    def receive(self, attachment: Attachment, event: Any) -> None:
        """A client's frame in the reference router's words."""
        up = attachment.pipe.up
        topic = self.network.topic(attachment.topic)
        if isinstance(event, DeliveryReceived):
            up.append(("transfer", event.delivery_id, event.tag, event.payload))
        elif isinstance(event, DispositionReceived) and isinstance(attachment.link, ReceiverLink):
            up.append(("settle", [number for number, _ in event.deliveries]))
        elif isinstance(event, DispositionReceived):
            self.dispositions += 1
            egress = topic.egresses.get(attachment.identity)
            if egress is not None:
                ids = {tag: number for number, tag in egress.ids.items()}
                numbers = [ids[tag] for _, tag in event.deliveries]
                up.append(("dispose", numbers, outcome_of(event.state)))
        elif isinstance(event, LinkFlow) and isinstance(attachment.link, ReceiverLink):
            properties = event.properties or {}
            if ECHO in properties:
                up.append(("echo", properties[ECHO]))
            elif ASK in properties:
                tag = properties[ASK]
                assert isinstance(tag, bytes)
                owing = topic.owing(tag)
                attachment.link.flow({ASKED: tag, OWING: owing[:8], OWING_COUNT: UInt(len(owing))})
        elif isinstance(event, LinkFlow):
            up.append(("credit", event.credit_limit, 0))

    # --- from the reference router to the clients ------------------------------------------------------------

    def pump_all(self) -> None:
        busy = True
        while busy:
            busy = False
            for attachment in list(self.attachments):
                busy |= self.pump(attachment)
        for connection in self.connections:
            connection.flush()

    def pump(self, attachment: Attachment) -> bool:
        topic = self.network.topic(attachment.topic)
        pipe = attachment.pipe
        busy = bool(pipe.up or pipe.down)
        while pipe.up:
            if isinstance(attachment.link, ReceiverLink):
                topic.from_publisher(pipe)
            else:
                topic.from_subscriber(attachment.identity, pipe)
        while pipe.down:
            frame = pipe.down.popleft()
            try:
                if isinstance(attachment.link, ReceiverLink):
                    self.to_publisher(attachment, attachment.link, frame, topic.ingress)
                else:
                    self.to_subscriber(attachment, attachment.link, frame)
            except LocalProtocolError:  # the client is detaching
                break
        return busy

    def to_publisher(
        self, attachment: Attachment, link: ReceiverLink, frame: tuple[Any, ...], ingress: Ingress | None
    ) -> None:
        kind = frame[0]
        remote = link.remote_attach
        assert remote is not None
        if kind == "expired":
            link.refuse(AmqpError(Symbol("oncewire:session-expired")))
            self.gone(attachment)
        elif kind == "attached":
            link.reply(
                source=remote.source,
                target=remote.target if isinstance(remote.target, Target) else None,
                unsettled={},
                max_message_size=self.max_message_size,
                offered_capabilities=(EXACTLY_ONCE,) if self.capable else (),
                properties={RESUME: frame[1]},
            )
        elif kind == "flow":
            limit, echo, session = frame[1:]
            properties: dict[Symbol, object] = {} if echo is None else {ECHO: ULong(echo)}
            if session is not None:
                properties[SESSION] = ULong(session)
            link.grant(limit - link.delivery_count, echo=echo is not None, properties=properties or None)
        elif kind == "accepted":
            for number, _ in frame[1]:
                state = self.network.outcomes.popleft() if self.network.outcomes else ACCEPTED
                link.dispose([number], state, False)

    def to_subscriber(self, attachment: Attachment, link: SenderLink, frame: tuple[Any, ...]) -> None:
        kind = frame[0]
        remote = link.remote_attach
        assert remote is not None
        if kind == "attached":
            kept, incarnation = frame[1:]
            link.reply(
                source=remote.source,
                target=remote.target,
                unsettled=dict.fromkeys(kept),
                offered_capabilities=(EXACTLY_ONCE,) if self.capable else (),
                properties={INCARNATION: ULong(incarnation), RESUME: "resumed" if kept else "new"},
            )
        elif kind == "confirmed":
            if self.network.confirm:
                link.flow({CONFIRMED: ULong(frame[1])})
        elif kind == "transfer":
            _, _, tag, payload, settled, resume = frame
            number = link.send(tag, payload, settled=settled, resume=resume)
            if not settled:
                attachment.ids[tag] = number
        elif kind == "settled":
            link.settle([attachment.ids.pop(tag) for _, tag in frame[1] if tag in attachment.ids])


__all__ = ["RELEASED", "Network", "Outcome", "Rejected", "WireServer"]
