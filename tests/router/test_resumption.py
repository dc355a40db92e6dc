"""Publishers without the capability resume their links at router processes (A-3b, A-3c)."""

from __future__ import annotations

import pytest

from oncewire.wire import ACCEPTED, Source, Target, UnsettledMap, decode_message
from router.commands.local_network import LocalNetwork
from tests.router.raw_client import RawClient, RawPublisher

pytestmark = pytest.mark.routers(2)


def port_of(network: LocalNetwork, name: str) -> int:
    return network.routers[name].amqp_port


async def resumed(client: RawClient, unsettled: UnsettledMap) -> RawPublisher:
    return await client.publisher("orders", exactly_once=False, unsettled=unsettled)


async def test_another_router_refuses_and_the_first_one_still_knows(network: LocalNetwork) -> None:
    subscriber = await (await RawClient.connect(port_of(network, "r2"))).subscriber("orders")
    client = await RawClient.connect(port_of(network, "r1"), "standard")
    publisher = await resumed(client, {})
    publisher.send(b"2", b"two")
    subscriber.accept(await subscriber.delivery())
    await publisher.outcome(b"2")
    publisher.link.detach(False)
    client.flush()
    await client.detached(publisher.link)
    other = await RawClient.connect(port_of(network, "r2"), "standard")
    link = other.session.attach_sender(
        "pub", source=Source(address="pub"), target=Target(address="orders"), unsettled={b"2": None}
    )
    other.flush()
    refusal = await other.detached(link)
    assert refusal.closed
    assert refusal.error is not None
    assert refusal.error.condition == "oncewire:unsettled-unknown"
    publisher = await resumed(client, {b"2": None})
    assert publisher.reply.unsettled == {b"2": ACCEPTED}
    publisher.send(b"3", b"three")
    assert decode_message((await subscriber.delivery()).payload).body == b"three"


async def test_a_router_that_was_killed_and_started_again_refuses(network: LocalNetwork) -> None:
    subscriber = await (await RawClient.connect(port_of(network, "r2"))).subscriber("orders")
    client = await RawClient.connect(port_of(network, "r1"), "standard")
    publisher = await resumed(client, {})
    publisher.send(b"2", b"two")
    await subscriber.delivery()
    await network.kill("r1")
    await client.closed()
    await network.restart("r1")
    client = await RawClient.connect(port_of(network, "r1"), "standard")
    link = client.session.attach_sender(
        "pub", source=Source(address="pub"), target=Target(address="orders"), unsettled={b"2": None}
    )
    client.flush()
    refusal = await client.detached(link)
    assert refusal.error is not None
    assert refusal.error.condition == "oncewire:unsettled-unknown"
