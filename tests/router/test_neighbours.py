"""Links between routers: who is let in, and what happens to a link that is doubled, silent or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from oncewire.wire import (
    ConnectionClosed,
    ConnectionLost,
    Fields,
    LinkFlow,
    SaslClient,
    Source,
    Symbol,
    Target,
    UByte,
    UInt,
    ULong,
)
from router.commands.local_network import LocalNetwork
from tests.router.raw_client import RawClient, until
from topology.etcd_server import free_port

RID = 0x1234


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

    async def nonce(self) -> bytes:
        """The cluster's nonce, which every network tag carries."""
        client = await RawClient.connect(self.network.routers["r1"].amqp_port)
        subscriber = await client.subscriber("nonce")
        publisher = await client.publisher("nonce")
        publisher.send(b"t", b"x")
        return (await subscriber.delivery()).tag[1:5]


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


async def as_router(peer: Peer, properties: Fields) -> RawClient:
    """Connect as another router would."""
    client = RawClient("r9", SaslClient("ANONYMOUS"), 1 << 20, properties, ["oncewire-inter-router"])
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


async def linked(peer: Peer) -> RawClient:
    """A link as another router has it, with credit to send batches."""
    client = await as_router(peer, hello(await peer.nonce()))
    client.session = await client.begun()
    link = client.session.attach_sender(
        "frames", source=Source(address="$router"), target=Target(address="$router"), snd_settle_mode=1
    )
    client.flush()
    await client.wait_for(LinkFlow, lambda flow: flow.link is link and bool(flow.credit_limit))
    client.frames = link
    return client


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


async def test_routers_with_one_password_link_and_others_do_not(tmp_path: Path) -> None:
    network = LocalNetwork(
        2, log_folder=tmp_path, log_level="info", settings={"inter_router.password": "secret"}
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
        await network.kill("r2")
        network.routers["r2"].settings["inter_router.password"] = "wrong"
        await network.restart("r2", wait=False)
        logs = [tmp_path / "r1.log", tmp_path / "r2.log"]

        async def refused() -> bool:
            return any(
                "neighbour_refused" in log.read_text() and "login failed" in log.read_text() for log in logs
            )

        await until(refused, bool)
        assert await links() == []
    finally:
        await network.stop()
