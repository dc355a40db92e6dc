"""Headers, open, begin, idle time-outs (parts 2.2, 2.4, 2.5.1): scenarios of the protocol test suite, by its names."""

from __future__ import annotations

import pytest

from oncewire.wire import Begin, Close, Open, UShort
from oncewire.wire.errors import DECODE_ERROR, FRAMING_ERROR, INVALID_FIELD, RESOURCE_LIMIT_EXCEEDED
from oncewire.wire.frames import AMQP_HEADER, MIN_MAX_FRAME_SIZE, SASL_HEADER
from tests.conformance.peer import BEGIN, DEADLINE_S, OPEN, Dial, Peer, composite
from tests.conformance.routers import Router
from tests.conformance.websocket import WebSocket


class TestProtocolHeader:
    """2.2: what each end says first."""

    def test_successful_header_exchange(self, dial: Dial) -> None:
        peer = dial()
        peer.header(AMQP_HEADER)
        assert peer.expect_header() == AMQP_HEADER

    def test_unacceptable_protocol_id_sent_sasl_acceptable(self, dial: Dial, guarded_router: Router) -> None:
        peer = dial(guarded_router.port)
        peer.header(AMQP_HEADER)
        assert peer.expect_header() == SASL_HEADER, "2.2: the server answers with an id it takes, and closes"
        peer.expect_gone()


class TestWebSocket:
    """The AMQP WebSocket Binding, at the port for HTTP."""

    def test_protocol_header(self, dial: Dial, router: Router) -> None:
        peer = dial(WebSocket(router.http, DEADLINE_S))
        peer.header(AMQP_HEADER)
        assert peer.expect_header() == AMQP_HEADER

    def test_amqp_frames_split_over_many_web_socket_frames(self, dial: Dial, router: Router) -> None:
        _assert_opens(dial(WebSocket(router.http, DEADLINE_S, split=1)))

    def test_successful_open(self, dial: Dial, router: Router) -> None:
        _assert_opens(dial(WebSocket(router.http, DEADLINE_S)))


def _assert_opens(peer: Peer) -> None:
    reply = peer.open(container_id="testContainerId")
    assert reply.container_id
    assert reply.max_frame_size >= MIN_MAX_FRAME_SIZE
    assert 0 <= reply.channel_max < 0xFFFF
    peer.close()


class TestOpen:
    """2.4.1 and 2.7.1."""

    def test_empty_open(self, dial: Dial) -> None:
        peer = dial()
        peer.header()
        peer.send(composite(OPEN))
        assert peer.expect_header() == AMQP_HEADER
        assert peer.expect(Open).container_id
        error = peer.expect(Close).error
        assert error is not None
        assert error.condition in (DECODE_ERROR, INVALID_FIELD), "1.3.4: container-id is mandatory"
        peer.expect_gone()

    def test_successful_open(self, dial: Dial) -> None:
        _assert_opens(dial())

    def test_empty_frame(self, dial: Dial) -> None:
        peer = dial()
        peer.open()
        peer.heartbeat()
        peer.close()

    def test_idle_timeout(self, dial: Dial) -> None:
        peer = dial()
        peer.open(idle_time_out=500)
        peer.expect_heartbeat()

    def test_fail_open_on_channel_not_zero(self, dial: Dial) -> None:
        peer = dial()
        peer.header()
        peer.send(Open("testContainerId"), channel=1)
        assert peer.expect_header() == AMQP_HEADER
        assert peer.expect(Open).container_id
        error = peer.expect(Close).error
        assert error is not None
        assert error.condition == FRAMING_ERROR, "2.4.1: the open frame can only be sent on channel 0"
        peer.expect_gone()

    @pytest.mark.parametrize("size", [0, 256, MIN_MAX_FRAME_SIZE - 1])
    def test_open_with_max_frame_size_below_minimum(self, dial: Dial, size: int) -> None:
        peer = dial()
        peer.header()
        peer.send_open(max_frame_size=size)
        assert peer.expect_header() == AMQP_HEADER
        peer.expect(Open)
        error = peer.expect(Close).error
        assert error is not None
        assert error.condition == INVALID_FIELD, "2.7.1: no peer takes less than 512 bytes"

    def test_open_with_max_frame_of_minimum(self, dial: Dial) -> None:
        peer = dial()
        reply = peer.open(max_frame_size=MIN_MAX_FRAME_SIZE)
        assert reply.container_id
        peer.begin()
        peer.close()


class TestIdleTimeout:
    """2.4.5."""

    def test_broker_closes_idle_connection(self, dial: Dial, hasty_router: Router) -> None:
        peer = dial(hasty_router.port)
        reply = peer.open()
        assert reply.idle_time_out == 1000, "2.4.5: half of the time after which a silent peer is lost"
        error = peer.expect(Close).error
        assert error is not None
        assert error.condition == RESOURCE_LIMIT_EXCEEDED
        assert "idle" in (error.description or ""), "the error explains why"
        peer.expect_gone()

    def test_idle_line(self, dial: Dial, hasty_router: Router) -> None:
        peer = dial(hasty_router.port)
        assert peer.open(idle_time_out=1000).idle_time_out == 1000
        for _ in range(5):  # more than two seconds, in which only empty frames pass
            peer.expect_heartbeat()
            peer.heartbeat()
        peer.close()


class TestBegin:
    """2.5.1 and 2.7.2."""

    def test_empty_begin(self, dial: Dial) -> None:
        peer = dial()
        peer.open()
        peer.send(composite(BEGIN))
        assert peer.expect_error()[1].condition in (DECODE_ERROR, INVALID_FIELD)

    def test_successful_begin(self, dial: Dial) -> None:
        peer = dial()
        peer.open()
        reply = peer.begin(37)
        assert reply.remote_channel == 37
        assert reply.incoming_window > 0
        assert reply.outgoing_window > 0
        assert reply.next_outgoing_id is not None
        peer.end()
        peer.close()

    def test_channel_max(self, dial: Dial) -> None:
        peer = dial()
        limit = peer.open(channel_max=5).channel_max
        assert limit < 0xFFFF
        peer.send(Begin(None, 0, 1, 1), channel=UShort(limit + 1))
        what, error = peer.expect_error()
        assert (what, error.condition) == (Close, FRAMING_ERROR), "2.7.1: outside what the router takes"
