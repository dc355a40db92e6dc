"""Who may stay at a node's doors, and how much requests may hold: a router's admission, before and behind the login.

Strangers have places of their own, so nobody without the secret uses up those of pipelines.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bridges.node.errors import NodeUnavailable
from oncewire.transport.admission_core import Admission
from oncewire.transport.gate import ListenerGate
from oncewire.transport.log_limit_core import LogLimit

logger = logging.getLogger("oncewire.bridge")

MAX_OPENING = 128
"""Connections that have not proved the secret; half of them for one address."""
MAX_HTTP = 256
"""Connections to the HTTP side, as a router has by default."""
HELLO_S = 10.0
"""How long a connection may take to prove the secret, or to send the header of a request."""
REQUEST_BYTES = 512 << 20
"""What all requests under way may hold: eight of the longest, and hundreds of those that Spark makes."""
ROOM_S = 30.0
"""How long a request waits for room before it is refused for a passing reason."""


class Doors:
    """The two listeners of a node, and what was refused at them; see `RefusalLog`."""

    def __init__(self) -> None:
        """Nobody has come."""
        self.pipelines = ListenerGate("pipeline", Admission(MAX_OPENING, HELLO_S), self)
        self.http = ListenerGate("http", Admission(MAX_HTTP, HELLO_S, keeps_known=True), self)
        self.handshakes_failed = 0
        self.logins_failed = {"pipeline": 0, "http": 0}
        """Wrong secrets; wrong passwords and tokens."""
        self._limit = LogLimit()

    def connection_refused(self, listener: str, peer: str, why: str) -> None:
        """Log that somebody is refused, once a minute for the same address and reason."""
        missed = self._limit.take((listener, peer, why), time.monotonic())
        if missed is not None:
            text = "refused %s at the door for %s: %s (%d more since this was logged)"
            logger.warning(text, peer or "a local connection", _SERVES[listener], why, missed)

    def accept_failed(self, listener: str, why: str) -> None:
        """Log that nothing can be accepted just now."""
        if self._limit.take((listener, why), time.monotonic()) is not None:
            logger.warning("no connection can be accepted at the door for %s: %s", _SERVES[listener], why)

    def handshake_failed(self, listener: str, why: str) -> None:
        """A client does not speak TLS, or not as the door wants it."""
        self.handshakes_failed += 1
        self.connection_refused(listener, "a client", f"TLS: {why}")

    def login_failed(self, listener: str, peer: str, why: str) -> None:
        """Somebody has no secret or password, or a wrong one."""
        self.logins_failed[listener] += 1
        self.connection_refused(listener, peer, why)

    def notify_fault(self, doing: str, error: Exception) -> None:
        """Log a fault of ours with its place, once a minute for the same one."""
        if self._limit.take((doing, type(error)), time.monotonic()) is not None:
            logger.error("%s failed", doing, exc_info=error)


_SERVES = {"pipeline": "pipelines", "http": "operators"}
"""By the listener's name in metrics."""


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
