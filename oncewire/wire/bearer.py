"""SASL OAUTHBEARER (RFC 7628) and XOAUTH2: a token says who the client is. Sans-IO; who checks the token comes in.

A token is as good as a password to whoever reads it: use these mechanisms inside TLS or on loopback only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from oncewire.wire.errors import LocalProtocolError
from oncewire.wire.performatives import SaslCode
from oncewire.wire.sasl import Challenge, Deferred, Failure, Step

OAUTHBEARER = "OAUTHBEARER"
XOAUTH2 = "XOAUTH2"
MAX_TOKEN = 7_500
"""Characters: the init frame has 8,192 bytes at most, and holds more than the token."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, section 2.1."""
_INVALID = b'{"status":"invalid_token"}'
"""RFC 7628, section 3.2.2: it is sent before the outcome."""

Ask: TypeAlias = Callable[[str, str], Step | Deferred[Step]]
"""Gets the user that the client names (empty if it names none) and its token; returns Success or Failure."""


class BearerServer:
    """The server's side of both mechanisms.

    Args:
        name: of the mechanism.
        ask: judges the token; it refuses a user who is named and is not the token's.
    """

    def __init__(self, name: str, ask: Ask) -> None:
        self._read = _read_oauthbearer if name == OAUTHBEARER else _read_xoauth2
        self._notifies_why = name == OAUTHBEARER
        self._ask = ask
        self._failure: Failure | None = None

    def step(self, response: bytes | None, /) -> Step | Deferred[Step]:
        """Judge the client's response, and take note that it has heard of a failure."""
        if self._failure is not None:
            return self._failure
        if response is None:
            return Challenge(b"")
        try:
            user, token = self._read(response.decode("utf-8"))
        except ValueError:
            return Failure("the token cannot be found in what the client sent")
        found = self._ask(user, token)
        if isinstance(found, Deferred):
            then = found.then
            return Deferred(found.work, lambda result: self._reported(then(result)))
        return self._reported(found)

    def _reported(self, step: Step) -> Step:
        if not self._notifies_why or not isinstance(step, Failure) or step.code is not SaslCode.AUTH:
            return step
        self._failure = step
        return Challenge(_INVALID)


def _read_oauthbearer(message: str) -> tuple[str, str]:
    """RFC 7628, section 3.1: `n,a=USER,` and pairs of which one is `auth`, each ended by 0x01."""
    head, *pairs = message.split("\x01")
    binding, acts_for, rest = head.split(",")
    if binding not in ("n", "y") or rest or (acts_for and not acts_for.startswith("a=")):
        raise ValueError
    user = acts_for.removeprefix("a=").replace("=2C", ",").replace("=3D", "=")
    return user, _token_in(pairs)


def _read_xoauth2(message: str) -> tuple[str, str]:
    """`user=USER` and `auth=Bearer TOKEN`, each ended by 0x01."""
    first, *pairs = message.split("\x01")
    if not first.startswith("user="):
        raise ValueError
    return first.removeprefix("user="), _token_in(pairs)


def _token_in(pairs: list[str]) -> str:
    (auth,) = (pair.removeprefix("auth=") for pair in pairs if pair.startswith("auth="))
    scheme, _, token = auth.partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not is_token(token):
        raise ValueError
    return token


def is_token(text: str) -> bool:
    """Whether it can be sent as a token."""
    return len(text) <= MAX_TOKEN and _TOKEN.fullmatch(text) is not None


class OAuthBearerClient:
    """The client's side of OAUTHBEARER; a token has its user inside.

    Raises:
        LocalProtocolError: it is no token.
    """

    def __init__(self, token: str) -> None:
        if not is_token(token):
            raise LocalProtocolError(f"a token has 1 to {MAX_TOKEN} characters of A-Z a-z 0-9 . _ ~ + / - =")
        self.name = OAUTHBEARER
        self.user: str | None = None
        self._token = token

    def initial_response(self) -> bytes | None:
        """Return the token."""
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def respond(self, _challenge: bytes, /) -> bytes:
        """The server has reported that the token is refused: RFC 7628, section 3.2.3."""
        return b"\x01"

    def complete(self, _data: bytes | None, /) -> None:
        """The server proves nothing: that is what TLS is for."""
