"""CO-10, CO-11: shards shared out over the database of their consumers, among members that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from oncewire.client.errors import UsageError
from oncewire.client.transactions import StoreShards
from tests.client.output_readers import until
from tests.client.store_world import Database

NAMES = ("eu", "us", "asia", "africa")
LONG_S = 600.0
"""A lease that does not end in a test: what happens then does not happen because one has ended."""


class Process:
    """What a process does with the shards that it gets: it owns each until it is to hand it over, then asks again."""

    def __init__(self, database: Database, lease_s: float) -> None:
        self.shards = StoreShards(database.url, lease_s=lease_s)
        self.handed_over = 0
        self._consumers: list[asyncio.Task[None]] = []

    async def _consume(self, name: str) -> None:
        while True:
            async with self.shards.own(name) as lost:
                await lost.wait()
                self.handed_over += 1

    @asynccontextmanager
    async def running(self, *names: str) -> AsyncIterator[Process]:
        consumers = [asyncio.create_task(self._consume(name)) for name in names]
        try:
            yield self
        finally:
            for consumer in consumers:
                consumer.cancel()
            await asyncio.gather(*consumers, return_exceptions=True)

    @property
    def count(self) -> int:
        return len(self.shards.owned)


async def until_even(*processes: Process, count: int = len(NAMES)) -> None:
    """Each shard has one owner, and no process has two more than another."""

    def is_even() -> bool:
        owned = [name for process in processes for name in process.shards.owned]
        counts = [process.count for process in processes]
        return len(owned) == len(set(owned)) == count and max(counts) - min(counts) <= 1

    await until(is_even, lambda: [sorted(process.shards.owned) for process in processes])


async def test_processes_that_join_and_leave_share_the_shards_evenly_at_once(database: Database) -> None:
    first, second, third = (Process(database, LONG_S) for _ in range(3))
    async with first.running(*NAMES):
        await until_even(first)
        async with second.running(*NAMES):
            await until_even(first, second)
            async with third.running(*NAMES):
                await until_even(first, second, third)
            await until_even(first, second)
            assert first.handed_over + second.handed_over + third.handed_over <= 4  # none without need
        await until_even(first)
    assert database.rows("SELECT name FROM oncewire_claims") == []
    assert {lease for (lease,) in database.rows("SELECT lease FROM oncewire_owners")} == {0}


async def test_what_a_process_does_not_renew_another_one_takes_and_the_former_owner_notices(database: Database) -> None:
    first, second = Process(database, LONG_S), Process(database, LONG_S)
    async with AsyncExitStack() as ending:
        await ending.enter_async_context(first.running(*NAMES))
        await until_even(first)
        async with first.shards._turn:  # it does not look, so it renews nothing
            # As if its lease had ended.
            database.run("UPDATE oncewire_owners SET lease = 1")
            database.run("UPDATE oncewire_claims SET expires = 1")
            await ending.enter_async_context(second.running(*NAMES))
            await until(lambda: second.shards.owned == set(NAMES), lambda: sorted(second.shards.owned))
        await until_even(first, second)
        assert first.handed_over == len(NAMES)
        epochs = database.rows("SELECT epoch FROM oncewire_owners WHERE name LIKE 'consumer %'")
        assert min(epochs) >= (2,)


async def test_a_process_that_asks_for_some_shards_only_gets_no_others(database: Database) -> None:
    first, second = Process(database, LONG_S), Process(database, LONG_S)
    async with first.running("eu", "us", "asia"), second.running("asia"):
        await until_even(first, second, count=3)
        assert second.shards.owned == {"asia"}


async def test_misuse_of_shards_is_explained(database: Database) -> None:
    with pytest.raises(UsageError, match=r"lease of 0 s"):
        StoreShards(database.url, lease_s=0)
    with pytest.raises(UsageError, match=r"none of these kinds"):
        async with StoreShards("mysql://somewhere").own("eu"):
            pass
    shards = StoreShards(database.url)
    async with shards.own("eu"):
        with pytest.raises(UsageError, match=r"another consumer of this process"):
            async with shards.own("eu"):
                pass
        assert shards.owned == {"eu"}
