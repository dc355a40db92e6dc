"""One of each kind of reader behind each kind of publisher, which is killed: each reader gets each message once.

The consumer of transactions has its test where its crash points are (tests/client/test_consumer_crashes.py).
"""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import closing, suppress
from pathlib import Path

import pytest

from bridges.node.arrow_bodies import encode_rows
from bridges.node.interface import Node
from bridges.node.model import StagedPart, Writer
from bridges.store.crash_points import CrashPoint
from bridges.workqueue import Queue, new_message
from oncewire.client import Subscriber, connect
from oncewire.wire import encode_data_message
from router.commands.local_network import LocalNetwork
from tests.client.output_readers import OutputReaders, until
from tests.node.node_process import NodeProcess, running_node
from tests.workqueue.queue_world import Database
from tests.workqueue.test_topic_crashes import POINTS, Pipeline

AT_ONCE = 10
WRITER = Writer("query", "run")


def routers_of(network: LocalNetwork) -> list[str]:
    return [router.url for router in network.routers.values()]


async def until_all_have(readers: OutputReaders, count: int) -> None:
    await until(lambda: readers.have(count), lambda: {kind: len(found) for kind, found in readers.by_kind.items()})


@pytest.mark.timeout(300)
async def test_an_outbox_publisher_killed_at_each_point_doubles_nothing_for_any_reader(tmp_path: Path) -> None:
    database = Database("sqlite", str(tmp_path / "work.db"))
    with closing(database.open()):
        pass
    readers, sent = OutputReaders(), 0
    async with LocalNetwork(1) as network, readers.reading(routers_of(network), "one"):
        pipeline = Pipeline(database, routers_of(network))
        async with Queue.open(database.url, "in") as queue:
            points: list[CrashPoint | None] = [*POINTS["publish"], None]
            for point in points:
                messages = [new_message("one", b"%d" % number) for number in range(sent, sent + AT_ONCE)]
                await queue.transact(lambda do: do.publish(messages))  # noqa: B023
                sent += AT_ONCE
                process = await pipeline.start("publish", point or "")
                if point is not None:
                    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL, point
            await until_all_have(readers, sent)
            await until(lambda: database.rows("SELECT number FROM oncewire_outbox") == [], lambda: "no outcome")
            process.kill()
            await process.wait()
    readers.check([str(number) for number in range(sent)])
    assert not readers.flagged


@pytest.mark.timeout(300)
async def test_a_bridge_node_killed_while_it_publishes_doubles_nothing_for_any_reader(tmp_path: Path) -> None:
    readers, batches, rows = OutputReaders(), 3, 20
    async with LocalNetwork(1) as network, readers.reading(routers_of(network), "out"):
        with running_node(tmp_path / "node", routers_of(network)) as process, process.connect() as node:
            for batch in range(batches):
                working = asyncio.create_task(asyncio.to_thread(write, node, batch, rows))
                await until(lambda: len(readers.plain) > batch * rows, lambda: readers.by_kind)  # noqa: B023
                await asyncio.to_thread(NodeProcess.restart, process)
                await asyncio.wait_for(working, 60)
            await until_all_have(readers, batches * rows)
    readers.check([f"{batch}/{row}" for batch in range(batches) for row in range(rows)])
    assert not readers.flagged


def write(node: Node, batch: int, rows: int) -> None:
    """As a query does: staged, committed, and again until every row has its outcome."""
    payloads = [encode_data_message(b"%d/%d" % (batch, row)) for row in range(rows)]
    node.stage("sink", WRITER, batch, 0, "a", 0, encode_rows(["out"] * rows, payloads), patience_s=0.0)
    while not node.commit("sink", WRITER, batch, [StagedPart(0, "a", 1, rows)], 10.0).is_done:
        pass


@pytest.mark.timeout(300)
async def test_dead_letters_reach_each_reader_once_though_the_router_that_makes_them_is_killed(tmp_path: Path) -> None:
    """The router that makes the copies is killed; who has no map may get one again, flagged (G7)."""
    settings = {"topics.rules": json.dumps([{"topics": ["work"], "dead_letter": "dead"}]), "etcd.lease_ttl_s": "3"}
    readers, count = OutputReaders(), 60
    async with (
        LocalNetwork(2, settings=settings, log_folder=tmp_path) as network,
        connect(routers_of(network), container_id="picky") as picky,
        readers.reading(routers_of(network)[::-1], "dead"),
        connect(routers_of(network), container_id="shop") as shop,
    ):
        subscriber = await picky.subscriber("work", name="s")
        rejecting = asyncio.create_task(reject_all(subscriber))
        publisher = await shop.publisher("work", name="p")
        sent = [await publisher.submit(b"%d" % number) for number in range(count)]
        await until(lambda: len(readers.plain) > count // 3, lambda: readers.by_kind)
        await network.kill("r1")
        await network.restart("r1")
        async with asyncio.timeout(120):
            assert all([(await each).is_accepted for each in sent])
        await until_all_have(readers, count)
        rejecting.cancel()
    readers.check([str(number) for number in range(count)])


async def reject_all(subscriber: Subscriber) -> None:
    with suppress(asyncio.CancelledError):
        async for delivery in subscriber:
            await delivery.reject("not for me", "app:bad")
