"""What relays between clients and a server share: connections with two ways each, and their end with the relay's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

PART = 1 << 16


class Relay:
    """Passes on what it reads, each way, until one of the two ends a connection. `target` is a port of loopback."""

    def __init__(self, target: int = 0) -> None:
        """Nobody is connected."""
        self.target = target
        self.port = 0
        """Where clients connect, while it listens on loopback."""
        self._connections: set[asyncio.Task[None]] = set()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server."""
        return await asyncio.open_connection("127.0.0.1", self.target, limit=PART)

    async def pass_on(self, data: bytes, writer: asyncio.StreamWriter, *, is_client: bool) -> None:
        """Pass on what was read, empty at the end of its way; `is_client`: a client has said it."""
        writer.write(data)
        await writer.drain()

    def end_all(self) -> None:
        """End all connections, without a word."""
        for task in list(self._connections):
            task.cancel()

    @asynccontextmanager
    async def listening(self, path: Path | None = None) -> AsyncIterator[Self]:
        """Listen for the time of the block: on a port of loopback, or a Unix socket."""
        if path is None:
            server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=PART)
            self.port = server.sockets[0].getsockname()[1]
        else:
            server = await asyncio.start_unix_server(self._accepted, str(path), limit=PART)
        try:
            yield self
        finally:
            server.close()
            self.end_all()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await server.wait_closed()
            await asyncio.sleep(0)  # an aborted connection ends in the loop's next turn

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends, ways = [writer], list[asyncio.Task[None]]()
        try:
            with suppress(OSError):
                back, there = await self.connect()
                ends.append(there)
                ways.append(asyncio.create_task(self._pass(reader, there, is_client=True)))
                ways.append(asyncio.create_task(self._pass(back, writer, is_client=False)))
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:  # also where the relay itself ends
            for way in ways:
                way.cancel()
            for end in ends:
                end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_client: bool) -> None:
        with suppress(OSError):
            data = b"-"
            while data:
                data = await reader.read(PART)
                await self.pass_on(data, writer, is_client=is_client)
