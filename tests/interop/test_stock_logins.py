"""Logins of stock clients, with nothing of ours in them, and of our JavaScript client, by each mechanism they have."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.interop.javascript import CLIENT, ENVIRONMENT
from tests.router.processes import running_router
from tests.support.certificates import CertificateFiles, TestAuthority
from tests.support.java import java_command
from tests.support.requirements import TOOLS, go_amqp
from tests.support.tokens import Issuer, settings_of_tokens

HERE = Path(__file__).parent / "login_clients"
DEADLINE_S = 90.0
STORE_PASSWORD = b"store-password"


def command(kind: str) -> list[str]:
    if kind == "proton":
        return [sys.executable, "-P", str(HERE / "proton_login.py")]
    if kind == "rhea":
        return ["node", str(HERE / "rhea_login.js"), str(TOOLS / "node_modules" / "rhea")]
    if kind == "javascript":
        return ["node", str(HERE / "javascript_login.js"), str(CLIENT)]
    if kind == "go-amqp":
        return [str(go_amqp("login"))]
    return java_command(HERE / "LoginClient.java")


MARKS = {
    "proton": [pytest.mark.needs("proton")],
    "rhea": [pytest.mark.needs("node", "rhea")],
    "javascript": [pytest.mark.needs("node", "rhea"), pytest.mark.slow],  # its login is rhea's
    "go-amqp": [pytest.mark.needs("go-amqp")],
    "qpid-jms": [pytest.mark.needs("jdk", "qpid-jms")],
}
MECHANISMS = {
    "proton": ("ANONYMOUS", "PLAIN", "EXTERNAL"),
    "rhea": ("ANONYMOUS", "PLAIN", "EXTERNAL", "XOAUTH2"),
    "javascript": ("PLAIN", "EXTERNAL"),
    "go-amqp": ("ANONYMOUS", "PLAIN", "EXTERNAL", "XOAUTH2"),
    "qpid-jms": ("ANONYMOUS", "PLAIN", "EXTERNAL", "XOAUTH2", "SCRAM-SHA-256", "SCRAM-SHA-512"),
}
CASES = [
    pytest.param(kind, mechanism, marks=MARKS[kind], id=f"{kind}-{mechanism}")
    for kind, mechanisms in MECHANISMS.items()
    for mechanism in mechanisms
]


@dataclass(frozen=True, slots=True)
class World:
    """What logins need."""

    folder: Path
    authority: TestAuthority
    issuer: Issuer

    def variables(self, port: int, mechanism: str, is_right: bool) -> dict[str, str]:
        user, secret, name = "", "", "ann"
        if mechanism == "XOAUTH2":
            user, secret = "ann", self.issuer.token("ann", 300 if is_right else -60)
        elif mechanism == "PLAIN" or mechanism.startswith("SCRAM"):
            user, secret = "ann", "secret-of-ann" if is_right else "wrong-one"
        elif not is_right:
            name = "stranger"
        files = self.authority.issue(name)
        return {
            "LOGIN_PORT": str(port),
            "LOGIN_MECHANISM": mechanism,
            "LOGIN_USER": user,
            "LOGIN_SECRET": secret,
            "LOGIN_CA": str(self.authority.file),
            "LOGIN_CERT": str(files.certificate),
            "LOGIN_KEY": str(files.key),
            "LOGIN_STORE": str(self._store(files)),
        }

    def _store(self, files: CertificateFiles) -> Path:
        """Certificate and key as Java reads them."""
        key = serialization.load_pem_private_key(files.key.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        encryption = serialization.BestAvailableEncryption(STORE_PASSWORD)
        path = self.folder / f"{files.certificate.stem}.p12"
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, encryption))  # type: ignore[arg-type]
        return path


async def log_in(kind: str, variables: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command(kind),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**ENVIRONMENT, **variables},
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode()


@pytest.mark.parametrize(("kind", "mechanism"), CASES)
async def test_a_stock_client_logs_in_and_a_wrong_login_is_refused(kind: str, mechanism: str, tmp_path: Path) -> None:
    world = World(tmp_path, TestAuthority(tmp_path / "pki"), Issuer())
    own = world.authority.issue("router")
    allows = "always" if mechanism == "ANONYMOUS" else "never"
    flags = (
        "--standalone",
        "--listen-tls=true",
        f"--tls-cert-file={own.certificate}",
        f"--tls-key-file={own.key}",
        f"--tls-ca-file={world.authority.file}",
        "--tls-client-certificates=optional",
        "--external-rules=CN ann",
        "--users=ann:secret-of-ann",
        f"--listen-allow-anonymous={allows}",
        *settings_of_tokens(jwks_file=str(world.issuer.write(tmp_path / "keys.json"))),
    )
    async with running_router(*flags) as router:
        reported = await log_in(kind, world.variables(router.port, mechanism, is_right=True))
        assert "opened" in reported, reported
        if mechanism != "ANONYMOUS":
            reported = await log_in(kind, world.variables(router.port, mechanism, is_right=False))
            assert "opened" not in reported
            assert "refused" in reported, reported
        log = await router.stop()
    connected = [line for line in map(json.loads, log.splitlines()) if line["event"] == "client_connected"]
    refused = [line for line in map(json.loads, log.splitlines()) if line["event"] == "client_refused"]
    assert [line["user"] for line in connected] == ["" if mechanism == "ANONYMOUS" else "ann"]
    assert [line["mechanism"] for line in refused] == ([] if mechanism == "ANONYMOUS" else [mechanism])
