"""An AMQP client that is an engine and little more, for those who misbehave, and for benchmarks and tests."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Self, cast

from oncewire.wire import Connection, Event, Role, SaslClient


class WireClient(asyncio.Protocol):
    """One connection to a router; what was heard waits in `heard`. `options` are the engine's."""

    def __init__(self, name: str, max_frame_size: int = 1 << 20, **options: Any) -> None:
        options = {"sasl": SaslClient(), "max_frame_size": max_frame_size, "now": time.monotonic(), **options}
        self.engine = Connection(Role.CLIENT, container_id=name, **options)
        self.heard: list[Event] = []
        self.is_gone = False
        self.writes = 0
        """Each is an input of the router."""
        self._news = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self.engine.receive_data(data, time.monotonic())
        while (work := self.engine.sasl_work) is not None:
            self.engine.resume_sasl(work(), time.monotonic())
            self.engine.receive_data(b"", time.monotonic())
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


class OpenClient(WireClient):
    """Says open and begin before it is connected."""

    def __init__(self, name: str, max_frame_size: int = 1 << 20, **options: Any) -> None:
        super().__init__(name, max_frame_size, **options)
        self.engine.open()
        self.session = self.engine.begin()

    async def dial(self, port: int, host: str = "127.0.0.1") -> Self:
        """Connect, and write what was said."""
        await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        self.flush()
        return self
