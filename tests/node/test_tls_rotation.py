"""Certificates that are replaced while clients, bridge nodes and routers run: new connections use the new ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridges.doors.tls import TlsFiles
from bridges.node.embedded import EmbeddedNode
from bridges.node.model import NodeSettings
from oncewire.client import connect
from oncewire.transport.tls import TlsFiles as ClientFiles
from oncewire.transport.tls import rotating_client_context
from router.incarnations.store_setup import store_factory
from router.settings.config import RouterConfig
from tests.client.shell_helpers import LONG
from tests.node.tls_proxy import Authority, make_authority, tls_in_front_of
from tests.router.processes import RouterProcess, running_router
from tests.support.certificates import TestAuthority, replace_file
from topology.etcd.server import EtcdServer
from topology.etcd.store import ABSENT, StoreTimeout, StoreUnavailable


def replace_all(files: TlsFiles, authority: Authority) -> None:
    for mine, its in (
        (files.ca, authority.ca),
        (files.key, authority.client_key),
        (files.certificate, authority.client_certificate),
    ):
        assert mine is not None
        replace_file(mine, its.read_bytes())


async def test_a_client_and_a_node_use_replaced_files_for_their_next_connections(tmp_path: Path) -> None:
    old, new = (make_authority(tmp_path / name, asks_clients=True) for name in ("old", "new"))
    files = TlsFiles(tmp_path / "mine-ca.pem", tmp_path / "mine.pem", tmp_path / "mine-key.pem")
    replace_all(files, old)
    assert files.ca is not None
    context = rotating_client_context(ClientFiles(files.ca, files.certificate, files.key))
    async with asyncio.timeout(LONG), running_router("--standalone") as router:
        front = tls_in_front_of(router.url, old.server)
        port = await front.__aenter__()
        url = f"amqps://localhost:{port}"
        with EmbeddedNode(NodeSettings("node", tmp_path / "node", (url,), tls=files)) as node:
            await asyncio.to_thread(node.subscribe, "flights", ["orders"])
            async with connect(url, ssl_context=context) as client:
                publisher = await client.publisher("orders")
                await publisher.send(b"one")
                replace_all(files, new)
                await front.__aexit__(None, None, None)  # all connections end
                async with tls_in_front_of(router.url, new.server, port):
                    await publisher.send(b"two")
            assert (await asyncio.to_thread(node.offsets, "flights")).last == 2
            await asyncio.to_thread(node.close)


# --- a router's connections to etcd -----------------------------------------------------------------------------------


def etcd_arguments(folder: Path) -> list[str]:
    return [
        f"--cert-file={folder / 'etcd.pem'}",
        f"--key-file={folder / 'etcd-key.pem'}",
        "--client-cert-auth",
        f"--trusted-ca-file={folder / 'ca.pem'}",
    ]


def renew(folder: Path, authority: TestAuthority) -> None:
    """Put the files of etcd and of the router in place."""
    etcd, own = authority.issue("etcd"), authority.issue("router")
    for name, source in (
        ("ca.pem", authority.file),
        ("etcd.pem", etcd.certificate),
        ("etcd-key.pem", etcd.key),
        ("router-key.pem", own.key),
        ("router.pem", own.certificate),
    ):
        replace_file(folder / name, source.read_bytes())


def config(folder: Path, etcd: EtcdServer, store: str) -> RouterConfig:
    return RouterConfig(
        store=store,
        etcd_endpoints=tuple(etcd.urls),
        etcd_ca_file=str(folder / "ca.pem"),
        etcd_cert_file=str(folder / "router.pem"),
        etcd_key_file=str(folder / "router-key.pem"),
    )


@pytest.mark.parametrize("store", ["gateway", "etcd3"])
async def test_a_store_reaches_etcd_after_both_have_certificates_of_another_authority(
    store: str, tmp_path: Path
) -> None:
    renew(tmp_path, TestAuthority(tmp_path / "old"))
    async with asyncio.timeout(LONG), EtcdServer(arguments=etcd_arguments(tmp_path)) as etcd:
        client = store_factory(config(tmp_path, etcd, store))()
        await client.compare_and_put("/t/a", b"1", ABSENT)
        renew(tmp_path, TestAuthority(tmp_path / "new"))
        await etcd.restart()
        while True:  # the first request may still meet the end of the old connection
            try:
                found = await client.get("/t/a")
                break
            except (StoreUnavailable, StoreTimeout):
                await asyncio.sleep(0.05)
        assert found is not None
        assert found.value == b"1"
        await client.close()


async def attach(router: RouterProcess, name: str) -> None:
    """A new link needs a key in etcd."""
    async with connect(router.url, container_id="app", timeout=LONG) as client:
        subscriber = await client.subscriber("orders", name=name)
        assert subscriber.incarnation


async def test_a_router_that_runs_reaches_etcd_after_both_have_certificates_of_another_authority(
    tmp_path: Path,
) -> None:
    renew(tmp_path, TestAuthority(tmp_path / "old"))
    async with asyncio.timeout(LONG), EtcdServer(arguments=etcd_arguments(tmp_path)) as etcd:
        flags = [
            f"--etcd-endpoints={','.join(etcd.urls)}",
            f"--etcd-ca-file={tmp_path / 'ca.pem'}",
            f"--etcd-cert-file={tmp_path / 'router.pem'}",
            f"--etcd-key-file={tmp_path / 'router-key.pem'}",
        ]
        async with running_router(*flags) as router:
            await attach(router, "one")
            renew(tmp_path, TestAuthority(tmp_path / "new"))
            await etcd.restart()
            await attach(router, "two")
