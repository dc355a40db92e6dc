"""The client's end of a connection: events go to its owner; a fault of our own code ends the client."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Protocol

from oncewire.client.put_off import ended
from oncewire.transport.engine_protocol import EngineProtocol
from oncewire.transport.tls import fault_of
from oncewire.transport.turn import Turn
from oncewire.wire import Connection, Event, LocalProtocolError

logger = logging.getLogger("oncewire.client")


OUTPUT_BYTES = 1 << 20
"""Of large messages, on their way into the socket at one time: else one of a gigabyte would be there three times."""


class TurnEnd(Protocol):
    """Somebody with more output before the turn's is written."""

    def _end_turn(self) -> None:
        """Make it."""


class Transport(EngineProtocol):
    """Hands the engine's events out; the exception of `closed` is a fault of our own code."""

    # Deadlines move toward now only when the peer's open brings its idle time-out: look at least once a second.
    longest_wait_s = 1.0
    peer_noun = "the router"

    def __init__(self, engine: Connection, on_event: Callable[[Event], None]) -> None:
        """Wait for the transport.

        Args:
            engine: a fresh engine in the client's role.
            on_event: called with each event, in order.
        """
        super().__init__(engine, Turn(), asyncio.get_running_loop().time)
        self._on_event = on_event
        self.put_off: dict[TurnEnd, None] = {}
        """Who has more output for this turn: it is made when the turn ends."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection has ended."""
        self.tls_fault = ""
        """Why TLS has ended the connection; a router may refuse a certificate after our side of the handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio: the engine speaks first."""
        super().connection_made(transport)
        self.engine.limit_output(OUTPUT_BYTES)
        self.engine.open()
        self.mark_dirty()
        self.watch_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        if isinstance(exc, ssl.SSLError):
            self.tls_fault = f"TLS: {fault_of(exc)}"
        super().connection_lost(exc)
        if not self.closed.done():
            self.closed.set_result(None)

    def write_output(self) -> None:
        """Write what the turn produced, and what was put off to its end."""
        if self.put_off:
            waiting, self.put_off = self.put_off, {}
            self.is_dirty = True  # what they add is written now
            try:
                for each in waiting:
                    each._end_turn()
            finally:
                self.is_dirty = False
        super().write_output()

    def write_engine(self, transport: asyncio.Transport) -> None:
        """Write what the engine has, and let it go on with large messages when that is taken."""
        super().write_engine(transport)
        if not self._is_behind:
            self._go_on()

    def resume_writing(self) -> None:
        """Called by asyncio: what was written is taken."""
        super().resume_writing()
        self._go_on()

    def _go_on(self) -> None:
        if self.engine.limit_output(OUTPUT_BYTES):
            self.mark_dirty()

    def process_events(self) -> None:
        """Events to the owner."""
        if self.closed.done():
            return
        for event in self.engine.events():
            self._on_event(event)
        self.mark_dirty()

    def on_fault(self, error: Exception, doing: str) -> None:
        """It must end the client, not be logged away: whoever waits for `closed` gets it."""
        logger.debug("a fault: %s", doing)
        if not self.closed.done():
            self.closed.set_exception(error)
        self.abort()

    def abandon(self) -> None:
        """Nobody waits for this connection any more: nothing of it is handed out or written from now on."""
        if not self.closed.done():
            self.closed.set_result(None)
        super().abandon()

    async def close(self, grace_s: float) -> None:
        """Close the connection, wait for the reply at most `grace_s` seconds, then drop it; at once when cancelled."""
        try:
            self.engine.close()
        except LocalProtocolError as error:  # it is ending already
            logger.debug("close: %s", error)
        self.mark_dirty()
        try:
            await asyncio.wait([self.closed], timeout=grace_s)
        finally:
            self.abort()
            await ended(self.closed)
