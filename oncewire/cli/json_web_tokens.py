"""Checks JSON Web Tokens (RFC 7519) with the public keys of whoever issues them; needs the extra `oncewire[jwt]`.

Routers and bridge nodes take tokens by it.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp
import jwt

from oncewire.cli.errors import CliError
from oncewire.settings.parsers import without_login

FETCH_S = 3.0
"""For the whole request; a login may take 5 s."""
KEYS_MAX_AGE_S = 3600.0
"""Keys are read again after this time: one that the issuer has taken back is not accepted for longer."""
MAX_KEYS_BYTES = 1 << 20
MAX_KEYS = 100
MAX_VALID_S = 366 * 86_400.0
"""A timer does not last longer, and neither does this process."""
_KINDS = {
    **{f"{family}{bits}": ("RSA", "") for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The type and curve of an algorithm's keys: a key is used with no other algorithm."""
_REASONS: dict[type[Exception], str] = {
    jwt.ExpiredSignatureError: "the token has expired",
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidSignatureError: "the token's signature is wrong",
    jwt.InvalidAudienceError: "the token is for another audience than jwt.audience",
    jwt.InvalidIssuerError: "the token is of another issuer than jwt.issuer",
    jwt.MissingRequiredClaimError: "the token lacks a claim that is needed",
}


class TokenSettings(Protocol):
    """What of a program's settings is for tokens."""

    @property
    def jwks_url(self) -> str: ...  # noqa: D102
    @property
    def jwks_file(self) -> str: ...  # noqa: D102
    @property
    def jwt_issuer(self) -> str: ...  # noqa: D102
    @property
    def jwt_audience(self) -> str: ...  # noqa: D102
    @property
    def jwt_user_claim(self) -> str: ...  # noqa: D102
    @property
    def jwt_algorithms(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def jwt_leeway_s(self) -> float: ...  # noqa: D102
    @property
    def jwt_refetch_s(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class _Key:
    name: str | None
    algorithm: str
    key: jwt.PyJWK


@dataclass(frozen=True, slots=True)
class TokenUser:
    """Whom a token names.

    Attributes:
        user: the name.
        valid_for_s: the token has expired after this time.
    """

    user: str
    valid_for_s: float


class TokenRefused(Exception):
    """The token is wrong. The text is for a log: it names the reason, and nothing of the token."""


class TokenUndecided(Exception):
    """It cannot be known just now: the keys cannot be fetched. The text is for a log."""


class TokenChecker:
    """Takes whom a token of the issuer names."""

    def __init__(self, settings: TokenSettings) -> None:
        """Read the file of keys, if there is one; keys behind a URL are fetched with the first login.

        Raises:
            CliError: the file cannot be used.
        """
        self._settings = settings
        self._keys: list[_Key] = []
        self._read_at: float | None = None
        """When the keys came from the URL; None = not yet."""
        self._tried_at = -float("inf")
        self._fault = ""
        self._fetching: asyncio.Task[None] | None = None
        self.load()

    def load(self) -> None:
        """Read the file of keys again, or fetch the keys anew before the next login.

        Raises:
            CliError: the file cannot be used; nothing has changed.
        """
        path = self._settings.jwks_file
        if not path:
            self._read_at, self._tried_at = None, -float("inf")
            return
        try:
            with Path(path).open("rb") as file:
                self._keys = self._parse(file.read(MAX_KEYS_BYTES + 1))
        except (OSError, ValueError) as error:
            why = f"{error} ({path})"
            raise CliError("the keys of tokens cannot be used", why, "give jwt.jwks_file a JSON Web Key Set") from None

    async def check(self, token: str) -> TokenUser:
        """Who it names.

        Raises:
            TokenRefused: it is wrong.
            TokenUndecided: the keys cannot be fetched.
        """
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            algorithm, name = header.get("alg"), header.get("kid")
            if algorithm not in settings.jwt_algorithms or "crit" in header:
                raise TokenRefused("the token is signed with an algorithm that jwt.algorithms does not allow")
            key = await self._key(None if name is None else str(name), algorithm)
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=settings.jwt_audience,
                issuer=settings.jwt_issuer,
                leeway=settings.jwt_leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:  # its text is not logged: it may hold parts of the token
            why = next((each for kind, each in _REASONS.items() if isinstance(error, kind)), "")
            raise TokenRefused(why or f"the token cannot be used: {type(error).__name__}") from None
        user = claims.get(settings.jwt_user_claim)
        if not isinstance(user, str) or not user:
            raise TokenRefused(f"the token has no text as claim {settings.jwt_user_claim}")
        valid_for_s = float(claims["exp"]) + settings.jwt_leeway_s - time.time()
        return TokenUser(user, min(max(valid_for_s, 0.0), MAX_VALID_S))

    async def _key(self, name: str | None, algorithm: str) -> jwt.PyJWK:
        settings, now = self._settings, time.monotonic()
        if settings.jwks_url and (self._read_at is None or now - self._read_at > KEYS_MAX_AGE_S):
            await self._fetch()
            if self._fault:
                raise TokenUndecided(self._fault)
        found = self._find(name, algorithm)
        if found is None and settings.jwks_url:
            await self._fetch()
            found = self._find(name, algorithm)
            if found is None and self._fault:
                raise TokenUndecided(self._fault)
        if found is None:
            raise TokenRefused("the token is signed with a key that is not among those of jwt.jwks_*")
        return found

    def _find(self, name: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The one key that it can be; a token need not name it where there is one only."""
        found = [each for each in self._keys if each.algorithm == algorithm and name in (None, each.name)]
        return found[0].key if len(found) == 1 else None

    async def _fetch(self) -> None:
        """Fetch the keys, once for all who wait, and not again within `jwt.refetch_s`; `_fault` states the result."""
        if self._fetching is None:
            now = time.monotonic()
            if now - self._tried_at < self._settings.jwt_refetch_s:
                return
            self._tried_at = now
            self._fetching = asyncio.create_task(self._fetch_now())
            self._fetching.add_done_callback(self._on_fetched)
        await asyncio.shield(self._fetching)

    def _on_fetched(self, _task: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _fetch_now(self) -> None:
        url = self._settings.jwks_url
        self._fault = f"the keys of tokens cannot be fetched from {without_login(url)}: "
        try:
            content = b""
            timeout = aiohttp.ClientTimeout(total=FETCH_S)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    raise ValueError(f"status {answer.status}")
                async for part in answer.content.iter_chunked(1 << 16):
                    content += part
                    if len(content) > MAX_KEYS_BYTES:
                        break
            self._keys = self._parse(content)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self._fault += str(error) or type(error).__name__
            return
        self._fault = ""
        self._read_at = time.monotonic()

    def _parse(self, content: bytes) -> list[_Key]:
        """The public keys of a JSON Web Key Set, each with the algorithms that it may be used with.

        Raises:
            ValueError: it is none, or has no key for the algorithms that are allowed.
        """
        if len(content) > MAX_KEYS_BYTES:
            raise ValueError(f"it has more than {MAX_KEYS_BYTES} bytes")
        found = json.loads(content)
        listed = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(listed, list) or len(listed) > MAX_KEYS:
            raise ValueError(f"it is no set of up to {MAX_KEYS} keys")
        keys: list[_Key] = []
        for each in listed:
            if not isinstance(each, dict) or each.get("use", "sig") != "sig":
                continue
            for algorithm in self._settings.jwt_algorithms:
                kind, curve = _KINDS[algorithm]
                fits = each.get("kty") == kind and curve in ("", each.get("crv"))
                if not fits or each.get("alg", algorithm) != algorithm:
                    continue
                try:
                    keys.append(_Key(each.get("kid"), algorithm, jwt.PyJWK(each, algorithm)))
                except jwt.PyJWTError as error:
                    raise ValueError(f"a key cannot be read: {type(error).__name__}") from None
        if not keys:
            raise ValueError(f"it has no public key for {', '.join(self._settings.jwt_algorithms)}")
        return keys
