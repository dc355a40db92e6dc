"""CO-10, CO-11: consumers in processes of their own share their shards, whichever is killed, stopped or cut off."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest

from chaos.network.database_relay import relay_to
from oncewire.client import connect
from oncewire.client.transactions import StoreShards
from router.commands.local_network import LocalNetwork
from tests.client.output_readers import OutputReaders, until
from tests.client.shards_child import NAMES, SCHEMA, consumer
from tests.client.store_world import Database

ROOT = Path(__file__).parents[2]
CHILD = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1));"
    "runpy.run_module('tests.client.shards_child', run_name='__main__')"
)
LEASE_S = 2.0
OWNED = (
    "SELECT claims.member, COUNT(*) FROM oncewire_claims AS claims JOIN oncewire_owners AS owners"
    " ON owners.name = claims.name AND owners.epoch = claims.epoch GROUP BY claims.member"
)


class World:
    """A router, a publisher of each shard's topic, readers of what consumers publish, and processes of consumers."""

    def __init__(self, database: Database, network: LocalNetwork) -> None:
        self.database = database
        self.urls = [router.url for router in network.routers.values()]
        self.output = OutputReaders()
        self.published: list[str] = []

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        """Publish to all topics, one message behind the other to each, until the end of the block."""
        async with self.output.reading(self.urls, "totals"), connect(self.urls) as client, asyncio.TaskGroup() as group:
            ending = asyncio.Event()

            async def publish(name: str) -> None:
                publisher = await client.publisher(f"orders/{name}")
                while not ending.is_set():
                    self.published.append(f"{name}-{len(self.published)}")
                    assert (await publisher.send(self.published[-1].encode())).is_accepted
                    await asyncio.sleep(0.02)

            for name in NAMES:
                group.create_task(publish(name))
            yield
            ending.set()
            await until(lambda: self.is_complete, lambda: (self.counts, len(self.published)))
        self.judge()

    @property
    def counts(self) -> dict[str, int]:
        return {"effects": len(self.effects()), **{kind: len(found) for kind, found in self.output.by_kind.items()}}

    @property
    def is_complete(self) -> bool:
        return len(self.effects()) >= len(self.published) and self.output.have(len(self.published))

    def judge(self) -> None:
        """Each message has one effect, and each reader one message of that same attempt."""
        effects = self.effects()
        assert Counter(message for _, _, message in effects) == Counter(self.published)
        self.output.check([f"{message}#{attempt}" for attempt, _, message in effects])
        assert not self.output.flagged

    def effects(self) -> list[tuple[str, str, str]]:
        return self.database.rows("SELECT attempt, topic, message FROM effects")

    @asynccontextmanager
    async def process(self, url: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
        """A process with all consumers, killed at the end of the block."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", CHILD, str(ROOT), url or self.database.url, ",".join(self.urls), str(LEASE_S)
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def until_even(self, *processes: asyncio.subprocess.Process) -> None:
        """The processes own as many shards each, and all of them work."""
        share = len(NAMES) // len(processes)
        await until(
            lambda: sorted(count for _, count in self.database.rows(OWNED)) == [share] * len(processes),
            lambda: self.database.rows(OWNED),
        )
        before = len(self.effects())

        def workers() -> dict[str, set[str]]:
            found: dict[str, set[str]] = {}
            for attempt, topic, _ in self.effects()[before:]:
                found.setdefault(attempt, set()).add(topic)
            return found

        await until(lambda: all(len(workers().get(str(process.pid), ())) >= share for process in processes), workers)


@asynccontextmanager
async def world_of(database: Database) -> AsyncIterator[World]:
    async with LocalNetwork(1) as network:
        world = World(database, network)
        database.run(SCHEMA)
        async with StoreShards(database.url).own("none"):  # makes its tables
            pass
        for name in NAMES:  # subscribe: what was published before, nobody would get
            async with consumer(world.urls, database.url, name):
                pass
        async with world.publishing():
            yield world


def is_free(database: Database) -> bool:
    """Whether no process is in the middle of a transaction of this file: one that stops there locks the others out."""
    with closing(sqlite3.connect(database.address, isolation_level=None, timeout=1.0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
    return True


def state_of(process: asyncio.subprocess.Process) -> str:
    """As the kernel has it; T = stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]


async def stop(process: asyncio.subprocess.Process, database: Database) -> None:
    """SIGSTOP: between two transactions where that is all that a database can bear."""
    while True:
        process.send_signal(signal.SIGSTOP)
        while state_of(process) != "T":  # noqa: ASYNC110  # the kernel has no event for it
            await asyncio.sleep(0.001)
        if database.kind != "sqlite" or is_free(database):
            return
        process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_when_a_process_is_killed_another_one_takes_its_shards_and_a_new_one_gets_its_share(
    database: Database,
) -> None:
    async with AsyncExitStack() as ending, world_of(database) as world:
        first = await ending.enter_async_context(world.process())
        await world.until_even(first)
        second = await ending.enter_async_context(world.process())
        await world.until_even(first, second)
        first.kill()
        await world.until_even(second)
        third = await ending.enter_async_context(world.process())
        await world.until_even(second, third)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_when_a_process_stops_another_one_takes_its_shards(database: Database) -> None:
    async with AsyncExitStack() as ending, world_of(database) as world:
        first = await ending.enter_async_context(world.process())
        second = await ending.enter_async_context(world.process())
        await world.until_even(first, second)
        await stop(first, database)
        await world.until_even(second)
        first.send_signal(signal.SIGCONT)
        await world.until_even(first, second)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.needs("postgresql")
async def test_when_a_process_has_lost_its_database_another_one_takes_its_shards(
    request: pytest.FixtureRequest,
) -> None:
    from tests.client.store_world import new_postgres_database

    database = new_postgres_database(request.getfixturevalue("postgresql"))
    async with AsyncExitStack() as ending, world_of(database) as world:
        folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="oncewire-"))
        relay = await ending.enter_async_context(relay_to(database.url, Path(folder)))
        first = await ending.enter_async_context(world.process(relay.url))
        second = await ending.enter_async_context(world.process())
        await world.until_even(first, second)
        relay.cut()
        await world.until_even(second)
        relay.heal()
        await world.until_even(first, second)
