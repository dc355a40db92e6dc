"""A protocol without AMQP, for tests of the transports below it."""

from __future__ import annotations

import asyncio

from oncewire.transport.engine_protocol import EngineProtocol
from oncewire.transport.turn import Turn
from oncewire.wire import Connection, Role

HIGH_BYTES = 1 << 17


class Flow(EngineProtocol):
    """Keeps what it reads, and writes past the engine."""

    high_water_bytes = HIGH_BYTES

    def __init__(self) -> None:
        super().__init__(Connection(Role.SERVER, container_id="x", now=0.0), Turn(), lambda: 0.0)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.read = bytearray()
        self.caught_up, self._news = asyncio.Event(), asyncio.Event()

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def process_events(self) -> None:
        """None are of interest."""

    def on_disconnected(self, exc: Exception | None) -> None:
        self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.read += data
        self._news.set()

    async def arrived(self, size: int) -> None:
        while len(self.read) < size:
            self._news.clear()
            await self._news.wait()

    def on_fault(self, error: Exception, doing: str) -> None:
        raise error

    def resume_writing(self) -> None:
        super().resume_writing()
        self.caught_up.set()
