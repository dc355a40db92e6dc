"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both sides, sans-IO.

Neither side sends the password. The server keeps keys that do not let anybody log in, and each side proves to the
other that it knows the password or the keys. Nonces and salts come in as arguments; PBKDF2, the one long computation,
goes out as a `Deferred`. Channel binding (the -PLUS mechanisms) is not built.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

from oncewire.wire.errors import ILLEGAL_STATE, UNAUTHORIZED_ACCESS, LocalProtocolError, RemoteProtocolError
from oncewire.wire.sasl import Challenge, ClientMechanism, Deferred, Failure, PlainClient, Step, Success
from oncewire.wire.saslprep import saslprep

MIN_ITERATIONS = 4096
"""RFC 7677, section 4. A server that asks for fewer makes the password easy to guess for whoever listens."""
MAX_ITERATIONS = 2_000_000
"""About a second of a processor: a hostile server must not keep a client busy for minutes."""
MAX_SALT = 128
"""Bytes; 16 are customary."""
MAX_NONCE = 128
"""Characters of one side's nonce; 24 are customary, and both come back in each message."""
SALT_BYTES = 16
_GS2 = "n,,"
"""The client does no channel binding and acts for nobody else."""


@dataclass(frozen=True, slots=True)
class ScramHash:
    """One SCRAM mechanism.

    Attributes:
        mechanism: its registered name.
        algorithm: name of the hash in hashlib.
        iterations: of PBKDF2 for new passwords, as OWASP recommends for this hash: 0.2 s of a processor for each guess.
        size: bytes of a digest.
    """

    mechanism: str
    algorithm: str
    iterations: int
    size: int

    def digest(self, data: bytes) -> bytes:
        """The hash of the data."""
        return hashlib.new(self.algorithm, data).digest()

    def mac(self, key: bytes, data: bytes) -> bytes:
        """The HMAC of the data."""
        return hmac.digest(key, data, self.algorithm)

    def salted(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """The salted password (PBKDF2); takes long."""
        return hashlib.pbkdf2_hmac(self.algorithm, password, salt, iterations)


SHA_256 = ScramHash("SCRAM-SHA-256", "sha256", 600_000, 32)
SHA_512 = ScramHash("SCRAM-SHA-512", "sha512", 210_000, 64)
SCRAM_HASHES = (SHA_256, SHA_512)
"""In the order in which a client prefers them: the first is the standard one."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server keeps of a password: enough to check a login, not enough to log in."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def keys_of(scram: ScramHash, salted_password: bytes, salt: bytes, iterations: int) -> ScramKeys:
    """The keys for a salted password."""
    client_key = scram.mac(salted_password, b"Client Key")
    server_key = scram.mac(salted_password, b"Server Key")
    return ScramKeys(salt, iterations, scram.digest(client_key), server_key)


def derive_keys(scram: ScramHash, password: str, salt: bytes, iterations: int) -> ScramKeys:
    """The keys for a password; takes long.

    Raises:
        LocalProtocolError: the password cannot be used with SCRAM.
    """
    salted = scram.salted(saslprep(password, "password").encode(), salt, iterations)
    return keys_of(scram, salted, salt, iterations)


class _ScramError(Exception):
    """A message that cannot be read; the text is for our log."""


def _attributes(text: str, *names: str) -> list[str]:
    """The values of `a=...,b=...`: exactly these attributes first, in this order. Extensions behind are ignored."""
    parts = text.split(",")
    if len(parts) < len(names):
        raise _ScramError("a SCRAM message is too short")
    for part, name in zip(parts, names, strict=False):
        if not part.startswith(f"{name}="):
            raise _ScramError(f"a SCRAM message lacks {name}=, or has something else in its place")
    if any(len(part) < 2 or not part[0].isalpha() or part[1] != "=" or part[0] == "m" for part in parts):
        raise _ScramError("a SCRAM message has a part that is no attribute, or an extension that must be known")
    return [part[2:] for part in parts[: len(names)]]


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise _ScramError("a SCRAM message is not UTF-8") from None


def _bytes(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (ValueError, UnicodeEncodeError):
        raise _ScramError("a SCRAM message has Base64 that cannot be read") from None


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _check_nonce(nonce: str, longest: int) -> None:
    if not 0 < len(nonce) <= longest or not all("!" <= each <= "~" and each != "," for each in nonce):
        raise _ScramError(f"a SCRAM nonce does not have 1 to {longest} printable characters")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


# --- server -----------------------------------------------------------------------------------------------------------

Find: TypeAlias = Callable[[str], ScramKeys | Deferred[ScramKeys]]
"""The keys of a user. It must have some for unknown users, too, in the same time: with a salt that never changes, and
keys that fit no password."""
Decide: TypeAlias = Callable[[str, bool], bool]
"""Gets the user and whether the proof is right; returns whether the user may log in. Nothing shows whether two wrong
proofs are of the same password."""


class _At(Enum):
    START = auto()
    ASKED = auto()
    """The client has the salt; its proof is due."""
    PROVED = auto()
    """The client has our signature; its empty response is due."""


class ScramServer:
    """The server's side of SCRAM.

    Args:
        scram: the mechanism.
        nonce: random printable characters without a comma, new for each dialogue; 18 random bytes or more in Base64.
        find: the keys of a user.
        decide: has the last word.
    """

    def __init__(self, scram: ScramHash, nonce: str, find: Find, decide: Decide) -> None:
        _check_nonce(nonce, MAX_NONCE)
        self._scram = scram
        self._nonce = nonce
        self._find = find
        self._decide = decide
        self._at = _At.START
        self._user = ""
        self._gs2 = ""
        self._first = ""
        self._keys: ScramKeys | None = None

    def step(self, response: bytes | None, /) -> Step | Deferred[Step]:
        """Judge a response of the client."""
        try:
            if self._at is _At.START:
                return Challenge(b"") if not response else self._receive_first(_text(response))
            if self._at is _At.ASKED:
                return self._receive_final(_text(response or b""))
            return Failure("a SCRAM client answered our signature") if response else Success(self._user)
        except _ScramError as error:
            return Failure(str(error))

    def _receive_first(self, message: str) -> Step | Deferred[Step]:
        binding, *rest = message.split(",", 2)
        if binding not in ("n", "y") or len(rest) != 2:
            raise _ScramError("a SCRAM client asks for channel binding, or its first message cannot be read")
        acts_for, bare = rest
        name, nonce = _attributes(bare, "n", "r")
        _check_nonce(nonce, MAX_NONCE)
        if "=" in name.replace("=2C", "").replace("=3D", ""):
            raise _ScramError("a SCRAM user name has = that is neither =2C nor =3D")
        try:
            self._user = saslprep(name.replace("=2C", ",").replace("=3D", "="), "user name")
        except LocalProtocolError as error:
            raise _ScramError(str(error)) from None
        if acts_for and acts_for != f"a={name}":
            raise _ScramError(f"user {self._user!r} asks to act for somebody else")
        self._gs2 = f"{binding},{acts_for},"
        self._nonce = nonce + self._nonce
        self._first = bare
        found = self._find(self._user)
        if isinstance(found, Deferred):
            then = found.then
            return Deferred(found.work, lambda result: self._ask(then(result)))
        return self._ask(found)

    def _ask(self, keys: ScramKeys) -> Step:
        self._keys = keys
        self._at = _At.ASKED
        asked = f"r={self._nonce},s={_base64(keys.salt)},i={keys.iterations}"
        self._first = f"{self._first},{asked}"
        return Challenge(asked.encode())

    def _receive_final(self, message: str) -> Step:
        assert self._keys is not None
        without_proof, mark, proof_text = message.rpartition(",p=")
        if not mark:
            raise _ScramError("a SCRAM client's last message has no proof")
        gs2, nonce = _attributes(without_proof, "c", "r")
        proof = _bytes(proof_text)
        if _bytes(gs2) != self._gs2.encode() or len(proof) != self._scram.size:
            raise _ScramError("a SCRAM client's last message does not go with its first")
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise _ScramError("a SCRAM client's last message is of another dialogue")
        scram, keys = self._scram, self._keys
        signed = f"{self._first},{without_proof}".encode()
        tried = scram.digest(_xor(proof, scram.mac(keys.stored_key, signed)))
        is_right = hmac.compare_digest(tried, keys.stored_key)
        signature = scram.mac(keys.server_key, signed)
        if not self._decide(self._user, is_right):
            return Failure(f"wrong user name or password for user {self._user!r}")
        self._at = _At.PROVED
        return Challenge(f"v={_base64(signature)}".encode())


# --- client -----------------------------------------------------------------------------------------------------------

SaltedPasswords: TypeAlias = MutableMapping[tuple[str, str, str, bytes, int], bytes]
"""Salted passwords by mechanism, user, password, salt and iterations: who connects again has them already."""
MAX_SALTED = 16
"""Salted passwords a client keeps; routers have salts of their own."""


class ScramClient:
    """The client's side of SCRAM.

    Args:
        scram: the mechanism.
        user, password: as the user types them.
        nonce: as the server's; new for each dialogue.
        salted: salted passwords of earlier dialogues, and where that of this one is kept.

    Raises:
        LocalProtocolError: user name or password cannot be used with SCRAM.
    """

    def __init__(
        self, scram: ScramHash, user: str, password: str, nonce: str, salted: SaltedPasswords | None = None
    ) -> None:
        self.name = scram.mechanism
        self.user: str | None = saslprep(user, "user name")
        self._scram = scram
        self._password = saslprep(password, "password")
        self._nonce = nonce
        self._salted = {} if salted is None else salted
        escaped = self.user.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={escaped},r={nonce}"
        self._signature: bytes | None = None
        self._is_asked = False
        self._is_proved = False

    def initial_response(self) -> bytes | None:
        """Return user name and nonce."""
        return (_GS2 + self._first).encode()

    def respond(self, challenge: bytes, /) -> bytes | Deferred[bytes]:
        """Answer the salt with a proof, and check the server's signature.

        Raises:
            RemoteProtocolError: the challenge cannot be read, asks for too little or too much work, or the server does
                not know the password.
        """
        try:
            if not self._is_asked:
                self._is_asked = True
                return self._receive_salt(_text(challenge))
            self._check_signature(_text(challenge))
        except _ScramError as error:
            raise RemoteProtocolError(UNAUTHORIZED_ACCESS, str(error)) from None
        return b""

    def complete(self, data: bytes | None, /) -> None:
        """The server says that the login is right; it must have proved that it knows the password.

        Raises:
            RemoteProtocolError: it has not: it is not the server it seems to be.
        """
        if not self._is_proved and data is not None:
            self.respond(data)
        if not self._is_proved:
            raise RemoteProtocolError(ILLEGAL_STATE, "the server took the login without a proof that it knows the user")

    def _receive_salt(self, message: str) -> bytes | Deferred[bytes]:
        nonce, salt_text, count = _attributes(message, "r", "s", "i")
        _check_nonce(nonce, 2 * MAX_NONCE)
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise _ScramError("the server's nonce does not go on from ours")
        salt = _bytes(salt_text)
        if not 0 < len(salt) <= MAX_SALT:
            raise _ScramError(f"the server's salt does not have 1 to {MAX_SALT} bytes")
        if not (count.isascii() and count.isdigit() and len(count) <= len(str(MAX_ITERATIONS))):
            raise _ScramError("the server's number of iterations cannot be read, or is far too large")
        iterations = int(count)
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise _ScramError(
                f"the server asks for {iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are carried out"
            )
        without_proof = f"c={_base64(_GS2.encode())},r={nonce}"
        signed = f"{self._first},{message},{without_proof}"
        assert self.user is not None
        key = (self.name, self.user, self._password, salt, iterations)
        known = self._salted.get(key)
        if known is not None:
            return self._prove(known, signed, without_proof)

        def then(salted: bytes) -> bytes:
            while len(self._salted) >= MAX_SALTED:
                del self._salted[next(iter(self._salted))]
            self._salted[key] = salted
            return self._prove(salted, signed, without_proof)

        return Deferred(lambda: self._scram.salted(self._password.encode(), salt, iterations), then)

    def _prove(self, salted: bytes, signed: str, without_proof: str) -> bytes:
        scram, text = self._scram, signed.encode()
        client_key = scram.mac(salted, b"Client Key")
        proof = _xor(client_key, scram.mac(scram.digest(client_key), text))
        self._signature = scram.mac(scram.mac(salted, b"Server Key"), text)
        return f"{without_proof},p={_base64(proof)}".encode()

    def _check_signature(self, message: str) -> None:
        if self._signature is None or self._is_proved:
            raise _ScramError("a challenge came out of order")
        if message.startswith("e="):
            raise _ScramError("the server refused the proof")
        (signature,) = _attributes(message, "v")
        if not hmac.compare_digest(_bytes(signature), self._signature):
            raise _ScramError("the server does not know the password: it is not the server it seems to be")
        self._is_proved = True


def password_mechanisms(
    user: str, password: str, nonce: Callable[[], str], salted: SaltedPasswords | None, with_plain: bool
) -> list[ClientMechanism]:
    """What a client with a password may log in with, best first.

    Args:
        user, password: as the user types them.
        nonce: makes the nonces; see `ScramClient`.
        salted: see `ScramClient`.
        with_plain: whether the password itself may be sent, as nobody else can read the connection.

    Raises:
        LocalProtocolError: no mechanism can use user name and password.
    """
    plain: list[ClientMechanism] = [PlainClient(user, password)] if with_plain else []
    try:
        return [*(ScramClient(scram, user, password, nonce(), salted) for scram in SCRAM_HASHES), *plain]
    except LocalProtocolError:
        if not plain:
            raise
        return plain
