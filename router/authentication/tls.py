"""TLS of one router process: the contexts of its listeners and of its connections to other routers.

Files are read when the process starts, when the settings are loaded again, and when they have changed. New connections
use what was read last; open ones go on with what they began with.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oncewire.cli.errors import CliError
from oncewire.transport.file_watch import FileWatch
from oncewire.transport.tls import (
    ALPN_AMQP,
    ALPN_HTTP,
    VERIFY,
    ListenerContext,
    ServerEnd,
    TlsFiles,
    TlsFilesError,
    client_context,
    server_context,
)
from router.authentication.revocation_core import CertificateId, certificate_id, revoked_in
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig

LOG_AGAIN_S = 60.0
"""A handshake that fails for a reason that was logged is logged again after this time; all of them are counted."""
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class _Contexts:
    """What one reading of the files came to; None = without TLS."""

    clients: ssl.SSLContext | None
    neighbours: ssl.SSLContext | None
    http: ssl.SSLContext | None
    to_neighbours: ssl.SSLContext | None
    to_http: ssl.SSLContext | None


class RouterTls:
    """The contexts in force."""

    def __init__(self, config: RouterConfig, log: EventLog) -> None:
        """Read the files.

        Raises:
            CliError: a file cannot be used.
        """
        self.refused = 0
        """Handshakes that failed at the listeners."""
        self._config = config
        self._log = log
        self._logged: dict[tuple[str, str], float] = {}
        self._watch = FileWatch(_files(config))
        self._contexts = _read(config)
        self._revoked = _revoked(config)
        self.clients = self._listener("client", lambda: self._contexts.clients)
        """For the listener of AMQP clients, as the next two; it is the same object after `load`."""
        self.neighbours = self._listener("inter_router", lambda: self._contexts.neighbours)
        self.http = self._listener("http", lambda: self._contexts.http)

    @property
    def is_used(self) -> bool:
        """Whether there are files to load again."""
        return self._contexts != _NONE

    @property
    def to_neighbours(self) -> ssl.SSLContext | None:
        """For the next connection to another router."""
        return self._contexts.to_neighbours

    def to_http(self) -> ssl.SSLContext | None:
        """For the next request to another router's https; None = what is trusted on this machine."""
        return self._contexts.to_http

    def load(self) -> None:
        """Read the files again. What is read holds for new connections.

        Raises:
            CliError: a file cannot be used; nothing has changed.
        """
        self._watch.note()
        contexts, revoked = _read(self._config), _revoked(self._config)
        self._contexts, self._revoked = contexts, revoked

    def have_changed(self) -> bool:
        """Whether to read the files again: they were replaced, and nobody is still at it. Ask every few seconds."""
        return self._watch.look()

    def is_revoked(self, certificate: bytes | None) -> bool:
        """Whether the last list that was read revokes this certificate (DER) of an open connection."""
        return certificate is not None and bool(self._revoked) and certificate_id(certificate) in self._revoked

    def _listener(self, name: str, current: Callable[[], ssl.SSLContext | None]) -> ssl.SSLContext | None:
        return None if current() is None else ListenerContext.of(current, lambda why: self._on_refused(name, why))

    def _on_refused(self, listener: str, why: str) -> None:
        self.refused += 1
        now = time.monotonic()
        before = self._logged.get((listener, why))
        if before is None or now - before >= LOG_AGAIN_S:
            self._logged = {known: at for known, at in self._logged.items() if now - at < LOG_AGAIN_S}
            self._logged[listener, why] = now
            self._log.event(RouterEvent.TLS_REFUSED, listener=listener, why=why, refused=self.refused)


_NONE = _Contexts(None, None, None, None, None)


def _read(config: RouterConfig) -> _Contexts:
    """All contexts anew.

    Raises:
        CliError: a file cannot be used.
    """
    if not config.tls_cert_file and not config.tls_ca_file:
        return _NONE
    own = TlsFiles(
        _path(config.tls_ca_file), _path(config.tls_cert_file), _path(config.tls_key_file), _path(config.tls_crl_file)
    )
    of_routers = own._replace(ca=_path(config.inter_router_ca_file) or own.ca)

    def listener(is_used: bool, files: TlsFiles, clients: str, alpn: str = ALPN_AMQP) -> ssl.SSLContext | None:
        if not is_used:
            return None
        context = server_context(files, VERIFY[clients], alpn)
        context.minimum_version = _VERSIONS[config.tls_min_version]
        context.sslobject_class = ServerEnd
        return context

    try:
        return _Contexts(
            clients=listener(config.listen_tls, own, config.tls_client_certificates),
            neighbours=listener(config.inter_router_tls, of_routers, "required"),
            http=listener(config.http_tls, own, config.http_client_certificates, ALPN_HTTP),
            to_neighbours=_to_neighbours(of_routers) if config.inter_router_tls else None,
            to_http=client_context(of_routers, ALPN_HTTP),
        )
    except TlsFilesError as error:
        raise CliError(
            "the TLS files cannot be used",
            str(error),
            "check the settings tls.* and inter_router.ca_file: PEM files this process may read, a key that fits the "
            "certificate and has no passphrase",
        ) from None


def _files(config: RouterConfig) -> list[Path]:
    named = (
        config.tls_cert_file,
        config.tls_key_file,
        config.tls_ca_file,
        config.tls_crl_file,
        config.inter_router_ca_file,
    )
    return [Path(name) for name in named if name]


def _revoked(config: RouterConfig) -> frozenset[CertificateId]:
    if not config.tls_crl_file:
        return frozenset()
    try:
        return revoked_in(Path(config.tls_crl_file).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise CliError(
            "the list of revoked certificates cannot be used",
            f"{error} ({config.tls_crl_file})",
            "give tls.crl_file the lists of your authorities in PEM",
        ) from None


def _to_neighbours(files: TlsFiles) -> ssl.SSLContext:
    """Any certificate of the routers' authority will do: routers are called by addresses, which it need not name."""
    context = client_context(files)
    context.check_hostname = False
    return context


def _path(file: str) -> Path | None:
    return Path(file) if file else None
