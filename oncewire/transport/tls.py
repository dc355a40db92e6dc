"""TLS contexts from files: whom to trust, who to be. Routers, bridges and command lines make theirs here."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

HANDSHAKE_S = 10.0
"""From the TCP connection to the end of the TLS handshake. It takes milliseconds; a silent peer holds memory."""
SHUTDOWN_S = 1.0
"""For the peer's close_notify when a connection is closed. AMQP has said goodbye before it, so nothing waits for it."""
ALPN_AMQP = "amqp"
"""The name of AMQP in the TLS handshake."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
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
