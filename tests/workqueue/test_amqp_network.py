"""Queues over AMQP in a network of routers: killed bridges and routers, two bridges on one store, a stock client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from bridges.workqueue import Ending, Queue
from oncewire.wire import ACCEPTED
from router.commands.local_network import LocalNetwork, chain
from tests.router.raw_client import RawClient
from tests.workqueue.amqp_world import bridge, pusher, worker
from tests.workqueue.queue_world import Database

NAMES = ["r1", "r2", "r3"]
ITEMS = 40
SETTINGS = {"listen.idle_timeout_s": "300"}
"""The clients of these tests send no heartbeats."""
pytestmark = [pytest.mark.routers(3, edges=chain(NAMES), settings=SETTINGS), pytest.mark.timeout(400)]
PROTON = """
import sys
from proton import Message, symbol
from proton.utils import BlockingConnection
push = BlockingConnection(sys.argv[1], timeout=60)
sender = push.create_sender("queue://mails")
for number in range(5):
    sender.send(Message(body=f"item {number}", properties={"kept": False}))
work = BlockingConnection(sys.argv[2], timeout=60)
receiver = work.create_receiver("queue://mails", credit=5)
bodies = []
for number in range(5):
    message = receiver.receive(timeout=60)
    bodies.append(bytes(message.body).decode())
    receiver.accept()
print(sorted(bodies))
push.close()
work.close()
"""


@pytest.fixture
async def queue(sql_database: Database) -> AsyncIterator[Queue]:
    async with Queue.open(sql_database.url, "mails") as found:
        yield found


def url(network: LocalNetwork, name: str) -> str:
    return network.routers[name].url


async def client_at(network: LocalNetwork, name: str, container: str) -> RawClient:
    return await RawClient.connect(network.routers[name].amqp_port, container)


async def test_pushes_and_work_go_on_over_a_killed_bridge_and_a_killed_router_between(
    sql_database: Database, queue: Queue, network: LocalNetwork
) -> None:
    # R-7, W-17: r2 is between the client at r1 and the bridge at r3.
    shop = await client_at(network, "r1", "shop")
    async with bridge(sql_database.url, [url(network, "r3")], "bridge1") as first:
        push = await pusher(shop, "mails", unsettled={})
        push.send(b"1", b"first")
        assert (await push.outcome(b"1")).state == ACCEPTED
        await network.kill("r2")
        await shop.detached(push.link)
        await network.restart("r2")
        push = await pusher(shop, "mails", unsettled={b"1": None})
        assert push.link.remote_attach is not None
        assert push.link.remote_attach.unsettled == {b"1": ACCEPTED}
        first.kill()
        await shop.detached(push.link)
    async with bridge(sql_database.url, [url(network, "r2"), url(network, "r3")], "bridge2"):
        push = await pusher(shop, "mails", unsettled={b"1": None, b"2": None})
        push.send(b"2", b"second")
        assert (await push.outcome(b"2")).state == ACCEPTED
        work = await worker(await client_at(network, "r1", "worker"), "mails", credit=2)
        found = [await work.item() for _ in range(2)]
        assert sorted(body for _, body in found) == [b"first", b"second"]
        for delivery, _ in found:
            work.state(delivery)
            await work.answer(delivery)
    assert [entry.ending for entry in (await queue.history()).entries] == [Ending.DONE] * 2


@pytest.mark.needs("postgresql")
@pytest.mark.parametrize("sql_database", ["postgresql"], indirect=True)
async def test_two_bridges_at_two_routers_share_a_store_and_each_item_is_done_once(
    sql_database: Database, queue: Queue, network: LocalNetwork
) -> None:
    # each client's link goes to the bridge that is nearer.
    store = sql_database.url
    async with bridge(store, [url(network, "r1")], "b1") as first, bridge(store, [url(network, "r3")], "b3"):
        pushes = [await pusher(await client_at(network, name, f"p-{name}"), "mails") for name in NAMES]
        works = [await worker(await client_at(network, name, f"w-{name}"), "mails") for name in ("r1", "r3")]
        for number in range(ITEMS):
            push = pushes[number % 3]
            push.send(b"%d" % number, b"%d" % number)
            assert (await push.outcome(b"%d" % number)).state == ACCEPTED
        for _ in range(ITEMS // 4):
            for work in works:
                delivery, _ = await work.item()
                work.state(delivery)
                await work.answer(delivery)
                work.grant(1)
        first.kill()
        await works[0].client.detached(works[0].link)
        last = await worker(works[0].client, "mails", "again", properties=None)
        done = ITEMS // 2
        while done < ITEMS - 1:  # one may be reserved by the worker whose bridge was killed
            for work in (works[1], last):
                tasks = asyncio.wait_for(work.item(), 40)
                delivery, _ = await tasks
                work.state(delivery)
                await work.answer(delivery)
                work.grant(1)
                done += 1
                if done >= ITEMS - 1:
                    break
    ended = [entry.payload for entry in (await queue.history(ending=Ending.DONE)).entries]
    assert len(ended) == len(set(ended)) == ITEMS - 1 or len(ended) == len(set(ended)) == ITEMS


@pytest.mark.needs("proton")
async def test_a_stock_client_pushes_at_one_router_and_works_at_another(
    sql_database: Database, queue: Queue, network: LocalNetwork
) -> None:
    async with bridge(sql_database.url, [url(network, "r2")]):
        probe = await client_at(network, "r1", "probe")
        await pusher(probe, "mails")  # until r1 knows of the service
        probe = await client_at(network, "r3", "probe")
        await pusher(probe, "mails")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROTON, url(network, "r1"), url(network, "r3"), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 200)
        assert out.decode().strip() == str([f"item {number}" for number in range(5)])
        async with asyncio.timeout(60):  # the client ends behind its last answer, which may be on its way
            while len((await queue.history(ending=Ending.DONE)).entries) < 5:  # noqa: ASYNC110 - no notification
                await asyncio.sleep(0.05)
