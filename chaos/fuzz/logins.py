"""Target `logins`: dialogues of every SASL mechanism, server and client, in which one message was changed.

An input is bytes, so that a coverage-guided fuzzer can make them, too: which dialogue, which of its messages is
replaced, and by what. PBKDF2 is not computed: what a dialogue waits for is answered with bytes that are no key.
"""

from __future__ import annotations

import base64
import hmac
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.fuzz.mutations import TEXTS, mutate_octets, mutate_text
from chaos.fuzz.target import Finding, InputTarget
from oncewire.wire import (
    ExternalServer,
    PlainServer,
    RemoteProtocolError,
    SaslClient,
    SaslServer,
    ServerMechanism,
    Symbol,
)
from oncewire.wire.bearer import OAUTHBEARER, XOAUTH2, BearerServer, OAuthBearerClient
from oncewire.wire.performatives import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcomeFrame,
    SaslResponse,
)
from oncewire.wire.sasl import (
    AnonymousClient,
    AnonymousServer,
    ClientMechanism,
    Deferred,
    ExternalClient,
    Failure,
    PlainClient,
    Step,
    Success,
)
from oncewire.wire.scram import SCRAM_HASHES, ScramClient, ScramHash, ScramKeys, ScramServer, derive_keys

USER, PASSWORD, TOKEN = "ann", "a password", "abc.def.ghi"
SALT, ITERATIONS = b"sixteen bytes ok", 4096
CLIENT_NONCE, SERVER_NONCE = "c" * 24, "s" * 24
EACH = 16
"""Inputs of one run: changes of one message of one dialogue."""
MOST_MESSAGES = 8

_KEYS = {scram.mechanism: derive_keys(scram, PASSWORD, SALT, ITERATIONS) for scram in SCRAM_HASHES}
_SALTED = {
    (scram.mechanism, USER, PASSWORD, SALT, ITERATIONS): scram.salted(PASSWORD.encode(), SALT, ITERATIONS)
    for scram in SCRAM_HASHES
}


def _verify(user: str, password: str) -> bool:
    return user == USER and hmac.compare_digest(password.encode("utf-8", "replace"), PASSWORD.encode())


def _ask(user: str, token: str) -> Step:
    return Success(USER) if token == TOKEN and user in ("", USER) else Failure("wrong token")


def _scram_server(scram: ScramHash) -> ScramServer:
    keys = _KEYS[scram.mechanism]

    def find(user: str) -> ScramKeys | Deferred[ScramKeys]:
        return keys if user == USER else Deferred(bytes, lambda _: ScramKeys(SALT, ITERATIONS, b"x" * scram.size, b""))

    return ScramServer(scram, SERVER_NONCE, find, lambda user, is_right: is_right and user == USER)


SERVERS: dict[str, Callable[[], ServerMechanism]] = {
    "ANONYMOUS": AnonymousServer,
    "PLAIN": lambda: PlainServer(_verify),
    "EXTERNAL": lambda: ExternalServer(USER),
    OAUTHBEARER: lambda: BearerServer(OAUTHBEARER, _ask),
    XOAUTH2: lambda: BearerServer(XOAUTH2, _ask),
    **{scram.mechanism: (lambda scram=scram: _scram_server(scram)) for scram in SCRAM_HASHES},  # type: ignore[misc]
}
CLIENTS: dict[str, Callable[[], ClientMechanism]] = {
    "ANONYMOUS": AnonymousClient,
    "PLAIN": lambda: PlainClient(USER, PASSWORD),
    "EXTERNAL": ExternalClient,
    OAUTHBEARER: lambda: OAuthBearerClient(TOKEN),
    **{
        scram.mechanism: (lambda scram=scram: ScramClient(scram, USER, PASSWORD, CLIENT_NONCE, dict(_SALTED)))  # type: ignore[misc]
        for scram in SCRAM_HASHES
    },
}


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One mechanism, seen from the side that is fuzzed, and what its honest peer sends."""

    mechanism: str
    is_server: bool
    messages: tuple[bytes, ...]


def _honest(mechanism: str) -> tuple[list[bytes], list[bytes]]:
    """What client and server say to each other when nothing is wrong."""
    server, client = SERVERS[mechanism](), CLIENTS[mechanism]()
    response = client.initial_response() or b""
    sent = [response]
    answered: list[bytes] = []
    while True:
        step = server.step(response)
        assert not isinstance(step, Deferred | Failure)
        if isinstance(step, Success):
            return sent, answered
        answered.append(step.data)
        found = client.respond(step.data)
        assert isinstance(found, bytes)
        response = found
        sent.append(response)


def _dialogues() -> Iterator[Dialogue]:
    xoauth2 = f"user={USER}\x01auth=Bearer {TOKEN}\x01\x01".encode()
    yield Dialogue(XOAUTH2, True, (xoauth2,))
    yield Dialogue(OAUTHBEARER, True, (b"n,,\x01auth=Bearer wrong\x01\x01", b"\x01"))
    for mechanism in CLIENTS:
        sent, answered = _honest(mechanism)
        yield Dialogue(mechanism, True, tuple(sent))
        yield Dialogue(mechanism, False, (*answered, b"{}"))


DIALOGUES = tuple(_dialogues())


def _inputs(rng: random.Random) -> Iterator[bytes]:
    which = rng.randrange(len(DIALOGUES))
    dialogue = DIALOGUES[which]
    at = rng.randrange(len(dialogue.messages))
    message = dialogue.messages[at]
    for _ in range(EACH):
        kind = rng.randrange(4)
        if kind == 0:
            found = mutate_octets(rng, message)
        elif kind == 1:
            found = mutate_text(rng, message.decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
        elif kind == 2:
            found = _with_other_attribute(rng, message)
        else:
            found = rng.choice((rng.choice(TEXTS).encode("utf-8", "surrogatepass"), rng.choice(DIALOGUES).messages[0]))
        yield bytes((which, at)) + found


def _with_other_attribute(rng: random.Random, message: bytes) -> bytes:
    """Change one part of what is separated by commas, 0x00 or 0x01."""
    separator = next((each for each in (b"\x01", b"\x00", b",") if each in message), b",")
    parts = message.split(separator)
    place = rng.randrange(len(parts))
    name, mark, _ = parts[place].partition(b"=")
    text = rng.choice(TEXTS).encode("utf-8", "surrogatepass")
    value = rng.choice((text, base64.b64encode(text), base64.b64encode(rng.randbytes(32))))
    parts[place] = name + mark + value if rng.random() < 0.8 else value
    if rng.random() < 0.2:
        parts.insert(place, rng.choice(parts))
    return separator.join(parts)


def take(data: bytes) -> bool:
    """Hold a dialogue in which a message is replaced; whether it ended with a login.

    Raises:
        Finding: somebody was logged in who is nobody.
    """
    dialogue = DIALOGUES[data[0] % len(DIALOGUES)] if data else DIALOGUES[0]
    messages = list(dialogue.messages)
    messages[data[1] % len(messages) if len(data) > 1 else 0] = data[2:]
    try:
        return _at_server(dialogue.mechanism, messages) if dialogue.is_server else _at_client(dialogue, messages)
    except RemoteProtocolError:
        return False


def _at_server(mechanism: str, messages: list[bytes]) -> bool:
    server = SaslServer([mechanism], extra=SERVERS)
    server.start()
    for number, message in enumerate(messages[:MOST_MESSAGES]):
        server.receive(SaslInit(Symbol(mechanism), message) if number == 0 else SaslResponse(message))
        if server.work is not None:
            server.resume(b"")
        if server.result is not None:
            break
    result = server.result
    if result is None or not result.ok:
        return False
    if result.user not in (USER, None) or (result.user is None) is not (mechanism == "ANONYMOUS"):
        raise Finding(f"{mechanism} logs in {result.user!r}")
    return True


def _at_client(dialogue: Dialogue, messages: list[bytes]) -> bool:
    client = SaslClient(CLIENTS[dialogue.mechanism]())
    client.receive(SaslMechanisms((Symbol(dialogue.mechanism),)))
    for message in messages[:-1]:
        client.receive(SaslChallenge(message))
        if client.work is not None:
            client.resume(b"no salted password")
    client.receive(SaslOutcomeFrame(SaslCode.OK, messages[-1]))
    result = client.result
    is_proved = messages[:-1] == list(dialogue.messages[:-1])
    if result is not None and result.ok and "SCRAM" in dialogue.mechanism and not is_proved:
        _check_proof(dialogue, messages)
    return result is not None and result.ok


def _check_proof(dialogue: Dialogue, messages: list[bytes]) -> None:
    """A changed dialogue may end well only if the signature in it is right for what was said."""
    signature = dialogue.messages[1].partition(b",")[0]
    if not any(signature in message for message in messages):
        raise Finding(f"{dialogue.mechanism} takes a server that has proved nothing")


LOGINS = InputTarget(
    "logins",
    "dialogues of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, XOAUTH2, EXTERNAL and ANONYMOUS, at the server and "
    "at the client, with one message changed; nobody is logged in but who has the secret, and a client takes no server "
    "without a proof; a login, a refusal or `RemoteProtocolError`",
    ("oncewire.wire",),
    _inputs,
    take,
)
