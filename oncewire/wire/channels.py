"""The sessions of one connection by their channels, which each end numbers for itself (2.5.1, 2.7.2)."""

from __future__ import annotations

from oncewire.wire.errors import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    LimitError,
    RemoteProtocolError,
)
from oncewire.wire.events import Event
from oncewire.wire.frame_writer import FrameWriter
from oncewire.wire.performatives import Begin
from oncewire.wire.session import AmqpSession


class Channels:
    """Begins sessions, for us and for the peer, and loses them all together.

    Args:
        writer: of the connection.
        events: where sessions put theirs.
        channel_max: the highest channel that we take.
        handle_max: the highest handle in each session.

    Attributes:
        ours: the sessions that are not fully ended, by our channel.
        theirs: those that the peer has begun or answered, by its channel.
        limit: the highest channel that both ends take: ours alone until the peer has stated its own.
    """

    __slots__ = ("_channel_max", "_events", "_handle_max", "_writer", "limit", "ours", "theirs")

    def __init__(self, writer: FrameWriter, events: list[Event], channel_max: int, handle_max: int) -> None:
        self._writer = writer
        self._events = events
        self._channel_max = channel_max
        self._handle_max = handle_max
        self.limit = channel_max
        self.ours: dict[int, AmqpSession] = {}
        self.theirs: dict[int, AmqpSession] = {}

    def make(self, window: int) -> AmqpSession:
        """A session on the lowest channel that is free; `window` is its incoming window, in transfer frames.

        Raises:
            LimitError: none is.
        """
        channel = len(self.ours)
        if channel in self.ours:  # a lower one is free
            channel = next(number for number in range(channel) if number not in self.ours)
        if channel > self.limit:
            raise LimitError(f"the connection has {self.limit + 1} sessions, which is the channel-max of both ends")
        session = AmqpSession(
            self._writer,
            channel,
            handle_max=self._handle_max,
            incoming_window=window,
            pending_events=self._events,
            forget=self.forget,
        )
        self.ours[channel] = session
        return session

    def receive_begin(self, channel: int, begin: Begin, window: int) -> None:
        """Carry out a begin: of a session of the peer, or its answer to ours.

        Raises:
            RemoteProtocolError: the peer may not begin or answer so.
        """
        if channel > self._channel_max:
            raise RemoteProtocolError(FRAMING_ERROR, f"channel {channel} is over our channel-max")
        if channel in self.theirs:
            raise RemoteProtocolError(ILLEGAL_STATE, f"channel {channel} has a session already")
        if begin.remote_channel is None:
            try:
                session = self.make(window)
            except LimitError as full:
                raise RemoteProtocolError(RESOURCE_LIMIT_EXCEEDED, str(full)) from None
        else:
            answered = self.ours.get(begin.remote_channel)
            if answered is None:
                raise RemoteProtocolError(INVALID_FIELD, f"no begin was sent on channel {begin.remote_channel}")
            session = answered
        self.theirs[channel] = session
        session.remote_channel = channel
        session.receive_begin(begin, channel)

    def forget(self, session: AmqpSession) -> None:
        """Free the channel of a session that both ends have ended."""
        if self.ours.get(session.channel) is session:
            del self.ours[session.channel]

    def halt(self) -> None:
        """The peer has closed, and its owner will answer: nothing more comes in."""
        self.theirs.clear()
        for session in self.ours.values():
            session.halt()

    def lose(self) -> None:
        """The connection is gone, and all sessions with it."""
        for session in self.ours.values():
            session.lose()
        self.theirs.clear()

    def let_go(self) -> None:
        """Let go of sessions that are lost: they refer to each other, and would wait for the garbage collector."""
        for session in self.ours.values():
            session.let_go()
        self.ours.clear()
