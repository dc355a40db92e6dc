"""Publishers without the capability resume their links at router processes (A-3b, A-3c)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncewire.wire import ACCEPTED, Source, Target, UnsettledMap, decode_message
from router.commands.local_network import LocalNetwork
from tests.router.raw_client import RawClient, RawPublisher
from tests.router.relay import assert_no_internal_error

BODIES = {b"2": b"two", b"3": b"three", b"4": b"four"}
TIMES = 12
"""Rounds in which the publisher resumes before the subscriber answers."""


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[LocalNetwork]:
    async with LocalNetwork(2, log_folder=tmp_path, log_level="info") as found:
        yield found
    assert_no_internal_error(tmp_path)


def port_of(network: LocalNetwork, name: str) -> int:
    return network.routers[name].amqp_port


async def resumed(client: RawClient, unsettled: UnsettledMap) -> RawPublisher:
    return await client.publisher("orders", exactly_once=False, unsettled=unsettled)


async def test_a_client_that_keeps_to_the_standard_delivers_each_message_once_and_stops(network: LocalNetwork) -> None:
    """It was answered with an empty map and sent each message under a new tag, in every round: 36 more of 3."""
    subscriber = await (await RawClient.connect(port_of(network, "r2"))).subscriber("orders")
    client = await RawClient.connect(port_of(network, "r1"), "standard")
    publisher = await resumed(client, {})
    unsettled = dict(BODIES)
    for tag, body in unsettled.items():
        publisher.send(tag, body)
    found = [await subscriber.delivery() for _ in BODIES]
    tags = (b"new-%d" % number for number in range(1000))
    for _ in range(TIMES):
        publisher.link.detach(False)
        client.flush()
        await client.detached(publisher.link)
        publisher = await resumed(client, dict.fromkeys(reversed(unsettled)))
        known = publisher.reply.unsettled or {}
        for tag, body in list(unsettled.items()):
            if tag in known:
                publisher.send(tag, body, resume=True)
            else:  # 3.4.6, delivery-tag 1: the source may take another tag
                unsettled[another := next(tags)] = unsettled.pop(tag)
                publisher.send(another, body)
    publisher.send(b"last", b"last")
    last = await subscriber.delivery()
    assert decode_message(last.payload).body == b"last", "nothing has come twice"
    for delivery in [*found, last]:
        subscriber.accept(delivery)
    while len(publisher.accepted_tags()) < len(BODIES) + 1:
        await publisher.next_outcome()


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
