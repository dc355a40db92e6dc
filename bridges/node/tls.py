"""TLS to routers: the files a node is given, and the context its clients connect with."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import oncewire.transport.tls as transport_tls
from bridges.node.errors import BadRequest


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Whom to trust, and who to be. All files are PEM.

    Attributes:
        ca: certificates of authorities that routers' certificates may come from; None = those of this machine.
        certificate: of this client; None = it shows none.
        key: of the certificate, without passphrase; None = it is in the certificate's file.
        checks_hostname: the router's certificate must be for the host of its URL. Without, any certificate of the
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
    schemes = {urlsplit(url).scheme for url in routers}
    if schemes.isdisjoint({"amqps", "wss"}):
        raise BadRequest(
            "the TLS settings cannot be used", "no router's URL asks for TLS",
            "write amqps://HOST:PORT for TLS, or wss://HOST:PORT",
        )  # fmt: skip
    if files.key is not None and files.certificate is None:
        raise BadRequest("the TLS key cannot be used", "there is no certificate to it", "give the certificate, too")
    if not files.checks_hostname and files.ca is None:
        raise BadRequest(
            "the check of host names cannot be left out",
            "any host with a certificate of a public authority could pretend to be a router",
            "give the file of your own authority's certificate, too",
        )
    try:
        own = transport_tls.TlsFiles(files.ca, files.certificate, files.key)
        # Some servers of HTTP refuse who offers `amqp` alone.
        alpn = None if "wss" in schemes else transport_tls.ALPN_AMQP
        return transport_tls.rotating_client_context(own, alpn, checks_hostname=files.checks_hostname)
    except transport_tls.TlsFilesError as error:
        raise BadRequest(
            "the TLS files cannot be used",
            str(error),
            "give PEM files that this process may read, with a key that has no passphrase",
        ) from None
