"""What comes before AMQP frames: protocol headers and the SASL layer (AMQP 1.0 part 2, 2.2, and part 5.3.2)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from oncewire.wire.errors import FRAMING_ERROR, UNAUTHORIZED_ACCESS, RemoteProtocolError
from oncewire.wire.events import Event, SaslOutcome
from oncewire.wire.frame_writer import FrameWriter
from oncewire.wire.frames import AMQP_HEADER, MAX_SASL_FRAME_SIZE, SASL_FRAME, SASL_HEADER, FrameParser
from oncewire.wire.performative_codec import decode_sasl_frame
from oncewire.wire.sasl import SaslClient, SaslServer


class _Due(Enum):
    """What comes next in the peer's byte stream."""

    FIRST_HEADER = auto()
    SASL_FRAMES = auto()
    AMQP_HEADER = auto()
    AMQP_FRAMES = auto()


class Negotiation:
    """Either side of the exchange of headers and SASL frames.

    Args:
        is_server: a server answers headers, a client sends first.
        sasl: our side of SASL; None = no SASL layer.
        parser: cuts the peer's bytes.
        writer: takes the bytes to send.
        events: where the ``SaslOutcome`` is added.

    Attributes:
        finished: AMQP frames come next.
    """

    __slots__ = ("_amqp_frame_size", "_due", "_events", "_is_server", "_parser", "_sasl", "_writer", "finished")

    def __init__(
        self,
        is_server: bool,
        sasl: SaslClient | SaslServer | None,
        parser: FrameParser,
        writer: FrameWriter,
        events: list[Event],
    ) -> None:
        self._is_server = is_server
        self._sasl = sasl
        self._parser = parser
        self._writer = writer
        self._events = events
        self._amqp_frame_size = parser.max_frame_size
        self._due = _Due.FIRST_HEADER
        self.finished = False

    @property
    def waits_for_login(self) -> bool:
        """Whether a client has named a mechanism and the server has not decided yet."""
        return self._due is _Due.SASL_FRAMES and isinstance(self._sasl, SaslClient) and self._sasl.has_chosen

    def start(self) -> None:
        """Send a client's first header."""
        if self._is_server or self._due is not _Due.FIRST_HEADER:
            return
        if self._sasl is None:
            self._writer.write_header()
        else:
            self._writer.out.append(SASL_HEADER + self._sasl.start())

    def advance(self) -> None:
        """Carry out what has come.

        Raises:
            RemoteProtocolError: the peer speaks something else, or the login failed. No close frame is legal; write
                out what there is and close the transport.
        """
        while not self.finished and self.work is None:
            if self._due is _Due.SASL_FRAMES:
                frame = self._parser.next_frame()
                if frame is None:
                    return
                _, frame_type, buf, pos, end = frame
                if frame_type != SASL_FRAME:
                    raise RemoteProtocolError(FRAMING_ERROR, "an AMQP frame came before the SASL outcome")
                self._receive_sasl(buf, pos, end)
                continue
            try:
                header = self._parser.next_header()
            except RemoteProtocolError:
                self._answer_wrong_header()
                raise
            if header is None:
                return
            self._receive_header(header)

    @property
    def work(self) -> Callable[[], bytes] | None:
        """What the SASL side waits for; what comes meanwhile is kept."""
        return None if self._sasl is None else self._sasl.work

    def resume(self, result: bytes) -> None:
        """Go on with the result of `work`; `advance` then carries out what has come meanwhile.

        Raises:
            RemoteProtocolError: as `advance` does.
        """
        assert self._sasl is not None
        self._answer(self._sasl, self._sasl.resume(result))

    def _receive_header(self, header: bytes) -> None:
        sasl = self._sasl if self._due is _Due.FIRST_HEADER else None
        if header == SASL_HEADER and sasl is not None:
            self._due = _Due.SASL_FRAMES
            self._parser.max_frame_size = MAX_SASL_FRAME_SIZE
            if self._is_server:
                self._writer.out.append(SASL_HEADER + sasl.start())
            return
        skipped = isinstance(sasl, SaslServer) and sasl.allow_no_sasl
        if header != AMQP_HEADER or (sasl is not None and not skipped):
            self._answer_wrong_header()
            raise RemoteProtocolError(FRAMING_ERROR, f"protocol header {header.hex()} is not what is due here")
        self._due = _Due.AMQP_FRAMES
        self.finished = True
        self._sasl = None  # it has what logging in needs, and the connection may last
        if not self._writer.header_sent:
            self._writer.write_header()

    def _answer_wrong_header(self) -> None:
        """2.2: state what we speak; the transport is closed behind it."""
        if self._is_server and self._due is _Due.FIRST_HEADER:
            self._writer.out.append(AMQP_HEADER if self._sasl is None else SASL_HEADER)

    def _receive_sasl(self, buf: bytes, pos: int, end: int) -> None:
        sasl = self._sasl
        assert sasl is not None
        body, _ = decode_sasl_frame(buf, pos, end)
        self._answer(sasl, sasl.receive(body))

    def _answer(self, sasl: SaslClient | SaslServer, answer: bytes) -> None:
        if answer:
            self._writer.out.append(answer)
        result = sasl.result
        if result is None:
            return
        self._events.append(SaslOutcome(result.ok, result.mechanism, result.user))
        if not result.ok:
            raise RemoteProtocolError(UNAUTHORIZED_ACCESS, result.description)
        self._due = _Due.AMQP_HEADER
        self._parser.max_frame_size = self._amqp_frame_size
        if not self._is_server:
            self._writer.write_header()
