"""SCRAM logs in who knows the password, proves the server to the client, and takes nothing hostile of either side."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.wire import (
    Challenge,
    Deferred,
    Failure,
    LocalProtocolError,
    RemoteProtocolError,
    SaslClient,
    SaslServer,
    Success,
)
from oncewire.wire.performatives import SaslOutcomeFrame
from oncewire.wire.sasl import Step
from oncewire.wire.saslprep import saslprep
from oncewire.wire.scram import (
    MAX_ITERATIONS,
    MAX_NONCE,
    MAX_SALTED,
    MIN_ITERATIONS,
    SCRAM_HASHES,
    ScramClient,
    ScramHash,
    ScramKeys,
    ScramServer,
    derive_keys,
)
from tests.wire.test_sasl import frames

SHA_256, SHA_512 = SCRAM_HASHES
SALT = b"0123456789abcdef"
ITERATIONS = MIN_ITERATIONS
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
KEYS = {scram: derive_keys(scram, "pencil", RFC_SALT, ITERATIONS) for scram in SCRAM_HASHES}


def server(scram: ScramHash = SHA_256) -> ScramServer:
    return ScramServer(scram, SERVER_NONCE, lambda _user: KEYS[scram], lambda _user, is_right: is_right)


def client(password: str = "pencil", scram: ScramHash = SHA_256) -> ScramClient:
    return ScramClient(scram, "user", password, CLIENT_NONCE)


def challenge(step: Step | Deferred[Step]) -> bytes:
    assert isinstance(step, Challenge), step
    return step.data


def response(answer: bytes | Deferred[bytes]) -> bytes:
    return answer.then(answer.work()) if isinstance(answer, Deferred) else answer


def test_the_dialogue_of_rfc_7677_is_spoken_byte_by_byte() -> None:
    """RFC 7677, section 3."""
    one, other = client(), server()
    assert one.initial_response() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    salt = challenge(other.step(one.initial_response()))
    assert salt == (b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    proof = response(one.respond(salt))
    assert proof == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    signature = challenge(other.step(proof))
    assert signature == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert one.respond(signature) == b""
    assert other.step(b"") == Success("user")
    one.complete(None)


def talk(password: str, scram: ScramHash) -> tuple[SaslClient, SaslServer]:
    one = SaslClient([client(password, scram)])
    other = SaslServer([scram.mechanism], extra={scram.mechanism: lambda: server(scram)})
    to_client = other.start()
    while to_client:
        to_server = b"".join(one.receive(frame) for frame in frames(to_client))
        if one.work is not None:
            to_server += one.resume(one.work())
        to_client = b"".join(other.receive(frame) for frame in frames(to_server))
    return one, other


@pytest.mark.parametrize("scram", SCRAM_HASHES)
def test_only_the_right_password_logs_in(scram: ScramHash) -> None:
    for password, is_right in (("pencil", True), ("Pencil", False), ("pencil ", False)):
        for side in talk(password, scram):
            assert side.result is not None
            assert (side.result.ok, side.result.user) == (is_right, "user" if is_right else None)


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    one = client()
    salt = challenge(server().step(one.initial_response()))
    response(one.respond(salt))
    with pytest.raises(RemoteProtocolError, match="does not know the password"):
        one.respond(b"v=" + base64.b64encode(bytes(32)))
    one = client()
    response(one.respond(salt))
    with pytest.raises(RemoteProtocolError, match="without a proof"):
        one.complete(None)
    with pytest.raises(RemoteProtocolError):
        client().complete(b"v=" + base64.b64encode(bytes(32)))


def test_the_signature_may_come_with_the_outcome() -> None:
    one, other = client(), server()
    salt = challenge(other.step(one.initial_response()))
    signature = challenge(other.step(response(one.respond(salt))))
    one.complete(signature)
    with pytest.raises(RemoteProtocolError, match="order"):
        one.respond(signature)


FULL = CLIENT_NONCE + SERVER_NONCE
HOSTILE_SALTS = {
    "empty": b"",
    "not UTF-8": b"\xff\xfe",
    "another nonce": b"r=other,s=QQ==,i=4096",
    "our own nonce sent back": f"r={CLIENT_NONCE},s=QQ==,i=4096".encode(),
    "truncated": f"r={FULL},s=QQ==".encode(),
    "wrong order": f"s=QQ==,r={FULL},i=4096".encode(),
    "bad Base64": f"r={FULL},s=Q!,i=4096".encode(),
    "no salt": f"r={FULL},s=,i=4096".encode(),
    "huge salt": f"r={FULL},s={'QUFB' * 100},i=4096".encode(),
    "huge nonce": f"r={CLIENT_NONCE}{'x' * 4000},s=QQ==,i=4096".encode(),
    "too few iterations": f"r={FULL},s=QQ==,i={MIN_ITERATIONS - 1}".encode(),
    "too many iterations": f"r={FULL},s=QQ==,i={MAX_ITERATIONS + 1}".encode(),
    "a number of a thousand digits": f"r={FULL},s=QQ==,i={'9' * 1000}".encode(),
    "a negative number": f"r={FULL},s=QQ==,i=-4096".encode(),
    "digits of another script": f"r={FULL},s=QQ==,i=٤٠٩٦".encode(),
    "a mandatory extension": f"m=x,r={FULL},s=QQ==,i=4096".encode(),
    "a signature first": b"v=QQ==",
}


@pytest.mark.parametrize("salt", HOSTILE_SALTS.values(), ids=HOSTILE_SALTS.keys())
def test_a_client_computes_nothing_for_a_hostile_server(salt: bytes) -> None:
    one = client()
    one.initial_response()
    with pytest.raises(RemoteProtocolError):
        one.respond(salt)


HOSTILE_FIRSTS = {
    "channel binding": b"p=tls-unique,,n=user,r=abc",
    "unknown flag": b"x,,n=user,r=abc",
    "no header": b"n=user,r=abc",
    "truncated": b"n,,n=user",
    "wrong order": b"n,,r=abc,n=user",
    "no user": b"n,,n=,r=abc",
    "a prohibited user": b"n,,n=\x07,r=abc",
    "a bad escape": b"n,,n=us=2Der,r=abc",
    "a mandatory extension": b"n,,m=x,n=user,r=abc",
    "acting for somebody else": b"n,a=root,n=user,r=abc",
    "no nonce": b"n,,n=user,r=",
    "a nonce with a blank": b"n,,n=user,r=a b",
    "huge nonce": b"n,,n=user,r=" + b"x" * (MAX_NONCE + 1),
    "not UTF-8": b"n,,n=\xff,r=abc",
    "a proof first": b"c=biws,r=abc,p=QQ==",
}


@pytest.mark.parametrize("first", HOSTILE_FIRSTS.values(), ids=HOSTILE_FIRSTS.keys())
def test_a_hostile_first_message_is_refused(first: bytes) -> None:
    assert isinstance(server().step(first), Failure)


def proof_for(without_proof: str) -> str:
    """What a client that knows the password appends."""
    salt = challenge(server().step(FIRST)).decode()
    salted = SHA_256.salted(b"pencil", KEYS[SHA_256].salt, ITERATIONS)
    key = SHA_256.mac(salted, b"Client Key")
    signed = f"{FIRST.decode()[3:]},{salt},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    return f"{without_proof},p=" + base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()


HOSTILE_FINALS: dict[str, Callable[[], str]] = {
    "empty": lambda: "",
    "no proof": lambda: f"c=biws,r={FULL}",
    "short proof": lambda: f"c=biws,r={FULL},p=QQ==",
    "bad Base64": lambda: f"c=biws,r={FULL},p=!!!!",
    "another header": lambda: proof_for(f"c=eSws,r={FULL}"),
    "a nonce of an earlier dialogue": lambda: proof_for(f"c=biws,r={CLIENT_NONCE}replayed"),
    "wrong order": lambda: proof_for(f"r={FULL},c=biws"),
    "huge": lambda: f"c=biws,r={FULL},p=" + "QUFB" * 2000,
}


@pytest.mark.parametrize("final", HOSTILE_FINALS.values(), ids=HOSTILE_FINALS.keys())
def test_a_hostile_last_message_is_refused_even_with_the_right_password(final: Callable[[], str]) -> None:
    other = server()
    challenge(other.step(FIRST))
    assert isinstance(other.step(final().encode()), Failure)


def test_a_recorded_proof_does_not_log_in_again() -> None:
    other = server()
    challenge(other.step(FIRST))
    proof = proof_for(f"c=biws,r={FULL}").encode()
    challenge(other.step(proof))
    later = ScramServer(SHA_256, "another-nonce", lambda _user: KEYS[SHA_256], lambda _user, is_right: is_right)
    challenge(later.step(FIRST))
    assert isinstance(later.step(proof), Failure)


@given(st.lists(st.binary(max_size=200) | st.sampled_from([FIRST, b"", b"n,,n=user,r=abc"]), max_size=4))
def test_no_sequence_of_messages_logs_in_without_the_password(messages: list[bytes]) -> None:
    other = server()
    for message in messages:
        step = other.step(message)
        assert not isinstance(step, Success)
        if isinstance(step, Failure):
            return


@given(st.binary(max_size=200))
def test_a_client_raises_nothing_but_protocol_errors(data: bytes) -> None:
    one = client()
    with pytest.raises(RemoteProtocolError):
        one.respond(data)
    with pytest.raises(RemoteProtocolError):
        one.complete(data)


def test_who_connects_again_does_not_compute_again_and_keeps_little() -> None:
    salted: dict[tuple[str, str, str, bytes, int], bytes] = {}
    salt = challenge(server().step(FIRST))
    response(ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE, salted).respond(salt))
    again = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE, salted)
    assert isinstance(again.respond(salt), bytes)
    for number in range(MAX_SALTED + 3):
        response(ScramClient(SHA_256, "user", f"pencil{number}", CLIENT_NONCE, salted).respond(salt))
    assert len(salted) == MAX_SALTED


def test_the_client_prefers_what_it_names_first() -> None:
    one = SaslClient([client(), client(scram=SHA_512)])
    other = SaslServer(["SCRAM-SHA-512"], extra={"SCRAM-SHA-512": lambda: server(SHA_512)})
    (frame,) = frames(b"".join(one.receive(each) for each in frames(other.start())))
    assert frame.mechanism == "SCRAM-SHA-512"  # type: ignore[union-attr]
    with pytest.raises(RemoteProtocolError):
        one.receive(SaslOutcomeFrame(0))


def test_keys_and_passwords_are_in_no_repr() -> None:
    keys = ScramKeys(SALT, 4096, b"stored-key", b"server-key")
    deferred = client().respond(challenge(server().step(FIRST)))
    for shown in (repr(keys), repr(client()), repr(server()), repr(deferred)):
        assert "pencil" not in shown
        assert "-key" not in shown


@pytest.mark.parametrize(
    ("typed", "prepared"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b")],
)
def test_saslprep_gives_the_spelling_of_rfc_4013(typed: str, prepared: str) -> None:
    assert saslprep(typed, "user name") == prepared


@pytest.mark.parametrize("typed", ["", "a" * 257, "\u00ad", "\u0007", "\u06271", "a\ud800", "\U000e0001", "\u0221"])
def test_saslprep_refuses_what_rfc_4013_prohibits_without_repeating_it(typed: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        saslprep(typed, "password")
    assert not typed or typed not in str(caught.value)


def test_a_user_name_with_comma_and_equals_sign_arrives_whole() -> None:
    seen: list[str] = []

    def find(user: str) -> ScramKeys:
        seen.append(user)
        return KEYS[SHA_256]

    other = ScramServer(SHA_256, SERVER_NONCE, find, lambda _user, is_right: is_right)
    one = ScramClient(SHA_256, "a=b,c=2C", "pencil", CLIENT_NONCE)
    salt = challenge(other.step(one.initial_response()))
    challenge(other.step(response(one.respond(salt))))
    assert seen == ["a=b,c=2C"]
    assert other.step(b"") == Success("a=b,c=2C")
