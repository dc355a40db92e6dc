"""SASL EXTERNAL, OAUTHBEARER and XOAUTH2 without a network."""

from __future__ import annotations

from typing import Any

import pytest

from oncewire.wire import (
    Challenge,
    Deferred,
    ExternalClient,
    ExternalServer,
    Failure,
    LocalProtocolError,
    SaslClient,
    SaslCode,
    SaslServer,
    Step,
    Success,
)
from oncewire.wire.bearer import MAX_TOKEN, OAUTHBEARER, XOAUTH2, BearerServer, OAuthBearerClient
from oncewire.wire.frames import MAX_SASL_FRAME_SIZE, FrameParser
from oncewire.wire.performative_codec import decode_sasl_frame

TOKEN = "header.payload.signature"
TOKEN_OF_THE_RFC = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="


def frames(octets: bytes) -> list[Any]:
    parser = FrameParser(MAX_SASL_FRAME_SIZE)
    parser.feed(octets)
    found = []
    while (frame := parser.next_frame()) is not None:
        _, _, buf, pos, end = frame
        found.append(decode_sasl_frame(buf, pos, end)[0])
    return found


def talk(client: SaslClient, server: SaslServer) -> None:
    """Both sides, until neither has something to say."""
    to_client = server.start()
    while to_client:
        to_server = b"".join(client.receive(frame) for frame in frames(to_client))
        to_client = b"".join(server.receive(frame) for frame in frames(to_server))
        if server.work is not None:
            to_client = server.resume(server.work())


def judge(user: str, token: str) -> Step:
    return Success(user or "ann") if token in (TOKEN, TOKEN_OF_THE_RFC) else Failure("refused")


@pytest.mark.parametrize(
    ("name", "response", "user"),
    [
        (OAUTHBEARER, b"n,,\x01auth=Bearer " + TOKEN.encode() + b"\x01\x01", "ann"),
        (OAUTHBEARER, b"n,a=b=2Cb,\x01host=h\x01port=1\x01auth=bearer " + TOKEN.encode() + b"\x01\x01", "b,b"),
        (
            OAUTHBEARER,  # the example of RFC 7628, section 4.1
            b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer %b\x01\x01"
            % TOKEN_OF_THE_RFC.encode(),
            "user@example.com",
        ),
        (XOAUTH2, b"user=bob\x01auth=Bearer " + TOKEN.encode() + b"\x01\x01", "bob"),
    ],
)
def test_a_token_is_found_in_what_the_standards_send(name: str, response: bytes, user: str) -> None:
    assert BearerServer(name, judge).step(response) == Success(user)


@pytest.mark.parametrize(
    ("name", "response"),
    [
        (name, response)
        for name in (OAUTHBEARER, XOAUTH2)
        for response in (
            b"",
            b"\xff",
            b"n,,",
            b"n,,\x01\x01",
            b"n,,\x01auth=Basic x\x01\x01",
            b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
            b"n,,\x01auth=Bearer \x01\x01",
            b"n,,\x01auth=Bearer a b\x01\x01",
            b"user=x\x01\x01",
            b"user=x",
            b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
            b"n,b,\x01auth=Bearer x\x01\x01",
        )
    ],
)
def test_what_holds_no_token_is_refused(name: str, response: bytes) -> None:
    assert BearerServer(name, judge).step(response) == Failure("the token cannot be found in what the client sent")


def test_a_client_is_asked_for_its_first_response() -> None:
    assert BearerServer(XOAUTH2, judge).step(None) == Challenge(b"")
    assert ExternalServer("ann").step(None) == Challenge(b"")


def test_oauthbearer_notifies_of_a_wrong_token_before_the_outcome() -> None:
    server = BearerServer(OAUTHBEARER, judge)
    assert server.step(b"n,,\x01auth=Bearer wrong\x01\x01") == Challenge(b'{"status":"invalid_token"}')
    assert server.step(b"\x01") == Failure("refused")
    assert server.step(b"n,,\x01auth=Bearer " + TOKEN.encode() + b"\x01\x01") == Failure("refused")


@pytest.mark.parametrize(("token", "ok"), [(TOKEN, True), ("wrong", False)])
@pytest.mark.parametrize("is_deferred", [False, True])
def test_our_client_and_server_speak_oauthbearer(token: str, ok: bool, is_deferred: bool) -> None:
    def later(user: str, given: str) -> Step | Deferred[Step]:
        return Deferred(lambda: b"", lambda _result: judge(user, given)) if is_deferred else judge(user, given)

    server = SaslServer([OAUTHBEARER], extra={OAUTHBEARER: lambda: BearerServer(OAUTHBEARER, later)})
    client = SaslClient(OAuthBearerClient(token))
    talk(client, server)
    assert server.result is not None
    assert client.result is not None
    assert (server.result.ok, client.result.ok) == (ok, ok)
    assert server.result.user == ("ann" if ok else None)


def test_a_login_that_cannot_be_checked_now_is_a_temporary_fault() -> None:
    undecided = Failure("nobody can be asked", SaslCode.SYS_TEMP)
    server = SaslServer([OAUTHBEARER], extra={OAUTHBEARER: lambda: BearerServer(OAUTHBEARER, lambda _u, _t: undecided)})
    client = SaslClient(OAuthBearerClient(TOKEN))
    talk(client, server)
    assert client.result is not None
    assert client.result.code == SaslCode.SYS_TEMP


@pytest.mark.parametrize("token", ["", "a b", "\x01", "ä", "x" * (MAX_TOKEN + 1), "=a"])
def test_what_is_no_token_is_not_sent(token: str) -> None:
    with pytest.raises(LocalProtocolError):
        OAuthBearerClient(token)


def test_the_longest_token_fits_in_a_frame() -> None:
    server = SaslServer([OAUTHBEARER], extra={OAUTHBEARER: lambda: BearerServer(OAUTHBEARER, judge)})
    client = SaslClient(OAuthBearerClient("x" * MAX_TOKEN), hostname="h" * 255)
    assert b"".join(map(client.receive, frames(server.start())))


@pytest.mark.parametrize(
    ("user", "response", "is_taken"),
    [("ann", b"", True), ("ann", b"ann", True), ("ann", b"bob", False), (None, b"", False), (None, b"ann", False)],
)
def test_external_takes_whom_the_certificate_names_and_nobody_else(
    user: str | None, response: bytes, is_taken: bool
) -> None:
    step = ExternalServer(user).step(response)
    assert step == Success("ann") if is_taken else isinstance(step, Failure)


def test_our_client_speaks_external() -> None:
    server = SaslServer(["ANONYMOUS"])
    server.offer_first("EXTERNAL", lambda: ExternalServer("ann"))
    client = SaslClient([ExternalClient()])
    talk(client, server)
    assert server.result is not None
    assert (server.result.user, server.result.mechanism) == ("ann", "EXTERNAL")
