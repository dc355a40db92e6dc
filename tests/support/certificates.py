"""Authorities and certificates for tests, made anew each time; all files are PEM."""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate and its key."""

    certificate: Path
    key: Path

    @property
    def number(self) -> int:
        return x509.load_pem_x509_certificate(self.certificate.read_bytes()).serial_number


class TestAuthority:
    """Signs certificates into a folder."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.file = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(self.file)

    def issue(self, name: str, *others: str, expired: bool = False) -> CertificateFiles:
        """A certificate for this machine and `others`; of the name of an earlier one, it replaces the files."""
        until = dt.datetime.now(dt.UTC) - dt.timedelta(days=1) if expired else None
        made = self._authority.issue_cert("localhost", "127.0.0.1", *others, common_name=name, not_after=until)
        files = CertificateFiles(self._folder / f"{name}.pem", self._folder / f"{name}-key.pem")
        replace_file(files.key, made.private_key_pem.bytes())
        replace_file(files.certificate, b"".join(each.bytes() for each in made.cert_chain_pems))
        return files

    def revoke(self, *numbers: int) -> bytes:
        """A list of revoked certificates."""
        key = serialization.load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(x509.load_pem_x509_certificate(self._authority.cert_pem.bytes()).subject)
            .last_update(now - dt.timedelta(minutes=1))
            .next_update(now + dt.timedelta(days=1))
        )
        for number in numbers:
            revoked = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
            builder = builder.add_revoked_certificate(revoked)
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def context(self, files: CertificateFiles | None = None) -> ssl.SSLContext:
        """What a client of this authority connects with."""
        context = ssl.create_default_context(cafile=self.file)
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
        return context


def replace_file(path: Path, content: bytes) -> None:
    """As a renewal should: a reader sees the old file or the new one."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.replace(path)
