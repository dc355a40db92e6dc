"""Who may stay at a node's door, and how much requests may hold: a router's admission, before and behind the login.

Strangers have places of their own, so nobody without the secret uses up those of pipelines.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bridges.node.errors import NodeUnavailable
from oncewire.transport.admission_core import Admission, group_of
from oncewire.transport.log_limit_core import LogLimit

logger = logging.getLogger("oncewire.bridge")

MAX_OPENING = 128
"""Connections that have not proved the secret; half of them for one address."""
HELLO_S = 10.0
"""How long a connection may take to prove the secret."""
REQUEST_BYTES = 512 << 20
"""What all requests under way may hold: eight of the longest, and hundreds of those that Spark makes."""
ROOM_S = 30.0
"""How long a request waits for room before it is refused for a passing reason."""


class Door:
    """The connections of which it is not known who they are from."""

    def __init__(self, most: int = MAX_OPENING) -> None:
        """Nobody has come."""
        self.admission = Admission(most, HELLO_S)
        self._keys = itertools.count()
        self._ends: dict[int, Callable[[], object]] = {}
        self._limit = LogLimit()

    def arrive(self, host: str, end: Callable[[], object]) -> int | None:
        """Somebody connects: the number of the place, None = there is none.

        Args:
            host: the address; empty for a socket of this machine.
            end: ends this connection, where its place is given to another one.
        """
        key = next(self._keys)
        gives_way = self.admission.arrive(key, group_of(host), time.monotonic())
        if gives_way is not None:
            self.tell(host, "too many connections do not prove the secret")
        if gives_way == key:
            return None
        self._ends[key] = end
        if gives_way is not None:
            self._ends.pop(gives_way)()
        return key

    def leave(self, key: int) -> None:
        """It has proved the secret, or has ended."""
        self.admission.leave(key)
        self._ends.pop(key, None)

    def tell(self, host: str, why: str) -> None:
        """Log that somebody is refused, once a minute for the same address and reason."""
        missed = self._limit.take((host, why), time.monotonic())
        if missed is not None:
            logger.warning("refused %s: %s (%d more since this was logged)", host or "a local connection", why, missed)

    def tell_fault(self, doing: str, error: Exception) -> None:
        """Log a fault of ours with its place, once a minute for the same one."""
        if self._limit.take((doing, type(error)), time.monotonic()) is not None:
            logger.error("%s failed", doing, exc_info=error)


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
                    "the node has no room for the request", f"requests hold {self.held} of {self.limit} bytes",
                    "try again later",
                ) from None  # fmt: skip
            raise

    def _admit(self) -> None:
        while self._waiting and self.held + self._waiting[0][0] <= self.limit:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.held += size
                turn.set_result(None)
