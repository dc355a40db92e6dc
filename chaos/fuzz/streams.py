"""Structure-aware streams for one engine: mutated AMQP toward it, an owner that acts on what it reports."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from typing import TypeAlias

from chaos.fuzz.mutations import NUMBERS, STRANGE, mutate_octets
from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    Attach,
    Begin,
    Close,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionState,
    DeliveryAborted,
    DeliveryBegun,
    DeliveryEnded,
    DeliveryPart,
    DeliveryReceived,
    Described,
    Detach,
    Disposition,
    DispositionReceived,
    End,
    Event,
    Flow,
    LimitError,
    Link,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    Modified,
    Open,
    Performative,
    Received,
    ReceiverLink,
    Rejected,
    Role,
    SaslClient,
    SaslServer,
    SenderLink,
    Source,
    Symbol,
    Target,
    Transfer,
    UInt,
    ULong,
    UnsettledMap,
    decode,
    decode_performative,
    encode,
    encode_performative,
)
from oncewire.wire.frames import AMQP_HEADER, SASL_HEADER, FrameParser, encode_frame
from oncewire.wire.vocabulary import ECHO

STATES = (None, ACCEPTED, RELEASED, Rejected(AmqpError(Symbol("x:y"), "no")), Modified(True), Received(1, 2))
UNSETTLED: UnsettledMap = {b"resumed-%d" % number: state for number, state in enumerate(STATES)}


STREAMED_ABOVE = (None, None, 0, 40, 1000)


def _frame(performative: Performative, payload: bytes = b"") -> bytes:
    return encode_frame(0, encode_performative(performative), payload)


# --- an engine in the middle of its life ------------------------------------------------------------------------------


class Owner:
    """Acts on events as a router or client would; it never commands what the state of a link forbids."""

    def __init__(self, engine: Connection, rng: random.Random) -> None:
        self.engine = engine
        self.rng = rng
        self.events = 0
        self.ends: list[Event] = []
        self.sent = 0
        self.streamed: dict[Link, int] = {}
        """Deliveries that come in part by part, by link."""

    def act(self) -> None:
        """Drain the events and react."""
        for event in self.engine.events():
            self.events += 1
            self.take(event)

    def take(self, event: Event) -> None:
        """React to one event."""
        if isinstance(event, LinkAttached):
            self._attached(event)
        elif isinstance(event, DeliveryReceived):
            if event.link.is_attached and not event.settled:
                event.link.dispose([event.delivery_id], self.rng.choice(STATES), self.rng.random() < 0.5)
        elif isinstance(event, DeliveryBegun | DeliveryPart | DeliveryEnded | DeliveryAborted):
            self._streamed(event)
        elif isinstance(event, DispositionReceived):
            if isinstance(event.link, SenderLink) and event.link.is_attached and not event.settled:
                event.link.settle(event.ids)
        elif isinstance(event, LinkFlow):
            self._flow(event)
        elif isinstance(event, LinkDetached):
            if event.needs_answer and event.link.state.name == "DETACH_RECEIVED":
                event.link.detach(True)
        elif isinstance(event, (ConnectionClosed, ConnectionLost)):
            self.ends.append(event)

    def _streamed(self, event: DeliveryBegun | DeliveryPart | DeliveryEnded | DeliveryAborted) -> None:
        """Parts come in order, of one delivery of a link at a time; its outcome may be stated before its end."""
        link = event.link
        assert isinstance(link, ReceiverLink)
        if isinstance(event, DeliveryBegun):
            assert link not in self.streamed
            self.streamed[link] = event.delivery_id
        assert self.streamed[link] == event.delivery_id
        if isinstance(event, DeliveryEnded | DeliveryAborted):
            del self.streamed[link]
        is_unsettled = not isinstance(event, DeliveryAborted | DeliveryPart) and not getattr(event, "settled", False)
        if is_unsettled and link.is_attached and self.rng.random() < 0.5:
            link.dispose([event.delivery_id], self.rng.choice(STATES), self.rng.random() < 0.5)

    def _attached(self, event: LinkAttached) -> None:
        link = event.link
        if link.state.name != "ATTACH_RECEIVED":
            return
        choice = self.rng.random()
        if choice < 0.2:
            link.refuse(AmqpError(Symbol("amqp:not-found"), "no such node"))
        elif choice < 0.9:
            link.reply(source=Source("t"), target=Target("t"), unsettled={}, max_message_size=4000)
            if isinstance(link, ReceiverLink):
                link.stream_above = self.rng.choice(STREAMED_ABOVE)
                link.grant(self.rng.choice((0, 1, 10)), echo=self.rng.random() < 0.3)

    def _flow(self, event: LinkFlow) -> None:
        link = event.link
        if not link.is_attached:
            return
        if isinstance(link, SenderLink):
            self._go_on(link)
            while link.credit and self.sent < 40 and not link.has_begun:
                self.sent += 1
                tag, payload = b"out-%d" % self.sent, b"m" * self.rng.choice((0, 10, 3000))
                with contextlib.suppress(LimitError):  # the peer takes only smaller ones
                    if self.rng.random() < 0.3:
                        link.begin(tag, payload)
                    else:
                        link.send(tag, payload, settled=self.rng.random() < 0.2)
                self._go_on(link)
            if event.drain:
                link.drained()
        elif isinstance(link, ReceiverLink) and self.rng.random() < 0.5:
            link.grant(5)

    def _go_on(self, link: SenderLink) -> None:
        """More of a delivery that has begun, or its end."""
        while link.has_begun and self.rng.random() < 0.8:
            with contextlib.suppress(LimitError):
                if self.rng.random() < 0.4:
                    link.send_part(b"p" * 100)
                elif self.rng.random() < 0.7:
                    link.finish()
                else:
                    link.abort()


def established(role: Role, rng: random.Random) -> Owner:
    """An engine with a session, two resumed links with deliveries under way in both directions, and its owner.

    Seen from the peer: handle 0 sends to the engine, handle 1 receives from it; deliveries 0 to 4 are unsettled in
    both directions, and delivery 5 toward the engine has begun.
    """
    engine = Connection(
        role, container_id="engine", max_frame_size=4096, channel_max=7, handle_max=7, incoming_window=64
    )
    owner = Owner(engine, rng)
    if role is Role.CLIENT:
        engine.open()
        session = engine.begin()
        incoming = session.attach_receiver(
            "in", source=Source("t"), target=Target(), unsettled=dict(UNSETTLED), max_message_size=4000
        )
        outgoing = session.attach_sender("out", source=Source(), target=Target("t"), unsettled=dict(UNSETTLED))
        incoming.grant(20)
    first = AMQP_HEADER + _frame(Open("peer", max_frame_size=1024, idle_time_out=10_000))
    begin = Begin(0 if role is Role.CLIENT else None, 0, 30, 30)
    attach_in = Attach("in", 0, False, 0, 1, Source("t"), Target("t"), dict(UNSETTLED), initial_delivery_count=0)
    attach_out = Attach("out", 1, True, 0, 1, Source("t"), Target("t"), dict(UNSETTLED))
    engine.receive_data(first + _frame(begin) + _frame(attach_in) + _frame(attach_out), 0.0)
    if role is Role.SERVER:
        links = engine.sessions[0].links
        assert isinstance(links[0], ReceiverLink)
        assert isinstance(links[1], SenderLink)
        incoming, outgoing = links[0], links[1]
        incoming.reply(source=Source("t"), target=Target("t"), unsettled={b"resumed-0": None}, max_message_size=4000)
        outgoing.reply(source=Source("t"), target=Target("t"), unsettled={b"resumed-0": None})
        incoming.grant(20)
    incoming.stream_above = rng.choice(STREAMED_ABOVE)
    engine.receive_data(_frame(Flow(0, 30, 0, 30, 1, 0, 10)), 0.0)
    for number in range(5):
        outgoing.send(b"out-%d" % number, b"body", resume=number == 0)
        engine.receive_data(_frame(Transfer(0, number, b"tag-%d" % number, 0, False, resume=number == 0), b"body"), 0.0)
    engine.receive_data(_frame(Transfer(0, 5, b"tag-5", 0, more=True), b"part"), 0.0)
    engine.data_to_send()
    owner.streamed.update(
        (event.link, event.delivery_id) for event in engine.events() if isinstance(event, DeliveryBegun)
    )
    return owner


# --- legal frames -----------------------------------------------------------------------------------------------------


def _transfer(rng: random.Random) -> tuple[Performative, bytes]:
    number = rng.choice((5, 5, 6, 7, 0, rng.choice(NUMBERS)))
    transfer = Transfer(rng.choice((0, 0, 0, 1, 2)), number, b"tag-%d" % number, 0)
    transfer.settled = rng.choice((None, False, True))
    transfer.more = rng.random() < 0.3
    transfer.resume = rng.random() < 0.3
    transfer.aborted = rng.random() < 0.1
    transfer.state = rng.choice(STATES)
    return transfer, bytes(rng.choice((0, 1, 50, 3000)))


def _continuation(rng: random.Random) -> tuple[Performative, bytes]:
    """More of the delivery that has begun, or its end."""
    transfer = Transfer(0, rng.choice((None, None, 5)), more=rng.random() < 0.8)
    transfer.aborted = rng.random() < 0.2
    return transfer, bytes(rng.choice((0, 50, 1000)))


def _disposition(rng: random.Random) -> tuple[Performative, bytes]:
    first, last = rng.choice(NUMBERS), rng.choice(NUMBERS)
    if rng.random() < 0.6:
        first, last = sorted((rng.randrange(8), rng.randrange(8)))
    return Disposition(rng.random() < 0.5, first, last, rng.random() < 0.5, rng.choice(STATES)), b""


def _flow(rng: random.Random) -> tuple[Performative, bytes]:
    flow = Flow(rng.choice((0, 5, rng.choice(NUMBERS))), rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(NUMBERS))
    if rng.random() < 0.8:
        flow.handle = rng.choice((0, 1, 1, 1, 2))
        flow.delivery_count = rng.choice((5, 5, 6, None, rng.choice(NUMBERS)))
        flow.link_credit = rng.choice((0, 1, 10, rng.choice(NUMBERS)))
    flow.drain = rng.random() < 0.2
    flow.echo = rng.random() < 0.4
    if rng.random() < 0.2:
        flow.properties = {ECHO: ULong(7)}
    return flow, b""


def _attach(rng: random.Random) -> tuple[Performative, bytes]:
    name = rng.choice(("in", "out", "new", "n" * rng.choice((1, 255, 300))))
    attach = Attach(name, rng.choice((0, 1, 2, 3, 7, 8)), rng.random() < 0.5, source=Source("t"), target=Target("t"))
    attach.unsettled = dict(UNSETTLED) if rng.random() < 0.5 else rng.choice((None, {}))
    attach.incomplete_unsettled = rng.random() < 0.2
    attach.initial_delivery_count = rng.choice((None, 0, rng.choice(NUMBERS)))
    attach.max_message_size = rng.choice((None, 0, 1, 1 << 40))
    return attach, b""


def _detach(rng: random.Random) -> tuple[Performative, bytes]:
    error = AmqpError(Symbol("amqp:internal-error")) if rng.random() < 0.3 else None
    return Detach(rng.choice((0, 1, 2)), rng.random() < 0.5, error), b""


def _begin(rng: random.Random) -> tuple[Performative, bytes]:
    return Begin(rng.choice((None, None, 0, 1)), rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(NUMBERS)), b""


def _rare(rng: random.Random) -> tuple[Performative, bytes]:
    return rng.choice((End(), End(AmqpError(Symbol("e"))), Close(), Close(AmqpError(Symbol("c"))), Open("peer"))), b""


Maker: TypeAlias = Callable[[random.Random], tuple[Performative, bytes]]
MAKERS: tuple[Maker, ...] = (
    *[_transfer] * 6,
    *[_continuation] * 2,
    *[_disposition] * 5,
    *[_flow] * 5,
    *[_attach] * 3,
    *[_detach] * 2,
    _begin,
    _rare,
)


# --- mutations --------------------------------------------------------------------------------------------------------


def _as_fields(performative: Performative) -> tuple[object, list[object]]:
    value, _ = decode(encode_performative(performative))
    assert isinstance(value, Described)
    assert isinstance(value.value, list)
    return value.descriptor, value.value


def mutated_fields(rng: random.Random, performative: Performative) -> bytes:
    """Swap, replace, drop or add fields, or claim to be another performative; the encoding stays legal."""
    descriptor, fields = _as_fields(performative)
    for _ in range(rng.choice((1, 1, 2, 4))):
        kind = rng.randrange(6)
        place = rng.randrange(len(fields)) if fields else 0
        if kind == 0 and fields:
            other = rng.randrange(len(fields))
            fields[place], fields[other] = fields[other], fields[place]
        elif kind == 1 and fields:
            fields[place] = rng.choice(STRANGE)
        elif kind == 2 and fields:
            fields[place] = UInt(rng.choice(NUMBERS))
        elif kind == 3 and fields:
            del fields[place]
        elif kind == 4:
            fields.insert(place, rng.choice(STRANGE))
        elif rng.random() < 0.3:
            descriptor = ULong(rng.choice((0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x24, 0x40)))
    return encode(Described(descriptor, fields))


def _mutate_header(rng: random.Random, data: bytes) -> bytes:
    """Give a frame another size, data offset, type or channel."""
    size, offset, kind, channel = struct.unpack_from(">IBBH", data)
    which = rng.randrange(4)
    if which == 0:
        size = rng.choice((0, 7, 8, size - 1, size + 1, 4096, 4097, 0xFFFFFFFF)) & 0xFFFFFFFF
    elif which == 1:
        offset = rng.choice((0, 1, 3, 255))
    elif which == 2:
        kind = rng.choice((1, 2, 255))
    else:
        channel = rng.choice((1, 7, 8, 65535))
    return struct.pack(">IBBH", size, offset, kind, channel) + data[8:]


def legal_frame(rng: random.Random) -> tuple[Performative, bytes]:
    """A legal performative of the peer, sensible more often than not."""
    return rng.choice(MAKERS)(rng)


def mutated_stream(rng: random.Random) -> bytes:
    """Frames for an established connection, at least one of them spoilt, or all of them in a wrong order."""
    frames: list[bytes] = []
    spoilt = rng.randrange(8)
    for index in range(rng.randrange(1, 8)):
        performative, payload = legal_frame(rng)
        body = encode_performative(performative)
        mutate = index == spoilt or rng.random() < 0.3
        if mutate and rng.random() < 0.6:
            body = mutated_fields(rng, performative)
        elif mutate and rng.random() < 0.5:
            body = mutate_octets(rng, body)
        data = encode_frame(rng.choice((0, 0, 0, 0, 0, 0, 0, 1)), body, payload)
        if mutate and rng.random() < 0.2:
            data = _mutate_header(rng, data)
        frames.append(data)
    how = rng.randrange(6)
    if how == 0:
        rng.shuffle(frames)
    elif how == 1:
        frames.extend(frames)
    stream = b"".join(frames)
    if how == 2:
        stream = mutate_octets(rng, stream)
    return stream


def mutated_start(rng: random.Random, sasl: bool) -> bytes:
    """The first bytes of a connection, spoilt."""
    parts = [AMQP_HEADER]
    if sasl:
        init = encode(Described(ULong(0x41), [Symbol("PLAIN"), b"\x00u\x00p", "host"]))
        mechanisms = encode(Described(ULong(0x40), [Symbol("ANONYMOUS")]))
        outcome = encode(Described(ULong(0x44), [0]))
        body = rng.choice((init, mechanisms, outcome))
        parts = [SASL_HEADER, encode_frame(0, body, frame_type=1), AMQP_HEADER]
    opening = Open("peer", "host", rng.choice((511, 512, 4096, 0xFFFFFFFF)), 7, rng.choice((None, 0, 1, 5000)))
    opening.properties = {Symbol("product"): "fuzz", Symbol("list"): [1, 2, {"a": b"b"}]}
    for performative in (opening, Begin(None, 0, 10, 10), *(legal_frame(rng)[0] for _ in range(rng.randrange(5)))):
        body = encode_performative(performative)
        if rng.random() < 0.2:
            body = mutated_fields(rng, performative)
        parts.append(encode_frame(0, body))
    if rng.random() < 0.2:
        rng.shuffle(parts)
    stream = b"".join(parts)
    return mutate_octets(rng, stream) if rng.random() < 0.7 else stream


# --- one run ----------------------------------------------------------------------------------------------------------


def feed(owner: Owner, stream: bytes, rng: random.Random) -> int:
    """Give a stream to an engine in pieces and check what must always hold; return the bytes the engine wrote.

    No exception may come out, whatever is written must be legal AMQP, output and events stay in proportion to the
    input, and the connection lives or has ended with exactly one event that says so.
    """
    engine = owner.engine
    written = b""
    size = rng.choice((1, 3, 40, 1 << 20))
    for start in range(0, len(stream), size):
        engine.receive_data(stream[start : start + size], 0.0)
        owner.act()
        written += engine.data_to_send()
    if rng.random() < 0.2:
        engine.handle_timer(100.0)
        owner.act()
        written += engine.data_to_send()
    ended = engine.state is ConnectionState.ENDED
    assert len(owner.ends) == ended
    deadline = engine.next_deadline()
    assert (deadline is None) == ended
    _check_frames(_without_sasl(written))
    # The owner above sends up to 40 messages of 3000 bytes; one attach in brings up to two frames out.
    assert len(written) < 150_000 + 60 * len(stream)
    assert owner.events < 20 + len(stream)
    return len(written)


def _check_frames(written: bytes) -> None:
    """What an engine wrote must be whole frames that can be read."""
    parser = FrameParser(1 << 30)
    parser.feed(written.removeprefix(AMQP_HEADER))
    while (cut := parser.next_frame()) is not None:
        _, _, data, start, end = cut
        if start < end:
            decode_performative(data, start, end)
    assert not parser.buffered


def _without_sasl(written: bytes) -> bytes:
    """Cut SASL header and frames off the engine's output."""
    if not written.startswith(SASL_HEADER):
        return written
    start = written.find(AMQP_HEADER)
    return b"" if start < 0 else written[start:]


def fresh(rng: random.Random) -> tuple[Owner, bool]:
    """An engine at its very start, with or without a SASL layer."""
    choice = rng.randrange(4)
    sasl = choice >= 2
    if choice == 0:
        engine = Connection(Role.SERVER, container_id="engine")
    elif choice == 1:
        engine = Connection(Role.CLIENT, container_id="engine")
    elif choice == 2:
        verify = rng.random() < 0.7
        server = SaslServer({"PLAIN", "ANONYMOUS"}, lambda _user, _password: verify, allow_no_sasl=rng.random() < 0.5)
        engine = Connection(Role.SERVER, container_id="engine", sasl=server)
    else:
        engine = Connection(Role.CLIENT, container_id="engine", sasl=SaslClient())
    if engine.role is Role.CLIENT:
        engine.open()
        engine.begin().attach_sender("out", source=Source(), target=Target("t"), unsettled={})
    return Owner(engine, rng), sasl
