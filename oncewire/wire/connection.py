"""The connection: protocol headers, SASL, open and close, channels, time-outs (AMQP 1.0 part 2, section 2.4).

Sans-IO: give received bytes to ``receive_data``, act on ``events()``, write ``data_to_send()``; call ``handle_timer``
when ``next_deadline()`` has come. Whatever the peer sends, no method raises because of it; what our own caller does
wrong raises a ``LocalProtocolError`` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial

from oncewire.wire import large_attach
from oncewire.wire.channels import Channels
from oncewire.wire.decoding import MAX_FRAME_VALUES
from oncewire.wire.disposition_run import take_run
from oncewire.wire.errors import (
    FRAME_SIZE_TOO_SMALL,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    LimitError,
    RemoteProtocolError,
    StateError,
)
from oncewire.wire.events import ConnectionClosed, ConnectionLost, ConnectionOpened, Event
from oncewire.wire.frame_writer import FrameWriter
from oncewire.wire.frames import (
    AMQP_FRAME,
    FRAME_HEADER_SIZE,
    HEARTBEAT_FRAME,
    MIN_MAX_FRAME_SIZE,
    FrameParser,
    encode_frame,
)
from oncewire.wire.large_attach import LARGE_FRAME, LargeAttach
from oncewire.wire.link import symbols
from oncewire.wire.negotiation import Negotiation
from oncewire.wire.performative_codec import decode_performative, encode_performative
from oncewire.wire.performatives import (
    USHORT_MAX,
    AmqpError,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Fields,
    Flow,
    Open,
    Performative,
    Transfer,
)
from oncewire.wire.sasl import SaslClient, SaslServer
from oncewire.wire.session import AmqpSession
from oncewire.wire.states import CONNECTION_ENDED, CONNECTION_NEXT, SESSION_MAPPED, ConnectionState, SessionState, Step
from oncewire.wire.transactions import NO_TRANSACTIONS, UNKNOWN_TRANSACTION, is_transactional
from oncewire.wire.types import Symbol
from oncewire.wire.whole_delivery import WholeDeliveries

# Enough for the unsettled map of the default window, few enough bytes to hold per connection (C-4).
DEFAULT_MAX_FRAME_SIZE = 1 << 20
DEFAULT_CHANNEL_MAX = 255
# Links of one session, at both ends; a session holds a few hundred bytes for each.
DEFAULT_HANDLE_MAX = 1023
DEFAULT_IDLE_TIME_OUT_MS = 30_000
# Transfer frames in flight toward us; a full one of small messages is some 200 KB in the socket buffers.
DEFAULT_INCOMING_WINDOW = 2048

# 2.4.5: a peer that wants heartbeats more often than this would keep us busy doing nothing else.
MIN_PEER_IDLE_TIME_OUT_MS = 100

LOGIN_S = 30.0
"""A server may take so long for the answer to a login: some delay refusals, RabbitMQ by 3 s."""
# Of work for one call: everything that is there.
NO_LIMIT = 1 << 62

# Units of work for a frame that begins or ends something, beyond the one of each frame: what follows from it costs
# about as much as so many transfers.
COSTLY_FRAME = 15

# The same for a flow that asks for one in return.
ECHO = 3

# Frames go out: also behind a close of the peer that its owner has not answered.
_CARRIES = (ConnectionState.OPENED, ConnectionState.CLOSE_RECEIVED)

# What the close says of the peer's fault; longer texts may hold parts of what it sent and not fit its frames.
MAX_DESCRIPTION = 160


class Role(Enum):
    """Which end of the transport we are: a client speaks first."""

    CLIENT = auto()
    SERVER = auto()


class Connection:
    """One AMQP connection, either end.

    Args:
        role: CLIENT or SERVER.
        container_id: our container-id.
        hostname: the virtual host, stated by clients.
        max_frame_size: bytes, the largest frame we take; at least 512.
        channel_max: highest channel number; 255 = up to 256 sessions.
        handle_max: highest link handle in each session, for both ends.
        idle_time_out_ms: after so many milliseconds without a frame the peer counts as gone. Half of it is announced to
            the peer (2.4.5). 0 = never.
        incoming_window: transfer frames the peer may have in flight per session; topped up by the engine.
        offered_capabilities, desired_capabilities, properties: as in open.
        sasl: the SASL side for this connection; None = no SASL layer.
        now: time in seconds, from the clock that all other calls use.

    Raises:
        LimitError: a number that AMQP does not allow.

    Attributes:
        state: see ``ConnectionState``; ``ENDED`` = write out ``data_to_send()`` and close the transport.
        remote_open: the open of the peer, None before.
        before_open: at a server, called with the peer's open and ours before ours is sent; it may change ours.
        context: a slot for the owner; the engine never looks at it.
        session_window: incoming window of sessions that are begun from now on, by either end.
        answers_close: whether the owner answers a close of the peer, by ``close()``.
    """

    def __init__(
        self,
        role: Role,
        *,
        container_id: str,
        hostname: str | None = None,
        max_frame_size: int = DEFAULT_MAX_FRAME_SIZE,
        channel_max: int = DEFAULT_CHANNEL_MAX,
        handle_max: int = DEFAULT_HANDLE_MAX,
        idle_time_out_ms: int = DEFAULT_IDLE_TIME_OUT_MS,
        incoming_window: int = DEFAULT_INCOMING_WINDOW,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Fields | None = None,
        sasl: SaslClient | SaslServer | None = None,
        now: float = 0.0,
    ) -> None:
        if max_frame_size < MIN_MAX_FRAME_SIZE:
            raise LimitError(f"max_frame_size is at least {MIN_MAX_FRAME_SIZE} bytes, not {max_frame_size}")
        if not 0 <= channel_max <= USHORT_MAX or handle_max < 0 or incoming_window < 1 or idle_time_out_ms < 0:
            raise LimitError("channel_max, handle_max, incoming_window or idle_time_out_ms is out of range")
        self.role = role
        self.context: object = None
        self.state = ConnectionState.START
        self.remote_open: Open | None = None
        self.before_open: Callable[[Open, Open], None] | None = None
        self.receive_frame_size = max_frame_size
        self._open = Open(
            container_id,
            hostname,
            max_frame_size,
            channel_max,
            (idle_time_out_ms + 1) // 2 or None,
            offered_capabilities=symbols(offered_capabilities),
            desired_capabilities=symbols(desired_capabilities),
            properties=properties,
        )
        self.session_window = incoming_window
        self.answers_close = False
        self._parser = FrameParser(max_frame_size)
        self._whole = WholeDeliveries()
        self._events: list[Event] = []
        self._writer = FrameWriter()
        self._channels = Channels(self._writer, self._events, channel_max, handle_max)
        self._out = self._writer.out
        self._negotiation = Negotiation(role is Role.SERVER, sasl, self._parser, self._writer, self._events)
        # What this call may still do, and how it goes on with a frame that it left: a disposition or an attach.
        self._work = 0
        self._rest: Callable[[], None] | None = None
        # Seconds.
        self._idle_time_out = idle_time_out_ms / 1000
        self._heartbeat_every = 0.0
        self._now = self._last_received = self._last_sent = now

    def __repr__(self) -> str:
        return f"<Connection {self.role.name} {self.state.name} to {self.remote_container_id!r}>"

    # --- what comes in ------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: float, work: int = NO_LIMIT) -> bool:
        """Take bytes from the transport. Afterwards look at ``events()`` and ``data_to_send()``.

        Args:
            data: as read; may be empty.
            now: seconds, on the clock of all other calls.
            work: stop after so many units: one for each frame, one for each delivery that a disposition changes and
                for each 32 entries of a large map, and ``COSTLY_FRAME`` more for a frame that begins or ends something,
                or ``ECHO`` more for a flow with echo.

        Returns:
            Whether it stopped for that reason: call again, with no data or more, when there is time.
        """
        self._now = now
        if self.state is ConnectionState.ENDED:
            return False
        self._work = work
        if self.state is not ConnectionState.CLOSE_SENT:  # then only the peer's close counts
            self._last_received = now
        try:
            self._parser.feed(data)
            if not self._negotiation.finished:
                self._negotiation.advance()
                self._writer.release_early()
            if self._negotiation.finished:
                self._read_frames()
        except RemoteProtocolError as fault:
            self._fail(fault.condition, fault.description)
        except LimitError as limit:  # a name of its own: compiled, a name has one type in the whole function
            self._fail(FRAME_SIZE_TOO_SMALL, str(limit))
        return self._work <= 0

    @property
    def sasl_work(self) -> Callable[[], bytes] | None:
        """A long computation that the login waits for, None if there is none: give its result to ``resume_sasl``."""
        return None if self._negotiation.finished else self._negotiation.work

    def resume_sasl(self, result: bytes, now: float) -> None:
        """Go on with the login; then call ``receive_data``, with no data or more, for what has come meanwhile.

        Args:
            result: of ``sasl_work``.
            now: seconds, on the clock of all other calls.
        """
        self._now = now
        if self.state is ConnectionState.ENDED:
            return
        try:
            self._negotiation.resume(result)
        except RemoteProtocolError as fault:
            self._fail(fault.condition, fault.description)

    def receive_eof(self, now: float) -> None:
        """Take note that the transport has ended: ``ConnectionLost`` unless the connection had ended before."""
        self._now = now
        if self.state is not ConnectionState.ENDED:
            self._lose(None)

    def let_go(self) -> None:
        """Let go of what the end of the connection left; call it when the last events were taken.

        Links, sessions and connection refer to each other, and would wait for the garbage collector.
        """
        self._parser.clear()
        self._channels.let_go()

    def events(self) -> list[Event]:
        """Return what happened since the last call, in order."""
        events = self._events.copy()
        self._events.clear()
        return events

    # --- what goes out ------------------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Return the bytes to write to the transport since the last call; may be empty."""
        out = self._out
        if not out:
            return b""
        data = b"".join(out)
        out.clear()
        self._last_sent = self._now
        return data

    def limit_output(self, size: int) -> bool:
        """Let deliveries of several frames add so many bytes to the output until the next call; whether there is any.

        What is left of them waits uncut. Never called, they go out as far as the session window goes.
        """
        self._writer.room = size
        for session in self._channels.ours.values():
            session.write_more()
        return bool(self._out)

    def open(self) -> None:
        """Send our open, at a client behind the protocol headers and SASL. A server answers the peer's by itself.

        Sessions and links may be begun and attached at once (pipelined), without waiting for the peer's open.

        Raises:
            StateError: it is sent already.
            LimitError: it is larger than AMQP allows before the peer has stated its limit (512 bytes).
        """
        following = CONNECTION_NEXT.get((self.state, Step.SEND_START))
        if following is None:
            raise StateError(f"open cannot be sent: the connection is {self.state.name}")
        performative = encode_performative(self._open)
        if FRAME_HEADER_SIZE + len(performative) > self.send_frame_size:
            raise LimitError(f"the open frame is larger than {self.send_frame_size} bytes: shorten its properties")
        self._writer.write(0, performative)
        self.state = following
        self._negotiation.start()
        self._writer.release_early()

    def close(self, error: AmqpError | None = None) -> None:
        """Close the connection; ``ConnectionClosed`` follows. Input is ignored from now on, but for the peer's close.

        Before open was sent there is nothing to say: the connection ends at once, without an event.

        Raises:
            StateError: it is closed or gone already.
            LimitError: the error is too large for the peer's frames.
        """
        if self.state is ConnectionState.START:
            self._end()
            return
        following = CONNECTION_NEXT.get((self.state, Step.SEND_END))
        if following is None:
            raise StateError(f"the connection cannot be closed: it is {self.state.name}")
        self._writer.write(0, encode_performative(Close(error)))
        self.state = following
        self._channels.lose()

    def begin(self) -> AmqpSession:
        """Begin a session with ``session_window`` as its window; ``SessionBegun`` follows.

        Raises:
            StateError: open is not sent, or the connection is closing or closed; or a second session is begun before
                the peer's open has stated how many it takes.
            LimitError: the channel-max of one end is reached.
        """
        if self.state is not ConnectionState.OPENED and self.state is not ConnectionState.OPEN_SENT:
            raise StateError(f"no session can be begun: the connection is {self.state.name}")
        if self.remote_open is None and self._channels.ours:
            raise StateError("wait for ConnectionOpened before a second session is begun")
        session = self._channels.make(self.session_window)
        session.write_begin()
        return session

    # --- what the owner may know --------------------------------------------------------------------------------------

    @property
    def remote_container_id(self) -> str | None:
        """The peer's container-id, None before its open."""
        return None if self.remote_open is None else self.remote_open.container_id

    @property
    def send_frame_size(self) -> int:
        """Bytes of the largest frame we send: 512 until the peer's open has come."""
        return self._writer.max_frame_size

    @property
    def sessions(self) -> list[AmqpSession]:
        """The sessions that are not fully ended; after the end of the connection those that it took along."""
        return list(self._channels.ours.values())

    @property
    def buffered(self) -> int:
        """Bytes that were received and not carried out: of a frame that is not complete, as a rule."""
        return self._parser.buffered

    @property
    def link_count(self) -> int:
        """Links of all sessions that are not fully detached."""
        return sum(session.link_count for session in self._channels.ours.values())

    # --- time ---------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when ``handle_timer`` is due, on the clock of ``now``; None = never. It changes with every call."""
        if self.state is ConnectionState.ENDED:
            return None
        deadline = self._silence_ends
        if self._heartbeat_every and self.state in _CARRIES:
            heartbeat = self._last_sent + self._heartbeat_every
            if deadline is None or heartbeat < deadline:
                deadline = heartbeat
        return deadline

    @property
    def _silence_ends(self) -> float | None:
        """When the peer has been silent for too long; None = never. It may think about a login for longer."""
        if not self._idle_time_out:
            return None
        longest = max(self._idle_time_out, LOGIN_S) if self._negotiation.waits_for_login else self._idle_time_out
        return self._last_received + longest

    def handle_timer(self, now: float) -> None:
        """Send a heartbeat that is due, or give up a peer that was silent for too long. Harmless when called early."""
        self._now = now
        if self.state is ConnectionState.ENDED:
            return
        silence_ends = self._silence_ends
        if silence_ends is not None and now >= silence_ends:
            silent_s = silence_ends - self._last_received
            self._fail(RESOURCE_LIMIT_EXCEEDED, f"idle time-out: nothing received for {silent_s:g} s")
        elif self._heartbeat_every and self.state in _CARRIES and now >= self._last_sent + self._heartbeat_every:
            self._out.append(HEARTBEAT_FRAME)
            self._last_sent = now

    # --- frames in ----------------------------------------------------------------------------------------------------

    def _read_frames(self) -> None:
        """Carry out complete frames, as far as this call may."""
        parser = self._parser
        whole = self._whole
        sessions = self._channels.theirs
        while self._work > 0 and self.state is not CONNECTION_ENDED:
            self._work -= 1
            if self._rest is not None:
                self._rest()
                continue
            if whole.take(parser):
                session = sessions.get(whole.channel)
                if session is None:  # a fault, or discarded behind our close
                    self._receive_frame(whole.channel, Transfer(whole.handle), whole.payload)
                elif session.state is SESSION_MAPPED:
                    session.receive_whole(whole)
                continue
            begin = parser.pos
            frame = parser.next_frame()
            if frame is None:
                self._work += 1  # nothing was carried out: with a limit of one unit it would be called without end
                return
            channel, frame_type, buf, pos, end = frame
            if frame_type != AMQP_FRAME:
                raise RemoteProtocolError(FRAMING_ERROR, "a SASL frame came behind the SASL layer")
            if pos == end:  # 2.4.5: a heartbeat
                continue
            if end - pos >= LARGE_FRAME and (large := large_attach.begin(buf, pos, end)) is not None:
                self._receive_large_attach(channel, large)
                continue
            performative, payload = decode_performative(buf, pos, end, MAX_FRAME_VALUES)
            if isinstance(performative, Disposition):
                take_run(parser, begin, performative)
            self._receive_frame(channel, performative, buf[payload:end])

    def _receive_large_attach(self, channel: int, attach: LargeAttach) -> None:
        """Decode as much of an attach as this call may; the rest goes ahead of the next frame."""
        self._work -= attach.decode(max(1, self._work))
        if attach.is_done:
            self._rest = None
            self._receive_frame(channel, attach.finish(), b"")
        else:
            self._rest = partial(self._receive_large_attach, channel, attach)

    def _receive_frame(self, channel: int, performative: Performative, payload: bytes) -> None:
        """Carry out any frame."""
        if not isinstance(performative, Transfer | Disposition | Flow):
            self._work -= COSTLY_FRAME
        elif isinstance(performative, Flow) and performative.echo:
            self._work -= ECHO
        if isinstance(performative, Open):
            if channel:  # 2.4.1: "The open frame can only be sent on channel 0." A close may come on any (2.4.3).
                raise RemoteProtocolError(FRAMING_ERROR, f"open came on channel {channel}, not on channel 0")
            self._receive_open(performative)
        elif isinstance(performative, Close):
            self._receive_close(performative)
        elif self.state is ConnectionState.CLOSE_SENT or self.state is ConnectionState.CLOSE_RECEIVED:
            pass  # 2.4.6: discarded until the peer's close; behind it nothing may come
        elif self.remote_open is None:
            raise RemoteProtocolError(ILLEGAL_STATE, f"{type(performative).__name__} came before open")
        elif isinstance(performative, Begin):
            self._channels.receive_begin(channel, performative, self.session_window)
        else:
            session = self._channels.theirs.get(channel)
            if session is None:
                raise RemoteProtocolError(
                    ILLEGAL_STATE, f"{type(performative).__name__} came on channel {channel}, where no session is"
                )
            if session.state is SessionState.MAPPED or isinstance(performative, End):
                self._receive_in_session(session, channel, performative, payload)

    def _receive_in_session(
        self, session: AmqpSession, channel: int, performative: Performative, payload: bytes
    ) -> None:
        if isinstance(performative, Transfer):
            session.receive_transfer(performative, payload)
        elif isinstance(performative, Disposition) and is_transactional(performative.state):
            # 4.4.2: an outcome that counts outside of its transaction could not be taken back.
            session.end_faulty(UNKNOWN_TRANSACTION, NO_TRANSACTIONS)
        elif isinstance(performative, Disposition):
            self._receive_disposition(session, performative)
        elif isinstance(performative, Flow):
            session.receive_flow(performative)
        elif isinstance(performative, Attach):
            session.receive_attach(performative)
        elif isinstance(performative, Detach):
            session.receive_detach(performative)
        elif isinstance(performative, End):
            del self._channels.theirs[channel]
            session.receive_end(performative)

    def _receive_disposition(self, session: AmqpSession, disposition: Disposition) -> None:
        """Carry out as much of a disposition as this call may; the rest goes ahead of the next frame."""
        visited, rest = session.receive_disposition(disposition, max(1, self._work))
        self._work -= visited
        self._rest = None if rest is None else partial(self._receive_disposition, session, rest)

    def _receive_open(self, remote: Open) -> None:
        following = CONNECTION_NEXT.get((self.state, Step.RECEIVE_START))
        if following is None or self.remote_open is not None:
            raise RemoteProtocolError(ILLEGAL_STATE, "a second open")
        if remote.max_frame_size < MIN_MAX_FRAME_SIZE and self.role is Role.SERVER:
            raise RemoteProtocolError(INVALID_FIELD, f"max-frame-size is at least {MIN_MAX_FRAME_SIZE} bytes (2.7.1)")
        idle = remote.idle_time_out or 0
        if 0 < idle < MIN_PEER_IDLE_TIME_OUT_MS:
            raise RemoteProtocolError(NOT_ALLOWED, f"no idle-time-out below {MIN_PEER_IDLE_TIME_OUT_MS} ms is kept up")
        self.remote_open = remote
        self._channels.limit = min(self._channels.limit, remote.channel_max)
        # A server that refuses may state nothing of use in its open (Broker-J: 0): its close says why.
        self._writer.learn_limit(max(remote.max_frame_size, MIN_MAX_FRAME_SIZE))
        self._heartbeat_every = idle / 2000
        self.state = following
        if following is ConnectionState.OPEN_RECEIVED:
            if self.before_open is not None:
                self.before_open(remote, self._open)
            self.open()
        self._writer.release_early()
        if self.state is ConnectionState.OPENED:
            self._events.append(ConnectionOpened(remote))

    def _receive_close(self, close: Close) -> None:
        following = CONNECTION_NEXT.get((self.state, Step.RECEIVE_END))
        if following is None:
            raise RemoteProtocolError(ILLEGAL_STATE, "close came before open")
        self.state = following
        needs_answer = following is ConnectionState.CLOSE_RECEIVED and self.answers_close and close.error is None
        if needs_answer:
            self._idle_time_out = 0.0  # the peer has nothing more to say
            self._channels.halt()
        elif following is ConnectionState.CLOSE_RECEIVED:
            self._writer.write(0, encode_performative(Close()))
        if not needs_answer:
            self._end()
        self._events.append(ConnectionClosed(close.error, needs_answer))

    # --- the end ------------------------------------------------------------------------------------------------------

    def _fail(self, condition: Symbol, description: str) -> None:
        """Give up a connection whose peer is at fault: close with the error where that is legal."""
        error = AmqpError(condition, description[:MAX_DESCRIPTION])
        if self._writer.header_sent and self.state is not ConnectionState.CLOSE_SENT:
            self._writer.drop_early()
            if self.state is ConnectionState.START or self.state is ConnectionState.OPEN_RECEIVED:
                self._out.append(encode_frame(0, encode_performative(self._open)))
            self._out.append(encode_frame(0, encode_performative(Close(error))))
        self._lose(error)

    def _lose(self, error: AmqpError | None) -> None:
        self._end()
        self._events.append(ConnectionLost(error))

    def _end(self) -> None:
        self.state = ConnectionState.ENDED
        self._writer.drop_early()
        self._channels.lose()
