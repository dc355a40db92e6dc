"""SASL (part 5.3): scenarios of the protocol test suite, by its names."""

from __future__ import annotations

import pytest

from oncewire.wire import Open, SaslCode, Source, Symbol, Target
from oncewire.wire.errors import UNAUTHORIZED_ACCESS
from oncewire.wire.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from oncewire.wire.performatives import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcomeFrame, SaslResponse
from tests.conformance.peer import Dial, Peer, heard
from tests.conformance.routers import GUEST, PASSWORD, USER, Router

PLAIN = Symbol("PLAIN")
RIGHT = f"\0{USER}\0{PASSWORD}".encode()
WRONG = f"\0{USER}\0badpassword".encode()


@pytest.fixture
def peer(dial: Dial) -> Peer:
    """A connection that has heard the mechanisms."""
    found = dial()
    _greet(found)
    return found


def _greet(peer: Peer) -> None:
    peer.header(SASL_HEADER)
    assert peer.expect_header() == SASL_HEADER
    assert PLAIN in peer.expect(SaslMechanisms).sasl_server_mechanisms


def _log_in(peer: Peer, response: bytes = RIGHT) -> None:
    peer.send_sasl(SaslInit(PLAIN, response))
    assert peer.expect(SaslOutcomeFrame).code == SaslCode.OK


class TestSasl:
    """5.3.1 and 5.3.2."""

    def test_sasl_successful_authentication(self, peer: Peer) -> None:
        _log_in(peer)
        peer.header(AMQP_HEADER)
        assert peer.expect_header() == AMQP_HEADER
        peer.send_open()
        peer.expect(Open)
        peer.close()

    def test_sasl_successful_authentication_with_pipelined_frames(self, dial: Dial) -> None:
        peer = dial()
        with peer.pipelined():
            peer.header(SASL_HEADER)
            peer.send_sasl(SaslInit(PLAIN, RIGHT))
            peer.header(AMQP_HEADER)
            peer.send_open()
        assert peer.expect_header() == SASL_HEADER
        assert PLAIN in peer.expect(SaslMechanisms).sasl_server_mechanisms
        assert peer.expect(SaslOutcomeFrame).code == SaslCode.OK
        assert peer.expect_header() == AMQP_HEADER
        peer.expect(Open)
        peer.close()

    def test_sasl_successful_authentication_with_challenge_response(self, peer: Peer) -> None:
        # No mechanism here needs a challenge; PLAIN without an initial response gets an empty one (RFC 4422, 3.4).
        peer.send_sasl(SaslInit(PLAIN))
        assert peer.expect(SaslChallenge).challenge == b""
        peer.send_sasl(SaslResponse(RIGHT))
        assert peer.expect(SaslOutcomeFrame).code == SaslCode.OK
        peer.header(AMQP_HEADER)
        assert peer.expect_header() == AMQP_HEADER

    def test_sasl_unsuccessful_authentication(self, peer: Peer) -> None:
        peer.send_sasl(SaslInit(PLAIN, WRONG))
        assert peer.expect(SaslOutcomeFrame).code == SaslCode.AUTH
        peer.expect_gone()

    def test_unsupported_sasl_mechanism(self, peer: Peer) -> None:
        peer.send_sasl(SaslInit(Symbol("NOT-A-MECHANISM")))
        outcome = peer.expect(SaslOutcomeFrame)
        assert outcome.code == SaslCode.AUTH
        assert outcome.additional_data is None
        peer.expect_gone()

    def test_authentication_bypass_disallowed(self, dial: Dial, guarded_router: Router) -> None:
        peer = dial(guarded_router.port)
        _greet(peer)
        peer.send_open()
        peer.expect_gone()

    def test_client_sends_sasl_mechanisms(self, peer: Peer) -> None:
        peer.send_sasl(SaslMechanisms((Symbol("CLIENT-MECH"),)))
        peer.expect_gone()

    def test_client_sends_sasl_challenge(self, peer: Peer) -> None:
        peer.send_sasl(SaslChallenge(b""))
        peer.expect_gone()

    def test_client_sends_sasl_outcome(self, peer: Peer) -> None:
        peer.send_sasl(SaslOutcomeFrame(SaslCode.OK))
        peer.expect_gone()

    def test_empty_frames_disallowed(self, peer: Peer) -> None:
        peer.write(encode_frame(0, b"", frame_type=SASL_FRAME))
        peer.expect_gone()

    def test_very_long_oauth2_token(self, dial: Dial, peer: Peer) -> None:
        # XOAUTH2 is not offered. A frame within what we read of SASL is answered, a larger one is a framing error.
        peer.send_sasl(SaslInit(Symbol("XOAUTH2"), b"user=xxx\1auth=Bearer " + b"A" * 7_000 + b"\1\1"))
        assert peer.expect(SaslOutcomeFrame).code == SaslCode.AUTH
        peer.expect_gone()
        larger = dial()
        _greet(larger)
        larger.send_sasl(SaslInit(Symbol("XOAUTH2"), b"user=xxx\1auth=Bearer " + b"A" * 100_000 + b"\1\1"))
        larger.expect_gone()


class TestSaslAuthenticationTimeout:
    """A client that never logs in does not keep its connection."""

    def test_authentication_timeout(self, silent: Peer) -> None:
        assert silent.expect_header() == SASL_HEADER
        assert PLAIN in silent.expect(SaslMechanisms).sasl_server_mechanisms
        silent.expect_gone()


class TestSystemPrivilegeEscalationGuard:
    """A rule of access that allows something to one user allows it to no other."""

    def test_guest_cannot_receive_from_queue_even_if_system_rule_would_allow(
        self, dial: Dial, guarded_router: Router, topic: str
    ) -> None:
        admin = _logged_in(dial, guarded_router, USER)
        admin.attach_receiver(topic)
        admin.send_flow(0, 1)
        guest = _logged_in(dial, guarded_router, GUEST)
        guest.send_attach(True, "guestReceiver", 1, source=Source(address=topic), target=Target())
        assert guest.refused(1).condition == UNAUTHORIZED_ACCESS
        _published(dial, guarded_router, topic)
        assert heard(admin) == b"message"
        guest.close()

    def test_guest_cannot_send_to_queue_even_if_system_rule_would_allow(
        self, dial: Dial, guarded_router: Router, topic: str
    ) -> None:
        admin = _logged_in(dial, guarded_router, USER)
        admin.attach_receiver(topic)
        admin.send_flow(0, 1)
        guest = _logged_in(dial, guarded_router, GUEST)
        guest.send_attach(False, "guestSender", 1, source=Source(), target=Target(address=topic))
        assert guest.refused(1, in_flight=b"guestMessage").condition == UNAUTHORIZED_ACCESS
        guest.close()
        _published(dial, guarded_router, topic)
        assert heard(admin) == b"message", "nothing of the guest came before"

    def test_admin_can_receive_from_queue(self, dial: Dial, guarded_router: Router, topic: str) -> None:
        admin = _logged_in(dial, guarded_router, USER)
        admin.attach_receiver(topic)
        admin.send_flow(0, 1)
        sender = _published(dial, guarded_router, topic)
        assert heard(admin) == b"message"
        assert sender.outcome(0).settled


def _published(dial: Dial, router: Router, topic: str) -> Peer:
    sender = _logged_in(dial, router, USER)
    sender.attach_sender(topic)
    sender.transfer(b"message")
    return sender


def _logged_in(dial: Dial, router: Router, user: str) -> Peer:
    peer = dial(router.port)
    _greet(peer)
    _log_in(peer, f"\0{user}\0{PASSWORD}".encode())
    return peer.ready()
