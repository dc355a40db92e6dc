"""How a client logs in: with SCRAM where the router has it, and with nothing that others could read and use.

What passwords and tokens need is imported where they are used: a client without either starts faster.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from oncewire.client.errors import UsageError
from oncewire.client.failover import Address
from oncewire.transport.hosts import is_loopback
from oncewire.wire import (
    ANONYMOUS,
    EXTERNAL,
    AnonymousClient,
    ExternalClient,
    LocalProtocolError,
    SaslClient,
    SaslResult,
)

if TYPE_CHECKING:
    from oncewire.wire.scram import SaltedPasswords

NONCE_BYTES = 18

TokenSource: TypeAlias = Callable[[], str | Awaitable[str]]
"""Returns a token that is valid now; it is called before each login."""


def check_login(addresses: Iterable[Address], token: TokenSource | None) -> None:
    """Check that it is clear who logs in.

    Raises:
        UsageError: a token is given, and a user in an address.
    """
    if token is not None and any(address.user is not None for address in addresses):
        raise UsageError("the login is not clear", "a token is given, and a user in an address", "give one of them")


async def token_of(source: TokenSource) -> str:
    """The token for the next login.

    Raises:
        ConnectionError: the source has failed, or what it has is no token; it may have one later.
    """
    from oncewire.wire.bearer import MAX_TOKEN, is_token

    try:
        found = source()
        token = await found if inspect.isawaitable(found) else found
    except Exception as error:
        raise ConnectionError(f"there is no token: {type(error).__name__}: {error}") from error
    if not is_token(token):
        raise ConnectionError(f"there is no token: it has 1 to {MAX_TOKEN} characters of A-Z a-z 0-9 . _ ~ + / - =")
    return token


def sasl_client(
    address: Address, salted: SaltedPasswords, allow_plain: bool, token: str | None = None, hostname: str | None = None
) -> SaslClient:
    """How to log in at an address.

    With SCRAM; with a token, or with PLAIN, only where nobody else can read it, or it is allowed; without either by
    the certificate, where the router takes it. `hostname` is that of the open, where it is not the address's host.

    Raises:
        UsageError: user name, password or token cannot be used.
    """
    hostname = hostname or address.host
    with_plain = address.tls or allow_plain or is_loopback(address.host)
    if token is not None:
        if not with_plain:
            fix = "connect with TLS (amqps://); allow_plain = True sends it nevertheless"
            raise UsageError(f"no token is sent to {address}", "everybody on the way could read it", fix)
        from oncewire.wire.bearer import OAuthBearerClient

        return SaslClient(OAuthBearerClient(token), hostname=hostname)
    if address.user is None and address.tls:
        return SaslClient([ExternalClient(), AnonymousClient()], hostname=hostname)
    if address.user is None:
        return SaslClient(ANONYMOUS, hostname=hostname)
    from oncewire.wire.scram import password_mechanisms

    try:
        mechanisms = password_mechanisms(address.user, address.password or "", _nonce, salted, with_plain)
    except LocalProtocolError as error:
        raise UsageError(f"nobody can log in at {address}", str(error), "choose another user or password") from None
    return SaslClient(mechanisms, hostname=hostname)


def _nonce() -> str:
    import secrets

    return secrets.token_urlsafe(NONCE_BYTES)


def refusal_of(result: SaslResult, address: Address, has_token: bool = False) -> tuple[str, str]:
    """Why a login failed, and what to do."""
    from oncewire.wire.bearer import OAUTHBEARER

    if result.mechanism == OAUTHBEARER:
        return "it does not accept the token", "get a new one; the router's log has the reason"
    if result.mechanism == EXTERNAL:
        return "it knows no user for the certificate", "see its setting external.rules, and --cert-file or ssl_context"
    if not result.mechanism and has_token:
        return f"no token is sent there: {result.description}", "set jwt.* at the router, and TLS or listen.allow_plain"
    if not result.mechanism and address.user is not None:  # nothing was sent
        fix = (
            "connect with TLS (amqps://), or set users at the router; allow_plain = True sends the password as it is, "
            "for everybody on the way to read"
        )
        return f"a password is not sent there: {result.description}", fix
    why = (
        f"it knows no user {address.user!r} with this password"
        if address.user is not None
        else "it wants a user and a password"
    )
    return why, "give them in the address: amqp://USER:PASSWORD@HOST:PORT"
