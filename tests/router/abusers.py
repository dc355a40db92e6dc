"""Connections that do not do what clients do: silent or slow ones, from any loopback address of this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.router.raw_client import DEADLINE_S

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"


class Stranger(asyncio.Protocol):
    """A connection that sends what it is given, and notes when it is closed."""

    def __init__(self) -> None:
        self.is_closed = asyncio.Event()
        self.has_news = asyncio.Event()
        """Something was heard, or it is closed."""
        self.heard = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.has_news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed.set()
        self.has_news.set()

    async def closed(self) -> None:
        """Wait until the other side has closed it."""
        async with asyncio.timeout(DEADLINE_S):
            await self.is_closed.wait()


async def stranger(port: int, host: str = "127.0.0.1") -> Stranger:
    """A connection from one of this machine's addresses."""
    loop = asyncio.get_running_loop()
    _, found = await loop.create_connection(Stranger, "127.0.0.1", port, local_addr=(host, 0))
    return found


@contextlib.asynccontextmanager
async def strangers(port: int, count: int, host: str = "127.0.0.1", said: bytes = b"") -> AsyncIterator[list[Stranger]]:
    """So many connections that say no more than `said`, for the time of the block."""
    found = [await stranger(port, host) for _ in range(count)]
    for each in found:
        each.transport.write(said)
    try:
        yield found
    finally:
        for each in found:
            each.transport.abort()
