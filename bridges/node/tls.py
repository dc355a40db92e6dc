"""TLS to routers: the files a node is given, and the context its clients connect with.

Routers themselves listen without TLS; it ends in front of them, in a proxy or load balancer (docs/operations.md).
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

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
    """What to connect with; None = the client's default, or no URL asks for TLS.

    Raises:
        BadRequest: a file cannot be used, or nothing would use it.
    """
    if files == NO_FILES:
        return None
    if not any(urlsplit(url).scheme == "amqps" for url in routers):
        raise BadRequest(
            "the TLS settings cannot be used", "no router's URL asks for TLS", "write amqps://HOST:PORT for TLS"
        )
    if files.key is not None and files.certificate is None:
        raise BadRequest("the TLS key cannot be used", "there is no certificate to it", "give the certificate, too")
    if not files.checks_hostname and files.ca is None:
        raise BadRequest(
            "the check of host names cannot be left out",
            "any host with a certificate of a public authority could pretend to be a router",
            "give the file of your own authority's certificate, too",
        )
    try:
        context = ssl.create_default_context(cafile=files.ca)
        if files.certificate is not None:
            # The answer of a program that has no passphrase: OpenSSL would ask on the terminal and wait.
            context.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(str(path) for path in (files.ca, files.certificate, files.key) if path is not None)
        raise BadRequest(
            "the TLS files cannot be used",
            f"{error} ({named})",
            "give PEM files that this process may read, with a key that has no passphrase",
        ) from None
    context.check_hostname = files.checks_hostname
    return context
