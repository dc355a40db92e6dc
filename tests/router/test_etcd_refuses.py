"""What etcd refuses one link ends that link: the others on its connection live as long as the lease is kept (A-1)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from oncewire.wire import ACCEPTED, AmqpError, ReceiverLink, SenderLink, Source, Target
from oncewire.wire.vocabulary import SAME_EVERYWHERE
from router.commands.local_network import LocalNetwork
from tests.router.processes import START_TIMEOUT_S
from tests.router.raw_client import RawClient, RawPublisher, RawSubscriber
from tests.router.relay import assert_no_internal_error
from topology.etcd.gateway_store import GatewayStore
from topology.etcd.server import EtcdCluster, EtcdServer
from topology.etcd.store import UNCONDITIONAL, StoreFull

QUOTA_BYTES = 4 << 20
FILLING_BYTES = 512 << 10
FILLING_KEY = "/filling"
LONG_LEASE_S = "120"
"""The lease is kept while etcd is away."""


@pytest.fixture
async def etcd() -> AsyncIterator[EtcdServer]:
    async with EtcdServer(arguments=[f"--quota-backend-bytes={QUOTA_BYTES}"]) as server:
        yield server


@pytest.fixture
async def port(etcd: EtcdServer, tmp_path: Path) -> AsyncIterator[int]:
    settings = {"etcd.lease_ttl_s": LONG_LEASE_S}
    async with LocalNetwork(
        1, etcd_urls=etcd.urls, settings=settings, log_folder=tmp_path, log_level="info"
    ) as network:
        yield network.routers["r1"].amqp_port
    assert_no_internal_error(tmp_path)


class Healthy:
    """A publisher and a subscriber on one connection."""

    def __init__(self, client: RawClient, publisher: RawPublisher, subscriber: RawSubscriber) -> None:
        self.client = client
        self._publisher = publisher
        self._subscriber = subscriber
        self._sent = 0

    @classmethod
    async def attach(cls, port: int) -> Healthy:
        client = await RawClient.connect(port, "box")
        return cls(client, await client.publisher("orders"), await client.subscriber("orders"))

    async def deliver(self) -> None:
        """A message from end to end."""
        self._sent += 1
        tag = b"%d" % self._sent
        self._publisher.send(tag, tag)
        self._subscriber.accept(await self._subscriber.delivery())
        assert (await self._publisher.outcome(tag)).state == ACCEPTED
        self._publisher.settle_accepted()

    async def refused(self, name: str, *, publishes: bool = True) -> AmqpError:
        """With what one more link is refused."""
        session = self.client.session
        link: SenderLink | ReceiverLink
        if publishes:
            link = session.attach_sender(name, source=Source(), target=Target(address="orders"))
        else:
            link = session.attach_receiver(name, source=Source(address="orders"), target=Target())
        self.client.flush()
        detached = await self.client.detached(link)
        assert detached.closed
        assert detached.error is not None
        assert detached.error.condition == "amqp:internal-error"
        return detached.error


async def fill(etcd: EtcdServer) -> None:
    """Write until etcd has no room."""
    store = GatewayStore(etcd.urls)
    with contextlib.suppress(StoreFull):
        while True:
            await store.compare_and_put(FILLING_KEY, bytes(FILLING_BYTES), UNCONDITIONAL)
    await store.close()


async def make_room(etcd: EtcdServer) -> None:
    """What the refusal asks the operator to do."""
    store = GatewayStore(etcd.urls)
    revision, _ = await store.snapshot(FILLING_KEY)
    await store.close()
    async with aiohttp.ClientSession(etcd.urls[0]) as session:

        async def ask(path: str, body: dict[str, object]) -> dict[str, Any]:
            async with session.post(f"/v3/{path}", json=body) as answer:
                assert answer.status == 200, await answer.text()
                found: dict[str, Any] = await answer.json()
                return found

        await ask("kv/compaction", {"revision": str(revision), "physical": True})
        await ask("maintenance/defragment", {})
        raised = await ask("maintenance/alarm", {"action": "GET"})
        for alarm in raised["alarms"]:
            await ask("maintenance/alarm", {**alarm, "action": "DEACTIVATE"})


async def until_attached(client: RawClient, name: str) -> None:
    """A publisher attaches, after as many tries as it takes."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            link = client.session.attach_sender(name, source=Source(), target=Target(address="orders"))
            client.flush()
            reply = await client.attached(link)
            if reply.target is not None:
                return
            await client.detached(link)


@pytest.mark.parametrize("publishes", [True, False], ids=["publisher", "subscriber"])
async def test_an_etcd_without_space_refuses_new_links_only_and_says_what_to_do(
    etcd: EtcdServer, port: int, publishes: bool
) -> None:
    healthy = await Healthy.attach(port)
    await healthy.deliver()
    await fill(etcd)
    error = await healthy.refused("new", publishes=publishes)
    assert "alarm NOSPACE" in (error.description or "")
    assert "etcdctl alarm disarm" in (error.description or "")
    assert error.info == {SAME_EVERYWHERE: True}
    await healthy.deliver()
    await make_room(etcd)
    await until_attached(healthy.client, "newer")  # defragmenting may have broken the watch a moment ago
    await healthy.deliver()


async def test_an_etcd_that_is_away_refuses_new_links_only_while_the_lease_is_kept(etcd: EtcdServer, port: int) -> None:
    healthy = await Healthy.attach(port)
    await etcd.kill()
    error = await healthy.refused("new")
    assert "etcd has no leader or cannot be reached" in (error.description or "")
    assert error.info is None, "another router may reach it"
    await healthy.deliver()
    await etcd.restart()
    await until_attached(healthy.client, "newer")
    await healthy.deliver()


async def test_an_etcd_without_a_leader_refuses_new_links_only_while_the_lease_is_kept(tmp_path: Path) -> None:
    async with EtcdCluster(3) as cluster:
        settings = {"etcd.lease_ttl_s": LONG_LEASE_S}
        async with LocalNetwork(
            1, etcd_urls=cluster.urls, settings=settings, log_folder=tmp_path, log_level="info"
        ) as network:
            healthy = await Healthy.attach(network.routers["r1"].amqp_port)
            await healthy.deliver()
            for member in cluster.members[1:]:
                await member.kill()
            error = await healthy.refused("new")
            assert "etcd has no leader or cannot be reached" in (error.description or "")
            await healthy.deliver()
            await asyncio.gather(*(member.restart() for member in cluster.members[1:]))
            await until_attached(healthy.client, "newer")
            await healthy.deliver()
    assert_no_internal_error(tmp_path)
