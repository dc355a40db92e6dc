"""Addresses of bridge nodes, as pipelines and commands name them."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Any

from bridges.doors.tls import TlsFiles, node_context
from bridges.node.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Target:
    """What an address came to: family and place of a socket."""

    family: int
    place: Any
    is_tls: bool = False


def parse_address(address: str) -> Target:
    """What to connect to.

    Raises:
        BadRequest: it is no address of a node.
    """
    kind, _, rest = address.partition("://")
    if kind == "unix" and rest.startswith("/"):
        return Target(socket.AF_UNIX, rest)
    host, _, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if kind in ("tcp", "tls") and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536:
        return Target(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, int(port)), kind == "tls")
    raise BadRequest(
        f"{address!r} is no address of a bridge node",
        "it has none of the three forms",
        "give tcp://HOST:PORT, tls://HOST:PORT or unix:///PATH",
    )


def context_of(tls: TlsFiles | ssl.SSLContext) -> ssl.SSLContext:
    """What to connect with to an address with TLS.

    Raises:
        BadRequest: a file cannot be used.
    """
    return tls if isinstance(tls, ssl.SSLContext) else node_context(tls)
