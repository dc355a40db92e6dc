"""Links between routers: who is admitted (K-1b), and what happens to a link that is doubled, silent or wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from delivery_records.model.view import RouterRecord
from oncewire.wire import (
    ConnectionClosed,
    ConnectionLost,
    DeliveryReceived,
    Fields,
    LinkAttached,
    LinkFlow,
    SaslClient,
    Source,
    Symbol,
    Target,
    UByte,
    UInt,
    ULong,
)
from router.commands.cluster import cluster
from router.commands.local_network import LocalNetwork
from router.peers.proof import Handshake
from tests.router.raw_client import RawClient, until
from topology.etcd.gateway_store import GatewayStore
from topology.etcd.server import free_port
from topology.etcd.store import PREFIX, UNCONDITIONAL
from topology.keys.attachments import CLUSTER_KEY, decode_life, encode_record, router_store_key
from topology.keys.router_secrets import RouterSecrets

RID = 0x1234


KEY = router_store_key(RouterRecord("r9", RID))


class Peer:
    """A network of one router, and the port where other routers connect."""

    def __init__(self, network: LocalNetwork, port: int) -> None:
        self.network = network
        self.port = port

    async def state(self) -> Any:
        url = self.network.routers["r1"].http + "/api/v1/state"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            found = await answer.json()
        await asyncio.sleep(0)
        return found

    async def put(self, key: str, value: bytes) -> None:
        """Write to etcd, as other routers do."""
        store = GatewayStore(self.network.etcd_urls)
        try:
            await store.compare_and_put(key, value, UNCONDITIONAL)
        finally:
            await store.close()

    async def record_of(self, name: str) -> tuple[int, bytes]:
        """Incarnation and secret of a router, which only etcd has."""
        store = GatewayStore(self.network.etcd_urls)
        try:
            _, stored = await store.snapshot(f"{PREFIX}routers/{name}.")
        finally:
            await store.close()
        value = json.loads(stored[0].value)
        return int(value["rid"], 16), bytes.fromhex(value["secret"])

    async def nonce(self) -> bytes:
        """The cluster's nonce."""
        store = GatewayStore(self.network.etcd_urls)
        try:
            stored = await store.get(CLUSTER_KEY)
        finally:
            await store.close()
        assert stored is not None
        return decode_life(stored.value).nonce


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    port = free_port()
    settings = {"inter_router.port": str(port)}
    async with LocalNetwork(1, log_folder=tmp_path, log_level="info", settings=settings) as network:
        yield Peer(network, port)


def hello(nonce: bytes, *, oldest: int = 1, newest: int = 1, rid: int = RID) -> Fields:
    return {
        Symbol("x-opt-router-incarnation"): ULong(rid),
        Symbol("x-opt-router-protocol-min"): UByte(oldest),
        Symbol("x-opt-router-protocol-max"): UByte(newest),
        Symbol("x-opt-router-nonce"): nonce,
        Symbol("x-opt-router-cost"): UInt(4),
    }


class Listening(RawClient):
    """Keeps the bytes, too."""

    def data_received(self, data: bytes) -> None:
        self.octets = getattr(self, "octets", b"") + data
        super().data_received(data)


async def as_router(peer: Peer, properties: Fields) -> RawClient:
    """Connect as another router would; without more it is one of a release that proves nothing."""
    client = Listening("r9", SaslClient("ANONYMOUS"), 1 << 20, properties, ["oncewire-inter-router"])
    return await RawClient.dial_with(client, peer.port)


async def test_a_client_at_the_port_for_routers_is_refused(peer: Peer) -> None:
    client = await RawClient.dial(peer.port)
    closed = await client.wait_for(ConnectionClosed)
    assert closed.error is not None
    assert closed.error.description == "only routers of this network may connect here"


async def test_a_router_of_another_protocol_version_is_refused_with_both_versions(peer: Peer) -> None:
    client = await as_router(peer, hello(await peer.nonce(), oldest=2, newest=3))
    closed = await client.wait_for(ConnectionClosed)
    assert closed.error is not None
    assert closed.error.description == "protocol versions 2 to 3 do not contain 1"


async def test_a_router_of_another_cluster_is_refused(peer: Peer) -> None:
    client = await as_router(peer, hello(b"nope"))
    closed = await client.wait_for(ConnectionClosed)
    assert closed.error is not None
    assert "another cluster" in (closed.error.description or "")


async def attach_frames(client: RawClient, properties: Fields | None = None) -> None:
    """Attach the link for frames as another router does."""
    if not hasattr(client, "session"):
        client.session = await client.begun()
    client.frames = client.session.attach_sender(
        "frames",
        source=Source(address="$router"),
        target=Target(address="$router"),
        snd_settle_mode=1,
        properties=properties,
    )
    client.flush()


async def credit(client: RawClient) -> None:
    await client.wait_for(LinkFlow, lambda flow: flow.link is client.frames and bool(flow.credit_limit))


async def linked(peer: Peer) -> RawClient:
    """A link as another router has it, with credit to send batches."""
    await peer.put(KEY, encode_record(RouterRecord("r9", RID)))
    client = await as_router(peer, hello(await peer.nonce()))
    await attach_frames(client)
    await credit(client)
    return client


def proof(client: RawClient, own: int, other: int, secret: bytes, own_challenge: bytes) -> Fields:
    """What a router shows that has this secret."""
    remote = client.engine.remote_open
    assert remote is not None
    challenge = (remote.properties or {})[Symbol("x-opt-router-challenge")]
    assert isinstance(challenge, bytes)
    handshake = Handshake(own, own_challenge, other, challenge)
    secrets = RouterSecrets()
    secrets.own = secret
    return {Symbol("x-opt-router-proof"): handshake.prove(secrets)}


async def refusal(client: RawClient) -> str:
    """Why the connection was closed; it never had credit, and was sent nothing."""
    closed = await client.wait_for(ConnectionClosed)
    assert closed.error is not None
    assert not client.frames.credit
    assert not [event for event in client.heard if isinstance(event, DeliveryReceived)]
    return f"{closed.error.condition}: {closed.error.description}"


@pytest.mark.parametrize("shown", ["nothing", "a guess", "what another connection showed", "what the router showed"])
async def test_a_router_that_shows_no_proof_or_a_wrong_one_gets_no_credit_and_is_refused(
    peer: Peer, shown: str
) -> None:
    secrets, nonce, challenge = RouterSecrets(), await peer.nonce(), b"c" * 32
    await peer.put(KEY, secrets.encode(RouterRecord("r9", RID)))
    r1, _ = await peer.record_of("r1")
    stated = hello(nonce) | {Symbol("x-opt-router-challenge"): challenge}
    recorded = await as_router(peer, stated)
    recorded.session = await recorded.begun()
    good = proof(recorded, RID, r1, secrets.own, challenge)
    client = await as_router(peer, stated)
    client.session = await client.begun()
    if shown == "what the router showed":
        attach = (await client.wait_for(LinkAttached)).link.remote_attach
        assert attach is not None
        properties: Fields | None = attach.properties
    else:
        guess: Fields = {Symbol("x-opt-router-proof"): b"x" * 32}
        properties = {"nothing": None, "a guess": guess, "what another connection showed": good}[shown]
    await attach_frames(client, properties)
    assert await refusal(client) == "amqp:unauthorized-access: this incarnation has another secret in etcd"
    assert (await peer.state())["neighbours"] == []


async def test_who_takes_the_name_of_a_router_that_is_linked_is_refused_and_the_link_stays(tmp_path: Path) -> None:
    network = LocalNetwork(2, log_folder=tmp_path)
    port = free_port()
    network.routers["r1"].settings["inter_router.port"] = str(port)
    async with network:
        peer = Peer(network, port)
        r2, _ = await peer.record_of("r2")
        client = await as_router(peer, hello(await peer.nonce(), rid=r2))
        await attach_frames(client)
        assert "another secret" in await refusal(client)
        assert [link["id"] for link in (await peer.state())["neighbours"]] == ["r2"]


async def test_an_incarnation_that_etcd_does_not_know_gets_no_credit_and_is_given_up(peer: Peer) -> None:
    client = await as_router(peer, hello(await peer.nonce()))
    await attach_frames(client)
    await client.wait_for(ConnectionLost)
    assert not client.frames.credit
    assert (await peer.state())["neighbours"] == []


async def test_a_router_may_connect_before_the_view_of_the_other_one_has_its_key(peer: Peer) -> None:
    secrets, challenge = RouterSecrets(), b"c" * 32
    r1, _ = await peer.record_of("r1")
    client = await as_router(peer, hello(await peer.nonce()) | {Symbol("x-opt-router-challenge"): challenge})
    client.session = await client.begun()
    await attach_frames(client, proof(client, RID, r1, secrets.own, challenge))
    await client.wait_for(LinkAttached, lambda event: event.link is client.frames)
    assert not client.frames.credit
    await peer.put(KEY, secrets.encode(RouterRecord("r9", RID)))
    await credit(client)


async def test_a_router_proves_itself_to_its_neighbour_and_its_secret_does_not_cross_the_link(peer: Peer) -> None:
    challenge = b"c" * 32
    r1, secret = await peer.record_of("r1")
    client = await as_router(peer, hello(await peer.nonce()) | {Symbol("x-opt-router-challenge"): challenge})
    remote = (await client.wait_for(LinkAttached)).link.remote_attach
    opened = client.engine.remote_open
    assert remote is not None
    assert opened is not None
    theirs = (opened.properties or {})[Symbol("x-opt-router-challenge")]
    assert isinstance(theirs, bytes)
    secrets = RouterSecrets()
    secrets.own = secret
    shown = (remote.properties or {})[Symbol("x-opt-router-proof")]
    assert shown == Handshake(r1, theirs, RID, challenge).prove(secrets)
    assert isinstance(client, Listening)
    assert bytes(theirs) in client.octets
    assert secret not in client.octets
    assert secret.hex().encode() not in client.octets


async def test_routed_links_of_who_has_proven_nothing_end_the_connection(peer: Peer) -> None:
    client = await as_router(peer, hello(await peer.nonce()))
    client.session = await client.begun()
    client.session.attach_sender(
        "routed",
        source=Source(address="q"),
        target=Target(address="queue://q"),
        properties={Symbol("x-opt-router-to"): ULong(1), Symbol("x-opt-router-hops"): UInt(1)},
    )
    client.flush()
    closed = await client.wait_for(ConnectionClosed)
    assert closed.error is not None
    assert "routed links follow the link for frames" in (closed.error.description or "")


@pytest.mark.parametrize(
    ("batch", "message_format"),
    [(b"\x01\x00\x00\x00\x09short", 0x4F574201), (b"\x01\x00\x00\x00\x01?", 0x4F574201), (b"", 0)],
    ids=["cut off", "no frame", "an AMQP message"],
)
async def test_a_neighbour_that_sends_nonsense_is_dropped_with_the_reason(
    peer: Peer, batch: bytes, message_format: int
) -> None:
    client = await linked(peer)
    client.frames.send(b"f", batch, settled=True, message_format=message_format)
    client.flush()
    closed = await client.wait_for(ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition in ("amqp:decode-error", "amqp:not-implemented")
    assert closed.error.description


async def test_a_neighbour_that_says_nothing_is_given_up(peer: Peer) -> None:
    client = await linked(peer)
    lost = await client.wait_for(ConnectionLost)
    assert lost is not None

    async def neighbours() -> Any:
        return (await peer.state())["neighbours"]

    await until(neighbours, lambda found: found == [])


def text_of(path: Path) -> str:
    return path.read_text()


async def shown_secrets(network: LocalNetwork, logs: Path, *more: str) -> list[str]:
    """Which of these secrets, and of those in etcd (K-1b), routers show in replies, log and list of processes."""
    store = GatewayStore(network.etcd_urls)
    _, stored = await store.snapshot(f"{PREFIX}routers/")
    await store.close()
    secrets = {*more, *(json.loads(each.value)["secret"] for each in stored)}
    assert len(secrets) == len(network.routers) + len(more)
    shown = await asyncio.to_thread(CliRunner().invoke, cluster, ["show", f"--etcd-endpoints={network.etcd_urls[0]}"])
    reported = {"oncewire cluster show": shown.output}
    assert "r1" in reported["oncewire cluster show"], reported
    async with aiohttp.ClientSession() as session:
        for router in network.routers.values():
            for path in ("api/v1/state", "api/v1/overview", "api/v1/events", "api/v1/management/settings", "metrics"):
                async with session.get(f"{router.http}/{path}") as answer:
                    reported[f"{router.id} {path}"] = await answer.text()
            reported[f"{router.id} arguments"] = text_of(Path("/proc", str(router.pid), "cmdline"))
            reported[f"{router.id} log"] = text_of(logs / f"{router.id}.log")
    await asyncio.sleep(0)
    return [f"{secret} in {name}" for secret in secrets for name, text in reported.items() if secret in text]


async def test_routers_with_one_password_link_and_others_do_not(tmp_path: Path) -> None:
    network = LocalNetwork(
        2, log_folder=tmp_path, log_level="debug", settings={"inter_router.password": "a password of routers"}
    )
    try:
        await network.start()

        async def links() -> Any:
            url = network.routers["r1"].http + "/api/v1/state"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                found = [link["id"] for link in (await answer.json())["neighbours"]]
            await asyncio.sleep(0)
            return found

        assert await links() == ["r2"]
        assert await shown_secrets(network, tmp_path, "a password of routers") == []
        await network.kill("r2")
        network.routers["r2"].settings["inter_router.password"] = "wrong"
        await network.restart("r2", wait=False)
        logs = [tmp_path / "r1.log", tmp_path / "r2.log"]

        async def refused() -> bool:
            return any("neighbour_refused" in log.read_text() and "login failed" in log.read_text() for log in logs)

        await until(refused, bool)
        assert await links() == []
    finally:
        await network.stop()
