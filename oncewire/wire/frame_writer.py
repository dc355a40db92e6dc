"""Frames on their way to the peer, in order, held back while they may not be sent (AMQP 1.0 part 2, 2.2 and 2.4.1)."""

from __future__ import annotations

from oncewire.wire.errors import LimitError
from oncewire.wire.frames import AMQP_HEADER, FRAME_HEADER_SIZE, MIN_MAX_FRAME_SIZE, encode_frame

# Of room: more than any number of messages has.
UNLIMITED = 1 << 62


class FrameWriter:
    """What a connection, its negotiation and its sessions write to.

    Attributes:
        out: bytes to send, in order; what must cost little is appended here directly.
        max_frame_size: bytes of the largest frame we send: 512 until the peer's open has come (2.4.1).
        header_sent: our AMQP header is sent, so AMQP frames may follow it.
        room: bytes that deliveries of several frames, and those behind them, may still add to ``out``.
    """

    __slots__ = ("_early", "_is_limit_known", "header_sent", "max_frame_size", "out", "room")

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.max_frame_size = MIN_MAX_FRAME_SIZE
        self.header_sent = False
        self.room = UNLIMITED
        self._is_limit_known = False
        self._early: list[bytes] = []

    def write_header(self) -> None:
        """Send our AMQP header."""
        self.out.append(AMQP_HEADER)
        self.header_sent = True

    def learn_limit(self, max_frame_size: int) -> None:
        """Take note of the peer's max-frame-size, in bytes; early frames stay until ``release_early``."""
        self.max_frame_size = max_frame_size
        self._is_limit_known = True

    def check_size(self, performative_size: int) -> None:
        """Raise LimitError if a performative does not fit one frame of the peer."""
        size = FRAME_HEADER_SIZE + performative_size
        if self._is_limit_known and size > self.max_frame_size:
            raise LimitError(f"a frame of {size} bytes is over the peer's max-frame-size of {self.max_frame_size}")

    def write(self, channel: int, performative: bytes) -> None:
        """Send a frame without payload, or keep it until it may be sent.

        Raises:
            LimitError: it is larger than the peer's max-frame-size.
        """
        frame = encode_frame(channel, performative)
        if not self._is_limit_known:
            self._early.append(frame)
            self.release_early()
            return
        if len(frame) > self.max_frame_size:
            self.check_size(len(performative))
        self.out.append(frame)

    def release_early(self) -> None:
        """Send early frames as far as allowed: none before our header, and until the peer's open none over 512 bytes.

        Everything behind a frame that must wait waits too.

        Raises:
            LimitError: one is larger than the peer's max-frame-size.
        """
        if not self.header_sent:
            return
        for index, frame in enumerate(self._early):
            if len(frame) > self.max_frame_size:
                self.check_size(len(frame) - FRAME_HEADER_SIZE)
                del self._early[:index]
                return
            self.out.append(frame)
        self._early.clear()

    def drop_early(self) -> None:
        """Forget the frames that were held back."""
        self._early.clear()
