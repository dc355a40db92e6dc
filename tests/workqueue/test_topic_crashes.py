"""From topic to queue to topic while processes, routers and the store's connection are killed (W-19 to W-23)."""

from __future__ import annotations

import asyncio
import importlib
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress

import aiohttp
import pytest

from bridges.store.crash_points import CrashPoint
from bridges.workqueue import Queue, new_message
from oncewire.client import Publisher, connect
from router.commands.local_network import LocalNetwork
from tests.client.output_readers import OutputReaders, until_connected
from tests.store.killing import KILLED, command
from tests.support.effort import partly
from tests.support.waiting import eventually
from tests.workqueue.queue_world import Database

LONG = 180.0


POINTS = {
    "feed": [CrashPoint.FEED_RECEIVED, CrashPoint.FEED_PUSHED, CrashPoint.FEED_COMMITTED],
    "work": [CrashPoint.OUTBOX_WRITTEN],
    "publish": [
        CrashPoint.ROWS_READ,
        CrashPoint.ROWS_NOTED,
        CrashPoint.ROWS_EXPOSED,
        CrashPoint.OUTCOMES_WRITTEN,
        CrashPoint.OUTCOMES_COMMITTED,
    ],
}

EVERY = [point for points in POINTS.values() for point in points]


class Pipeline:
    """The processes of one run, its publisher and its subscriber."""

    def __init__(self, sql_database: Database, routers: Sequence[str]) -> None:
        self._database = sql_database
        self._routers = list(routers)
        self.sent = 0
        self.received: dict[str, list[object]] = {"one": [], "two": []}
        self.hits: list[CrashPoint] = []

    async def start(self, role: str, point: str = "", times: int = 1) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command("tests.workqueue.topic_worker"),
            role,
            self._database.url,
            ",".join(self._routers),
            point,
            str(times),
        )

    async def run_role(self, role: str, points: Sequence[CrashPoint]) -> None:
        """Die at each point, twice: the second time it is passed, too; then live on."""
        for point in points:
            for times in (1, 2):
                process = await self.start(role, point, times)
                try:
                    async with asyncio.timeout(LONG):
                        code = await process.wait()
                except BaseException as error:
                    process.kill()
                    await process.wait()
                    if isinstance(error, TimeoutError):
                        raise AssertionError(f"{role} did not reach {point}") from error
                    raise
                assert code == KILLED, f"{role} was not killed at {point}"
                self.hits.append(point)
        process = await self.start(role)
        try:
            await process.wait()
            raise AssertionError(f"{role} ended by itself")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    @asynccontextmanager
    async def ends(self) -> AsyncIterator[Publisher]:
        """Publisher and subscribers, which stay."""
        async with connect(self._routers, container_id="ends", timeout=LONG) as client, asyncio.TaskGroup() as group:
            tasks = []
            for topic in self.received:
                subscriber = await client.subscriber(topic, name=topic)

                async def receive(subscriber=subscriber, topic=topic) -> None:  # type: ignore[no-untyped-def]
                    async for delivery in subscriber:
                        self.received[topic].append(delivery.body)
                        await delivery.accept()

                tasks.append(group.create_task(receive()))
            publisher = await client.publisher("in", name="in")
            try:
                yield publisher
                await publisher.suspend()
            finally:
                for task in tasks:
                    task.cancel()

    async def until_subscribed(self, network: LocalNetwork) -> None:
        """What is published from now on is owed to the feed."""
        url = network.routers["r1"].http
        async with aiohttp.ClientSession() as session, asyncio.timeout(LONG):
            while True:
                async with session.get(f"{url}/api/v1/subscriptions") as answer:
                    if "in" in {item["topic"] for item in (await answer.json())["items"]}:
                        return
                await asyncio.sleep(0.05)

    async def send(self, publisher: Publisher, count: int) -> None:
        for _ in range(count):
            _ = await publisher.submit(b"%d" % self.sent)
            self.sent += 1

    async def until_all_is_received(self, publisher: Publisher) -> None:
        """Every message that was sent has come out of both steps."""
        await publisher.flush(LONG)
        await eventually(lambda: all(len(found) >= self.sent for found in self.received.values()))

    def judge(self) -> None:
        """Each message had one effect for each topic, and was received once, in the order of the effects."""
        expected = sorted(str(number) for number in range(self.sent))
        for found in self.received.values():
            assert len(found) == self.sent
            assert sorted(body.decode() for body in found if isinstance(body, bytes)) == expected
        effects = self._database.rows("SELECT body FROM effects WHERE topic = 'one' ORDER BY id")
        assert [body.encode() for (body,) in effects] == self.received["one"]
        assert self._database.rows("SELECT * FROM oncewire_items") == []
        endings = self._database.rows("SELECT item, queue, ending FROM oncewire_history")
        assert len(endings) == len(set(endings)) == 2 * self.sent


pytestmark = pytest.mark.routers(2, settings={"etcd.lease_ttl_s": "3", "listen.idle_timeout_s": "3"})


@pytest.fixture
def pipeline(sql_database: Database, network: LocalNetwork) -> Pipeline:
    identity = "INTEGER PRIMARY KEY AUTOINCREMENT"
    if sql_database.kind == "postgresql":
        identity = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    with closing(sql_database.open()):  # makes the tables
        pass
    sql_database.run(f"CREATE TABLE effects (id {identity}, topic TEXT NOT NULL, body TEXT NOT NULL)")
    return Pipeline(sql_database, [f"amqp://127.0.0.1:{router.amqp_port}" for router in network.routers.values()])


@pytest.mark.timeout(1200)
async def test_killed_at_every_point_each_message_is_one_item_and_one_message_in_order(
    pipeline: Pipeline, network: LocalNetwork
) -> None:
    async with pipeline.ends() as publisher, asyncio.TaskGroup() as group:
        roles = [group.create_task(pipeline.run_role(role, points)) for role, points in POINTS.items()]
        await pipeline.until_subscribed(network)
        while len(pipeline.hits) < 2 * len(EVERY):
            await pipeline.send(publisher, 5)
            await asyncio.sleep(0.1)
        await pipeline.send(publisher, 50)
        await pipeline.until_all_is_received(publisher)
        for role in roles:
            role.cancel()
    pipeline.judge()
    assert sorted(pipeline.hits) == sorted([*EVERY, *EVERY]), "a point was not hit"


@pytest.mark.timeout(1200)
async def test_a_killed_router_and_broken_connections_of_the_store_lose_and_double_nothing(
    pipeline: Pipeline, network: LocalNetwork, sql_database: Database
) -> None:
    processes = [await pipeline.start(role) for role in POINTS]
    try:
        async with pipeline.ends() as publisher:
            await pipeline.until_subscribed(network)
            for fault in range(6):
                await pipeline.send(publisher, 60)
                await eventually(lambda: len(pipeline.received["two"]) >= pipeline.sent - 30)
                if fault == 2:
                    await network.kill("r1")
                elif fault == 4:
                    await network.restart("r1")
                elif sql_database.kind == "postgresql":
                    break_connections(sql_database)
            await pipeline.until_all_is_received(publisher)
        assert [process.returncode for process in processes] == [None] * len(processes)
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    pipeline.judge()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", partly([CrashPoint.ROWS_EXPOSED, CrashPoint.OUTCOMES_WRITTEN]))
async def test_a_publisher_that_stands_by_continues_what_a_killed_one_has_begun(
    pipeline: Pipeline, network: LocalNetwork, sql_database: Database, point: CrashPoint
) -> None:
    """Of two instances the one that took over is killed: W-26."""
    processes = [await pipeline.start(role) for role in POINTS]
    try:
        async with pipeline.ends() as publisher:
            await pipeline.until_subscribed(network)
            await pipeline.send(publisher, 20)
            await pipeline.until_all_is_received(publisher)
            killed = await pipeline.start("publish", point)
            processes.append(killed)
            owner = "SELECT epoch FROM oncewire_owners WHERE name LIKE 'publisher%'"
            await eventually(lambda: sql_database.rows(owner) == [(2,)])
            await pipeline.send(publisher, 60)
            assert await asyncio.wait_for(killed.wait(), LONG) == KILLED
            await pipeline.send(publisher, 20)
            await pipeline.until_all_is_received(publisher)
            assert sql_database.rows(owner) == [(3,)]
        assert [process.returncode for process in processes[:-1]] == [None] * len(POINTS)
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    pipeline.judge()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_publisher_that_was_paused_while_another_took_over_sends_nothing_again(
    pipeline: Pipeline, network: LocalNetwork, sql_database: Database
) -> None:
    """P-b: what it had unsettled when it was stopped is settled when it goes on; it must not present it."""
    outbox = "SELECT number FROM oncewire_outbox"
    processes = []
    routers = [router.url for router in network.routers.values()]
    readers = OutputReaders()
    try:
        async with (
            Queue.open(sql_database.url, "in") as queue,
            readers.reading(routers, "one"),
            connect(routers) as client,
            asyncio.timeout(LONG),
        ):

            async def publish(body: bytes) -> None:
                await queue.transact(lambda do: do.publish([new_message("one", body)]))

            slow = await client.subscriber("one")
            processes.append(await pipeline.start("publish"))
            await publish(b"1")
            held = await slow.receive()
            await eventually(lambda: readers.have(1))
            ((container,),) = sql_database.rows("SELECT container FROM oncewire_owners")
            processes[0].send_signal(signal.SIGSTOP)
            await until_connected(network, container, 0)
            processes.append(await pipeline.start("publish"))
            await eventually(lambda: sql_database.rows("SELECT epoch FROM oncewire_owners") == [(2,)])
            await held.accept()
            await slow.close()
            await eventually(lambda: sql_database.rows(outbox) == [])
            with locked(sql_database):  # else its next transaction may be faster than its next connection
                processes[0].send_signal(signal.SIGCONT)
                await until_connected(network, container, 2)
            await publish(b"2")
            await eventually(lambda: readers.have(2))
            processes[1].kill()  # the first one stands by, and takes over
            await publish(b"3")
            await eventually(lambda: readers.have(3))
            await eventually(lambda: sql_database.rows(outbox) == [])
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    readers.check(["1", "2", "3"])
    assert not readers.flagged


@contextmanager
def locked(sql_database: Database) -> Iterator[None]:
    """A transaction that wants to know who owns what waits."""
    with closing(sql_database.connect()) as connection:
        is_file = sql_database.kind == "sqlite"
        connection.execute("BEGIN IMMEDIATE" if is_file else "BEGIN")
        if not is_file:
            connection.execute("LOCK TABLE oncewire_owners")
        yield
        connection.execute("ROLLBACK")


def break_connections(sql_database: Database) -> None:
    """The server ends all connections of the pipeline's processes."""
    with closing(importlib.import_module("psycopg").connect(sql_database.address, autocommit=True)) as admin:
        ended = admin.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
        assert ended[0] >= len(POINTS)
