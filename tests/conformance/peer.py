"""A frame-level AMQP 1.0 peer: it sends what a test says, field by field, and expects frames in order.

It keeps no protocol of its own but the session's numbers of 2.5.6, so a test may send anything, in any order, and
without waiting. Reading has a deadline; a frame that is neither expected nor to be skipped fails the test.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from oncewire.wire import (
    ACCEPTED,
    AmqpError,
    Attach,
    Begin,
    Close,
    DeliveryState,
    Described,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Symbol,
    Target,
    Transfer,
    ULong,
    decode_message,
    encode_data_message,
)
from oncewire.wire.encoding import encode
from oncewire.wire.frames import AMQP_FRAME, AMQP_HEADER, HEARTBEAT_FRAME, SASL_FRAME, FrameParser, encode_frame
from oncewire.wire.performative_codec import decode_performative, decode_sasl_frame, encode_performative
from oncewire.wire.performatives import Performative, SaslFrame
from tests.conformance.websocket import WebSocket

DEADLINE_S = 60.0
MAX_FRAME_SIZE = 1 << 20
WINDOW = 2048
"""Transfer frames we take, unless a test says otherwise."""

OPEN, BEGIN, ATTACH, FLOW, TRANSFER = 0x10, 0x11, 0x12, 0x13, 0x14

Body = Performative | SaslFrame
B = TypeVar("B", bound=Body)
Dial = Callable[..., "Peer"]
"""The fixture `dial`: a connected transport to the router, closed with the test."""


@dataclass
class Numbers:
    """One session's numbers (2.5.6)."""

    next_outgoing_id: int = 0
    next_incoming_id: int = 0
    next_delivery_id: int = 0


@dataclass(frozen=True)
class Delivery:
    """A whole delivery: its transfer frames, and their payloads in one piece."""

    frames: Sequence[Transfer]
    payload: bytes

    @property
    def id(self) -> int:
        """The delivery-id."""
        assert self.frames[0].delivery_id is not None
        return self.frames[0].delivery_id

    @property
    def tag(self) -> bytes:
        """The delivery-tag."""
        assert self.frames[0].delivery_tag is not None
        return self.frames[0].delivery_tag

    @property
    def body(self) -> object:
        """What the message carries."""
        return decode_message(self.payload).body

    @property
    def settled(self) -> bool:
        """Whether any of its frames said so."""
        return any(frame.settled for frame in self.frames)


def composite(code: int, *fields: object) -> bytes:
    """A performative with these fields only: `None` also for mandatory ones."""
    return encode(Described(ULong(code), list(fields)))


class Peer:
    """One transport connection to a router."""

    def __init__(self, transport: int | WebSocket) -> None:
        """Connected to this port, or by a WebSocket."""
        self._socket = (
            transport
            if isinstance(transport, WebSocket)
            else socket.create_connection(("127.0.0.1", transport), timeout=DEADLINE_S)
        )
        self._parser = FrameParser(MAX_FRAME_SIZE)
        self._pipeline: list[bytes] | None = None
        self._numbers: dict[int, Numbers] = {}
        self._handles: dict[int, int] = {}
        """Our handle to the router's, for the links of the session that is in use."""
        self.channel = 0
        """Where the next frames go."""
        self.payload = b""
        """That of the last transfer."""
        self.remote_open: Open
        self.begun: Begin

    # --- bytes --------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes, or keep them for the end of the pipeline."""
        if self._pipeline is not None:
            self._pipeline.append(data)
            return
        # The router may have closed: what it said before is still to be read.
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(data)

    @contextlib.contextmanager
    def pipelined(self) -> Iterator[None]:
        """What is sent in this block leaves in one piece at its end (2.4.2)."""
        self._pipeline = []
        yield
        data, self._pipeline = b"".join(self._pipeline), None
        self.write(data)

    @property
    def address(self) -> str:
        """Our end of the transport, as the router sees it."""
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def drop(self) -> None:
        """Close the transport without a word."""
        self._socket.close()

    def _read(self) -> bool:
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            raise AssertionError(f"nothing came for {DEADLINE_S:g} s") from None
        except ConnectionError:
            return False
        if data:
            self._parser.feed(data)
        return bool(data)

    # --- headers and frames -------------------------------------------------------------------------------------------

    def header(self, header: bytes = AMQP_HEADER) -> None:
        """Send a protocol header (2.2)."""
        self.write(header)

    def send(self, body: Body | bytes, payload: bytes = b"", *, channel: int | None = None) -> None:
        """Send an AMQP frame with this performative; `bytes` are one that is encoded already."""
        performative = body if isinstance(body, bytes) else encode_performative(body)
        self.write(encode_frame(self.channel if channel is None else channel, performative, payload))

    def send_sasl(self, body: SaslFrame | bytes) -> None:
        """Send a SASL frame."""
        encoded = body if isinstance(body, bytes) else encode_performative(body)
        self.write(encode_frame(0, encoded, frame_type=SASL_FRAME))

    def heartbeat(self) -> None:
        """Send an empty frame (2.4.5)."""
        self.write(HEARTBEAT_FRAME)

    def expect_header(self) -> bytes:
        """The router's protocol header."""
        while (found := self._parser.next_header()) is None:
            assert self._read(), "the router closed the transport before its protocol header"
        return found

    def next_frame(self) -> Body | None:
        """The next frame of any kind; None is an empty one."""
        while (frame := self._parser.next_frame()) is None:
            assert self._read(), "the router closed the transport where a frame was expected"
        _, frame_type, buf, pos, end = frame
        if pos == end:
            return None
        if frame_type != AMQP_FRAME:
            return decode_sasl_frame(buf, pos, end)[0]
        performative, payload = decode_performative(buf, pos, end)
        if isinstance(performative, Transfer):
            self.payload = bytes(buf[payload:end])
            self._now.next_incoming_id += 1
        return performative

    def expect(self, kind: type[B], *skipped: type[Body]) -> B:
        """The next frame, which is of this kind; empty frames and those of the kinds to be skipped may come before."""
        while True:
            found = self.next_frame()
            if isinstance(found, kind):
                return found
            assert _is_nothing(found) or isinstance(found, skipped), f"a {kind.__name__} was expected; {found!r} came"

    def expect_one_of(self, *kinds: type[Body], skipped: tuple[type[Body], ...] = ()) -> Body:
        """The next frame, which is of one of these kinds."""
        while True:
            found = self.next_frame()
            if isinstance(found, kinds):
                return found
            assert _is_nothing(found) or isinstance(found, skipped), f"{kinds} were expected; {found!r} came"

    def expect_error(self, *skipped: type[Body]) -> tuple[type[Body], AmqpError]:
        """The next frame is a detach, end or close with an error: what it ends, and the error."""
        while True:
            found = self.next_frame()
            if isinstance(found, Detach | End | Close):
                assert found.error is not None, f"{found!r} says nothing of an error"
                return type(found), found.error
            assert _is_nothing(found) or isinstance(found, skipped), f"an error was expected; {found!r} came"

    def expect_heartbeat(self) -> None:
        """The next frame is an empty one."""
        found = self.next_frame()
        assert found is None, f"an empty frame was expected; {found!r} came"

    def expect_gone(self) -> None:
        """The router says no more and closes the transport."""
        while self._read():
            frame = self._parser.next_frame()
            assert frame is None or frame[3] == frame[4], "nothing was expected any more; a frame came"

    # --- connection and session ---------------------------------------------------------------------------------------

    def open(self, **fields: Any) -> Open:
        """Exchange headers and opens; returns the router's open."""
        with self.pipelined():
            self.header()
            self.send_open(**fields)
        assert self.expect_header() == AMQP_HEADER
        self.remote_open = self.expect(Open)
        return self.remote_open

    def send_open(self, **fields: Any) -> None:
        """Send an open, with a container-id of its own unless the fields name one."""
        fields.setdefault("container_id", f"peer-{id(self):x}-{self._socket.fileno()}")
        fields.setdefault("max_frame_size", MAX_FRAME_SIZE)
        self.send(Open(**fields), channel=0)

    def begin(self, channel: int = 0, **fields: Any) -> Begin:
        """Begin a session on this channel, which all that follows is sent on."""
        self.send_begin(channel, **fields)
        self.begun = self.expect(Begin)
        self._now.next_incoming_id = self.begun.next_outgoing_id
        return self.begun

    def send_begin(self, channel: int = 0, **fields: Any) -> None:
        """Send a begin."""
        self.channel = channel
        self._numbers[channel] = Numbers(fields.get("next_outgoing_id", 0))
        self.send(
            Begin(
                **{
                    "remote_channel": None,
                    "next_outgoing_id": 0,
                    "incoming_window": WINDOW,
                    "outgoing_window": WINDOW,
                    **fields,
                }
            )
        )

    def ready(self, **fields: Any) -> Peer:
        """Open and begin."""
        self.open(**fields)
        self.begin()
        return self

    @property
    def _now(self) -> Numbers:
        return self._numbers.setdefault(self.channel, Numbers())

    def end(self) -> None:
        """End the session; the router answers without an error."""
        self.send(End())
        assert self.expect(End, Flow, Disposition, Detach).error is None

    def close(self) -> None:
        """Close the connection; the router answers without an error, and nothing unexpected came before."""
        self.send(Close(), channel=0)
        assert self.expect(Close, Flow).error is None
        self.expect_gone()

    def sync(self) -> None:
        """Wait until the router has read all that was sent: it answers the echo of a flow (2.7.4)."""
        self.send_flow(echo=True)
        while self.expect(Flow, Disposition).handle is not None:
            pass

    # --- links --------------------------------------------------------------------------------------------------------

    def send_attach(self, role: bool, name: str, handle: int, **fields: Any) -> None:
        """Send an attach; role as in 2.8.1, `True` = receiver."""
        if not role:
            fields.setdefault("initial_delivery_count", 0)
        self.send(Attach(name, handle, role, **fields))

    def attach(self, role: bool, name: str, handle: int, **fields: Any) -> Attach:
        """Send an attach and take the answer."""
        self.send_attach(role, name, handle, **fields)
        return self.attached(handle)

    def attached(self, handle: int) -> Attach:
        """The router's attach for our handle."""
        reply = self.expect(Attach, Flow)
        self._handles[handle] = reply.handle
        return reply

    def attach_sender(self, topic: str, name: str = "out", handle: int = 0, **fields: Any) -> Attach:
        """Attach a link that publishes to the topic, and wait for credit."""
        fields.setdefault("source", Source(address=name))
        fields.setdefault("target", Target(address=topic))
        reply = self.attach(False, name, handle, **fields)
        assert reply.target is not None, "the attach was refused"
        self.credit(handle)
        return reply

    def attach_receiver(self, topic: str, name: str = "in", handle: int = 0, **fields: Any) -> Attach:
        """Attach a link that subscribes to the topic; it has no credit yet."""
        fields.setdefault("source", Source(address=topic))
        fields.setdefault("target", Target(address=name))
        reply = self.attach(True, name, handle, **fields)
        assert reply.source is not None, "the attach was refused"
        return reply

    def credit(self, handle: int = 0) -> int:
        """Wait until the router grants credit to our sending link."""
        while True:
            flow = self.expect(Flow)
            if flow.handle == self._handles[handle] and flow.link_credit:
                return flow.link_credit

    def remote_handle(self, handle: int) -> int:
        """The router's handle of our link."""
        return self._handles[handle]

    def send_flow(self, handle: int | None = None, credit: int | None = None, **fields: Any) -> None:
        """Send a flow: of the session, or of a link when it names one; the session's numbers are right unless given."""
        now = self._now
        numbers = {
            "next_incoming_id": now.next_incoming_id,
            "incoming_window": WINDOW,
            "next_outgoing_id": now.next_outgoing_id,
            "outgoing_window": WINDOW,
        }
        if handle is not None:
            fields.setdefault("delivery_count", 0)
        self.send(Flow(**{**numbers, "handle": handle, "link_credit": credit, **fields}))

    def transfer(
        self, body: bytes | None = None, handle: int = 0, *, payload: bytes | None = None, **fields: Any
    ) -> int:
        """Send a transfer, the first of a delivery unless the fields say otherwise; returns the delivery-id."""
        now = self._now
        if "delivery_id" not in fields:
            fields["delivery_id"] = now.next_delivery_id
        if fields["delivery_id"] == now.next_delivery_id:
            now.next_delivery_id += 1
        fields.setdefault("delivery_tag", b"tag-%d" % (now.next_delivery_id - 1))
        fields.setdefault("message_format", 0)
        content = payload if payload is not None else b"" if body is None else encode_data_message(body)
        now.next_outgoing_id += 1
        self.send(Transfer(handle, **fields), content)
        return now.next_delivery_id - 1

    def more(self, payload: bytes, handle: int = 0, **fields: Any) -> None:
        """Send one more transfer of the delivery that is under way on the link."""
        self._now.next_outgoing_id += 1
        self.send(Transfer(handle, **fields), payload)

    def outcome(self, delivery_id: int) -> Disposition:
        """The router's disposition that names this delivery."""
        while True:
            found = self.expect(Disposition, Flow)
            assert found.role, "a disposition of the receiving end was expected"
            if found.first <= delivery_id <= (found.first if found.last is None else found.last):
                return found

    def delivery(self, *skipped: type[Body]) -> Delivery:
        """The next whole delivery; frames of the kinds to be skipped may come before."""
        frames, payload = [self.expect(Transfer, Flow, *skipped)], self.payload
        while frames[-1].more:
            frames.append(self.expect(Transfer, Flow))
            payload += self.payload
        return Delivery(frames, payload)

    def dispose(
        self, first: int, last: int | None = None, *, state: DeliveryState | None = ACCEPTED, settled: bool = True
    ) -> None:
        """Send a disposition of the receiving end."""
        self.send(Disposition(True, first, last, settled, state))

    def detach(self, handle: int = 0, closed: bool = False) -> Detach:
        """Detach a link and take the answer, which carries no error."""
        self.send(Detach(handle, closed))
        found = self.expect(Detach, Flow, Disposition)
        assert found.error is None, found
        return found

    def refused(
        self, handle: int = 0, *, in_flight: bytes | None = None, initial_delivery_count: int | None = None
    ) -> AmqpError:
        """The answer to an attach that is refused: an attach without a terminus, then a closing detach (2.6.3).

        A message `in_flight` passes the router's detach on its way; our own detach is behind it. A refused receiver's
        `initial_delivery_count` is what the router's sending end counts from.
        """
        reply = self.attached(handle)
        assert initial_delivery_count in (None, reply.initial_delivery_count)
        assert reply.source is None, f"a refused attach has no source: {reply!r}"
        assert reply.target is None, f"a refused attach has no target: {reply!r}"
        found = self.expect(Detach)
        assert found.closed
        assert found.handle == reply.handle
        assert found.error is not None
        if in_flight is not None:
            self.transfer(payload=in_flight, handle=handle)
        self.send(Detach(handle, True))
        return found.error


def subscribed(dial: Dial, topic: str, name: str = "witness") -> Peer:
    """A subscriber of its own connection, which takes a hundred messages."""
    peer = dial().ready()
    peer.attach_receiver(topic, name)
    peer.send_flow(0, 100)
    return peer


def heard(peer: Peer) -> object:
    """The next message of a subscriber, accepted."""
    found = peer.delivery()
    if not found.settled:
        peer.dispose(found.id)
    return found.body


def published(dial: Dial, topic: str, *bodies: bytes) -> Peer:
    """A publisher of its own connection that has sent these messages, unsettled; its credit has come."""
    peer = dial().ready()
    peer.attach_sender(topic, "helper")
    for body in bodies:
        peer.transfer(body)
    return peer


def assert_accepted(peer: Peer, *numbers: int) -> None:
    """These deliveries, in any ranges and in this order, are accepted and settled."""
    waiting = list(numbers)
    while waiting:
        found = peer.outcome(waiting[0])
        assert found.settled
        assert found.state == ACCEPTED
        last = found.first if found.last is None else found.last
        while waiting and waiting[0] <= last:
            del waiting[0]


def symbols(*names: str) -> tuple[Symbol, ...]:
    """Names as AMQP symbols."""
    return tuple(Symbol(name) for name in names)


def _is_nothing(found: Body | None) -> bool:
    """An empty frame, or the flow of a session that opens its window: a peer may send either at any time (2.5.6)."""
    return found is None or (isinstance(found, Flow) and found.handle is None)
