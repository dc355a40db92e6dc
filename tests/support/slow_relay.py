"""A relay before a server whose client reads slowly, or not at all for a while: the server's own buffers fill up.

`tests.router.relay` holds what it was given; this one takes nothing more, so that the server notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chaos.network.relay import Relay


class SlowRelay(Relay):
    """Passes on at once what clients say, and what comes back as fast as is allowed."""

    def __init__(self, target: int) -> None:
        """Nothing is slow yet.

        Args:
            target: port of the server, on loopback.
        """
        super().__init__(target)
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

    async def pass_on(self, data: bytes, writer: asyncio.StreamWriter, *, is_client: bool) -> None:
        """See Relay."""
        if is_client:
            self.said += bool(data)
        elif data:
            await self._goes_on.wait()
            await asyncio.sleep(self.pause_s)
        await super().pass_on(data, writer, is_client=is_client)


@asynccontextmanager
async def slow_relay_to(target: int) -> AsyncIterator[SlowRelay]:
    """A relay for the time of the block; `url` is where clients connect."""
    async with SlowRelay(target).listening() as relay:
        relay.url = f"http://127.0.0.1:{relay.port}"
        yield relay
