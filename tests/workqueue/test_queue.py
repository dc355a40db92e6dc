"""The Python interface: blocks, waiting without polling, several processes, errors."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bridges.workqueue import (
    AlreadyReassigned,
    Ending,
    InvalidRequest,
    NeedsTransactions,
    NewItem,
    PayloadTooLarge,
    Pushed,
    Queue,
    QueueStore,
    StatementFailed,
    StoreFull,
    StoreUnreachable,
    StoreVersionUnknown,
    Target,
)
from bridges.workqueue.contents import QueueContents
from tests.store.databases import Breaking
from tests.workqueue.queue_world import Database


async def test_a_block_commits_at_its_end_with_its_result_and_payload(database: Database) -> None:
    async with Queue.open(database.url, "work") as queue:
        await queue.push({"order": 17})
        async with queue.reserve(timeout=30) as item:
            assert item.json == {"order": 17}
            item.result = {"paid": True}
            item.replace({"order": 17, "seen": 1})
        (entry,) = (await queue.history()).entries
        assert (entry.ending, entry.payload, entry.result) == (Ending.DONE, b'{"order":17,"seen":1}', b'{"paid":true}')


async def test_a_block_that_raises_gives_the_item_back_with_the_error(database: Database) -> None:
    async with Queue.open(database.url, "work", max_retries=0) as queue:
        await queue.push(b"x")
        with pytest.raises(ZeroDivisionError):
            async with queue.reserve():
                _ = 1 / 0
        (dead,) = (await queue.history(ending=Ending.DEAD)).entries
        assert "ZeroDivisionError: division by zero" in dead.reason


async def test_items_come_one_after_the_other_each_in_a_block_of_its_own(database: Database) -> None:
    async with Queue.open(database.url, "work", max_retries=0) as queue:
        for body in (b"a", b"bad", b"c"):
            await queue.push(body)
        done = []
        async for item in queue.items(timeout=30):
            with contextlib.suppress(ZeroDivisionError):
                async with item:
                    _ = 1 / (item.payload != b"bad")
            done.append(item.payload)
            if len(done) == 3:
                break
        assert done == [b"a", b"bad", b"c"]
        endings = [(entry.payload, entry.ending) for entry in (await queue.history()).entries]
        assert sorted(endings) == [(b"a", Ending.DONE), (b"bad", Ending.DEAD), (b"c", Ending.DONE)]


async def test_a_worker_that_is_cancelled_gives_its_item_back_untried(database: Database) -> None:
    async with Queue.open(database.url, "work", max_retries=0) as queue:
        await queue.push(b"x")
        began = asyncio.Event()

        async def work() -> None:
            async with queue.reserve():
                began.set()
                await asyncio.Event().wait()

        worker = asyncio.create_task(work())
        await began.wait()
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        (again,) = await queue.reserve_many(1)
        assert (again.payload, again.taken.retries) == (b"x", 0)


async def test_a_block_may_settle_its_item_itself(database: Database) -> None:
    async with Queue.open(database.url, "in") as queue:
        out = Queue(queue.store, "out")
        await out.configure()
        for payload in (b"a", b"b"):
            await queue.push(payload)
        async with queue.reserve() as item:
            item.replace(b"A")
            assert await item.move("out") == [item.handle.item]
        async with queue.reserve() as item:
            await item.extend(60)
            if database.kind == "mongodb":
                with pytest.raises(NeedsTransactions):
                    await item.move("out", "in")
                return
            assert len(await item.move("out", Target("in", b"again", delay=60))) == 2
        assert sorted(taken.payload for taken in [await out.pop(), await out.pop()] if taken) == [b"A", b"b"]
        assert await queue.pop() is None
        assert (await queue.statistics()).waiting == 1


async def test_a_commit_with_the_next_reservation_is_one_step_or_nothing(sql_database: Database) -> None:
    async with Queue.open(sql_database.url, "work") as queue:
        await queue.push_many([NewItem(b"a"), NewItem(b"b"), NewItem(b"c")])
        first, second = await queue.reserve_many(2)
        third = await first.commit_and_reserve()
        assert third is not None
        assert (first.is_settled, third.payload) == (True, b"c")
        await third.rollback(delay=0.0)
        with pytest.raises(AlreadyReassigned):
            await third.commit_and_reserve()
        with pytest.raises(InvalidRequest):
            await second.commit_and_reserve(timeout=-1)
        (again,) = await queue.reserve_many(5)  # the failed ones have reserved nothing
        assert again.payload == b"c"
        assert await again.commit_and_reserve() is None
        await second.commit()
        assert [each.payload for each in (await queue.history()).entries] == [b"b", b"c", b"a"]


async def test_a_block_that_took_too_long_is_reported_and_the_item_is_done_once(database: Database) -> None:
    async with Queue.open(database.url, "work") as queue:
        await queue.push(b"x")

        async def work() -> None:
            async with queue.reserve(timeout=0.01):
                await asyncio.sleep(0.05)
                async with queue.reserve(timeout=30) as other:
                    assert other.taken.retries == 1

        with pytest.raises(AlreadyReassigned):
            await work()
        assert [entry.reservation for entry in (await queue.history()).entries] == [2]


async def test_a_waiter_gets_what_another_task_pushes(database: Database) -> None:
    async with Queue.open(database.url, "work") as queue:
        waiting = asyncio.create_task(queue.pop(wait=None))
        await asyncio.sleep(0.05)
        await queue.push(b"x")
        taken = await asyncio.wait_for(waiting, 30)
        assert taken is not None
        assert taken.payload == b"x"


@pytest.mark.parametrize("database", [pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))], indirect=True)
async def test_a_waiter_is_notified_also_after_the_connection_of_its_notices_broke(database: Database) -> None:
    async with Queue.open(database.url, "work") as queue:
        await queue.store.listen()
        waiting = asyncio.create_task(queue.pop(wait=None))
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        for _ in range(2):
            async with asyncio.timeout(30):
                while database.rows(f"SELECT count(*) {others} AND query LIKE 'LISTEN%'") != [(1,)]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            database.rows(f"SELECT pg_terminate_backend(pid) {others} AND query LIKE 'LISTEN%'")
        async with asyncio.timeout(30):
            while database.rows(f"SELECT count(*) {others} AND query LIKE 'LISTEN%'") != [(1,)]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        async with Queue.open(database.url, "work") as other:
            await other.push(b"x")
        assert await asyncio.wait_for(waiting, 30) is not None  # without a notice it would be a minute


async def test_a_waiter_is_notified_of_what_another_process_pushes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    began = asyncio.Event()
    async with Queue.open(database.url, "work") as queue:
        plain = queue._take_now

        async def counted(*arguments: object) -> object:
            nonlocal looked
            looked += 1
            began.set()
            return await plain(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(queue, "_take_now", counted)
        waiting = asyncio.create_task(queue.pop(wait=None))
        await began.wait()
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import asyncio, sys; from bridges.workqueue import Queue\n"
            "async def main():\n"
            "    async with Queue.open(sys.argv[1], 'work') as queue:\n"
            "        await queue.push(b'x')\n"
            "asyncio.run(main())\n",
            database.url,
        )
        assert await child.wait() == 0
        # Without a notice, or a look of the store's own, it would wait for a minute: longer than this test may take.
        taken = await asyncio.wait_for(waiting, 30)
        assert taken is not None
        assert looked <= 4


async def test_a_waiter_looks_when_the_next_item_is_due_and_not_in_between(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = 0
    async with Queue.open(database.url, "work") as queue:
        plain = queue.store.transact

        async def counted(job: object) -> object:
            nonlocal jobs
            jobs += 1
            return await plain(job)  # type: ignore[arg-type]

        await queue.push(b"x", delay=1)
        monkeypatch.setattr(queue.store, "transact", counted)
        taken = await queue.pop(wait=60)
        assert taken is not None
        assert jobs <= 6  # two each time it looks: at once, when it is due, and for clocks that differ


async def test_a_waiter_that_is_cancelled_takes_nothing_with_it(database: Database) -> None:
    async with Queue.open(database.url, "work") as queue:
        for _ in range(10):
            waiting = asyncio.create_task(queue.reserve_many(1, wait=None))
            await asyncio.sleep(0)
            pushed = asyncio.create_task(queue.push(b"x"))
            await asyncio.sleep(0.002)
            waiting.cancel()
            await asyncio.gather(waiting, pushed, return_exceptions=True)
            if not waiting.cancelled():
                await waiting.result()[0].commit()
            else:
                (item,) = await queue.reserve_many(1)
                assert item.taken.retries == 0
                await item.commit()
        assert len((await queue.history()).entries) == 10


async def test_a_time_with_its_zone_is_understood_and_one_without_is_refused(database: Database) -> None:
    async with Queue.open(database.url, "work") as queue:
        await queue.push(b"x", when=datetime.now(UTC) - timedelta(seconds=5))
        assert await queue.pop() is not None
        with pytest.raises(InvalidRequest):
            await queue.push(b"x", when=datetime.now())  # noqa: DTZ005
        with pytest.raises(InvalidRequest):
            await queue.push({"no": object()})


async def test_one_bad_job_fails_alone_and_the_others_of_its_group_succeed(database: Database) -> None:
    async with Queue.open(database.url, "work", max_payload_bytes=10) as queue:
        results = await asyncio.gather(
            *(queue.push(b"x" * length) for length in (1, 11, 2, 12, 3)), return_exceptions=True
        )
        assert [isinstance(result, PayloadTooLarge) for result in results] == [False, True, False, True, False]
        assert (await queue.statistics()).ready == 3


async def test_a_block_whose_commit_is_in_doubt_commits_again_with_one_effect(tmp_path: Path) -> None:
    opened = Breaking(tmp_path / "q.db", contents=QueueContents())
    store = QueueStore(opened)
    queue = Queue(store, "work")
    await queue.configure()
    await queue.push(b"x")
    async with queue.reserve():
        opened.breaks = 1
    assert [entry.ending for entry in (await queue.history()).entries] == [Ending.DONE]
    await store.close()


async def test_a_waiter_whose_store_is_closed_ends(database: Database) -> None:
    async with Queue.open(database.url, "work") as queue:
        waiting = asyncio.create_task(queue.pop(wait=None))
        await asyncio.sleep(0.05)
    with pytest.raises(StoreUnreachable):
        await asyncio.wait_for(waiting, 30)


async def test_a_statement_that_fails_is_the_applications_error(sql_database: Database) -> None:
    async with Queue.open(sql_database.url, "work") as queue:
        with pytest.raises(StatementFailed):
            await queue.transact(lambda do: do.execute("SELECT nothing FROM nowhere"))
        await queue.push(b"x")


async def test_the_error_of_a_unique_violation_begins_with_the_statements_own(sql_database: Database) -> None:
    insert = "INSERT INTO seats (number) VALUES (7)"
    async with Queue.open(sql_database.url, "work") as queue:
        await queue.transact(lambda do: do.execute("CREATE TABLE seats (number INTEGER UNIQUE)"))
        await queue.transact(lambda do: do.execute(insert))
        with pytest.raises(StatementFailed) as refused:
            await queue.transact(lambda do: do.execute(insert))
        reported = str(refused.value)
        assert reported.startswith(("UNIQUE constraint failed: seats.number", "duplicate key value violates unique")), (
            reported
        )
        assert "the transaction has changed nothing" in reported
        assert "the store cannot be used" not in reported
        await queue.transact(lambda do: do.execute("DROP TABLE seats"))


async def test_a_store_that_is_closed_says_so(database: Database) -> None:
    async with Queue.open(database.url, "work") as queue:
        pass
    with pytest.raises(StoreUnreachable):
        await queue.push(b"x")


@pytest.mark.parametrize("database", [pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))], indirect=True)
async def test_a_connection_that_broke_is_made_anew(database: Database) -> None:
    async with Queue.open(database.url, "work") as queue:
        await queue.push(b"x")
        database.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert await queue.pop() is not None


# --- the store


def test_a_store_of_a_later_version_is_refused_and_left_alone(database: Database) -> None:
    database.open().close()
    database.open().close()
    database.set_version(99)
    with pytest.raises(StoreVersionUnknown):
        database.open()
    assert database.version() == 99


async def test_a_full_store_refuses_the_push_and_keeps_what_it_has(tmp_path: Path) -> None:
    async with Queue.open(f"sqlite:///{tmp_path}/q.db?max_bytes=400000", "work") as queue:
        pushes = await asyncio.gather(*(queue.push(b"x" * 10_000) for _ in range(100)), return_exceptions=True)
        assert {type(push) for push in pushes} == {Pushed, StoreFull}
        kept = (await queue.statistics()).ready
        assert kept > 5
        for _ in range(kept):
            assert await queue.pop() is not None
