"""A relay before a server whose client reads slowly, or not at all for a while: the server's own buffers fill up.

`tests.router.relay` holds what it was given; this one takes nothing more, so that the server notices.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PART = 1 << 16


class SlowRelay:
    """Passes on at once what clients say, and what comes back as fast as is allowed."""

    def __init__(self, target: int) -> None:
        """Nothing is slow yet.

        Args:
            target: port of the server, on loopback.
        """
        self.target = target
        self.url = ""
        self.said = 0
        """Parts that clients have said so far, on connections old and new."""
        self.pause_s = 0.0
        """Behind each part that comes back."""
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    def stall(self) -> None:
        """Take nothing more from the server, on old connections and new ones."""
        self._goes_on.clear()

    def go_on(self) -> None:
        """Take it again: first what waits in the server's buffers."""
        self._goes_on.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until one of the two ends it."""
        ways: list[asyncio.Task[None]] = []
        ends = [writer]
        try:
            with contextlib.suppress(OSError):
                back, there = await asyncio.open_connection("127.0.0.1", self.target, limit=PART)
                ends.append(there)
                ways.append(asyncio.create_task(self._pass(reader, there, is_back=False)))
                ways.append(asyncio.create_task(self._pass(back, writer, is_back=True)))
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:  # also where the relay itself ends
            for way in ways:
                way.cancel()
            for end in ends:
                end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_back: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PART):
                if is_back:
                    await self._goes_on.wait()
                    await asyncio.sleep(self.pause_s)
                else:
                    self.said += 1
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def slow_relay_to(target: int) -> AsyncIterator[SlowRelay]:
    """A relay for the time of the block; `url` is where clients connect."""
    relay = SlowRelay(target)
    connections: set[asyncio.Task[None]] = set()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(relay.serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, limit=PART)
    relay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()
        await asyncio.sleep(0)  # an aborted connection ends in the loop's next turn
