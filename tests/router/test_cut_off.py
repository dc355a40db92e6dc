"""Cuts between processes: a router without etcd, routers without each other, and a cut in one direction only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from oncewire.wire import decode_message
from router.commands.local_network import LocalNetwork
from tests.router.raw_client import DEADLINE_S, RawClient, RawPublisher, RawSubscriber
from tests.router.relay import Relay, Way, assert_no_internal_error, relay_to
from topology.etcd.server import EtcdServer, free_port

LEASE_S = 3
FIRST, SECOND, THIRD = range(10), range(10, 20), range(20, 30)


@dataclass
class CutNetwork:
    """Two routers, and the relays between them and in front of the first one's etcd."""

    routers: LocalNetwork
    to_etcd: Relay
    between: list[Relay]

    async def connect(self, router: str, container_id: str) -> RawClient:
        """A client at a router."""
        return await RawClient.connect(self.routers.routers[router].amqp_port, container_id)

    async def until_link_is(self, is_up: bool) -> None:
        """Wait until r1 sees a link to r2, or none."""
        ends_at = time.monotonic() + DEADLINE_S
        url = f"{self.routers.routers['r1'].http}/api/v1/state"
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(url) as answer:
                    links = (await answer.json())["links"]
                if is_up == ({("r1", "r2"), ("r2", "r1")} <= {(link["from"], link["to"]) for link in links}):
                    return
                assert time.monotonic() < ends_at, links
                await asyncio.sleep(0.05)


@asynccontextmanager
async def cut_network(folder: Path) -> AsyncIterator[CutNetwork]:
    """All parts start and end with the block."""
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(EtcdServer())
        etcd_port = urlsplit(etcd.urls[0]).port
        assert etcd_port is not None
        to_etcd = await stack.enter_async_context(relay_to(etcd_port, free_port()))
        routers = LocalNetwork(
            2, etcd_urls=etcd.urls, settings={"etcd.lease_ttl_s": f"{LEASE_S}"}, log_folder=folder, log_level="info"
        )
        routers.routers["r1"].settings["etcd.endpoints"] = f"http://127.0.0.1:{to_etcd.port}"
        between = []
        for router in routers.routers.values():
            port, shown = free_port(), free_port()
            router.settings["inter_router.port"] = f"{port}"
            router.settings["inter_router.advertise"] = f"127.0.0.1:{shown}"
            between.append(await stack.enter_async_context(relay_to(port, shown)))
        await stack.enter_async_context(routers)
        yield CutNetwork(routers, to_etcd, between)
        assert_no_internal_error(folder)


def publish(publisher: RawPublisher, numbers: range) -> dict[bytes, int]:
    """Send messages; tag -> delivery id."""
    return {b"%d" % number: publisher.send(b"%d" % number, b"m%d" % number) for number in numbers}


async def take(subscriber: RawSubscriber, numbers: range) -> None:
    """These messages and no others come next, in order, and are accepted."""
    for number in numbers:
        delivery = await subscriber.delivery()
        assert decode_message(delivery.payload).body == b"m%d" % number
        subscriber.accept(delivery)


async def until_accepted(publisher: RawPublisher, sent: dict[bytes, int]) -> None:
    """Every message is accepted; settle them."""
    while not set(sent) <= set(publisher.accepted_tags()):
        await publisher.next_outcome()
    publisher.settle(*sent.values())


async def test_a_router_cut_off_from_etcd_fences_itself_and_its_clients_go_on_elsewhere(tmp_path: Path) -> None:
    async with cut_network(tmp_path) as network:
        subscriber = await (await network.connect("r2", "store")).subscriber("t")
        client = await network.connect("r1", "box")
        publisher = await client.publisher("t")
        sent = publish(publisher, FIRST)
        await take(subscriber, range(5))
        network.to_etcd.cut()
        await client.closed()  # K-3: by its own clock, before its lease can end
        late = await (await network.connect("r2", "late")).subscriber("t")  # confirmed without r1: its key is gone
        await take(subscriber, range(5, 10))
        client = await network.connect("r2", "box")
        publisher = await client.publisher("t", unsettled=dict.fromkeys(sent))
        sent = publish(publisher, FIRST)
        await take(late, FIRST)  # it was there when the publisher went on here; the first subscriber has them already
        await until_accepted(publisher, sent)
        sent = publish(publisher, SECOND)
        await take(subscriber, SECOND)
        await take(late, SECOND)
        await until_accepted(publisher, sent)
        network.to_etcd.heal()
        await network.routers.wait_ready("r1")


async def test_routers_cut_off_from_each_other_deliver_once_and_in_order_when_they_meet_again(tmp_path: Path) -> None:
    async with cut_network(tmp_path) as network:
        subscriber = await (await network.connect("r2", "store")).subscriber("t")
        publisher = await (await network.connect("r1", "box")).publisher("t")
        sent = publish(publisher, FIRST)
        await take(subscriber, range(5))
        deliveries = [await subscriber.delivery() for _ in range(5, 10)]
        for relay in network.between:
            relay.cut()
        for delivery in deliveries:
            subscriber.accept(delivery)
        assert [decode_message(delivery.payload).body for delivery in deliveries] == [b"m%d" % n for n in range(5, 10)]
        sent |= publish(publisher, SECOND)
        await network.until_link_is(False)
        assert len(publisher.accepted_tags()) < len(sent)
        for relay in network.between:
            relay.heal()
        await take(subscriber, SECOND)
        await until_accepted(publisher, sent)
        sent = publish(publisher, THIRD)
        await take(subscriber, THIRD)
        await until_accepted(publisher, sent)


@pytest.mark.parametrize("way", Way, ids=lambda way: way.value.replace(" ", "-"))
async def test_routers_cut_off_in_one_direction_deliver_once_and_in_order_when_it_heals(
    way: Way, tmp_path: Path
) -> None:
    async with cut_network(tmp_path) as network:
        subscriber = await (await network.connect("r2", "store")).subscriber("t")
        publisher = await (await network.connect("r1", "box")).publisher("t")
        sent = publish(publisher, FIRST)
        deliveries = [await subscriber.delivery() for _ in FIRST]
        for relay in network.between:
            relay.clog(way)
        for delivery in deliveries:
            subscriber.accept(delivery)
        sent |= publish(publisher, SECOND)
        await network.until_link_is(False)  # T-4: a silent neighbour is given up, although one direction works
        for relay in network.between:
            relay.heal()
        await take(subscriber, SECOND)
        await until_accepted(publisher, sent)
        bodies = [decode_message(delivery.payload).body for delivery in deliveries]
        assert bodies == [b"m%d" % number for number in FIRST]
