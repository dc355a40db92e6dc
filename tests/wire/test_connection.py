"""Open, close, negotiation limits and faults of a connection."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.wire import (
    ACCEPTED,
    NOT_FOUND,
    AmqpError,
    Begin,
    Close,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOpened,
    ConnectionState,
    DeliveryReceived,
    Described,
    DispositionReceived,
    Flow,
    LimitError,
    LinkAttached,
    Open,
    Role,
    SessionBegun,
    Source,
    StateError,
    Symbol,
    Target,
    ULong,
    encode,
)
from oncewire.wire.frames import AMQP_HEADER, MIN_MAX_FRAME_SIZE, encode_frame
from tests.support.engines import (
    Pipe,
    RawPeer,
    condition_of,
    frame,
    is_closed_with,
    joined,
    one,
    only,
    read_frames,
    single_bytes,
)

FORCED = AmqpError(Symbol("amqp:connection:forced"), "maintenance")


def test_both_ends_learn_the_other_open() -> None:
    pipe = joined(client={"hostname": "example", "desired_capabilities": ["c"], "properties": {Symbol("p"): 1}})
    pipe.client.open()
    pipe.run()
    assert one(pipe.at_client, ConnectionOpened).open.container_id == "server"
    heard = one(pipe.at_server, ConnectionOpened).open
    assert (heard.container_id, heard.hostname) == ("client", "example")
    assert heard.desired_capabilities == (Symbol("c"),)
    assert heard.properties == {Symbol("p"): 1}
    assert pipe.client.remote_container_id == "server"
    assert pipe.client.state is pipe.server.state is ConnectionState.OPENED


def test_half_of_the_idle_time_out_is_advertised() -> None:
    pipe = joined(client={"idle_time_out_ms": 5000}, server={"idle_time_out_ms": 0})
    pipe.client.open()
    pipe.run()
    assert one(pipe.at_server, ConnectionOpened).open.idle_time_out == 2500
    assert one(pipe.at_client, ConnectionOpened).open.idle_time_out is None


def test_open_begin_and_attach_go_out_in_one_write_and_are_answered_in_order() -> None:
    pipe = Pipe()
    pipe.client.open()
    pipe.client.begin().attach_sender("link", source=Source(), target=Target("t"), unsettled={})
    pipe.server.receive_data(pipe.client.data_to_send(), 0.0)
    assert [type(event) for event in pipe.server.events()] == [ConnectionOpened, SessionBegun, LinkAttached]
    assert [type(performative) for _, performative, _ in read_frames(pipe.server.data_to_send())] == [Open, Begin]


def exchange(pipe: Pipe) -> list[object]:
    """A whole life of a connection; returns what both sides heard, as plain values."""
    sender, receiver = pipe.link_to_server()
    for number in range(3):
        sender.send(b"%d" % number, b"body" * 100 * number)
    deliveries = only(pipe.hear_server(), DeliveryReceived)
    receiver.dispose([delivery.delivery_id for delivery in deliveries], ACCEPTED, False)
    reported = one(pipe.hear_client(), DispositionReceived)
    sender.settle([number for number, _ in reported.deliveries])
    settled = one(pipe.hear_server(), DispositionReceived)
    pipe.client.close()
    return [
        [(delivery.tag, delivery.payload) for delivery in deliveries],
        reported.deliveries,
        settled.deliveries,
        one(pipe.hear_server(), ConnectionClosed).error,
    ]


def test_single_bytes_mean_the_same_as_whole_writes() -> None:
    assert exchange(Pipe(cut=single_bytes)) == exchange(Pipe())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_pieces_of_any_size_mean_the_same_as_whole_writes(seed: int) -> None:
    rng = random.Random(seed)

    def cut(data: bytes) -> Iterator[bytes]:
        while data:
            size = rng.choice((1, 2, 7, 8, 9, 64, 513))
            yield data[:size]
            data = data[size:]

    assert exchange(Pipe(cut=cut)) == exchange(Pipe())


def test_nothing_over_512_bytes_goes_out_before_the_limit_of_the_peer_is_known() -> None:
    pipe = Pipe()
    pipe.client.open()
    unsettled = {b"%032d" % number: ACCEPTED for number in range(40)}
    session = pipe.client.begin()
    session.attach_sender("large", source=Source(), target=Target("t"), unsettled=dict(unsettled))
    session.attach_sender("small", source=Source(), target=Target("t"))
    first = pipe.client.data_to_send()
    assert [type(performative) for _, performative, _ in read_frames(first)] == [Open, Begin]
    pipe.server.receive_data(first, 0.0)
    pipe.run()
    attached = only(pipe.at_server, LinkAttached)
    assert [event.link.name for event in attached] == ["large", "small"]
    assert attached[0].link.remote_attach is not None
    assert attached[0].link.remote_attach.unsettled == unsettled


def test_an_early_frame_over_the_limit_of_the_peer_ends_the_connection() -> None:
    pipe = joined(server={"max_frame_size": 512})
    pipe.client.open()
    unsettled = {b"%032d" % number: ACCEPTED for number in range(40)}
    pipe.client.begin().attach_sender("large", source=Source(), target=Target("t"), unsettled=dict(unsettled))
    pipe.run()
    lost = one(pipe.at_client, ConnectionLost)
    assert lost.error is not None
    assert lost.error.condition == "amqp:frame-size-too-small"
    closed = one(pipe.at_server, ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:frame-size-too-small"


def test_an_open_over_512_bytes_is_a_local_error() -> None:
    pipe = joined(client={"properties": {Symbol("p"): "x" * 600}})
    with pytest.raises(LimitError):
        pipe.client.open()
    assert pipe.client.data_to_send() == b""


# --- end --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_client", [True, False])
@pytest.mark.parametrize("error", [None, FORCED])
def test_close_carries_its_error_and_ends_both_sides(by_client: bool, error: AmqpError | None) -> None:
    pipe = Pipe()
    pipe.link_to_server()
    (pipe.client if by_client else pipe.server).close(error)
    pipe.run()
    ours, theirs = (pipe.at_client, pipe.at_server) if by_client else (pipe.at_server, pipe.at_client)
    assert one(theirs, ConnectionClosed).error == error
    assert one(ours, ConnectionClosed).error is None
    assert pipe.client.state is pipe.server.state is ConnectionState.ENDED


def test_closes_that_cross_end_both_sides() -> None:
    pipe = Pipe()
    pipe.link_to_server()
    pipe.client.close()
    pipe.server.close()
    pipe.run()
    assert len(only(pipe.at_client, ConnectionClosed)) == len(only(pipe.at_server, ConnectionClosed)) == 1


def test_a_pipelined_close_is_answered() -> None:
    pipe = Pipe()
    pipe.client.open()
    pipe.client.begin()
    pipe.client.close(FORCED)
    pipe.run()
    assert one(pipe.at_server, ConnectionClosed).error == FORCED
    assert one(pipe.at_client, ConnectionClosed).error is None


def test_input_behind_our_close_is_ignored() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    peer.engine.close(FORCED)
    assert condition_of(peer.read(), Close) == "amqp:connection:forced"
    peer.heard.clear()
    assert peer.transfer(0) == []
    assert peer.send(Flow(0, 1, 0, 1, echo=True)) == []
    assert not peer.heard
    peer.send(Close())
    assert one(peer.heard, ConnectionClosed).error is None
    assert peer.write(b"garbage") == []


def test_commands_on_a_dead_connection_are_local_errors() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    session = pipe.client.sessions[0]
    pipe.client.close()
    commands: list[Callable[[], object]] = [
        pipe.client.open,
        pipe.client.close,
        pipe.client.begin,
        session.end,
        lambda: sender.send(b"t", b""),
        lambda: sender.settle([0]),
        sender.flow,
        sender.drained,
        lambda: sender.detach(False),
        lambda: session.attach_sender("x"),
        lambda: receiver.grant(1),
        lambda: receiver.dispose([0], ACCEPTED, True),
    ]
    pipe.run()
    for command in commands:
        with pytest.raises(StateError):
            command()
    assert session.links == [sender]


def test_the_end_of_the_transport_loses_the_connection_once() -> None:
    pipe = Pipe()
    pipe.link_to_server()
    pipe.client.receive_eof(1.0)
    pipe.client.receive_eof(2.0)
    assert one(pipe.client.events(), ConnectionLost).error is None
    assert pipe.client.next_deadline() is None


def test_close_before_open_ends_without_a_word() -> None:
    engine = Connection(Role.CLIENT, container_id="c")
    engine.close()
    assert engine.state is ConnectionState.ENDED
    assert engine.data_to_send() == b""
    assert engine.events() == []


# --- limits -----------------------------------------------------------------------------------------------------------


def test_sessions_are_limited_by_the_channel_max_of_either_end() -> None:
    for limits in ({"client": {"channel_max": 1}}, {"server": {"channel_max": 1}}):
        pipe = joined(**limits)  # type: ignore[arg-type]
        pipe.client.open()
        pipe.run()
        sessions = [pipe.client.begin() for _ in range(2)]
        with pytest.raises(LimitError):
            pipe.client.begin()
        pipe.run()
        assert len(only(pipe.at_client, SessionBegun)) == len(only(pipe.at_server, SessionBegun)) == 2
        sessions[0].end()
        pipe.run()
        assert pipe.client.begin().channel == 0


def test_only_one_session_is_begun_before_the_peer_has_opened() -> None:
    engine = Connection(Role.CLIENT, container_id="c")
    with pytest.raises(StateError):
        engine.begin()
    engine.open()
    engine.begin()
    with pytest.raises(StateError):
        engine.begin()


def test_a_channel_over_our_limit_is_a_framing_error() -> None:
    peer = RawPeer(Connection(Role.SERVER, container_id="e", channel_max=3))
    peer.open()
    answers = peer.send(Begin(None, 0, 1, 1), channel=4)
    assert is_closed_with(peer, answers, "amqp:connection:framing-error")


def test_an_open_on_another_channel_than_0_is_a_framing_error() -> None:  # 2.4.1
    peer = RawPeer()
    answers = peer.write(AMQP_HEADER + frame(Open("peer"), channel=1))
    assert is_closed_with(peer, answers, "amqp:connection:framing-error")


def test_a_close_is_taken_on_any_channel() -> None:  # 2.4.3
    peer = RawPeer()
    peer.begin()
    assert peer.send(Close(), channel=3) == [Close()]
    assert one(peer.heard, ConnectionClosed).error is None


@pytest.mark.parametrize("numbers", [{"max_frame_size": 511}, {"channel_max": 65536}, {"incoming_window": 0}])
def test_illegal_settings_are_local_errors(numbers: dict[str, int]) -> None:
    with pytest.raises(LimitError):
        Connection(Role.CLIENT, container_id="c", **numbers)  # type: ignore[arg-type]


# --- faults of the peer -----------------------------------------------------------------------------------------------

DECODE = "amqp:decode-error"
FRAMING = "amqp:connection:framing-error"
ILLEGAL = "amqp:illegal-state"


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (bytes(8), FRAMING),  # a frame of size 0
        (b"\x00\x00\x00\x07\x02\x00\x00\x00", FRAMING),
        (b"\x00\x10\x00\x01\x02\x00\x00\x00", FRAMING),  # one byte over max-frame-size
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", FRAMING),  # data offset inside the header
        (b"\x00\x00\x00\x08\x03\x00\x00\x00", FRAMING),  # data offset behind the frame
        (b"\x00\x00\x00\x08\x02\x07\x00\x00", FRAMING),  # unknown type
        (b"\x00\x00\x00\x08\x02\x01\x00\x00", FRAMING),  # SASL frame
        (encode_frame(0, b"\x00\x53\x10\x45"), DECODE),  # open without a container-id
        (encode_frame(0, b"\x00\x53\x99\x45"), DECODE),
        (encode_frame(0, b"\x45"), DECODE),
        (encode_frame(0, b"\x00\x53\x14\xc0\xff\x01\x43"), DECODE),
        (frame(Open("again")), ILLEGAL),
        (frame(Begin(None, 0, 1, 1)), ILLEGAL),
        (frame(Begin(7, 0, 1, 1), channel=1), "amqp:invalid-field"),
        (frame(Flow(0, 1, 0, 1), channel=5), ILLEGAL),
    ],
)
def test_a_fault_closes_the_connection_with_its_condition(data: bytes, condition: str) -> None:
    peer = RawPeer()
    peer.begin()
    answers = peer.write(data)
    assert is_closed_with(peer, answers, condition)
    assert peer.write(data) == []


def test_a_fault_before_open_is_answered_with_open_and_close() -> None:
    peer = RawPeer()
    answers = peer.write(AMQP_HEADER + frame(Begin(None, 0, 1, 1)))
    assert [type(answer) for answer in answers] == [Open, Close]
    assert is_closed_with(peer, answers, ILLEGAL)


def test_a_max_frame_size_below_512_is_refused() -> None:
    peer = RawPeer()
    answers = peer.write(AMQP_HEADER + frame(Open("peer", max_frame_size=511)))
    assert is_closed_with(peer, answers, "amqp:invalid-field")


def test_a_client_goes_by_the_least_frame_size_where_a_server_states_less_and_learns_why_it_is_closed() -> None:
    """Broker-J states 0 when it refuses the virtual host: its close behind that says so."""
    peer = RawPeer(Connection(Role.CLIENT, container_id="c"))
    peer.engine.open()
    refused = Close(AmqpError(NOT_FOUND, "no such host"))
    peer.write(AMQP_HEADER + frame(Open("broker", max_frame_size=0)) + frame(refused))
    assert peer.engine.send_frame_size == MIN_MAX_FRAME_SIZE
    closed = one(peer.heard, ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == NOT_FOUND


def test_more_heartbeats_than_we_keep_up_are_refused() -> None:
    peer = RawPeer()
    answers = peer.write(AMQP_HEADER + frame(Open("peer", idle_time_out=1)))
    assert is_closed_with(peer, answers, "amqp:not-allowed")


def test_unknown_fields_at_the_end_of_a_performative_are_ignored() -> None:
    peer = RawPeer()
    fields: list[object] = ["peer", *[None] * 9, "later", {"more": [1, 2]}]
    answers = peer.write(AMQP_HEADER + encode_frame(0, encode(Described(ULong(0x10), fields))))
    assert [type(answer) for answer in answers] == [Open]
    assert one(peer.heard, ConnectionOpened).open.container_id == "peer"


def test_the_longer_form_of_a_transfer_is_understood() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(1)
    transfer = Described(Symbol("amqp:transfer:list"), [ULong(0), ULong(0), b"t"])
    peer.write(encode_frame(0, encode(transfer), b"body"))
    assert one(peer.heard, DeliveryReceived).payload == b"body"


def test_a_long_text_from_the_peer_does_not_come_back_in_the_close() -> None:
    peer = RawPeer(max_frame_size=512)
    peer.open()
    answers = peer.write(encode_frame(0, encode(Described(Symbol("x" * 5000), []))))
    assert is_closed_with(peer, answers, DECODE)


def test_a_large_frame_in_small_pieces_costs_no_more_than_its_bytes() -> None:
    peer = RawPeer()
    peer.begin()
    data = (1 << 20).to_bytes(4, "big") + b"\x02\x00\x00\x00"
    peer.write(data)
    for _ in range(1000):
        peer.write(b"x" * 1000)
    assert peer.engine.state is ConnectionState.OPENED
    assert not only(peer.heard, ConnectionLost)
