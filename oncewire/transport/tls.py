"""TLS contexts from files: whom to trust, who to be. Routers, bridges and command lines make theirs here."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from oncewire.transport.file_watch import FileWatch

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("oncewire.transport")

HANDSHAKE_S = 10.0
"""From the TCP connection to the end of the TLS handshake. It takes milliseconds; a silent peer holds memory."""
SHUTDOWN_S = 1.0
"""For the peer's close_notify when a connection is closed. AMQP has said goodbye before it, so nothing waits for it."""
ALPN_AMQP = "amqp"
"""The name of AMQP in the TLS handshake."""
ALPN_HTTP = "http/1.1"
VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
"""What settings say of the certificates of clients."""
TLS_WANTED = b"\x15\x03\x03\x00\x02\x02\x46"
"""A fatal alert, protocol_version (RFC 8446, section 6): our clients read it, others close the connection."""


class TlsFiles(NamedTuple):
    """Files in PEM.

    Attributes:
        ca: certificates of the authorities to trust; None = those of this machine.
        certificate: our own, with the intermediate ones behind it; None = we show none.
        key: of the certificate, without passphrase; None = it is in the certificate's file.
        crl: certificates that the authorities have revoked; None = none is looked up.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    crl: Path | None = None


class TlsFilesError(Exception):
    """A file cannot be used. The text names the file and the reason; correct it and load again."""


def client_context(files: TlsFiles, alpn: str | None = ALPN_AMQP) -> ssl.SSLContext:
    """What a client connects with. It checks the server's certificate and its host name; TLS 1.2 or newer.

    Raises:
        TlsFilesError: a file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=files.ca)
    except (OSError, ssl.SSLError) as error:
        raise _unusable(files.ca, error) from None
    _load(context, files)
    if alpn is not None:
        context.set_alpn_protocols([alpn])
    return context


def rotating_client_context(
    files: TlsFiles,
    alpn: str | None = ALPN_AMQP,
    *,
    checks_hostname: bool = True,
    on_fault: Callable[[str], None] | None = None,
) -> ssl.SSLContext:
    """What a client connects with for as long as it runs: files that were replaced hold for the next connection.

    Args:
        files: as for ``client_context``.
        alpn: the protocol that is asked for; None = none.
        checks_hostname: False = any certificate of the authorities will do.
        on_fault: called with the reason when replaced files cannot be used; those read before stay in use until the
            files change again. None = it is logged as a warning.

    Raises:
        TlsFilesError: a file cannot be used.
    """

    def read() -> ssl.SSLContext:
        context = client_context(files, alpn)
        context.check_hostname = checks_hostname
        return context

    return _RotatingContext.of(Rotating(read, files, on_fault))


def _warn(why: str) -> None:
    text = "the TLS files were replaced and cannot be used, connections go on with the old ones: %s"
    logger.warning(text, why, extra={"event": "tls_files_refused"})


class Rotating:
    """The context of files as they are now: one that is called for each connection."""

    def __init__(
        self, read: Callable[[], ssl.SSLContext], files: TlsFiles, on_fault: Callable[[str], None] | None = None
    ) -> None:
        """Read the files; see `rotating_client_context`. Raises what `read` does."""
        named = [file for file in (files.ca, files.certificate, files.key, files.crl) if file is not None]
        self._watch = FileWatch(named)
        self._read = read
        self._on_fault = on_fault or _warn
        self._context = read()

    def __call__(self) -> ssl.SSLContext:
        """For the next connection."""
        if self._watch.differ():
            self._watch.note()
            try:
                self._context = self._read()
            except TlsFilesError as error:  # also while a certificate and its key are replaced one after the other
                self._on_fault(str(error))
        return self._context


class _RotatingContext(ssl.SSLContext):
    """Stands for the context of the files as they are: a client has one for its whole time."""

    _current: Rotating

    @classmethod
    def of(cls, current: Rotating) -> _RotatingContext:
        """A context that asks `current` for each connection."""
        found = cls(ssl.PROTOCOL_TLS_CLIENT)  # by itself it trusts nobody
        found._current = current
        return found

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See `ssl.SSLContext`. Event loops call it for each connection."""
        return self._current().wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        """See `ssl.SSLContext`. Clients that block call it for each connection."""
        return self._current().wrap_socket(
            sock, server_side, do_handshake_on_connect, suppress_ragged_eofs, server_hostname, session
        )


def server_context(files: TlsFiles, verify: ssl.VerifyMode, alpn: str = ALPN_AMQP) -> ssl.SSLContext:
    """What a listener serves with; TLS 1.3 until the caller allows an older version.

    Args:
        files: the certificate is needed; the authorities are those of clients.
        verify: whether clients must or may show a certificate.
        alpn: the protocol that is offered.

    Raises:
        TlsFilesError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # No tickets: each connection shows its certificate, so a revoked one does not come back with a session.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    context.set_alpn_protocols([alpn])
    context.verify_mode = verify
    if verify is not ssl.CERT_NONE:
        try:
            context.load_verify_locations(files.ca)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(files.ca, error) from None
    _load(context, files)
    return context


class ListenerContext(ssl.SSLContext):
    """Stands for the context in force: a listener is given one for its whole time."""

    _current: Callable[[], ssl.SSLContext | None]
    _on_refused: Callable[[str], None]

    @classmethod
    def of(cls, current: Callable[[], ssl.SSLContext | None], on_refused: Callable[[str], None]) -> ListenerContext:
        """A context that asks `current` for each connection."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context._current, context._on_refused = current, on_refused
        return context

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See `ssl.SSLContext`."""
        context = self._current()
        assert context is not None
        wrapped = context.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(wrapped, ServerEnd)
        wrapped.on_refused, wrapped.outgoing = self._on_refused, outgoing
        return wrapped


class ServerEnd(ssl.SSLObject):
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


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.certificate is not None:
        try:
            # The answer of a program that has no passphrase: OpenSSL would ask on the terminal and wait.
            context.load_cert_chain(files.certificate, files.key, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            named = files.certificate if files.key is None else f"{files.certificate} with {files.key}"
            raise _unusable(named, error) from None
    if files.crl is not None:
        try:
            context.load_verify_locations(files.crl)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(files.crl, error) from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _unusable(named: object, error: Exception) -> TlsFilesError:
    return TlsFilesError(f"{error} ({named})")


_FAULTS = {
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS",
    "HTTP_REQUEST": "the other side speaks HTTP without TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side shows no certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side requires a certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not know the authority of our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "our certificate is revoked",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not accept our certificate",
    "UNSUPPORTED_PROTOCOL": "the other side's version of TLS is too old",
    "TLSV1_ALERT_PROTOCOL_VERSION": "our version of TLS is too old for the other side",
}


def fault_of(error: ssl.SSLError) -> str:
    """Why a handshake has failed, or a connection behind it, in plain words where OpenSSL's are known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is not valid: {error.verify_message}"
    return _FAULTS.get(error.reason or "", str(error))
