"""TLS to routers: a real node and a real router, and between them what ends TLS."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bridges.doors.tls import NO_FILES, TlsFiles, tls_context
from bridges.node.embedded import EmbeddedNode
from bridges.node.errors import BadRequest
from bridges.node.interface import Node
from bridges.node.model import NodeSettings
from bridges.node.node import BridgeNode
from bridges.spark.options import source_options
from oncewire.client import connect
from tests.client.shell_helpers import LONG
from tests.node.node_process import START_S, running_node
from tests.node.tls_proxy import Authority, make_authority, tls_in_front_of
from tests.router.processes import RouterProcess, running_router


def toml(files: TlsFiles) -> str:
    lines = [f"tls.check_hostname = {str(files.checks_hostname).lower()}"]
    for name, path in (("ca_file", files.ca), ("cert_file", files.certificate), ("key_file", files.key)):
        if path is not None:
            lines.append(f"tls.{name} = {json.dumps(str(path))}")
    return "\n".join(lines) + "\n"


async def receives(node: Node, router: RouterProcess) -> None:
    """What is sent to the router itself arrives in the node's journal."""
    await asyncio.to_thread(node.subscribe, "flights", ["orders"])
    async with connect(router.url, container_id="test") as client:
        publisher = await client.publisher("orders", name="p")
        await publisher.send(b"one", timeout=LONG)
    assert (await asyncio.to_thread(node.offsets, "flights")).last == 1


async def trouble_of(node: Node) -> str:
    """Why the node cannot receive."""
    ends_at = time.monotonic() + LONG
    await asyncio.to_thread(node.subscribe, "flights", ["orders"])
    while time.monotonic() < ends_at:
        state = await asyncio.to_thread(node.status)
        if state["subscriptions"]["flights"]["trouble"]:
            return str(state["subscriptions"]["flights"]["trouble"])
        await asyncio.sleep(0.05)
    raise AssertionError("there is no trouble")


@pytest.mark.parametrize("kind", ["daemon", "embedded"])
async def test_a_node_reaches_its_routers_through_tls_with_its_certificate(
    kind: str, router: RouterProcess, tmp_path: Path
) -> None:
    authority = make_authority(tmp_path / "pki", asks_clients=True)
    files = TlsFiles(authority.ca, authority.client_certificate, authority.client_key)
    async with tls_in_front_of(router.url, authority.server) as port:
        url = f"amqps://localhost:{port}"
        if kind == "embedded":
            with EmbeddedNode(NodeSettings("node", tmp_path / "node", (url,), tls=files)) as node:
                await receives(node, router)
                await asyncio.to_thread(node.close)
        else:
            with running_node(tmp_path / "node", [url], toml(files)) as process, process.connect() as node:
                await receives(node, router)


async def test_a_node_reaches_its_router_by_websocket_through_tls(tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "pki", asks_clients=True)
    files = TlsFiles(authority.ca, authority.client_certificate, authority.client_key)
    async with (
        running_router("--standalone", "--http-websocket=true") as router,
        tls_in_front_of(router.http, authority.server) as port,
    ):
        settings = NodeSettings("node", tmp_path / "node", (f"wss://localhost:{port}/amqp",), tls=files)
        with EmbeddedNode(settings) as node:
            await receives(node, router)
            await asyncio.to_thread(node.close)


@pytest.mark.parametrize(
    ("host", "chosen", "why"),
    [
        ("localhost", "nobody's", "certificate is not valid"),
        ("localhost", "another's", "certificate is not valid"),
        ("127.0.0.1", "its own", "certificate is not valid for '127.0.0.1'"),
    ],
)
async def test_a_router_that_cannot_prove_who_it_is_gets_nothing(
    host: str, chosen: str, why: str, router: RouterProcess, tmp_path: Path
) -> None:
    authority = make_authority(tmp_path / "pki")
    other = make_authority(tmp_path / "other")
    files = {"nobody's": NO_FILES, "another's": TlsFiles(other.ca), "its own": TlsFiles(authority.ca)}[chosen]
    async with tls_in_front_of(router.url, authority.server) as port:
        settings = NodeSettings("node", tmp_path / "node", (f"amqps://{host}:{port}",), tls=files)
        with EmbeddedNode(settings) as node:
            assert why in await trouble_of(node)
            await asyncio.to_thread(node.close)


async def test_the_check_of_the_host_name_can_be_left_out_for_an_authority_of_ones_own(
    router: RouterProcess, tmp_path: Path
) -> None:
    authority = make_authority(tmp_path / "pki")
    files = TlsFiles(authority.ca, checks_hostname=False)
    async with tls_in_front_of(router.url, authority.server) as port:
        settings = NodeSettings("node", tmp_path / "node", (f"amqps://127.0.0.1:{port}",), tls=files)
        with EmbeddedNode(settings) as node:
            await receives(node, router)
            await asyncio.to_thread(node.close)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls") / "pki")


def test_files_that_cannot_be_used_are_refused_and_the_error_says_why(authority: Authority, tmp_path: Path) -> None:
    secure = ["amqps://router"]
    text = tmp_path / "text"
    text.write_text("no certificate")
    cases: list[tuple[TlsFiles, list[str], str]] = [
        (TlsFiles(authority.ca), ["amqp://router"], "no router's URL asks for TLS"),
        (TlsFiles(tmp_path / "none"), secure, "No such file"),
        (TlsFiles(text), secure, "PEM files"),
        (TlsFiles(authority.ca, text), secure, "PEM files"),
        (TlsFiles(authority.ca, authority.client_certificate), secure, "PEM files"),  # its key is in another file
        (TlsFiles(authority.ca, None, authority.client_key), secure, "there is no certificate to it"),
        (TlsFiles(checks_hostname=False), secure, "the file of your own authority"),
    ]
    for files, urls, why in cases:
        with pytest.raises(BadRequest) as caught:
            tls_context(files, urls)
        assert why in str(caught.value)
    with pytest.raises(BadRequest, match="No such file"):
        BridgeNode(NodeSettings("node", tmp_path / "node", ("amqps://router",), tls=TlsFiles(tmp_path / "none")))
    assert not (tmp_path / "node").exists()


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(authority: Authority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(authority.client_key.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(BadRequest, match="a key that has no passphrase"):
        tls_context(TlsFiles(authority.ca, authority.client_certificate, locked), ["amqps://router"])


def test_a_daemon_with_wrong_files_ends_with_a_sentence(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        f'name = "node"\nfolder = "{tmp_path / "node"}"\nrouters = ["amqps://127.0.0.1:1"]\ntls.ca_file = "none.pem"\n'
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bridges.node", "--config", config],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 2
    assert "the TLS files cannot be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_spark_gives_an_embedded_node_its_files(authority: Authority, tmp_path: Path) -> None:
    given = {
        "amqp.urls": "amqps://router",
        "bridge.folder": str(tmp_path),
        "subscribe": "orders",
        "subscription": "s",
        "amqp.tls.ca": str(authority.ca),
        "amqp.tls.certificate": str(authority.client_certificate),
        "amqp.tls.key": str(authority.client_key),
        "amqp.tls.checkHostname": "false",
    }
    assert source_options(given).bridge.tls == TlsFiles(
        authority.ca, authority.client_certificate, authority.client_key, checks_hostname=False
    )
    with pytest.raises(BadRequest, match="no router's URL asks for TLS"):
        source_options({**given, "amqp.urls": "amqp://router"})
