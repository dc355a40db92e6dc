"""Operations on etcd start in order, few in one turn of the event loop and not too many at once."""

from __future__ import annotations

import asyncio

import pytest

from router.incarnations.store_operations import PARALLEL, STARTS_PER_TURN, Starts


class Operations:
    """Tasks that wait for their start, and what has started."""

    def __init__(self, starts: Starts, count: int) -> None:
        self.started: list[int] = []
        self._starts = starts
        self.tasks = [asyncio.create_task(self._run(number)) for number in range(count)]

    async def _run(self, number: int) -> None:
        await self._starts.acquire()
        self.started.append(number)

    async def cancel(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_few_start_in_one_turn_of_the_loop() -> None:
    operations = Operations(Starts(), PARALLEL)
    before = 0
    while before < PARALLEL:
        await asyncio.sleep(0)
        assert len(operations.started) - before <= STARTS_PER_TURN
        before = len(operations.started)
    assert operations.started == list(range(PARALLEL))


async def until_stalled(operations: Operations) -> None:
    """Until turns of the loop start no more."""
    for _ in range(len(operations.tasks) + 10):
        await asyncio.sleep(0)


async def test_no_more_than_the_limit_are_under_way_and_each_end_starts_the_next() -> None:
    starts = Starts()
    operations = Operations(starts, PARALLEL + 3)
    await until_stalled(operations)
    assert len(operations.started) == PARALLEL
    starts.release()
    await until_stalled(operations)
    assert operations.started == list(range(PARALLEL + 1))
    await operations.cancel()


@pytest.mark.parametrize("turns", range(4))
async def test_one_that_is_cancelled_takes_no_place(turns: int) -> None:
    starts = Starts()
    cancelled = asyncio.create_task(starts.acquire())
    for _ in range(turns):
        await asyncio.sleep(0)
    is_started = cancelled.done()
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    if is_started:
        starts.release()
    operations = Operations(starts, PARALLEL + 1)
    await until_stalled(operations)
    assert len(operations.started) == PARALLEL
    await operations.cancel()
