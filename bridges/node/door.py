"""Who may stay at a node's doors, and how much requests may hold: a router's admission, before and behind the login.

Strangers have places of their own, so nobody without the secret uses up those of pipelines.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bridges.doors.gates import HELLO_S, Doors
from bridges.node.errors import NodeUnavailable
from oncewire.transport.admission_core import Admission

logger = logging.getLogger("oncewire.bridge")

MAX_OPENING = 128
"""Connections that have not proved the secret; half of them for one address."""
PIPELINE = "pipeline"
"""The name of the door for pipelines, in metrics."""
REQUEST_BYTES = 512 << 20
"""What all requests under way may hold: eight of the longest, and hundreds of those that Spark makes."""
ROOM_S = 30.0
"""How long a request waits for room before it is refused for a passing reason."""


def node_doors() -> Doors:
    """The two doors of a node: of pipelines, and of operators."""
    return Doors(logger, {PIPELINE: "pipelines"}, {PIPELINE: Admission(MAX_OPENING, HELLO_S)})


class Room:
    """Bytes that requests hold, from their first byte until they are answered."""

    def __init__(self, limit: int = REQUEST_BYTES) -> None:
        """Nothing is held."""
        self.limit = limit
        self.held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Hold so much for the time of the block, behind those that came before.

        Raises:
            NodeUnavailable: there was no room in time.
        """
        if self._waiting or self.held + size > self.limit:
            await self._wait(size)
        else:
            self.held += size
        try:
            yield
        finally:
            self.held -= size
            self._admit()

    async def _wait(self, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            async with asyncio.timeout(ROOM_S):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.held -= size  # it was given room in the same turn of the loop
            else:
                self._waiting = deque(each for each in self._waiting if each[1] is not turn)
            self._admit()
            if isinstance(error, TimeoutError):
                raise NodeUnavailable(
                    "the node has no room for the request",
                    f"requests hold {self.held} of {self.limit} bytes",
                    "try again later",
                ) from None
            raise

    def _admit(self) -> None:
        while self._waiting and self.held + self._waiting[0][0] <= self.limit:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.held += size
                turn.set_result(None)
