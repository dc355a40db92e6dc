"""TLS of a node: the files it is given, what it connects to routers with, and what it and its clients meet with."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import oncewire.transport.tls as transport_tls
from bridges.doors.errors import BadRequest


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Whom to trust, and who to be. All files are PEM.

    Attributes:
        ca: certificates of authorities that the other side's certificate may come from; None = those of this machine.
        certificate: our own; None = we show none.
        key: of the certificate, without passphrase; None = it is in the certificate's file.
        checks_hostname: a server's certificate must be for the host we connect to. Without, any certificate of the
            authorities will do: for their own `ca` only.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    checks_hostname: bool = True


NO_FILES = TlsFiles()


def tls_context(files: TlsFiles, routers: Sequence[str]) -> ssl.SSLContext | None:
    """What to connect with, also when the files are replaced; None = the client's default, or no URL asks for TLS.

    Raises:
        BadRequest: a file cannot be used, or nothing would use it.
    """
    if files == NO_FILES:
        return None
    if not ask_for_tls(routers):
        raise BadRequest(
            "the TLS settings cannot be used",
            "no router's URL asks for TLS",
            "write amqps://HOST:PORT for TLS, or wss://HOST:PORT",
        )
    # Some servers of HTTP refuse who offers `amqp` alone.
    by_http = any(urlsplit(url).scheme == "wss" for url in routers)
    return _client_context(files, None if by_http else transport_tls.ALPN_AMQP)


def ask_for_tls(routers: Sequence[str]) -> bool:
    """Whether one of these URLs asks for TLS."""
    return any(urlsplit(url).scheme in ("amqps", "wss") for url in routers)


def node_context(files: TlsFiles) -> ssl.SSLContext:
    """What a client of a node connects with, also when the files are replaced.

    Raises:
        BadRequest: a file cannot be used.
    """
    return _client_context(files, None)


def listener_context(
    files: TlsFiles, certificates: str, alpn: str, on_refused: Callable[[str], None]
) -> ssl.SSLContext:
    """What a door of the node serves with, also when the files are replaced.

    Args:
        files: the certificate is needed; the authorities are those of clients.
        certificates: of clients: none, optional or required.
        alpn: the protocol that is offered.
        on_refused: called with the reason when a handshake fails.

    Raises:
        BadRequest: a file cannot be used.
    """
    own = transport_tls.TlsFiles(files.ca, files.certificate, files.key)

    def read() -> ssl.SSLContext:
        context = transport_tls.server_context(own, transport_tls.VERIFY[certificates], alpn)
        context.sslobject_class = transport_tls.ServerEnd
        return context

    try:
        return transport_tls.ListenerContext.of(transport_tls.Rotating(read, own), on_refused)
    except transport_tls.TlsFilesError as error:
        raise _unusable(error) from None


def _client_context(files: TlsFiles, alpn: str | None) -> ssl.SSLContext:
    if files.key is not None and files.certificate is None:
        raise BadRequest("the TLS key cannot be used", "there is no certificate to it", "give the certificate, too")
    if not files.checks_hostname and files.ca is None:
        raise BadRequest(
            "the check of host names cannot be left out",
            "any host with a certificate of a public authority could pretend to be the other side",
            "give the file of your own authority's certificate, too",
        )
    try:
        own = transport_tls.TlsFiles(files.ca, files.certificate, files.key)
        return transport_tls.rotating_client_context(own, alpn, checks_hostname=files.checks_hostname)
    except transport_tls.TlsFilesError as error:
        raise _unusable(error) from None


def _unusable(error: transport_tls.TlsFilesError) -> BadRequest:
    return BadRequest(
        "the TLS files cannot be used",
        str(error),
        "give PEM files that this process may read, with a key that has no passphrase",
    )
