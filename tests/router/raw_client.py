"""A client that is nothing but the wire engine on a socket: it does what a test calls for, and keeps what it hears."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from chaos.fuzz.wire_client import WireClient
from oncewire.wire import (
    ACCEPTED,
    AmqpError,
    AmqpSession,
    Attach,
    ClientMechanism,
    ConnectionOpened,
    DeliveryReceived,
    DispositionReceived,
    Event,
    Fields,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    ReceiverLink,
    SaslClient,
    SaslOutcome,
    SenderLink,
    SessionBegun,
    Source,
    Symbol,
    Target,
    TerminusDurability,
    ULong,
    UnsettledMap,
    encode_data_message,
)

EXACTLY_ONCE = Symbol("topic-exactly-once")
DEADLINE_S = 60.0

E = TypeVar("E", bound=Event)
V = TypeVar("V")
_numbers = itertools.count(1)


async def until(read: Callable[[], Awaitable[V]], wanted: Callable[[V], bool]) -> V:
    """Read something again and again until it is as wanted."""
    ends_at = time.monotonic() + DEADLINE_S
    while not wanted(found := await read()):
        assert time.monotonic() < ends_at, f"still {found!r}"
        await asyncio.sleep(0.02)
    return found


class RawClient(WireClient):
    """One connection and one session."""

    session: AmqpSession
    frames: SenderLink

    def __init__(
        self,
        container_id: str,
        sasl: SaslClient | None,
        max_frame_size: int,
        properties: Fields | None,
        capabilities: Sequence[str] = (EXACTLY_ONCE,),
    ) -> None:
        super().__init__(
            container_id, max_frame_size, sasl=sasl, properties=properties, desired_capabilities=capabilities
        )
        self.container_id = container_id

    @classmethod
    async def connect(
        cls,
        port: int,
        container_id: str = "",
        *,
        sasl: SaslClient | None = None,
        max_frame_size: int = 1 << 20,
        properties: Fields | None = None,
        resumes: bool = True,
    ) -> RawClient:
        """Connect, open and begin a session; one that resumes says so (C-6)."""
        client = await cls.dial(
            port, container_id, sasl=sasl, max_frame_size=max_frame_size, properties=properties, resumes=resumes
        )
        client.session = await client.begun()
        return client

    async def begun(self) -> AmqpSession:
        """A session on the open connection."""
        await self.wait_for(ConnectionOpened)
        session = self.engine.begin()
        self.flush()
        await self.wait_for(SessionBegun, lambda event: event.session is session)
        return session

    @classmethod
    async def dial(
        cls,
        port: int,
        container_id: str = "",
        *,
        sasl: SaslClient | None = None,
        max_frame_size: int = 1 << 20,
        properties: Fields | None = None,
        resumes: bool = True,
    ) -> RawClient:
        """Connect and send open; whatever comes back is in `heard`."""
        name = container_id or f"raw-{next(_numbers)}"
        capabilities = (EXACTLY_ONCE,) if resumes else ()
        return await cls.dial_with(
            cls(name, sasl or SaslClient("ANONYMOUS"), max_frame_size, properties, capabilities), port
        )

    @classmethod
    async def dial_with(cls, client: RawClient, port: int) -> RawClient:
        """Connect a client that was made by hand, and send open."""
        await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)
        client.engine.open()
        client.flush()
        return client

    @property
    def address(self) -> str:
        """Our end of the connection, as the router sees it."""
        assert self._transport is not None
        host, port = self._transport.get_extra_info("sockname")
        return f"{host}:{port}"

    def hang_up(self) -> None:
        """End the stream behind what was written, and read nothing any more."""
        assert self._transport is not None
        self._transport.close()

    def pause(self) -> None:
        """Read nothing any more."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        assert self._transport is not None
        self._transport.resume_reading()

    async def closed(self) -> None:
        """Wait until the transport is gone."""
        async with asyncio.timeout(DEADLINE_S):
            while not self.is_gone:
                await self.news()

    async def opened_or_gone(self) -> None:
        """Wait until the peer has opened, or the transport is gone."""
        async with asyncio.timeout(DEADLINE_S):
            while self.engine.remote_open is None and not self.is_gone:
                await self.news()

    async def wait_for(self, kind: type[E], where: Callable[[E], bool] = lambda _event: True) -> E:
        """Take the first event of that kind out of what was heard; wait for it if need be."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    for index, event in enumerate(self.heard):
                        if isinstance(event, kind) and where(event):
                            del self.heard[index]
                            return event
                    await self.news()
        except TimeoutError:
            raise AssertionError(f"no {kind.__name__} came; heard: {self.heard!r}") from None

    # --- links --------------------------------------------------------------------------------------------------------

    async def publisher(
        self,
        topic: str,
        name: str = "pub",
        *,
        unsettled: UnsettledMap | None = None,
        exactly_once: bool = True,
        **options: Any,
    ) -> RawPublisher:
        """Attach a publisher and answer the proof of life; returns when credit has come."""
        if exactly_once:
            options.setdefault("desired_capabilities", [EXACTLY_ONCE])
            unsettled = unsettled if unsettled is not None else {}
        link = self.session.attach_sender(
            name, source=Source(address=name), target=Target(address=topic), unsettled=unsettled, **options
        )
        self.flush()
        publisher = RawPublisher(self, link, await self.attached(link))
        if exactly_once:
            echo = await self.flow_with(link, "x-opt-topic-echo")
            link.flow({Symbol("x-opt-topic-echo"): ULong(echo)})
            self.flush()
            publisher.session_number = await self.flow_with(link, "x-opt-topic-session")
        else:
            await self.wait_for(LinkFlow, lambda flow: flow.link is link and bool(flow.credit_limit))
        return publisher

    async def subscriber(
        self,
        topic: str | None,
        name: str = "sub",
        *,
        unsettled: UnsettledMap | None = None,
        exactly_once: bool = True,
        credit: int = 100,
        timeout: int = 60,
        **options: Any,
    ) -> RawSubscriber:
        """Attach a subscriber and grant credit; an exactly-once one is confirmed when this returns."""
        if exactly_once:
            options.setdefault("desired_capabilities", [EXACTLY_ONCE])
            unsettled = unsettled if unsettled is not None else {}
        source = None
        if topic is not None:
            source = Source(
                address=topic,
                durable=TerminusDurability.UNSETTLED_STATE,
                expiry_policy=Symbol("link-detach"),
                timeout=timeout,
            )
        link = self.session.attach_receiver(
            name, source=source, target=Target(address=name), unsettled=unsettled, **options
        )
        self.flush()
        subscriber = RawSubscriber(self, link, await self.attached(link))
        if not link.is_attached:
            raise AttachRefused((await self.detached(link)).error)
        link.grant(credit)
        self.flush()
        if exactly_once:
            await self._confirmed(subscriber)
        return subscriber

    async def _confirmed(self, subscriber: RawSubscriber) -> None:
        """Answer the proof of life if it is asked for (A-10), until the subscription is confirmed."""
        link, echo, confirmed = subscriber.link, Symbol("x-opt-topic-echo"), Symbol("x-opt-topic-confirmed")
        while True:
            event = await self.wait_for(
                LinkFlow, lambda flow: flow.link is link and not {echo, confirmed}.isdisjoint(flow.properties or {})
            )
            properties = event.properties or {}
            if confirmed in properties:
                break
            link.flow({echo: ULong(cast("int", properties[echo]))})
            self.flush()
        subscriber.incarnation = cast("int", properties[confirmed])
        subscriber.granted = properties

    async def attached(self, link: SenderLink | ReceiverLink) -> Attach:
        """The router's answer to our attach."""
        await self.wait_for(LinkAttached, lambda event: event.link is link)
        assert link.remote_attach is not None
        return link.remote_attach

    async def detached(self, link: SenderLink | ReceiverLink) -> LinkDetached:
        """The router's detach of this link."""
        return await self.wait_for(LinkDetached, lambda event: event.link is link)

    async def first_end_or_echo(self, link: SenderLink) -> int | None:
        """The router's proof-of-life challenge (A-4), or None when it detached the link instead."""
        while True:
            for event in self.heard:
                if isinstance(event, LinkFlow) and event.link is link and event.properties:
                    echo = event.properties[Symbol("x-opt-topic-echo")]
                    assert isinstance(echo, int)
                    return echo
                if isinstance(event, LinkDetached) and event.link is link:
                    return None
            async with asyncio.timeout(DEADLINE_S):
                await self.news()

    async def flow_with(self, link: SenderLink | ReceiverLink, name: str) -> Any:
        """The value of a property the router sends in a flow."""
        event = await self.wait_for(
            LinkFlow, lambda flow: flow.link is link and Symbol(name) in (flow.properties or {})
        )
        assert event.properties is not None
        return event.properties[Symbol(name)]


class AttachRefused(AssertionError):
    """The router detached the link at once; says why."""

    def __init__(self, error: AmqpError | None) -> None:
        super().__init__(error)
        self.error = error

    @property
    def is_passing(self) -> bool:
        """Whether another attempt may succeed: the router does not reach etcd at the moment."""
        return self.error is not None and self.error.condition == "amqp:internal-error"


class RawPublisher:
    """A sending link and its unsettled map."""

    def __init__(self, client: RawClient, link: SenderLink, reply: Attach) -> None:
        self.client = client
        self.link = link
        self.reply = reply
        self.session_number = 0
        self._accepted: list[bytes] = []

    def send(self, tag: bytes, body: bytes, **options: Any) -> int:
        """Send one message."""
        delivery_id = self.link.send(tag, encode_data_message(body), **options)
        self.client.flush()
        return delivery_id

    async def outcome(self, tag: bytes) -> DispositionReceived:
        """The router's disposition of one delivery."""
        return await self.client.wait_for(
            DispositionReceived,
            lambda event: event.link is self.link and any(found == tag for _, found in event.deliveries),
        )

    async def next_outcome(self) -> DispositionReceived:
        """The router's next disposition on this link."""
        event = await self.client.wait_for(DispositionReceived, lambda event: event.link is self.link)
        if event.state == ACCEPTED:
            self._accepted += [tag for _, tag in event.deliveries]
        return event

    def settle_accepted(self) -> None:
        """Settle what was heard to be accepted by now."""
        for event in [found for found in self.client.heard if isinstance(found, DispositionReceived)]:
            if event.link is self.link and event.state == ACCEPTED:
                self.client.heard.remove(event)
                self._accepted += [tag for _, tag in event.deliveries]
                self.settle(*[number for number, _ in event.deliveries])

    def accepted_tags(self) -> list[bytes]:
        """Tags of all deliveries `next_outcome` has seen accepted."""
        return self._accepted

    def settle(self, *delivery_ids: int) -> None:
        """Settle deliveries."""
        self.link.settle(delivery_ids)
        self.client.flush()


class RawSubscriber:
    """A receiving link."""

    def __init__(self, client: RawClient, link: ReceiverLink, reply: Attach) -> None:
        self.client = client
        self.link = link
        self.reply = reply
        self.incarnation = 0
        self.granted: Fields = {}
        """Properties of the flow that confirmed it (A-10)."""

    def take_deliveries(self) -> list[DeliveryReceived]:
        """The deliveries that have come by now."""
        found = [e for e in self.client.heard if isinstance(e, DeliveryReceived) and e.link is self.link]
        self.client.heard = [e for e in self.client.heard if e not in found]
        return found

    async def delivery(self) -> DeliveryReceived:
        """The next delivery."""
        return await self.client.wait_for(DeliveryReceived, lambda event: event.link is self.link)

    def accept(self, delivery: DeliveryReceived, *, settled: bool = False) -> None:
        """Accept a delivery."""
        self.link.dispose([delivery.delivery_id], ACCEPTED, settled)
        self.client.flush()

    async def settled(self, tag: bytes) -> DispositionReceived:
        """The router settles one delivery."""
        return await self.client.wait_for(
            DispositionReceived,
            lambda event: (
                event.link is self.link and event.settled and any(found == tag for _, found in event.deliveries)
            ),
        )


async def login_outcome(port: int, sasl: SaslClient | ClientMechanism) -> bool | None:
    """How a login at a router ends; None = without an answer."""
    client = await RawClient.dial(port, sasl=sasl if isinstance(sasl, SaslClient) else SaslClient(sasl))

    async def is_over() -> bool:
        return client.is_gone or any(isinstance(event, SaslOutcome) for event in client.heard)

    await until(is_over, bool)
    found = next((event for event in client.heard if isinstance(event, SaslOutcome)), None)
    client.cut()
    await client.closed()
    return None if found is None else found.ok
