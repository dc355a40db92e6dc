"""A store for asyncio: groups of jobs, waiting, cancellation, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncewire.store.contents import Contents
from oncewire.store.errors import StoreUnreachable
from oncewire.store.merging_core import Merged
from oncewire.store.open_store import OpenStore
from oncewire.store.sqlite import SqliteStore
from oncewire.store.store import Job, Transaction
from tests.store.databases import Breaking, SqlDatabase
from tests.store.test_stores import NOTES, note, numbers


class Counting(SqliteStore):
    """Counts its transactions."""

    transactions = 0

    def transact(self, jobs: Sequence[Job]) -> tuple[list[Any], frozenset[str]]:
        self.transactions += 1
        return super().transact(jobs)


@asynccontextmanager
async def opened(database: SqlDatabase) -> AsyncIterator[OpenStore[Transaction]]:
    async with OpenStore[Transaction].open(database.url, Contents([NOTES])) as store:
        yield store


def read(do: Transaction) -> int:
    return len(do.execute("SELECT * FROM notes"))


async def test_what_tasks_begin_in_one_step_of_the_loop_is_few_transactions(tmp_path: Path) -> None:
    counting = Counting(tmp_path / "s.db", contents=Contents([NOTES]))
    store: OpenStore[Transaction] = OpenStore(counting)
    await asyncio.gather(*(store.start(note(number)) for number in range(100)))
    assert await store.transact(read) == 100
    assert counting.transactions <= 4
    await store.close()


async def test_jobs_that_a_feature_merges_get_their_parts_of_the_result(tmp_path: Path) -> None:
    def merge(jobs: Sequence[Job]) -> list[Merged]:
        count = len(jobs)
        return [Merged(lambda do: [*range(count)], tuple(range(count)), (1,) * count)]

    store: OpenStore[Transaction] = OpenStore(SqliteStore(tmp_path / "s.db"), merge)
    found = await asyncio.gather(*(store.start(lambda do: None) for _ in range(5)))
    assert all(len(part) == 1 for part in found)  # type: ignore[arg-type]
    await store.close()


async def test_a_job_that_fails_fails_alone_in_its_group(sql_database: SqlDatabase) -> None:
    def fail(do: Transaction) -> None:
        do.write("INSERT INTO notes (number, note) VALUES (0, 'x')")
        raise LookupError

    async with opened(sql_database) as store:
        jobs: list[Callable[[Transaction], None]] = [note(1), fail, note(2), fail, note(3)]
        done = await asyncio.gather(*(store.start(job) for job in jobs), return_exceptions=True)
        assert [isinstance(each, LookupError) for each in done] == [False, True, False, True, False]
    assert numbers(sql_database) == [1, 2, 3]


async def test_a_group_whose_commit_may_have_happened_is_not_run_again(tmp_path: Path) -> None:
    breaking = Breaking(tmp_path / "s.db", contents=Contents([NOTES]))
    store: OpenStore[Transaction] = OpenStore(breaking)
    breaking.breaks = 99
    done = await asyncio.gather(*(store.start(note(number)) for number in range(20)), return_exceptions=True)
    assert {type(each) for each in done} == {StoreUnreachable}
    breaking.breaks = 0
    assert await store.transact(read) == 20
    await store.close()


async def test_who_waits_is_woken_by_this_process_and_by_another_one(sql_database: SqlDatabase) -> None:
    async with opened(sql_database) as store, opened(sql_database) as other:
        for toucher in (store, other):
            with store.waiting("work") as changed, store.waiting("else") as nothing:
                await store.listen()
                await toucher.transact(lambda do: do.touched.add("work"))
                await asyncio.wait_for(changed.wait(), 30)
                assert not nothing.is_set()


async def test_a_transaction_goes_on_when_its_caller_is_cancelled_if_it_was_started(sql_database: SqlDatabase) -> None:
    async with opened(sql_database) as store:
        started = store.start(note(1))
        waiting = asyncio.create_task(store.transact(read))
        started.cancel()
        assert await waiting == 1


async def test_a_store_that_is_closed_has_done_what_was_begun_and_says_so(sql_database: SqlDatabase) -> None:
    async with opened(sql_database) as store:
        begun = store.start(note(1))
    await begun
    assert numbers(sql_database) == [1]
    with pytest.raises(StoreUnreachable):
        await store.transact(read)
    with pytest.raises(StoreUnreachable):
        _ = store.start(read)


async def test_a_thread_runs_a_job_and_waits_for_it(sql_database: SqlDatabase) -> None:
    async with opened(sql_database) as store:
        await asyncio.to_thread(store.transact_blocking, note(1))
        assert await store.transact(read) == 1
