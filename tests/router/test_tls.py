"""TLS of routers: who is admitted, what both sides report, and what a reload of certificates changes."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from oncewire.client import ClientEvent, Disconnected, connect
from router.authentication.tls import RouterTls
from router.commands.local_network import LocalNetwork
from router.process.logs import EventLog
from router.settings.config import RouterConfig
from tests.router.processes import RouterProcess, run_to_end, running_router
from tests.support.certificates import CertificateFiles, TestAuthority, replace_file
from tests.support.commands import run
from topology.etcd.server import free_port
from topology.inspector.asking import ask_each, nobody
from topology.inspector.source import OtherRouter

LONG_S = 60.0


def tls_settings(authority: TestAuthority, own: CertificateFiles, **more: str) -> dict[str, str]:
    """Settings of a router that listens with TLS for clients."""
    return {
        "listen.tls": "true",
        "tls.cert_file": str(own.certificate),
        "tls.key_file": str(own.key),
        "tls.ca_file": str(authority.file),
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def flags(settings: dict[str, str]) -> list[str]:
    return [f"--{name.replace('.', '-').replace('_', '-')}={value}" for name, value in settings.items()]


@asynccontextmanager
async def standalone(settings: dict[str, str]) -> AsyncIterator[RouterProcess]:
    async with running_router("--standalone", "--id=alpha", *flags(settings)) as router:
        yield router


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "pki")


async def cause_of(url: str, context: ssl.SSLContext | None) -> str:
    """Why a client cannot connect: the cause that it reports to its application."""
    reported: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def note(event: ClientEvent) -> None:
        if isinstance(event, Disconnected) and not reported.done():
            reported.set_result(event.cause)

    client = connect(url, ssl_context=context, timeout=LONG_S, on_event=note)

    async def enter() -> None:
        async with client:
            raise AssertionError("it is connected")

    entering = asyncio.ensure_future(enter())
    try:
        return await asyncio.wait_for(asyncio.shield(reported), LONG_S)
    finally:
        entering.cancel()
        await asyncio.gather(entering, return_exceptions=True)


async def one_message(publisher_url: str, subscriber_url: str, context: ssl.SSLContext) -> bytes:
    """What arrives of one message that is sent from router to router; its publisher gets accepted."""
    async with (
        connect(subscriber_url, ssl_context=context) as there,
        connect(publisher_url, ssl_context=context) as here,
    ):
        subscriber = await there.subscriber("orders")
        publisher = await here.publisher("orders")
        sending = asyncio.ensure_future(publisher.send(b"one", timeout=LONG_S))
        delivery = await asyncio.wait_for(anext(subscriber), LONG_S)
        await delivery.accept()
        await sending
        assert isinstance(delivery.body, bytes)
        return delivery.body


def _logs(folder: Path) -> str:
    return "".join(log.read_text() for log in folder.glob("r*.log"))


async def until_logged(log: Path, event: str, *words: str) -> str:
    """The line of a router's log with this event and these words."""
    async with asyncio.timeout(LONG_S):
        while True:
            for line in log.read_text().splitlines():  # noqa: ASYNC240  (a small file on a local disk)
                if event in line and all(word in line for word in words):
                    return line
            await asyncio.sleep(0.02)


async def handshakes_failed(router: RouterProcess, condition: Callable[[float], bool]) -> None:
    """Wait until the metric of failed handshakes meets the condition."""
    async with asyncio.timeout(LONG_S):
        while True:
            async with aiohttp.ClientSession() as session, session.get(f"{router.http}/metrics") as answer:
                text = await answer.text()
            found = [line for line in text.splitlines() if line.startswith("oncewire_tls_handshakes_failed_total")]
            if condition(float(found[0].rpartition(" ")[2])):
                return
            await asyncio.sleep(0.02)


# --- a network --------------------------------------------------------------------------------------------------------


async def test_a_message_is_accepted_over_amqps_through_routers_linked_with_tls(
    tmp_path: Path, authority: TestAuthority
) -> None:
    settings = tls_settings(authority, authority.issue("router"), inter_router__tls="true")
    async with LocalNetwork(3, settings=settings, log_folder=tmp_path, log_level="info") as network:
        r1, r3 = network.routers["r1"].url, network.routers["r3"].url
        assert r1.startswith("amqps://")
        assert await one_message(r1, r3, authority.context()) == b"one"
    assert "tls_refused" not in _logs(tmp_path)


async def test_a_router_without_tls_is_not_linked_and_both_logs_name_tls(
    tmp_path: Path, authority: TestAuthority
) -> None:
    files = authority.issue("router")
    network = LocalNetwork(2, settings=tls_settings(authority, files), log_folder=tmp_path, log_level="info")
    network.routers["r1"].settings = {"inter_router.tls": "true"}
    async with network:
        first, second = (tmp_path / f"{name}.log" for name in ("r1", "r2"))
        # The older of the two dials; who that is depends on which got its lease first.
        dialer = asyncio.ensure_future(until_logged(first, "neighbour_refused", "TLS"))
        listener = asyncio.ensure_future(until_logged(first, "tls_refused", "does not speak TLS"))
        done, waiting = await asyncio.wait([dialer, listener], return_when=asyncio.FIRST_COMPLETED)
        if listener in done:
            await until_logged(second, "neighbour_refused", "the peer speaks TLS")
        for task in (*waiting, *done):
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert all(not task.exception() for task in done)


async def test_a_router_of_another_authority_is_not_linked(tmp_path: Path, authority: TestAuthority) -> None:
    other = TestAuthority(tmp_path / "other")
    network = LocalNetwork(2, log_folder=tmp_path, log_level="info")
    for name, signed_by in (("r1", authority), ("r2", other)):
        network.routers[name].settings = tls_settings(
            signed_by, signed_by.issue(name), listen__tls="false", inter_router__tls="true"
        )
    async with network:
        ends = [
            asyncio.ensure_future(until_logged(tmp_path / f"{name}.log", "neighbour_refused", "certificate"))
            for name in ("r1", "r2")
        ]
        done, waiting = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert all(not task.exception() for task in done)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_client_certificate_opens_no_link_between_routers_where_routers_have_their_own_authority(
    tmp_path: Path, authority: TestAuthority
) -> None:
    routers, port = TestAuthority(tmp_path / "routers"), free_port()
    settings = tls_settings(
        authority,
        routers.issue("r1"),
        inter_router__tls="true",
        inter_router__port=str(port),
        inter_router__ca_file=str(routers.file),
    )
    async with LocalNetwork(1, settings=settings, log_folder=tmp_path, log_level="info"):
        context = routers.context()
        mine = authority.issue("client")
        context.load_cert_chain(mine.certificate, mine.key)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        with pytest.raises(ssl.SSLError):
            await asyncio.wait_for(reader.read(1), LONG_S)
        writer.close()
        await until_logged(tmp_path / "r1.log", "tls_refused", "inter_router", "certificate is not valid")


# --- who is refused ---------------------------------------------------------------------------------------------------


async def test_what_a_client_is_reported_whose_connection_fails_and_the_router_counts_it(
    tmp_path: Path, authority: TestAuthority
) -> None:
    settings = tls_settings(authority, authority.issue("alpha"), tls__client_certificates="required")
    other = TestAuthority(tmp_path / "other")
    mine, expired, strange = authority.issue("mine"), authority.issue("old", expired=True), other.issue("strange")
    async with standalone(settings) as router:
        assert await one_message(router.url, router.url, authority.context(mine)) == b"one"
        assert "certificate is not valid" in await cause_of(router.url, other.context())
        assert "requires a certificate" in await cause_of(router.url, authority.context())
        assert "our certificate has expired" in await cause_of(router.url, authority.context(expired))
        assert "authority of our certificate" in await cause_of(router.url, authority.context(strange))
        assert "write amqps://" in await cause_of(router.url.replace("amqps", "amqp"), None)
        await handshakes_failed(router, lambda failed: failed >= 4)
        log = await router.stop(signal.SIGKILL)
    refused = [json.loads(line)["why"] for line in log.splitlines() if '"tls_refused"' in line]
    assert any("shows no certificate" in why for why in refused), refused
    assert any("does not speak TLS" in why for why in refused), refused
    assert any("certificate has expired" in why for why in refused), refused


async def test_a_router_with_an_expired_certificate_gets_no_client(authority: TestAuthority) -> None:
    async with standalone(tls_settings(authority, authority.issue("alpha", expired=True))) as router:
        assert "certificate has expired" in await cause_of(router.url, authority.context())


async def test_a_client_with_tls_at_a_router_without_is_reported_so(authority: TestAuthority) -> None:
    async with standalone({}) as router:
        url = router.url.replace("amqp:", "amqps:")
        assert "does not speak TLS" in await cause_of(url, authority.context())


@pytest.mark.parametrize(
    ("given", "why", "fix"),
    [
        ({"listen.tls": "true"}, "tls.cert_file is empty", "set tls.cert_file and tls.key_file"),
        ({"http.tls": "true"}, "tls.cert_file is empty", "set tls.cert_file and tls.key_file"),
        ({"tls.client_certificates": "required"}, "without TLS nobody shows a certificate", "set listen.tls = true"),
        ({"tls.key_file": "x.pem"}, "there is no certificate to it", "set tls.cert_file"),
        ({"listen.tls": "true", "tls.cert_file": "none.pem"}, "none.pem", "PEM files this process may read"),
    ],
)
async def test_a_router_that_cannot_use_its_settings_of_tls_says_what_to_do(
    given: dict[str, str], why: str, fix: str
) -> None:
    code, _, err = await run_to_end("--standalone", *flags(given))
    assert code == 2
    assert why in err
    assert fix in err


# --- reload -----------------------------------------------------------------------------------------------------------


async def shown_by(router: RouterProcess, authority: TestAuthority) -> bytes:
    """The certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", router.port, ssl=authority.context())
    found = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.close()
    assert isinstance(found, bytes)
    return found


async def test_sighup_loads_certificates_again_for_new_connections_and_open_ones_stay(authority: TestAuthority) -> None:
    own = authority.issue("alpha")
    events: list[ClientEvent] = []
    async with (
        standalone(tls_settings(authority, own)) as router,
        connect(router.url, ssl_context=authority.context(), on_event=events.append) as client,
    ):
        before = await shown_by(router, authority)
        authority.issue("alpha")
        router.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(LONG_S):
            while await shown_by(router, authority) == before:
                pass
        subscriber, publisher = await client.subscriber("orders"), await client.publisher("orders")
        sending = asyncio.ensure_future(publisher.send(b"one", timeout=LONG_S))
        await (await asyncio.wait_for(anext(subscriber), LONG_S)).accept()
        await sending
        assert not any(isinstance(event, Disconnected) for event in events)
        after = await shown_by(router, authority)
        replace_file(own.certificate, b"no certificate")
        router.process.send_signal(signal.SIGHUP)
        log = await _until_counted(router, "warning")
        assert log >= 1
        assert await shown_by(router, authority) == after  # what cannot be used changes nothing


@pytest.mark.slow
async def test_replaced_certificates_are_used_without_a_signal_as_soon_as_certificate_and_key_fit(
    authority: TestAuthority,
) -> None:
    own = authority.issue("alpha")
    async with standalone(tls_settings(authority, own)) as router:
        before = await shown_by(router, authority)
        fresh = authority.issue("fresh")
        replace_file(own.certificate, fresh.certificate.read_bytes())
        assert await _until_counted(router, "warning") >= 1  # the key is another one's
        assert await shown_by(router, authority) == before
        replace_file(own.key, fresh.key.read_bytes())
        async with asyncio.timeout(LONG_S):
            while await shown_by(router, authority) == before:
                pass
        log = await router.stop(signal.SIGKILL)
    events = [json.loads(line)["event"] for line in log.splitlines() if '"config_' in line]
    assert events == ["config_refused", "config_reloaded"]


async def _until_counted(router: RouterProcess, level: str) -> float:
    """Wait until the router has logged at this level."""
    async with asyncio.timeout(LONG_S):
        while True:
            async with aiohttp.ClientSession() as session, session.get(f"{router.http}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            found = [line for line in lines if line.startswith("oncewire_events_total") and level in line]
            if found and float(found[0].rpartition(" ")[2]):
                return float(found[0].rpartition(" ")[2])


async def test_a_connection_whose_certificate_is_revoked_is_closed_and_others_stay(
    tmp_path: Path, authority: TestAuthority
) -> None:
    revoked, good, crl = authority.issue("revoked"), authority.issue("good"), tmp_path / "crl.pem"
    crl.write_bytes(authority.revoke())
    settings = tls_settings(
        authority, authority.issue("alpha"), tls__client_certificates="required", tls__crl_file=str(crl)
    )
    closed = asyncio.Event()
    reported: list[str] = []
    stays: list[ClientEvent] = []

    def note(event: ClientEvent) -> None:
        if isinstance(event, Disconnected):
            reported.append(event.cause)
            if len(reported) >= 2:
                closed.set()

    async with (
        standalone(settings) as router,
        connect(router.url, ssl_context=authority.context(good), on_event=stays.append),
        connect(router.url, ssl_context=authority.context(revoked), on_event=note),
    ):
        replace_file(crl, authority.revoke(revoked.number))
        router.process.send_signal(signal.SIGHUP)
        await asyncio.wait_for(closed.wait(), LONG_S)
        assert "revoked" in reported[0]
        assert "our certificate is revoked" in reported[1]  # and it is not admitted again
        assert not any(isinstance(event, Disconnected) for event in stays)


# --- operators and command lines --------------------------------------------------------------------------------------


async def test_commands_reach_a_router_with_tls_by_the_file_of_its_authority(authority: TestAuthority) -> None:
    mine = authority.issue("mine")
    settings = tls_settings(
        authority,
        authority.issue("alpha"),
        http__tls="true",
        tls__client_certificates="required",
        http__client_certificates="required",
    )
    async with standalone(settings) as router:
        assert router.http.startswith("https://")
        files = (f"--ca-file={authority.file}", f"--cert-file={mine.certificate}", f"--key-file={mine.key}")
        http, amqp = f"--url={router.http}", f"--url={router.url}"
        async with connect(router.url, ssl_context=authority.context(mine)) as client:
            await client.subscriber("orders")
            code, out, err = await run("manage", "list", "connection", http, *files, "--json")
            assert (code, len(json.loads(out)["items"])) == (0, 1), err
        code, out, err = await run("pub", "nobody", amqp, *files, "--settled", text="one\n")
        assert (code, out) == (0, "published 1, settled\n"), err
        code, _, err = await run("manage", "list", "connection", http)
        assert code == 2
        assert "certificate is not valid" in err
        assert "--ca-file" in err
        code, _, err = await run("pub", "orders", amqp, "--connect-timeout=1", files[0], text="one\n")
        assert code == 2
        assert "requires a certificate" in err


async def test_a_router_asks_another_over_https_with_what_its_settings_trust(authority: TestAuthority) -> None:
    own = authority.issue("alpha")
    settings = tls_settings(authority, own, listen__tls="false", http__tls="true", http__client_certificates="required")
    config = RouterConfig(
        tls_cert_file=str(own.certificate), tls_key_file=str(own.key), tls_ca_file=str(authority.file)
    )
    async with standalone(settings) as router:
        other = OtherRouter("alpha", "1", router.http)
        answers, missing = await ask_each(
            [(other, {})], "/api/v1/overview", nobody, RouterTls(config, EventLog("beta")).to_http()
        )
        assert (len(answers), missing) == (1, [])
        answers, missing = await ask_each([(other, {})], "/api/v1/overview", nobody)
        assert (answers, len(missing)) == ([], 1)
