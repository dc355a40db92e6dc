"""Several nodes on one store at once: each item is one worker's, each key one item, each instance fires once."""

from __future__ import annotations

import asyncio
from collections import Counter

from bridges.workqueue import Ending, Queue, QueueEmpty, QueueStore
from tests.workqueue.queue_world import Database

NODES = 4
ITEMS = 60


async def test_nodes_compete_and_every_item_is_done_once_whatever_fails(database: Database) -> None:
    done: Counter[int] = Counter()

    async def node(number: int) -> None:
        async with Queue.open(database.url, "in", backoff_s=0) as queue:
            while True:
                try:
                    async with queue.reserve(wait=0) as item:
                        if item.taken.retries == 0 and item.json % 5 == number:
                            raise ZeroDivisionError
                        if item.json % 3 == 0:
                            await item.move("out")
                        done[item.json] += 1
                except ZeroDivisionError:
                    continue
                except QueueEmpty:
                    if await queue.transact(lambda do: do.next_due("in")) is None:
                        return
                    await asyncio.sleep(0.01)

    async with QueueStore.open(database.url) as store:
        queue, out = Queue(store, "in"), Queue(store, "out")
        await out.configure()
        await queue.configure(backoff_s=0, max_retries=5)
        await asyncio.gather(*(queue.push(b"%d" % number) for number in range(ITEMS)))
        await asyncio.gather(*(node(number) for number in range(NODES)))
        assert done == Counter(range(ITEMS))
        endings = Counter(entry.ending for entry in (await queue.history(limit=1000)).entries)
        assert endings == {Ending.DONE: ITEMS - ITEMS // 3, Ending.MOVED: ITEMS // 3}
        assert (await out.statistics()).ready == ITEMS // 3


async def test_a_key_that_all_nodes_push_at_once_is_one_item(database: Database) -> None:
    async def node() -> list[int]:
        async with Queue.open(database.url, "work") as queue:
            return [(await queue.push(b"x", key=f"k{number}")).item for number in range(10)]

    found = await asyncio.gather(*(node() for _ in range(NODES)))
    assert len({tuple(items) for items in found}) == 1
    async with Queue.open(database.url, "work") as queue:
        assert (await queue.statistics()).ready == 10


async def test_an_instance_fires_once_however_many_nodes_wait_for_it(database: Database) -> None:
    async def node() -> int:
        async with Queue.open(database.url, "work") as queue:
            return len(await queue.reserve_many(5, 60, wait=2.5))

    async with Queue.open(database.url, "work") as queue:
        await queue.schedule("tick", "0 0 1 1 *", "t")
        # As if its time had come: the next one is in a year again.
        database.make_all_due()
        assert sorted(await asyncio.gather(*(node() for _ in range(NODES)))) == [0, 0, 0, 1]
        assert (await queue.statistics()).waiting == 1


async def test_nodes_that_open_a_new_store_at_once_all_succeed(database: Database) -> None:
    async def node(number: int) -> None:
        async with Queue.open(database.url, f"queue-{number}") as queue:
            await queue.push(b"x")

    await asyncio.gather(*(node(number) for number in range(NODES)))
    async with QueueStore.open(database.url) as store:
        assert len(await store.transact(lambda do: do.queues())) == NODES
