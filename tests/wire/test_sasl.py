"""The SASL dialogue ends in the right outcome on both sides, whatever the other side sends."""

from __future__ import annotations

import hmac

import pytest

from oncewire.wire.errors import LocalProtocolError, RemoteProtocolError
from oncewire.wire.frames import MAX_SASL_FRAME_SIZE, SASL_FRAME, FrameParser
from oncewire.wire.performative_codec import decode_sasl_frame
from oncewire.wire.performatives import (
    SaslChallenge,
    SaslFrame,
    SaslInit,
    SaslMechanisms,
    SaslOutcomeFrame,
    SaslResponse,
)
from oncewire.wire.sasl import MAX_CHALLENGES, Challenge, Failure, SaslClient, SaslResult, SaslServer, Step, Success
from oncewire.wire.types import Symbol


def verify(user: str, password: str) -> bool:
    return hmac.compare_digest(user, "anna") and hmac.compare_digest(password, "geheim")


def frames(data: bytes) -> list[SaslFrame]:
    parser = FrameParser(MAX_SASL_FRAME_SIZE)
    parser.feed(data)
    result = []
    while (frame := parser.next_frame()) is not None:
        channel, frame_type, buf, start, end = frame
        assert (channel, frame_type) == (0, SASL_FRAME)
        result.append(decode_sasl_frame(buf, start, end)[0])
    return result


def talk(server: SaslServer, client: SaslClient) -> None:
    """Carry frames between the two until neither has anything to say."""
    to_client, to_server = server.start(), client.start()
    while to_client or to_server:
        to_server += b"".join(client.receive(frame) for frame in frames(to_client))
        to_client = b"".join(server.receive(frame) for frame in frames(to_server))
        to_server = b""


def test_an_anonymous_client_is_taken() -> None:
    server, client = SaslServer(), SaslClient()
    talk(server, client)
    assert server.result == client.result == SaslResult(True, "ANONYMOUS", None, 0)


def test_a_client_with_the_right_password_is_taken() -> None:
    server, client = SaslServer({"ANONYMOUS", "PLAIN"}, verify), SaslClient("PLAIN", "anna", "geheim")
    talk(server, client)
    assert server.result == client.result == SaslResult(True, "PLAIN", "anna", 0)


@pytest.mark.parametrize(("user", "password"), [("anna", "Wr0ng!"), ("otto", "geheim")])
def test_a_client_with_a_wrong_name_or_password_is_refused_with_code_auth(user: str, password: str) -> None:
    server, client = SaslServer(["PLAIN"], verify), SaslClient("PLAIN", user, password)
    talk(server, client)
    for result in (server.result, client.result):
        assert result is not None
        assert (result.ok, result.user, result.code) == (False, None, 1)
    assert password not in repr(server.result)


def test_the_server_offers_what_it_was_given_in_order() -> None:
    assert frames(SaslServer(["PLAIN", "ANONYMOUS"], verify).start()) == [
        SaslMechanisms((Symbol("PLAIN"), Symbol("ANONYMOUS")))
    ]


def test_the_init_frame_carries_the_host_name() -> None:
    client = SaslClient("PLAIN", "anna", "geheim", hostname="vhost")
    sent = frames(client.receive(SaslMechanisms((Symbol("PLAIN"),))))
    assert sent == [SaslInit(Symbol("PLAIN"), b"\x00anna\x00geheim", "vhost")]


PLAIN_RESPONSES = {
    "empty": b"",
    "one part": b"anna",
    "two parts": b"anna\x00geheim",
    "four parts": b"\x00anna\x00geheim\x00",
    "no user": b"\x00\x00geheim",
    "no password": b"\x00anna\x00",
    "acting for somebody else": b"root\x00anna\x00geheim",
    "not UTF-8": b"\x00anna\x00\xff\xfe",
    "many NULs": b"\x00" * 5000,
}


@pytest.mark.parametrize("response", PLAIN_RESPONSES.values(), ids=PLAIN_RESPONSES.keys())
def test_a_malformed_plain_response_is_refused_with_code_auth(response: bytes) -> None:
    server = SaslServer(["PLAIN"], verify)
    assert frames(server.receive(SaslInit(Symbol("PLAIN"), response))) == [SaslOutcomeFrame(1)]
    assert server.result is not None
    assert not server.result.ok


def test_plain_may_name_the_user_as_the_one_to_act_for() -> None:
    server = SaslServer(["PLAIN"], verify)
    server.receive(SaslInit(Symbol("PLAIN"), b"anna\x00anna\x00geheim"))
    assert server.result == SaslResult(True, "PLAIN", "anna", 0)


def test_a_plain_client_without_initial_response_is_asked_for_it() -> None:
    server = SaslServer(["PLAIN"], verify)
    assert frames(server.receive(SaslInit(Symbol("PLAIN")))) == [SaslChallenge(b"")]
    assert server.result is None
    assert frames(server.receive(SaslResponse(b"\x00anna\x00geheim"))) == [SaslOutcomeFrame(0)]
    assert server.result == SaslResult(True, "PLAIN", "anna", 0)


def test_a_mechanism_that_was_not_offered_is_refused_with_code_auth() -> None:
    server = SaslServer(["ANONYMOUS"], verify)
    assert frames(server.receive(SaslInit(Symbol("PLAIN"), b"\x00anna\x00geheim"))) == [SaslOutcomeFrame(1)]
    assert server.result is not None
    assert not server.result.ok


def test_a_client_gives_up_when_its_mechanism_is_not_offered() -> None:
    client = SaslClient("PLAIN", "anna", "geheim")
    assert client.receive(SaslMechanisms((Symbol("ANONYMOUS"), Symbol("EXTERNAL")))) == b""
    assert client.result is not None
    assert not client.result.ok
    assert "only ANONYMOUS, EXTERNAL" in client.result.description


@pytest.mark.parametrize("code", [1, 2, 3, 4, 99])
def test_every_other_outcome_code_is_a_failure_for_the_client(code: int) -> None:
    client = SaslClient()
    client.receive(SaslMechanisms((Symbol("ANONYMOUS"),)))
    client.receive(SaslOutcomeFrame(code))
    assert client.result is not None
    assert (client.result.ok, client.result.code) == (False, code)


INIT = SaslInit(Symbol("ANONYMOUS"), b"")
MECHANISMS = SaslMechanisms((Symbol("ANONYMOUS"),))
SERVERS_OWN = [MECHANISMS, SaslChallenge(b""), SaslOutcomeFrame(0)]


@pytest.mark.parametrize("before", [[], [INIT]], ids=["at first", "after the outcome"])
@pytest.mark.parametrize("frame", [*SERVERS_OWN, SaslResponse(b"")], ids=lambda f: type(f).__name__)
def test_a_server_refuses_frames_that_do_not_belong_there(before: list[SaslFrame], frame: SaslFrame) -> None:
    server = SaslServer()
    for earlier in before:
        server.receive(earlier)
    with pytest.raises(RemoteProtocolError):
        server.receive(frame)


@pytest.mark.parametrize(
    ("before", "frame"),
    [([], SaslOutcomeFrame(0)), ([], SaslChallenge(b"")), ([], INIT)]
    + [([MECHANISMS], frame) for frame in (MECHANISMS, SaslChallenge(b""), INIT, SaslResponse(b""))]
    + [([MECHANISMS, SaslOutcomeFrame(0)], frame) for frame in SERVERS_OWN],
)
def test_a_client_refuses_frames_that_do_not_belong_there(before: list[SaslFrame], frame: SaslFrame) -> None:
    client = SaslClient()
    for earlier in before:
        client.receive(earlier)
    with pytest.raises(RemoteProtocolError):
        client.receive(frame)


class Riddles:
    """A mechanism from outside: asks until it hears the word, or for ever."""

    def step(self, response: bytes | None, /) -> Step:
        if response == b"word":
            return Success("guest")
        return Failure("no") if response == b"bad" else Challenge(b"again")


class Guesser:
    """The client's side of it."""

    name = "RIDDLES"
    user: str | None = "guest"

    def __init__(self, guesses: list[bytes]) -> None:
        self.guesses = guesses

    def initial_response(self) -> bytes | None:
        return None

    def respond(self, _challenge: bytes, /) -> bytes:
        return self.guesses.pop(0)

    def complete(self, _data: bytes | None, /) -> None:
        """Nothing is left to prove."""


def test_a_mechanism_from_outside_works_on_both_sides() -> None:
    server = SaslServer(["RIDDLES"], extra={"RIDDLES": Riddles})
    client = SaslClient(Guesser([b"cold", b"warm", b"word"]))
    talk(server, client)
    assert server.result == client.result == SaslResult(True, "RIDDLES", "guest", 0)


def test_a_dialogue_without_end_is_ended_by_the_server() -> None:
    server = SaslServer(["RIDDLES"], extra={"RIDDLES": Riddles})
    client = SaslClient(Guesser([b"cold"] * (MAX_CHALLENGES + 5)))
    talk(server, client)
    assert server.result is not None
    assert not server.result.ok
    assert len(client.result.description if client.result else "") > 0


def test_a_dialogue_without_end_is_ended_by_the_client() -> None:
    client = SaslClient(Guesser([b"cold"] * 100))
    client.receive(SaslMechanisms((Symbol("RIDDLES"),)))
    for _ in range(MAX_CHALLENGES):
        client.receive(SaslChallenge(b""))
    with pytest.raises(RemoteProtocolError):
        client.receive(SaslChallenge(b""))


def test_a_server_that_cannot_work_is_a_local_error() -> None:
    for mechanisms in ([], ["PLAIN"], ["SCRAM-SHA-256"]):
        with pytest.raises(LocalProtocolError):
            SaslServer(mechanisms)


@pytest.mark.parametrize(
    ("user", "password"), [(None, None), ("anna", None), ("", "geheim"), ("an\x00na", "geheim"), ("anna", "\ud800")]
)
def test_a_plain_client_without_usable_name_and_password_is_a_local_error(
    user: str | None, password: str | None
) -> None:
    with pytest.raises(LocalProtocolError):
        SaslClient("PLAIN", user, password)


def test_an_unknown_mechanism_is_a_local_error_for_a_client() -> None:
    with pytest.raises(LocalProtocolError):
        SaslClient("EXTERNAL")


def test_a_password_that_does_not_fit_a_sasl_frame_is_a_local_error() -> None:
    client = SaslClient("PLAIN", "anna", "x" * MAX_SASL_FRAME_SIZE)
    with pytest.raises(LocalProtocolError):
        client.receive(SaslMechanisms((Symbol("PLAIN"),)))
