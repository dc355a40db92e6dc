"""A TCP relay between two processes: it can cut all connections, or clog one direction and let it go later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any


class Way(Enum):
    """A direction through the relay."""

    TO_TARGET = "to target"
    FROM_TARGET = "from target"


class _Pipe(asyncio.Protocol):
    """One end of a relayed connection: what it reads goes to the other end, unless its way is clogged."""

    def __init__(self, relay: Relay, way: Way, other: _Pipe | None = None) -> None:
        self.relay = relay
        self.way = way
        self.other = other
        self.waiting = bytearray()
        """Read while the way was clogged, or before the other end was there."""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.relay.pipes.add(self)
        if self.relay.is_cut:
            transport.abort()
        elif self.other is None:
            self.relay.spawn(self._connect())
        else:
            self.other.flush()

    async def _connect(self) -> None:
        self.other = _Pipe(self.relay, Way.FROM_TARGET, self)
        other = self.other
        try:
            await asyncio.get_running_loop().create_connection(lambda: other, "127.0.0.1", self.relay.target)
        except OSError:
            self.abort()

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        self.flush()

    def flush(self) -> None:
        """Pass on what was read, if the way is free."""
        target = None if self.other is None else self.other.transport
        if target is not None and self.way not in self.relay.clogged and self.waiting:
            target.write(bytes(self.waiting))
            self.waiting.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self.relay.pipes.discard(self)
        # The end of a clogged connection is not heard beyond the clog either, until it is released.
        if self.other is not None and self.way not in self.relay.clogged:
            self.flush()
            self.other.close()

    def close(self) -> None:
        """End this side when everything is written."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """End this side at once."""
        if self.transport is not None:
            self.transport.abort()


class Relay:
    """Listens on a port of its own and connects each client to `target`."""

    def __init__(self, target: int, port: int) -> None:
        self.target = target
        self.port = port
        self.is_cut = False
        self.clogged: set[Way] = set()
        self.pipes: set[_Pipe] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Keep a task until it ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cut(self) -> None:
        """Lose every connection with what is under way; no new one gets through."""
        self.is_cut = True
        for pipe in list(self.pipes):
            pipe.abort()

    def clog(self, way: Way) -> None:
        """Hold everything that goes this way; the other way stays free."""
        self.clogged.add(way)

    def heal(self) -> None:
        """Let everything pass again, first what was held, also of connections given up meanwhile (N-1)."""
        self.is_cut = False
        self.clogged.clear()
        for pipe in list(self.pipes):
            pipe.flush()


@asynccontextmanager
async def relay_to(target: int, port: int) -> AsyncIterator[Relay]:
    """A relay for the time of the block, listening on `port` of the loopback address."""
    relay = Relay(target, port)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Pipe(relay, Way.TO_TARGET), "127.0.0.1", port)
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
        await server.wait_closed()


def assert_no_internal_error(folder: Path) -> None:
    """No router that logged into this folder met a fault of its own code."""
    for log in folder.glob("*.log"):
        text = log.read_text()
        assert "internal_error" not in text, text
