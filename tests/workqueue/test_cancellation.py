"""Every call of a work queue that waits, cancelled at each of its waits, and once more while it cleans up.

Whatever it was doing: no file or pipe stays open, no thread or task runs, no item stays reserved, and the store can be
opened again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bridges.workqueue import AlreadyReassigned, Feed, OutboxPublisher, Queue, Reserved
from tests.client.interruption import LONG_S, Interruption, interrupted_everywhere, open_files
from tests.client.wire_server import Network, WireServer

Scenario = Callable[[str, Interruption], Awaitable[None]]


def _left() -> tuple[int, int]:
    return open_files(), threading.active_count()


async def _use(url: str) -> None:
    """Each item is there, or was committed."""
    assert len(asyncio.all_tasks()) == 1
    async with asyncio.timeout(LONG_S), Queue.open(url, "orders") as queue:
        reserved = (await queue.statistics()).reserved
        assert not reserved, f"{reserved} items stay reserved for nobody"
        await queue.push(b"last")
        while (item := await queue.pop()) is not None:
            found = item.payload
        assert found == b"last"


async def opened(url: str, interruption: Interruption) -> None:
    async def life() -> None:
        async with Queue.open(url, "orders") as queue:
            await queue.push(b"1")
            await queue.store.listen()

    await interruption.call(life())


async def reserved(url: str, interruption: Interruption) -> None:
    async with Queue.open(url, "orders") as queue:
        await queue.push(b"1")

        async def life() -> None:
            async with queue.reserve(wait=1.0):
                await asyncio.sleep(0)

        await interruption.call(life())


def taking(take: Callable[[Queue, Reserved], Awaitable[list[Reserved]]]) -> Scenario:
    """What the caller does not get is not reserved."""

    async def scenario(url: str, interruption: Interruption) -> None:
        async with Queue.open(url, "orders") as queue:
            for _ in range(3):
                await queue.push(b"1")
            (first,) = await queue.reserve_many(1)
            taken = [first]

            async def life() -> None:
                taken[:] = await take(queue, first)

            await interruption.call(life())
            for item in taken:
                with suppress(AlreadyReassigned):
                    await item.commit()

    return scenario


async def reserve_more(queue: Queue, first: Reserved) -> list[Reserved]:
    return [first, *await queue.reserve_many(2, wait=1.0)]


async def commit_and_reserve(queue: Queue, first: Reserved) -> list[Reserved]:
    return await queue.commit_and_reserve([first.as_commit()], 2)


async def fed(url: str, interruption: Interruption) -> None:
    async with WireServer(Network()) as server, Queue.open(url, "orders") as queue:
        feed = Feed(queue, "t", server.url)
        await interruption.call(feed.run(), feed.subscribed)
        await _nobody_is_connected(server)


async def published(url: str, interruption: Interruption) -> None:
    async with WireServer(Network()) as server, Queue.open(url, "orders") as queue:
        is_open = asyncio.Event()

        async def watch() -> None:
            while not server.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            is_open.set()

        watching = asyncio.create_task(watch())
        await interruption.call(OutboxPublisher(queue.store, server.url).run(), is_open)
        watching.cancel()
        await _nobody_is_connected(server)


async def _nobody_is_connected(server: WireServer) -> None:
    async with asyncio.timeout(LONG_S):
        while server.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


SCENARIOS: dict[str, Scenario] = {
    "Queue.open": opened,
    "Queue.reserve": reserved,
    "Queue.reserve_many": taking(reserve_more),
    "Queue.commit_and_reserve": taking(commit_and_reserve),
    "Feed.run": fed,
    "OutboxPublisher.run": published,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_call_that_is_cancelled_anywhere_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    runs = 0

    def run(interruption: Interruption) -> None:
        nonlocal runs
        runs += 1
        folder = tmp_path / str(runs)
        folder.mkdir()
        url = f"sqlite:///{folder / 'queue.db'}"

        async def main() -> None:
            await SCENARIOS[name](url, interruption)
            await _use(url)

        before = _left()
        try:
            asyncio.run(main())
        except BaseException as error:
            error.add_note(f"cancelled at {sorted(interruption.at)}")
            raise
        assert not [*folder.glob("*-waiters/*")], "a pipe for notices that nobody reads"
        files, threads = _left()
        assert files <= before[0], f"open files, cancelled at {sorted(interruption.at)}"
        assert threads <= before[1], f"threads, cancelled at {sorted(interruption.at)}"

    interrupted_everywhere(run)
