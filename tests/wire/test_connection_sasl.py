"""Protocol headers and SASL in front of a connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from oncewire.wire import ConnectionLost, ConnectionOpened, ConnectionState, SaslClient, SaslOutcome, SaslServer
from oncewire.wire.frames import AMQP_HEADER, HEARTBEAT_FRAME, SASL_HEADER
from tests.support.engines import RawPeer, joined, one, only, single_bytes


def knows(user: str, password: str) -> bool:
    return (user, password) == ("ann", "secret")


def plain() -> SaslServer:
    return SaslServer({"PLAIN"}, knows)


@pytest.mark.parametrize("cut", [None, single_bytes])
@pytest.mark.parametrize(("mechanism", "user"), [("ANONYMOUS", None), ("PLAIN", "ann")])
def test_a_login_lets_the_connection_open(
    mechanism: str, user: str | None, cut: Callable[[bytes], Iterator[bytes]] | None
) -> None:
    client = SaslClient(mechanism, user, "secret" if user else None)
    pipe = joined(client_sasl=client, server_sasl=SaslServer({"ANONYMOUS", "PLAIN"}, knows), cut=cut)
    pipe.client.open()
    pipe.client.begin()
    pipe.run()
    assert one(pipe.at_server, SaslOutcome) == SaslOutcome(True, mechanism, user)
    assert one(pipe.at_client, SaslOutcome).ok
    assert len(only(pipe.at_client, ConnectionOpened)) == len(only(pipe.at_server, ConnectionOpened)) == 1
    assert len(pipe.server.sessions) == 1


def test_a_wrong_password_loses_the_connection_before_open() -> None:
    pipe = joined(client_sasl=SaslClient("PLAIN", "ann", "wrong"), server_sasl=plain())
    pipe.client.open()
    pipe.run()
    for heard in (pipe.at_client, pipe.at_server):
        assert not one(heard, SaslOutcome).ok
        lost = one(heard, ConnectionLost)
        assert lost.error is not None
        assert lost.error.condition == "amqp:unauthorized-access"
        assert not only(heard, ConnectionOpened)


def test_a_mechanism_that_is_not_offered_loses_the_connection() -> None:
    pipe = joined(client_sasl=SaslClient("ANONYMOUS"), server_sasl=plain())
    pipe.client.open()
    pipe.run()
    lost = one(pipe.at_client, ConnectionLost)
    assert lost.error is not None
    assert "does not offer ANONYMOUS" in str(lost.error.description)


def test_a_plain_header_is_taken_only_where_allowed() -> None:
    allowed = joined(server_sasl=SaslServer({"PLAIN"}, knows, allow_no_sasl=True))
    allowed.client.open()
    allowed.run()
    assert one(allowed.at_server, ConnectionOpened).open.container_id == "client"
    refused = joined(server_sasl=plain())
    refused.client.open()
    data = refused.client.data_to_send()
    refused.server.receive_data(data, 0.0)
    assert refused.server.data_to_send() == SASL_HEADER
    assert one(refused.server.events(), ConnectionLost).error is not None
    assert refused.server.state is ConnectionState.ENDED


def test_sasl_toward_a_server_without_it_is_answered_with_the_header_it_wants() -> None:
    pipe = joined(client_sasl=SaslClient("ANONYMOUS"))
    pipe.client.open()
    pipe.server.receive_data(pipe.client.data_to_send(), 0.0)
    answer = pipe.server.data_to_send()
    assert answer == AMQP_HEADER
    pipe.client.receive_data(answer, 0.0)
    assert one(pipe.client.events(), ConnectionLost).error is not None


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"\x00"]
)
def test_another_protocol_gets_our_header_and_nothing_else(first: bytes) -> None:
    peer = RawPeer()
    peer.engine.receive_data(first, 0.0)
    assert peer.engine.data_to_send() == AMQP_HEADER
    lost = one(peer.engine.events(), ConnectionLost)
    assert lost.error is not None
    assert lost.error.condition == "amqp:connection:framing-error"


def test_nothing_but_headers_goes_out_before_the_login_is_done() -> None:
    pipe = joined(client_sasl=SaslClient("ANONYMOUS"))
    pipe.client.open()
    pipe.client.begin()
    assert pipe.client.data_to_send() == SASL_HEADER


def test_a_close_while_the_login_is_going_on_leaves_nothing_behind() -> None:
    pipe = joined(client_sasl=SaslClient("ANONYMOUS"), server_sasl=SaslServer())
    pipe.client.open()
    pipe.client.begin()
    pipe.client.close()
    pipe.run()
    assert pipe.client.state is pipe.server.state is ConnectionState.ENDED


def test_an_amqp_frame_inside_the_sasl_layer_loses_the_connection() -> None:
    pipe = joined(server_sasl=SaslServer())
    pipe.server.receive_data(SASL_HEADER + HEARTBEAT_FRAME, 0.0)
    lost = one(pipe.server.events(), ConnectionLost)
    assert lost.error is not None
    assert lost.error.condition == "amqp:connection:framing-error"
