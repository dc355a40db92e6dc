"""A relay in front of a listener that can fall silent: connections stay, and nothing gets through any more.

This is how a link looks whose cable is pulled or whose packets a firewall drops. What is sent meanwhile is lost, so
when the link heals the connections of before end, as TCP would end them.
"""

from __future__ import annotations

import asyncio

from chaos.network.relay import Relay


class SilentRelay(Relay):
    """Passes everything on until it falls silent."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._is_healthy = asyncio.Event()
        self._is_healthy.set()

    def fall_silent(self) -> None:
        """From now on every byte is lost, of new connections too, without a sign to either end."""
        self._is_healthy.clear()

    def heal(self) -> None:
        """Let new connections pass; those that lost bytes end."""
        self._is_healthy.set()
        self.end_all()

    async def pass_on(self, data: bytes, writer: asyncio.StreamWriter, *, is_client: bool) -> None:
        if self._is_healthy.is_set():
            await super().pass_on(data, writer, is_client=is_client)
        elif not data:  # in a silence the end of a connection is not heard at its other side either
            await self._is_healthy.wait()
