"""Opens the router's TCP listeners, and says what a user can do about an address that cannot be listened on."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from oncewire.cli.errors import CliError
from oncewire.transport.accepting import Gate, Listener, OpenGate, addresses, bound, bound_at, new_socket


async def listen(
    factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    flag: str,
    tls: ssl.SSLContext | None = None,
    gate: Gate | None = None,
    *,
    is_shared: bool = False,
) -> Listener:
    """Listen on host and port.

    Args:
        factory: makes the protocol of a connection, before the TLS handshake where there is one.
        host: address or name to listen on.
        port: 0 = any free one.
        flag: of the port, for errors.
        tls: None = plain TCP.
        gate: who is admitted; None = everybody.
        is_shared: other processes of this user listen there, too, and the kernel gives each its part of connections.

    Raises:
        CliError: the address is in use, not ours, or not to be had.
    """
    try:
        return Listener(await bound(host, port, is_shared=is_shared), factory, tls, gate or OpenGate())
    except OSError as error:
        raise cannot_listen(error, host, port, flag) from None


def listen_at(path: str, factory: Callable[[], asyncio.BaseProtocol], gate: Gate | None = None) -> Listener:
    """Listen on a Unix socket, in the place of a process that has ended; who may enter its folder may connect."""
    Path(path).unlink(missing_ok=True)
    return Listener([bound_at(path)], factory, None, gate or OpenGate())


async def reserve(host: str, port: int, flag: str) -> list[socket.socket]:
    """Sockets that keep an address for processes that will share it, and take no connections themselves.

    Raises:
        CliError: the address is in use, not ours, or not to be had.
    """
    loop = asyncio.get_running_loop()
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in await addresses(loop, host, port):
            each = new_socket(family, kind, protocol)
            sockets.append(each)
            each.bind((address[0], port, *address[2:]))
            port = each.getsockname()[1]  # the same for all addresses of the host, where any free one was asked for
            # Not before: an address that others share already is not for us. Behind it nobody else takes it.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        for each in sockets:
            each.close()
        raise cannot_listen(error, host, port, flag) from None
    return sockets


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
            what, "the port is in use", f"stop the other program, or give {flag} another port (0 = any free one)"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return CliError(what, "this machine does not have that address", f"give {host_flag} an address of this machine")
    if error.errno == errno.EACCES:
        return CliError(what, "ports below 1024 need privileges", f"give {flag} a port from 1024 on")
    return CliError(
        what, error.strerror or str(error), f"give {host_flag} and {flag} an address of this machine that is free"
    )


def reachable(host: str) -> str:
    """The host others use for a listener on `host`."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
