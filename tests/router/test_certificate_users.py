"""Users by certificates: SASL EXTERNAL at clients' listener, and operators over HTTP."""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from oncewire.cli.errors import CliError
from oncewire.cli.users_file import write
from oncewire.client import AuthenticationFailed, connect
from oncewire.wire import EXTERNAL, ExternalClient, SaslClient, SaslOutcome
from oncewire.wire.performatives import SaslMechanisms
from router.settings.certificate_users import CertificateRule, certificate_rules, user_of
from router.settings.config_loading import load
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, until
from tests.support.certificates import CertificateFiles, TestAuthority

LONG_S = 60.0
PAGE = Path(__file__).parents[2] / "docs" / "logins.md"
GUARDED = ("--standalone", "--listen-allow-anonymous=never", "--listen-tls=true")
RULES = r"CN (.+)-client {1};email ([^@]+)@example\.org mail-{1}"


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "pki")


def tls_flags(authority: TestAuthority, shown: str = "optional", rules: str = RULES) -> list[str]:
    own = authority.issue("router")
    return [
        f"--tls-cert-file={own.certificate}",
        f"--tls-key-file={own.key}",
        f"--tls-ca-file={authority.file}",
        f"--tls-client-certificates={shown}",
        *([f"--external-rules={rules}"] if rules else []),
    ]


class NamingClient(ExternalClient):
    """Names whom it acts for."""

    def __init__(self, user: str) -> None:
        super().__init__()
        self._user = user

    def initial_response(self) -> bytes | None:
        return self._user.encode()


class Noting(SaslClient):
    """Keeps what the router offers."""

    offered: tuple[str, ...] = ()

    def receive(self, frame: Any) -> bytes:
        if isinstance(frame, SaslMechanisms):
            self.offered = tuple(map(str, frame.sasl_server_mechanisms))
        return super().receive(frame)


async def attempt(
    router: RouterProcess,
    authority: TestAuthority,
    files: CertificateFiles | None,
    client: ExternalClient | None = None,
) -> tuple[bool | None, tuple[str, ...]]:
    """How a login with EXTERNAL ends (None = it was not offered), and what the router offers."""
    sasl = Noting([client or ExternalClient()])
    raw = await TlsRawClient.dial_tls(router.port, sasl, authority.context(files))

    async def is_over() -> bool:
        return raw.is_gone or any(isinstance(event, SaslOutcome) for event in raw.heard)

    await until(is_over, bool)
    found = next((event for event in raw.heard if isinstance(event, SaslOutcome)), None)
    raw.cut()
    await raw.closed()
    return (found.ok if found is not None and found.mechanism else None), sasl.offered


class TlsRawClient(RawClient):
    """With TLS."""

    @classmethod
    async def dial_tls(cls, port: int, sasl: SaslClient, context: ssl.SSLContext) -> TlsRawClient:
        client = cls("raw-tls", sasl, 1 << 16, None)
        await asyncio.get_running_loop().create_connection(
            lambda: client, "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
        client.engine.open()
        client.flush()
        return client


async def test_a_certificate_that_a_rule_fits_is_a_user(authority: TestAuthority, tmp_path: Path) -> None:
    users = str(tmp_path / "users")
    write(users, [])
    flags = (*tls_flags(authority), f"--users-file={users}")
    async with running_router(*GUARDED, *flags) as router:
        ann, mail = authority.issue("ann-client"), authority.issue("other", "bob@example.org")
        assert await attempt(router, authority, ann) == (True, (EXTERNAL, "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"))
        assert (await attempt(router, authority, ann, NamingClient("ann")))[0] is True
        assert (await attempt(router, authority, ann, NamingClient("bob")))[0] is False
        assert (await attempt(router, authority, mail))[0] is True
        async with connect(router.url, ssl_context=authority.context(ann)) as client:
            publisher = await client.publisher("orders")
            router.process.send_signal(signal.SIGHUP)

            async def is_reloaded() -> bool:
                return "config_reloaded" in str(await router.get("/api/v1/events"))

            await until(is_reloaded, bool)
            subscriber = await client.subscriber("orders")
            sending = await publisher.submit(b"one")
            await (await asyncio.wait_for(anext(subscriber), LONG_S)).accept()
            assert (await sending).is_accepted
            assert client.statistics.connections == 1  # although the file of users has no ann


@pytest.mark.parametrize("shown", ["none", "optional"])
async def test_external_is_not_offered_without_rules(authority: TestAuthority, shown: str) -> None:
    flags = (*tls_flags(authority, shown, ""), "--users=ann:a")
    async with running_router(*GUARDED, *flags) as router:
        assert (await attempt(router, authority, authority.issue("ann-client")))[0] is None


async def test_who_shows_no_certificate_or_one_without_a_rule_is_no_user(authority: TestAuthority) -> None:
    async with running_router(*GUARDED, *tls_flags(authority), "--users=ann:a") as router:
        ok, offered = await attempt(router, authority, None)
        assert (ok, EXTERNAL in offered) == (None, False)
        assert (await attempt(router, authority, authority.issue("stranger")))[0] is False
        with pytest.raises(AuthenticationFailed, match="no user for the certificate"):
            async with connect(router.url, ssl_context=authority.context(authority.issue("stranger"))):
                pass
        log = await router.stop()
    assert "no rule makes a user" in log
    async with running_router(*GUARDED, *tls_flags(authority)) as router:  # nothing else can be offered
        assert await attempt(router, authority, None) == (False, (EXTERNAL,))
        assert (await attempt(router, authority, authority.issue("ann-client")))[0] is True


async def test_a_certificate_of_another_authority_is_nobody(authority: TestAuthority, tmp_path: Path) -> None:
    other = TestAuthority(tmp_path / "other")
    context = authority.context()
    files = other.issue("ann-client")
    context.load_cert_chain(files.certificate, files.key)
    async with running_router(*GUARDED, *tls_flags(authority), "--users=ann:a") as router:
        sasl = SaslClient([ExternalClient()])
        raw = await TlsRawClient.dial_tls(router.port, sasl, context)
        await raw.closed()
        assert sasl.result is None


async def test_an_operator_is_known_by_the_certificate(authority: TestAuthority) -> None:
    flags = (
        *tls_flags(authority),
        "--http-tls=true",
        "--http-client-certificates=optional",
        "--roles=ann=admin",
        "--http-anonymous-role=none",
        "--http-loopback-role=none",
    )
    async with running_router(*GUARDED, *flags) as router:

        async def status(files: CertificateFiles | None, **headers: str) -> int:
            context = authority.context(files)
            context.check_hostname = False
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
                session.get(router.http + "/api/v1/management/log/router", headers=headers) as answer,
            ):
                return answer.status

        ann = authority.issue("ann-client")
        assert await status(ann) == 200
        assert await status(ann, Origin="https://evil.example") == 403
        assert await status(ann, Host="evil.example") == 403
        assert await status(authority.issue("eve-client")) == 403
        assert await status(authority.issue("stranger")) == 403
        assert await status(None) == 403


# --- rules ------------------------------------------------------------------------------------------------------------

CERTIFICATE = {
    "subject": ((("organizationName", "Example"),), (("commonName", "ann"),), (("commonName", "bob.clients"),)),
    "subjectAltName": (("DNS", "a.example"), ("URI", "spiffe://example/ns/sales"), ("email", "ann@example.org")),
}


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("CN", "ann"),
        (r"CN (.+)\.clients {1}", "bob"),
        (r"CN .+\.clients {0}", "bob.clients"),
        (r"DNS (\w+)\.example host-{1}", "host-a"),
        (r"URI spiffe://example/ns/(\w+) {1}", "sales"),
        (r"email (\w+)@(\w+)\.org {2}-{1}", "example-ann"),
        (r"DNS b\.example x;email", "ann@example.org"),
        (r"DNS \w+", None),
        (r"CN (an)|ann {1}", "\0"),
        ("", None),
    ],
)
def test_the_first_rule_that_fits_names_the_user(rules: str, user: str | None) -> None:
    assert user_of(certificate_rules(rules), CERTIFICATE) == (None if user == "\0" else user)


@pytest.mark.parametrize("name", ["\uff41nn", "an\u00adn", "a\u0308nn", "\u2168", "ann\u00a0"])
def test_a_name_that_saslprep_would_make_another_users_is_nobodys(name: str) -> None:
    certificate = {"subject": ((("commonName", name),),), "subjectAltName": (("DNS", "ann"),)}
    assert user_of(certificate_rules("CN;DNS"), certificate) is None
    assert user_of(certificate_rules("DNS;CN"), certificate) == "ann"
    assert user_of(certificate_rules("CN"), {"subject": ((("commonName", "\u00e4nn"),),)}) == "\u00e4nn"


def test_rules_of_a_file_are_tables_and_a_long_name_fits_none() -> None:
    assert certificate_rules([{"take": "CN"}]) == (CertificateRule("CN"),)
    long = {"subject": ((("commonName", "a" * 1000),),)}
    assert user_of(certificate_rules("CN"), long) is None


@pytest.mark.parametrize(
    "rules",
    ["serial", "CN (", "CN a b c", "CN .+ {1}", "CN .+ {x}", "CN .+ {", [{"pattern": "a"}], [{"take": 1}], ["CN"], 1],
)
def test_a_rule_that_cannot_be_used_is_refused_at_the_start(rules: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        certificate_rules(rules)


def test_rules_without_a_listener_that_asks_for_certificates_are_refused() -> None:
    with pytest.raises(CliError) as refused:
        load(None, {"external_rules": "CN"}, {})
    assert "no listener asks for certificates" in refused.value.why


def test_the_settings_of_the_page_make_users_of_certificates(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = [each for each in blocks if "external.rules" in each]
    (tmp_path / "router.toml").write_text(block)
    rules = load(str(tmp_path / "router.toml"), {}, {}).config.external_rules
    for kind, name, user in (
        ("URI", "spiffe://example.org/ns/sales/sa/import", "sales-import"),
        ("DNS", "a.clients.example.org", None),
    ):
        assert user_of(rules, {"subjectAltName": ((kind, name),)}) == user
    assert user_of(rules, {"subject": ((("commonName", "ann.clients.example.org"),),)}) == "ann"
