"""One TCP or TLS connection with its AMQP engine: moves bytes and time, decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
from collections.abc import Callable, Iterator
from typing import ClassVar, cast

from oncewire.transport import login_work
from oncewire.transport.compiling import mypyc_attr
from oncewire.transport.turn import Turn
from oncewire.wire import Connection, ConnectionState

INPUT = "what {} sent"
_OUTPUT = "what {} is sent"


@mypyc_attr(allow_interpreted_subclasses=True)  # the Python client has one
class EngineProtocol(asyncio.Protocol):
    """The asyncio protocol around one engine. A subclass takes the engine's events, and ends what a fault of ours met.

    Attributes:
        engine: of this connection.
        bytes_in: read from the transport.
        bytes_out: written to it.
        is_dirty: whether it is written at the end of this turn.
    """

    __slots__ = (
        "_clock",
        "_has_read",
        "_is_behind",
        "_is_logging_in",
        "_loop",
        "_timer",
        "_transport",
        "_turn",
        "bytes_in",
        "bytes_out",
        "engine",
        "is_dirty",
    )

    high_water_bytes: ClassVar[int | None] = None
    """More than this unwritten: `pause_writing` is called. None = asyncio's default."""
    timer_resolution_s: ClassVar[float] = 0.0
    """Heartbeats need not be more exact, and a deadline that cannot be met yet is not tried more often."""
    longest_wait_s: ClassVar[float] = math.inf
    """The engine's deadline is looked at again after this time: an event may have moved it towards now."""
    peer_noun: ClassVar[str] = "the peer"
    """Who is at the other end, for `on_fault`."""

    def __init__(self, engine: Connection, turn: Turn, clock: Callable[[], float]) -> None:
        """Wait for the transport.

        Args:
            engine: a fresh one.
            turn: collects who writes at the end of a turn of the loop.
            clock: seconds, monotonic; that of the engine.
        """
        self.engine = engine
        self.bytes_in = 0
        self.bytes_out = 0
        self.is_dirty = False
        self._loop = asyncio.get_running_loop()
        self._turn = turn
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_behind = False
        """The peer reads too slowly: there is more than `high_water_bytes` unwritten."""
        self._has_read = False
        """Something was read since the last flush; only `PacedProtocol` notes it."""
        self._is_logging_in = False
        """A login is computed in another thread: nothing is read meanwhile."""

    @property
    def is_behind(self) -> bool:
        """Whether more than `high_water_bytes` wait because the peer reads too slowly."""
        return self._is_behind

    @property
    def tls(self) -> ssl.SSLObject | None:
        """This end of TLS; None without."""
        return None if self._transport is None else self._transport.get_extra_info("ssl_object")

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the peer has shown, in DER; None = without TLS, or it showed none."""
        end = self.tls
        return None if end is None else end.getpeercert(True)

    # --- for subclasses -----------------------------------------------------------------------------------------------

    def process_events(self) -> None:
        """Take the events of the engine."""
        raise NotImplementedError

    def on_disconnected(self, exc: Exception | None) -> None:
        """The transport is closed and all events were taken."""

    def on_written_behind(self, transport: asyncio.Transport) -> None:
        """More was written for a peer that reads too slowly."""

    def on_fault(self, error: Exception, doing: str) -> None:
        """A fault of our own (K-3b): end this connection, and nothing else."""
        raise NotImplementedError

    def on_output_fault(self, error: Exception) -> None:
        """The same while output was made; a close would have to be written by what has just failed."""
        self.on_fault(error, _OUTPUT.format(self.peer_noun))

    @contextlib.contextmanager
    def confined(self, doing: str) -> Iterator[None]:
        """Hand whatever is raised inside to `on_fault`; in `doing`, braces stand for the peer's noun."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  (K-3b: whatever it is)
            self.on_fault(error, doing.format(self.peer_noun))

    # --- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is connected."""
        # uvloop's transports are none of asyncio's classes, only like them.
        self._transport = cast("asyncio.Transport", transport)
        if self.high_water_bytes is not None:
            self._transport.set_write_buffer_limits(high=self.high_water_bytes)

    def data_received(self, data: bytes) -> None:
        """One read."""
        self.bytes_in += len(data)
        try:  # `confined` costs as much as a small read
            self.engine.receive_data(data, self._clock())
            self.process_events()
            self.look_for_login_work()
        except Exception as error:  # noqa: BLE001  (K-3b: whatever it is)
            self.on_fault(error, INPUT.format(self.peer_noun))

    def eof_received(self) -> bool:
        """The peer sends no more; the transport is closed."""
        self._end_engine("the end of {}'s stream")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed, whatever closed it; asyncio calls this once."""
        self.stop_timer()
        self._transport = None
        self._end_engine("the end of {}'s connection")
        self.on_disconnected(exc)

    def _end_engine(self, doing: str) -> None:
        with self.confined(doing):
            self.engine.receive_eof(self._clock())
            self.process_events()

    def pause_writing(self) -> None:
        """More than `high_water_bytes` wait."""
        self._is_behind = True

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._is_behind = False

    # --- logins -------------------------------------------------------------------------------------------------------

    def look_for_login_work(self) -> None:
        """Have what the login waits for computed in another thread, and go on with the result."""
        work = self.engine.sasl_work
        if work is None or self._is_logging_in or self._transport is None:
            return
        started = login_work.start(work, lambda result: self._loop.call_soon_threadsafe(self._on_login_work, result))
        if not started:
            self.abort()  # no answer: the peer tries again
            return
        self._is_logging_in = True
        self._transport.pause_reading()

    def _on_login_work(self, result: bytes) -> None:
        self._is_logging_in = False
        if self._transport is None or self._transport.is_closing():
            return
        with self.confined("the login of {}"):
            self.engine.resume_sasl(result, self._clock())
        self._transport.resume_reading()
        self.data_received(b"")
        self.mark_dirty()

    # --- output and the end -------------------------------------------------------------------------------------------

    def mark_dirty(self) -> None:
        """Write at the end of this turn: what one turn produces goes out together."""
        if not self.is_dirty:
            self.is_dirty = True
            self._turn.mark_dirty(self)

    def flush(self) -> None:
        """Write what the turn produced; `Turn` calls it."""
        self.is_dirty = self._has_read = False
        try:
            self.write_output()
        except Exception as error:  # noqa: BLE001  (K-3b: others wait behind this one)
            self.on_output_fault(error)

    def write_output(self) -> None:
        """Write what the engine has; close the transport behind the last of it."""
        transport = self._transport
        if transport is None:
            return
        self.write_engine(transport)
        if self.engine.state is ConnectionState.ENDED:
            transport.close()

    def write_engine(self, transport: asyncio.Transport) -> None:
        """Write what the engine has."""
        data = self.engine.data_to_send()
        if data and not transport.is_closing():
            self.bytes_out += len(data)
            transport.write(data)
            if self._is_behind:
                self.on_written_behind(transport)

    def close_transport(self) -> None:
        """Close the transport; what is unwritten still goes out."""
        if self._transport is not None:
            self._transport.close()

    def close_transport_after(self, grace_s: float) -> None:
        """Our close is on its way: close the transport without the peer's answer after this time."""
        self.mark_dirty()
        if self._transport is not None:
            self._loop.call_later(grace_s, self.close_transport)

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Nobody waits for this connection any more: uvloop closes it then, and does not call `connection_lost`."""
        if self._transport is not None:
            self.connection_lost(None)

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def is_listening_to_peer(self) -> bool:
        """Whether silence of the peer says anything: while we do not read it does not."""
        return True

    def watch_deadline(self) -> None:
        """Keep one timer for heartbeats and the idle time-out."""
        deadline = self.engine.next_deadline()
        if deadline is None:
            self.stop_timer()
            return
        delay = max(self.timer_resolution_s, deadline - self._clock())
        self.start_timer(min(delay, self.longest_wait_s), self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        if self._transport is None:
            return
        if self.is_listening_to_peer:
            with self.confined("{}'s time-out"):
                self.engine.handle_timer(self._clock())
                self.process_events()
        self.watch_deadline()

    def start_timer(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back after this time; there is one timer."""
        self.stop_timer()
        self._timer = self._loop.call_later(delay_s, callback)

    def stop_timer(self) -> None:
        """Call nothing back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
