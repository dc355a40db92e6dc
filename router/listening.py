"""Opens TCP listeners, and says what a user can do about an address that cannot be listened on."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable

from oncewire.cli.errors import CliError
from oncewire.transport.tls import HANDSHAKE_S, SHUTDOWN_S

BACKLOG = 1024
"""After a failover thousands of clients connect at once."""


async def listen(
    factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, flag: str, tls: ssl.SSLContext | None = None
) -> asyncio.Server:
    """Listen on host and port.

    Args:
        factory: makes the protocol of a connection, before the TLS handshake where there is one.
        host: address or name to listen on.
        port: 0 = any free one.
        flag: of the port, for errors.
        tls: None = plain TCP.

    Raises:
        CliError: the address is in use, not ours, or not to be had.
    """
    loop = asyncio.get_running_loop()
    try:
        if tls is None:
            return await loop.create_server(factory, host, port, backlog=BACKLOG)
        return await loop.create_server(
            factory, host, port, backlog=BACKLOG, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=SHUTDOWN_S,
        )  # fmt: skip
    except OSError as error:
        raise cannot_listen(error, host, port, flag) from None


def cannot_listen(error: OSError, host: str, port: int, flag: str) -> CliError:
    """What a user needs to know about an address that cannot be listened on."""
    host_flag = flag.removesuffix("port") + "host"
    what = f"cannot listen on {host}:{port}"
    if isinstance(error, socket.gaierror):
        return CliError(
            what, f"{host} is no known host name or address", f"give {host_flag} an address of this machine"
        )
    if error.errno == errno.EADDRINUSE:
        return CliError(
            what,
            "the port is in use",
            f"stop the other program, or give {flag} another port (0 = any free one)",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return CliError(
            what, "this machine does not have that address", f"give {host_flag} an address of this machine"
        )
    if error.errno == errno.EACCES:
        return CliError(what, "ports below 1024 need privileges", f"give {flag} a port from 1024 on")
    return CliError(
        what,
        error.strerror or str(error),
        f"give {host_flag} and {flag} an address of this machine that is free",
    )


def port_of(server: asyncio.Server) -> int:
    """The port a listener got."""
    port = server.sockets[0].getsockname()[1]
    assert isinstance(port, int)
    return port


def reachable(host: str) -> str:
    """The host others use for a listener on `host`."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
