"""A relay in front of a listener that can fall silent: connections stay, and nothing gets through any more.

This is how a link looks whose cable is pulled or whose packets a firewall drops. What is sent meanwhile is lost, so
when the link heals the connections of before end, as TCP would end them.
"""

from __future__ import annotations

import asyncio
import contextlib

READ_BYTES = 1 << 16


class SilentRelay:
    """Listens on a port of its own and connects whoever comes to `target`, both on the loopback address."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        """Known once it listens."""
        self._is_healthy = asyncio.Event()
        self._is_healthy.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> SilentRelay:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.heal()
        await self._server.wait_closed()

    def fall_silent(self) -> None:
        """From now on every byte is lost, of new connections too, without a sign to either end."""
        self._is_healthy.clear()

    def heal(self) -> None:
        """Let new connections pass; those that lost bytes end."""
        self._is_healthy.set()
        self._end_all()

    def _end_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(target_writer)
        await asyncio.gather(self._pass(reader, target_writer), self._pass(target_reader, writer))
        self._writers -= {writer, target_writer}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                if self._is_healthy.is_set():
                    writer.write(data)
                    await writer.drain()
        # In a silence the end of a connection is not heard at its other side either.
        await self._is_healthy.wait()
        writer.transport.abort()
