"""One TCP or TLS connection with its wire engine: moves bytes and time, decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from oncewire.wire import Connection, ConnectionState, Event, LocalProtocolError

logger = logging.getLogger("oncewire.client")


class Transport(asyncio.Protocol):
    """Feeds the engine, hands its events out, writes what it has to say at the end of each turn of the loop.

    Args:
        engine: a fresh engine in the client's role.
        on_event: called with each event, in order.

    Attributes:
        closed: done when the connection has ended; its exception is a fault of our own code.
    """

    def __init__(self, engine: Connection, on_event: Callable[[Event], None]) -> None:
        self.engine = engine
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flush_due = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio: the engine speaks first."""
        # uvloop's transports are none of asyncio's classes, only like them.
        self._transport = cast("asyncio.Transport", transport)
        self.engine.open()
        self.flush_soon()
        self._watch_time()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self.engine.receive_data(data, self._loop.time())
        self._hand_out()

    def eof_received(self) -> None:
        """Called by asyncio."""
        self.engine.receive_eof(self._loop.time())
        self._hand_out()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio, once, whatever ended the connection."""
        if self._timer is not None:
            self._timer.cancel()
        self.engine.receive_eof(self._loop.time())
        self._hand_out()
        if not self.closed.done():
            self.closed.set_result(None)

    def give_up(self) -> None:
        """Nobody waits for this connection any more: nothing of it is handed out or written from now on.

        uvloop closes the connection then, and does not call `connection_lost`.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(None)

    def flush_soon(self) -> None:
        """Write what the engine has at the end of this turn: what one turn produces goes out together."""
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        self._flush_due = False
        if self._transport is None:
            return
        data = self.engine.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)
        if self.engine.state is ConnectionState.ENDED:
            self._transport.close()

    def _hand_out(self) -> None:
        """Events to the owner. An exception there is our own fault: it must end the client, not only be logged."""
        if self.closed.done():
            return
        try:
            for event in self.engine.events():
                self._on_event(event)
        except Exception as error:  # noqa: BLE001  # handed to whoever waits for `closed`
            if not self.closed.done():
                self.closed.set_exception(error)
            self.abort()
        self.flush_soon()

    def _watch_time(self) -> None:
        """Keep one timer; it looks again when it fires, so that traffic does not have to move it."""
        deadline = self.engine.next_deadline()
        if deadline is None or self.closed.done():
            return
        # Deadlines move toward now only when the peer's open brings its idle time-out: look at least once a second.
        self._timer = self._loop.call_at(min(deadline, self._loop.time() + 1.0), self._on_time)

    def _on_time(self) -> None:
        self.engine.handle_timer(self._loop.time())
        self._hand_out()
        self._watch_time()

    async def close(self, grace_s: float) -> None:
        """Say goodbye, wait for the answer at most `grace_s` seconds, then drop the connection."""
        try:
            self.engine.close()
        except LocalProtocolError as error:  # it is ending already
            logger.debug("close: %s", error)
        self.flush_soon()
        await asyncio.wait([self.closed], timeout=grace_s)
        self.abort()
        await asyncio.wait([self.closed])
