"""A router that is started while etcd cannot be reached waits for it; one that is set up wrongly ends at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import trustme

from router.commands.local_network import LocalNetwork
from tests.router.processes import START_TIMEOUT_S, RouterProcess, router_command, run_to_end
from tests.router.raw_client import RawClient, until
from tests.support.stores import enable_login
from tests.support.waiting import eventually
from topology.etcd.server import EtcdServer, free_port

FORMER_PATIENCE_S = 5.0
"""After so long a router used to end."""


@asynccontextmanager
async def router_without_etcd(*flags: str) -> AsyncIterator[RouterProcess]:
    """A router process that is not waited for; its log is JSON."""
    amqp, http = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        *router_command(f"--listen-port={amqp}", f"--http-port={http}", "--log-format=json", *flags),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield RouterProcess(process, f"amqp://127.0.0.1:{amqp}", f"http://127.0.0.1:{http}")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def event_of(router: RouterProcess, name: str) -> dict[str, object]:
    """The next log event of this name."""
    assert router.process.stderr is not None
    async with asyncio.timeout(START_TIMEOUT_S):
        while line := await router.process.stderr.readline():
            found: dict[str, object] = json.loads(line)
            if found["event"] == name:
                return found
    raise AssertionError(f"the router ended without {name}")


async def ready(router: RouterProcess) -> None:
    async with asyncio.timeout(START_TIMEOUT_S):
        await until(lambda: router.get("/readyz"), lambda answer: answer[0] == 200)


@pytest.mark.parametrize("store", ["gateway", pytest.param("etcd3", marks=pytest.mark.slow)])
async def test_a_router_started_while_etcd_is_unreachable_waits_and_is_ready_when_etcd_is_there(store: str) -> None:
    etcd = EtcdServer()
    try:
        async with router_without_etcd(f"--etcd-endpoints={etcd.urls[0]}", f"--store={store}") as router:
            awaited = await event_of(router, "store_awaited")
            assert (awaited["etcd"], awaited["patience_s"]) == (etcd.urls[0], 86_400.0)
            assert "etcd cannot be reached" in str(awaited["why"])
            assert await router.get("/readyz") == (
                503,
                {"ready": False, "waiting_for": ["etcd, which cannot be reached"]},
            )
            if store == "gateway":
                async with asyncio.timeout(START_TIMEOUT_S):
                    while (await router.state())["uptime_s"] <= FORMER_PATIENCE_S:
                        assert router.process.returncode is None
                        await asyncio.sleep(0.05)
            await etcd.restart()
            await event_of(router, "store_back")
            await ready(router)
            client = await RawClient.connect(router.port, "box")
            await client.publisher("orders")
            client.cut()
            await client.closed()
    finally:
        await etcd.stop()


async def test_a_router_that_waits_for_etcd_ends_in_good_order_on_sigterm() -> None:
    async with router_without_etcd(f"--etcd-endpoints=http://127.0.0.1:{free_port()}") as router:
        await event_of(router, "store_awaited")
        os.kill(router.process.pid, signal.SIGTERM)
        await event_of(router, "router_stopped")
        async with asyncio.timeout(START_TIMEOUT_S):
            assert await router.process.wait() == 0


async def test_a_router_restarted_while_etcd_is_unreachable_serves_again_when_etcd_is_back(tmp_path: Path) -> None:
    async with LocalNetwork(2, log_folder=tmp_path) as network:
        etcd = network.etcd
        assert etcd is not None
        await etcd.kill()
        await network.restart("r1", wait=False)
        async with aiohttp.ClientSession() as session, asyncio.timeout(START_TIMEOUT_S):
            await eventually(lambda: "store_awaited" in (tmp_path / "r1.log").read_text(), "it waits for etcd")
            async with session.get(f"{network.routers['r1'].http}/readyz") as answer:
                assert answer.status == 503
        await etcd.restart()
        await network.wait_ready("r1")


async def refused(*flags: str) -> str:
    """Run a router that must end by itself; returns what it prints on stderr about why."""
    code, out, err = await run_to_end("--listen-port=0", "--http-port=0", "--log-level=error", *flags)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    return err


async def test_an_endpoint_written_with_the_wrong_scheme_ends_the_router_at_once(tmp_path: Path) -> None:
    async with EtcdServer() as etcd:
        wrong = etcd.urls[0].replace("http://", "https://")
        for store in ("gateway", "etcd3"):
            err = await refused(f"--etcd-endpoints={wrong}", f"--store={store}")
            assert f"why: {wrong} answers, but not to https\n" in err
            assert "what to do: write it in --etcd-endpoints with the other one of http and https\n" in err
    async with EtcdServer(arguments=tls_arguments(tmp_path)) as etcd:
        wrong = etcd.urls[0].replace("https://", "http://")
        assert f"why: {wrong} answers, but not to http\n" in await refused(f"--etcd-endpoints={wrong}")


def tls_arguments(folder: Path) -> list[str]:
    """Of an etcd that shows a certificate and asks for one; its authority is in authority.pem."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    chain, key, trusted = folder / "chain.pem", folder / "key.pem", folder / "authority.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(trusted)
    return [f"--cert-file={chain}", f"--key-file={key}", "--client-cert-auth", f"--trusted-ca-file={trusted}"]


async def test_a_certificate_that_is_not_trusted_ends_the_router_at_once(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    async with EtcdServer(arguments=tls_arguments(tmp_path)) as etcd:
        url = f"--etcd-endpoints={etcd.urls[0]}"
        not_trusted = await refused(url, f"--etcd-ca-file={stranger}")
        by_grpc = await refused(url, f"--etcd-ca-file={stranger}", "--store=etcd3")
        without = await refused(url, f"--etcd-ca-file={tmp_path / 'authority.pem'}")
    assert "TLS is not agreed" in not_trusted
    assert "certificate verify failed" in not_trusted
    assert "bad certificate" in without or "certificate required" in without
    for err in (not_trusted, by_grpc, without):
        assert "what to do: check the settings etcd.*" in err


async def test_a_password_that_etcd_refuses_ends_the_router_at_once() -> None:
    async with EtcdServer() as etcd:
        await enable_login(etcd.urls[0])
        err = await refused(f"--etcd-endpoints={etcd.urls[0]}", "--etcd-user=router", "--etcd-password=wrong")
    assert "does not accept user 'router'" in err
    assert "what to do: check the settings etcd.*" in err
