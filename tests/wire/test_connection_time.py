"""Heartbeats and idle time-outs in virtual time (AMQP 1.0 section 2.4.5)."""

from __future__ import annotations

from oncewire.wire import Close, Connection, ConnectionLost, ConnectionState, Role, SaslClient, SaslServer
from oncewire.wire.frames import AMQP_HEADER, HEARTBEAT_FRAME
from tests.support.engines import Pipe, RawPeer, condition_of, joined, one, read_frames


def drive(pipe: Pipe, seconds: float) -> None:
    """Let time pass for both ends, waking each at its deadlines only."""
    end = pipe.now + seconds
    while True:
        due = [side.next_deadline() for side in (pipe.client, pipe.server)]
        at = min((deadline for deadline in due if deadline is not None), default=end)
        if at > end:
            break
        pipe.now = at
        pipe.client.handle_timer(at)
        pipe.server.handle_timer(at)
        pipe.run()
    pipe.now = end


def test_heartbeats_keep_a_silent_connection_alive() -> None:
    pipe = joined(both={"idle_time_out_ms": 1000})
    pipe.link_to_server()
    drive(pipe, 3600.0)
    assert pipe.client.state is pipe.server.state is ConnectionState.OPENED


def test_a_heartbeat_goes_out_after_half_of_the_time_out_of_the_peer() -> None:
    peer = RawPeer(Connection(Role.SERVER, container_id="e", idle_time_out_ms=0), idle_time_out=4000)
    peer.open()
    engine = peer.engine
    assert engine.next_deadline() == 2.0
    engine.handle_timer(1.9)
    assert engine.data_to_send() == b""
    engine.handle_timer(2.0)
    assert engine.data_to_send() == HEARTBEAT_FRAME
    assert engine.next_deadline() == 4.0


def test_what_is_sent_anyway_stands_in_for_a_heartbeat() -> None:
    peer = RawPeer(Connection(Role.SERVER, container_id="e", idle_time_out_ms=0), idle_time_out=4000)
    peer.open()
    peer.engine.receive_data(HEARTBEAT_FRAME, 1.5)
    peer.engine.begin()
    assert peer.engine.data_to_send()
    assert peer.engine.next_deadline() == 3.5


def test_the_connection_to_a_silent_peer_is_closed_with_a_reason() -> None:
    peer = RawPeer(Connection(Role.SERVER, container_id="e", idle_time_out_ms=1000))
    peer.open()
    engine = peer.engine
    assert engine.next_deadline() == 1.0
    engine.receive_data(HEARTBEAT_FRAME, 0.8)
    assert engine.next_deadline() == 1.8
    engine.handle_timer(1.8)
    assert condition_of(peer.read(), Close) == "amqp:resource-limit-exceeded"
    lost = one(engine.events(), ConnectionLost)
    assert lost.error is not None
    assert "idle time-out" in str(lost.error.description)
    assert engine.next_deadline() is None
    engine.handle_timer(100.0)
    assert engine.events() == []


def test_a_peer_that_never_says_anything_is_given_up() -> None:
    engine = Connection(Role.SERVER, container_id="e", idle_time_out_ms=1000, now=50.0)
    assert engine.next_deadline() == 51.0
    engine.handle_timer(51.0)
    assert one(engine.events(), ConnectionLost).error is not None
    assert engine.data_to_send() == b""


def test_a_peer_that_does_not_answer_our_close_is_given_up_whatever_else_it_sends() -> None:
    peer = RawPeer(Connection(Role.SERVER, container_id="e", idle_time_out_ms=1000))
    peer.open()
    peer.engine.close()
    peer.read()
    peer.engine.receive_data(HEARTBEAT_FRAME, 0.9)
    assert peer.engine.next_deadline() == 1.0
    peer.engine.handle_timer(1.0)
    assert peer.engine.state is ConnectionState.ENDED
    assert peer.engine.data_to_send() == b""


def test_without_time_outs_there_is_no_deadline() -> None:
    engine = Connection(Role.CLIENT, container_id="c", idle_time_out_ms=0)
    engine.open()
    assert engine.next_deadline() is None
    assert engine.data_to_send().startswith(AMQP_HEADER)
    assert read_frames(engine.data_to_send()) == []


def test_a_server_may_think_about_a_login_for_longer_than_the_idle_time_out_and_not_before() -> None:
    """RabbitMQ answers a wrong password after 3 s."""
    client = Connection(Role.CLIENT, container_id="c", idle_time_out_ms=1000, sasl=SaslClient("PLAIN", "ann", "wrong"))
    server = Connection(Role.SERVER, container_id="s", sasl=SaslServer(["PLAIN"], verify=lambda user, password: True))
    client.open()
    assert client.next_deadline() == 1.0
    server.receive_data(client.data_to_send(), 0.5)
    client.receive_data(server.data_to_send(), 0.5)
    assert client.next_deadline() == 30.5
    client.handle_timer(30.0)
    assert client.state is not ConnectionState.ENDED
    server.receive_data(client.data_to_send(), 30.0)
    client.receive_data(server.data_to_send(), 30.0)
    assert client.next_deadline() == 31.0
