"""A relay before a PostgreSQL server, which can be cut: nothing passes, and no end is notified."""

from __future__ import annotations

import asyncio
import importlib
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlencode

from chaos.network.relay import PART, Relay

PORT = "5432"


class DatabaseRelay(Relay):
    """Passes everything on until it is cut.

    Args:
        url: of the database, as libpq takes it.
        folder: for the relay's socket; its path must be short.

    Attributes:
        url: of the database through the relay.
        is_cut: set when it is.
    """

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__()
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

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See Relay."""
        if self._host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}", limit=PART)
        return await asyncio.open_connection(self._host, int(self._port), limit=PART)

    async def pass_on(self, data: bytes, writer: asyncio.StreamWriter, *, is_client: bool) -> None:
        """See Relay."""
        is_last = is_client and bool(self._last_words) and self._last_words in data
        if is_last:
            self.cut()
        if not (is_last and self._passes_last):
            await self._is_whole.wait()
        await super().pass_on(data, writer, is_client=is_client)


def relay_to(url: str, folder: Path) -> AbstractAsyncContextManager[DatabaseRelay]:
    """A relay for the time of the block."""
    relay = DatabaseRelay(url, folder)
    return relay.listening(relay.path)
