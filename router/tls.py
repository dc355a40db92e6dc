"""TLS of one router process: the contexts of its listeners and of its connections to other routers.

Files are read when the process starts, when the settings are loaded again, and when they have changed. New connections
use what was read last; open ones go on with what they began with.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from oncewire.cli.errors import CliError
from oncewire.transport.file_watch import FileWatch
from oncewire.transport.tls import (
    ALPN_AMQP,
    TlsFiles,
    TlsFilesError,
    client_context,
    fault_of,
    server_context,
)
from router.config import RouterConfig
from router.logs import EventLog, RouterEvent
from router.revocation_core import CertificateId, certificate_id, revoked_in

ALPN_HTTP = "http/1.1"
LOG_AGAIN_S = 60.0
"""A handshake that fails for a reason that was logged is logged again after this time; all of them are counted."""
TLS_WANTED = b"\x15\x03\x03\x00\x02\x02\x46"
"""A fatal alert, protocol_version (RFC 8446, section 6): our clients read it, others close the connection."""
_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
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
        return None if current() is None else _ListenerContext.of(current, lambda why: self._on_refused(name, why))

    def _on_refused(self, listener: str, why: str) -> None:
        self.refused += 1
        now = time.monotonic()
        before = self._logged.get((listener, why))
        if before is None or now - before >= LOG_AGAIN_S:
            self._logged = {known: at for known, at in self._logged.items() if now - at < LOG_AGAIN_S}
            self._logged[listener, why] = now
            self._log.event(RouterEvent.TLS_REFUSED, listener=listener, why=why, refused=self.refused)


class _ListenerContext(ssl.SSLContext):
    """Stands for the context in force: a listener is given one for its whole time."""

    _current: Callable[[], ssl.SSLContext | None]
    _on_refused: Callable[[str], None]

    @classmethod
    def of(cls, current: Callable[[], ssl.SSLContext | None], on_refused: Callable[[str], None]) -> _ListenerContext:
        """A context that asks `current` for each connection."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context._current, context._on_refused = current, on_refused
        return context

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, server_side: bool = False,
        server_hostname: str | bytes | None = None, session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:  # fmt: skip
        """See `ssl.SSLContext`."""
        context = self._current()
        assert context is not None
        wrapped = context.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(wrapped, _ServerEnd)
        wrapped.on_refused, wrapped.outgoing = self._on_refused, outgoing
        return wrapped


class _ServerEnd(ssl.SSLObject):
    """One connection's TLS. Event loops report a failed handshake to nobody, the other side included."""

    on_refused: Callable[[str], None]
    outgoing: ssl.MemoryBIO
    _fault: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        """See `ssl.SSLObject`."""
        if self._fault is not None:
            raise self._fault
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._fault = error
            self.on_refused(fault_of(error))
            if not self.outgoing.pending:  # OpenSSL says nothing to who speaks no TLS
                self.outgoing.write(TLS_WANTED)
            # As if more had to be read: a loop writes what there is then, here the alert that says why. The other side
            # closes the connection when it reads that; one that does not is closed after HANDSHAKE_S.
            raise ssl.SSLWantReadError from error


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
    of_routers = replace(own, ca=_path(config.inter_router_ca_file) or own.ca)

    def listener(is_used: bool, files: TlsFiles, clients: str, alpn: str = ALPN_AMQP) -> ssl.SSLContext | None:
        if not is_used:
            return None
        context = server_context(files, _VERIFY[clients], alpn)
        context.minimum_version = _VERSIONS[config.tls_min_version]
        context.sslobject_class = _ServerEnd
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
        config.tls_cert_file, config.tls_key_file, config.tls_ca_file, config.tls_crl_file, config.inter_router_ca_file,
    )  # fmt: skip
    return [Path(name) for name in named if name]


def _revoked(config: RouterConfig) -> frozenset[CertificateId]:
    if not config.tls_crl_file:
        return frozenset()
    try:
        return revoked_in(Path(config.tls_crl_file).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise CliError(
            "the list of revoked certificates cannot be used", f"{error} ({config.tls_crl_file})",
            "give tls.crl_file the lists of your authorities in PEM",
        ) from None  # fmt: skip


def _to_neighbours(files: TlsFiles) -> ssl.SSLContext:
    """Any certificate of the routers' authority will do: routers are called by addresses, which it need not name."""
    context = client_context(files)
    context.check_hostname = False
    return context


def _path(file: str) -> Path | None:
    return Path(file) if file else None
