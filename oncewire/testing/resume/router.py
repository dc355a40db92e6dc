"""The scripted router: it listens, and hands each attach of the client to the scenario. It decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from oncewire.testing.resume.judging import BrokenClaim
from oncewire.wire import (
    AmqpError,
    Connection,
    ConnectionClosed,
    ConnectionState,
    DeliveryReceived,
    DispositionReceived,
    Link,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    Role,
    SaslServer,
    vocabulary,
)

TICK_S = 0.1
FRAME_SIZE = 1 << 20
LinkEvent: TypeAlias = LinkDetached | LinkFlow | DeliveryReceived | DispositionReceived
E = TypeVar("E", LinkDetached, LinkFlow, DeliveryReceived, DispositionReceived)
Attaches: TypeAlias = "asyncio.Queue[tuple[Visit, Link]]"


class Visit(asyncio.Protocol):
    """One connection of the client.

    Attributes:
        router: where it came.
        engine: its AMQP.
    """

    def __init__(self, router: ScriptedRouter) -> None:
        self.router = router
        self._loop = asyncio.get_running_loop()
        self.engine = Connection(
            Role.SERVER,
            container_id=router.name,
            max_frame_size=router.frame_size,
            offered_capabilities=(vocabulary.EXACTLY_ONCE,),
            sasl=SaslServer(("ANONYMOUS",), allow_no_sasl=True),
            now=self._loop.time(),
        )
        self._transport: asyncio.Transport | None = None
        self._events: list[LinkEvent] = []
        self._news = asyncio.Event()
        self._is_over = False

    # --- what the scenario does ---------------------------------------------------------------------------------------

    async def next(self, link: Link, kind: type[E], where: Callable[[E], bool] | None = None) -> E:
        """The first event of this kind on this link that was not taken yet; others stay.

        Raises:
            BrokenClaim: none comes; the client leaves, or detaches the link.
        """
        try:
            async with asyncio.timeout(self.router.patience_s):
                while (found := self._take(link, kind, where)) is None:
                    self._check_goes_on(link, kind)
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise BrokenClaim(f"no {kind.__name__} came within {self.router.patience_s:g} s") from None
        return found

    def _check_goes_on(self, link: Link, kind: type[LinkEvent]) -> None:
        for event in self._events:
            if isinstance(event, LinkDetached) and event.link is link and kind is not LinkDetached:
                raise BrokenClaim(f"the link was detached where {kind.__name__} was awaited: {_reason(event.error)}")
        if self._is_over:
            raise BrokenClaim(f"the connection ended where {kind.__name__} was awaited")

    def _take(self, link: Link, kind: type[E], where: Callable[[E], bool] | None) -> E | None:
        for at, event in enumerate(self._events):
            if isinstance(event, kind) and event.link is link and (where is None or where(event)):
                del self._events[at]
                return event
        return None

    def has(self, link: Link, kind: type[LinkEvent]) -> bool:
        """Whether such an event has come and was not taken."""
        return any(isinstance(event, kind) and event.link is link for event in self._events)

    def flush(self) -> None:
        """Write what the scenario has sent."""
        if self._transport is None or self._transport.is_closing():
            return
        if data := self.engine.data_to_send():
            self._transport.write(data)
        if self.engine.state is ConnectionState.ENDED:
            self._transport.close()

    def drop(self) -> None:
        """Lose the connection, as by a crash of the router."""
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.router.visits.append(self)
        self._tick()

    def _tick(self) -> None:
        if self._is_over:
            return
        self.engine.handle_timer(self._loop.time())
        self.flush()
        self._loop.call_later(TICK_S, self._tick)

    def data_received(self, data: bytes) -> None:
        """Bytes came from the client."""
        self.engine.receive_data(data, self._loop.time())
        for event in self.engine.events():
            if isinstance(event, LinkAttached):
                self.router.attaches.put_nowait((self, event.link))
            elif isinstance(event, LinkEvent):
                self._events.append(event)
            if isinstance(event, LinkDetached) and event.needs_answer:
                event.link.detach(event.closed)
            elif isinstance(event, ConnectionClosed) and event.needs_answer:
                self.engine.close()
        self._news.set()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._is_over = True
        self._news.set()


class ScriptedRouter:
    """A listening address.

    Attributes:
        name: its container-id.
        attaches: of the client, which no scenario has taken yet; the routers of a stage share it.
        visits: all its connections.
        patience_s: how long a client may take for its next step.
        frame_size: of connections from now on.
    """

    def __init__(self, name: str, attaches: Attaches, patience_s: float) -> None:
        self.name = name
        self.attaches = attaches
        self.patience_s = patience_s
        self.frame_size = FRAME_SIZE
        self.visits: list[Visit] = []
        self._port = 0
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"amqp://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen."""
        server = await asyncio.get_running_loop().create_server(lambda: Visit(self), "127.0.0.1", self._port)
        self._server = server
        self._port = server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Listen no more; connections stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """Listen no more, and end all connections."""
        self.stop()
        for visit in self.visits:
            visit.drop()
        await asyncio.sleep(0)  # transports close in the next turn of the loop


def _reason(error: AmqpError | None) -> str:
    return "without an error" if error is None else f"{error.condition} {error.description or ''}".strip()
