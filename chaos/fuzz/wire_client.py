"""An AMQP client that is an engine and little more, for those who misbehave and for those who do not."""

from __future__ import annotations

import asyncio
import time
from typing import Self, cast

from oncewire.wire import Connection, Event, Role, SaslClient


class WireClient(asyncio.Protocol):
    """One connection to a router with one session; what was heard waits in `heard`."""

    def __init__(self, name: str, max_frame_size: int = 1 << 20) -> None:
        self.engine = Connection(
            Role.CLIENT, container_id=name, max_frame_size=max_frame_size, sasl=SaslClient(), now=time.monotonic()
        )
        self.engine.open()
        self.session = self.engine.begin()
        self.heard: list[Event] = []
        self.is_gone = False
        self.writes = 0
        """Each is an input of the router."""
        self._news = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, port: int, name: str, max_frame_size: int = 1 << 20) -> Self:
        """Connect and send open."""
        client = cls(name, max_frame_size)
        await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)
        client.flush()
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self.engine.receive_data(data, time.monotonic())
        self._take_news()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.is_gone = True
        self.engine.receive_eof(time.monotonic())
        self._take_news()

    def _take_news(self) -> None:
        events = self.engine.events()
        self.heard += events
        self.on_events(events)
        self.flush()
        self._news.set()

    def on_events(self, events: list[Event]) -> None:
        """React at once; the engine's output is written behind this."""

    def flush(self) -> None:
        """Write what the engine has to say."""
        self.write(self.engine.data_to_send())

    def write(self, data: bytes) -> None:
        """Write bytes, also such as the engine knows nothing of."""
        if data and self._transport is not None and not self.is_gone:
            self.writes += 1
            self._transport.write(data)

    def cut(self) -> None:
        """Lose the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    async def news(self) -> None:
        """Wait until something more was heard, or the transport is gone."""
        self._news.clear()
        await self._news.wait()
