"""A relay before a PostgreSQL server, which can be cut: nothing passes, and no end is notified."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

PORT = "5432"
PART = 1 << 16


class DatabaseRelay:
    """Passes everything on until it is cut.

    Args:
        url: of the database, as libpq takes it.
        folder: for the relay's socket; its path must be short.

    Attributes:
        url: of the database through the relay.
        is_cut: set when it is.
    """

    def __init__(self, url: str, folder: Path) -> None:
        words = importlib.import_module("psycopg").conninfo.conninfo_to_dict(url)
        self._host, self._port = str(words.get("host") or "localhost"), str(words.get("port") or PORT)
        self.path = folder / f".s.PGSQL.{PORT}"
        self.url = "postgresql:///?" + urlencode(words | {"host": str(folder), "port": PORT})
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        self._last_words = b""
        self._passes_last = False
        self.is_cut = asyncio.Event()

    def cut(self) -> None:
        """Pass nothing on, on connections old and new."""
        self._is_whole.clear()
        self._last_words = b""
        self.is_cut.set()

    def cut_at(self, words: bytes, *, passes: bool) -> None:
        """Cut when a client sends these words, which still pass (and no answer does), or do not."""
        self._last_words, self._passes_last = words, passes
        self.is_cut.clear()

    def heal(self) -> None:
        """Pass on what has waited, and what comes."""
        self._is_whole.set()
        self.is_cut.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until one of the two ends it and it is not cut."""
        ends = [writer]
        ways: list[asyncio.Task[None]] = []
        try:
            with suppress(OSError):
                back, there = await self._connect()
                ends.append(there)
                ways += [
                    asyncio.create_task(self._pass(reader, there, is_client=True)),
                    asyncio.create_task(self._pass(back, writer, is_client=False)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in ends:
                end.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}", limit=PART)
        return await asyncio.open_connection(self._host, int(self._port), limit=PART)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_client: bool) -> None:
        with suppress(OSError):
            data = b"-"
            while data:
                data = await reader.read(PART)
                is_last = is_client and bool(self._last_words) and self._last_words in data
                if is_last:
                    self.cut()
                if not (is_last and self._passes_last):
                    await self._is_whole.wait()
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def relay_to(url: str, folder: Path) -> AsyncIterator[DatabaseRelay]:
    """A relay for the time of the block."""
    relay = DatabaseRelay(url, folder)
    connections: set[asyncio.Task[None]] = set()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(relay.serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_unix_server(accepted, str(relay.path), limit=PART)
    try:
        yield relay
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
