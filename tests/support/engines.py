"""Wire engines without sockets: two joined by an in-memory pipe, or one facing a peer that writes frames by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from oncewire.wire import (
    Attach,
    Begin,
    Close,
    Connection,
    ConnectionLost,
    ConnectionState,
    Event,
    Flow,
    Open,
    Performative,
    ReceiverLink,
    Role,
    SaslClient,
    SaslServer,
    SenderLink,
    Source,
    Target,
    Transfer,
    decode_performative,
    encode_performative,
)
from oncewire.wire.frames import AMQP_HEADER, SASL_HEADER, FrameParser, encode_frame

E = TypeVar("E")

# More rounds than any test needs: two engines that never fall silent are a defect.
MAX_ROUNDS = 100_000


def only(events: list[Event], kind: type[E]) -> list[E]:
    """The events of one kind, in order."""
    return [event for event in events if isinstance(event, kind)]


def one(events: list[Event], kind: type[E]) -> E:
    """The single event of one kind."""
    (event,) = only(events, kind)
    return event


class Pipe:
    """Two engines; what one writes the other reads, whole or in the pieces that ``cut`` makes of it."""

    def __init__(
        self,
        client: Connection | None = None,
        server: Connection | None = None,
        cut: Callable[[bytes], Iterator[bytes]] | None = None,
    ) -> None:
        self.client = client or Connection(Role.CLIENT, container_id="client")
        self.server = server or Connection(Role.SERVER, container_id="server")
        self.cut = cut
        self.now = 0.0
        # What each side has heard since the test last cleared it.
        self.at_client: list[Event] = []
        self.at_server: list[Event] = []

    def _carry(self, writer: Connection, reader: Connection, heard: list[Event]) -> bool:
        data = writer.data_to_send()
        for piece in self.cut(data) if self.cut and data else [data]:
            reader.receive_data(piece, self.now)
            heard.extend(reader.events())
        return bool(data)

    def run(self) -> None:
        """Carry bytes both ways until both sides are silent."""
        self.at_client.extend(self.client.events())
        self.at_server.extend(self.server.events())
        for _ in range(MAX_ROUNDS):
            up = self._carry(self.client, self.server, self.at_server)
            down = self._carry(self.server, self.client, self.at_client)
            if not up and not down:
                return
        raise AssertionError("the engines never fall silent")

    def hear_client(self) -> list[Event]:
        """Run, and return what the client heard since the last time."""
        self.run()
        heard = self.at_client.copy()
        self.at_client.clear()
        return heard

    def hear_server(self) -> list[Event]:
        """Run, and return what the server heard since the last time."""
        self.run()
        heard = self.at_server.copy()
        self.at_server.clear()
        return heard

    def forget(self) -> None:
        """Run, and drop what was heard."""
        self.run()
        self.at_client.clear()
        self.at_server.clear()

    def link_to_server(self, name: str = "link", credit: int = 100, **options: Any) -> tuple[SenderLink, ReceiverLink]:
        """A link from client to server with credit; on the client's first session, begun if need be."""
        if not self.client.sessions:
            self.client.open()
            self.client.begin()
        sender = self.client.sessions[0].attach_sender(name, source=Source(), target=Target("t"), **options)
        self.run()
        receiver = next(
            link
            for link in self.server.sessions[0].links
            if link.name == name and isinstance(link, ReceiverLink) and link.local_attach is None
        )
        receiver.reply(source=Source(), target=Target("t"))
        receiver.grant(credit)
        self.forget()
        return sender, receiver

    def link_to_client(self, name: str = "link", credit: int = 100, **options: Any) -> tuple[SenderLink, ReceiverLink]:
        """A link from server to client that the client attached, with credit."""
        if not self.client.sessions:
            self.client.open()
            self.client.begin()
        receiver = self.client.sessions[0].attach_receiver(name, source=Source("t"), target=Target(), **options)
        self.run()
        sender = next(
            link
            for link in self.server.sessions[0].links
            if link.name == name and isinstance(link, SenderLink) and link.local_attach is None
        )
        sender.reply(source=Source("t"), target=Target())
        receiver.grant(credit)
        self.forget()
        return sender, receiver


def joined(
    *,
    client_sasl: SaslClient | None = None,
    server_sasl: SaslServer | None = None,
    both: dict[str, Any] | None = None,
    client: dict[str, Any] | None = None,
    server: dict[str, Any] | None = None,
    cut: Callable[[bytes], Iterator[bytes]] | None = None,
) -> Pipe:
    """A pipe between engines with options for ``Connection``."""
    shared = both or {}
    return Pipe(
        Connection(Role.CLIENT, container_id="client", sasl=client_sasl, **{**shared, **(client or {})}),
        Connection(Role.SERVER, container_id="server", sasl=server_sasl, **{**shared, **(server or {})}),
        cut,
    )


def single_bytes(data: bytes) -> Iterator[bytes]:
    """Cut into bytes."""
    for index in range(len(data)):
        yield data[index : index + 1]


def frame(performative: Performative, payload: bytes = b"", channel: int = 0) -> bytes:
    """One AMQP frame."""
    return encode_frame(channel, encode_performative(performative), payload)


def read_frames(data: bytes) -> list[tuple[int, Performative, bytes]]:
    """What an engine wrote, headers and heartbeats left out: (channel, performative, payload)."""
    for header in (SASL_HEADER, AMQP_HEADER):
        data = data.removeprefix(header)
    parser = FrameParser(1 << 30)
    parser.feed(data)
    frames: list[tuple[int, Performative, bytes]] = []
    while (cut := parser.next_frame()) is not None:
        channel, _, buf, pos, end = cut
        if pos < end:
            performative, payload = decode_performative(buf, pos, end)
            frames.append((channel, performative, buf[payload:end]))
    assert not parser.buffered
    return frames


class RawPeer:
    """A peer of one engine that sends whatever a test wants, legal or not."""

    def __init__(self, engine: Connection | None = None, **open_fields: Any) -> None:
        self.engine = engine or Connection(Role.SERVER, container_id="engine")
        self.heard: list[Event] = []
        self.open_fields = open_fields

    def write(self, data: bytes) -> list[Performative]:
        """Give bytes to the engine and return what it answers."""
        self.engine.receive_data(data, 0.0)
        self.heard.extend(self.engine.events())
        return self.read()

    def send(self, performative: Performative, payload: bytes = b"", channel: int = 0) -> list[Performative]:
        """Give a frame to the engine and return what it answers."""
        return self.write(frame(performative, payload, channel))

    def read(self) -> list[Performative]:
        """What the engine has written."""
        return [performative for _, performative, _ in read_frames(self.engine.data_to_send())]

    def open(self) -> None:
        """Exchange headers and opens."""
        self.write(AMQP_HEADER + frame(Open("peer", **self.open_fields)))

    def begin(self, incoming_window: int = 1 << 20) -> None:
        """Open, and begin a session on channel 0."""
        self.open()
        self.send(Begin(None, 0, incoming_window, 1 << 20))

    def attach_as_sender(
        self,
        credit: int,
        name: str = "link",
        handle: int = 0,
        max_message_size: int | None = None,
        rcv_settle_mode: int = 1,
    ) -> ReceiverLink:
        """Attach a link on which the peer sends, and take the engine's answer and credit."""
        self.send(Attach(name, handle, False, 0, rcv_settle_mode, Source(), Target("t"), initial_delivery_count=0))
        link = self.engine.sessions[0].links[-1]
        assert isinstance(link, ReceiverLink)
        link.reply(source=Source(), target=Target("t"), max_message_size=max_message_size)
        link.grant(credit)
        self.read()
        self.heard.clear()
        return link

    def attach_as_receiver(self, credit: int, name: str = "link", handle: int = 0) -> SenderLink:
        """Attach a link on which the peer receives, and give it credit."""
        self.send(Attach(name, handle, True, 0, 1, Source("t"), Target()))
        link = self.engine.sessions[0].links[-1]
        assert isinstance(link, SenderLink)
        link.reply(source=Source("t"), target=Target())
        self.send(Flow(0, 1 << 20, 0, 1 << 20, handle, 0, credit))
        self.read()
        self.heard.clear()
        return link

    def transfer(self, number: int, payload: bytes = b"body", **fields: Any) -> list[Performative]:
        """Send one transfer frame on handle 0."""
        return self.send(Transfer(0, number, b"tag-%d" % number, 0, **fields), payload)


def only_transfers(answers: list[Performative]) -> list[Transfer]:
    """The transfers among the answers."""
    return [answer for answer in answers if isinstance(answer, Transfer)]


def closed_window(others: int = 0) -> tuple[RawPeer, SenderLink, list[int]]:
    """An engine with one transfer out and two waiting for the window; on other links, handles 1 and up, nothing is."""
    peer = RawPeer()
    peer.begin(incoming_window=1)
    link = peer.attach_as_receiver(0)
    for handle in range(1, others + 1):
        peer.attach_as_receiver(10, f"link{handle}", handle)
    peer.send(Flow(0, 1, 0, 1, 0, 0, 10))
    ids = [link.send(b"%d" % number, b"body") for number in range(3)]
    assert len(only_transfers(peer.read())) == 1
    return peer, link, ids


def condition_of(answers: list[Performative], kind: type[Any]) -> str | None:
    """The error condition of the only frame of one kind among the answers."""
    (found,) = [answer for answer in answers if isinstance(answer, kind)]
    assert found.error is not None
    return str(found.error.condition)


def is_closed_with(peer: RawPeer, answers: list[Performative], condition: str) -> bool:
    """Whether the engine closed the connection for this reason and says so to its owner."""
    lost = one(peer.heard, ConnectionLost)
    return (
        peer.engine.state is ConnectionState.ENDED
        and condition_of(answers, Close) == condition
        and lost.error is not None
        and lost.error.condition == condition
    )
