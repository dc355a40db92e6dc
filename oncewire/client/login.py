"""How a client logs in: with SCRAM where the router has it, and never with a password that others could read."""

from __future__ import annotations

import secrets

from oncewire.client.errors import UsageError
from oncewire.client.failover import Address
from oncewire.transport.connecting import is_loopback
from oncewire.wire import (
    ANONYMOUS,
    LocalProtocolError,
    SaltedPasswords,
    SaslClient,
    SaslResult,
    password_mechanisms,
)

NONCE_BYTES = 18


def sasl_client(address: Address, salted: SaltedPasswords, allow_plain: bool) -> SaslClient:
    """How to log in at an address: with SCRAM, and with PLAIN where nobody else can read it, or it is allowed.

    Raises:
        UsageError: user name or password cannot be used.
    """
    if address.user is None:
        return SaslClient(ANONYMOUS, hostname=address.host)
    with_plain = address.tls or allow_plain or is_loopback(address.host)
    try:
        mechanisms = password_mechanisms(address.user, address.password or "", _nonce, salted, with_plain)
    except LocalProtocolError as error:
        raise UsageError(f"nobody can log in at {address}", str(error), "choose another user or password") from None
    return SaslClient(mechanisms, hostname=address.host)


def _nonce() -> str:
    return secrets.token_urlsafe(NONCE_BYTES)


def refusal_of(result: SaslResult, address: Address) -> tuple[str, str]:
    """Why a login failed, and what to do."""
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
