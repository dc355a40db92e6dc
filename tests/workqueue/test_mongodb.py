"""What is special about MongoDB stores: one document at a time, refusals, crashes, servers that cannot be used."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from typing import Any

import pytest

from bridges.workqueue import (
    Commit,
    Ending,
    InvalidRequest,
    NeedsTransactions,
    NewItem,
    PartMissing,
    Queue,
    QueueStore,
    Rollback,
    Schedule,
    Search,
    StatementFailed,
    StoreUnreachable,
    Target,
    queue,
)
from bridges.workqueue.mongodb_documents import ITEM_INDEXES, ITEMS
from bridges.workqueue.mongodb_operations import MongoStore
from bridges.workqueue.opening import open_any_store
from tests.store import killing
from tests.store.databases import START, Clock
from tests.store.killing import KILLED
from tests.support.mongodb import running_ferretdb
from tests.workqueue.queue_world import Database, World

pytestmark = pytest.mark.needs("mongodb")


# --- one document at a time


@pytest.mark.parametrize(
    "job",
    [
        lambda do: do.push("work", [NewItem(b"1"), NewItem(b"2")]),
        lambda do: do.commit([Commit(handle) for handle in HANDLES]),
        lambda do: do.rollback([Rollback(handle, 0.0) for handle in HANDLES]),
        lambda do: do.extend(HANDLES, 60),
        lambda do: do.move(HANDLES[0], [Target("work"), Target("other")]),
        lambda do: do.replay([1, 2]),
        lambda do: do.discard([1, 2]),
        lambda do: do.execute("SELECT 1"),
        lambda do: [do.commit([Commit(HANDLES[0])]), do.commit([Commit(HANDLES[1])])],
        lambda do: (do.push("work", [NewItem(b"x")]), "something else"),
        lambda do: do.push("work", [NewItem(b"x")])[0],
    ],
)
def test_what_would_change_several_things_at_once_is_refused_and_changes_nothing(mongo_world: World, job: Any) -> None:
    mongo_world.configure("other")
    mongo_world.push(b"a", b"b")
    HANDLES[:] = [mongo_world.take(), mongo_world.take()]
    with pytest.raises(NeedsTransactions, match="use a SQLite or PostgreSQL store"):
        mongo_world.do(job)
    assert mongo_world.history() == []
    found = mongo_world.do(lambda do: do.statistics("work"))
    assert (found.reserved, found.ready) == (2, 0)
    for handle in HANDLES:
        mongo_world.commit(handle)


HANDLES: list[Any] = []


def test_a_store_with_transactions_names_no_limits_of_this_one(sql_world: World) -> None:
    sql_world.do(lambda do: [do.push("work", [NewItem(b"1"), NewItem(b"2")]), do.statistics("work")])
    assert len(sql_world.pop(9)) == 2


def test_payloads_that_no_document_holds_are_refused_for_the_whole_queue(mongo_world: World) -> None:
    with pytest.raises(InvalidRequest, match="up to 4194304"):
        mongo_world.configure(max_payload_bytes=5 << 20)
    mongo_world.configure(max_payload_bytes=4 << 20)


def test_each_passage_of_an_item_that_moves_on_and_on_is_in_the_history_once(mongo_world: World) -> None:
    mongo_world.configure("next")
    (item,) = mongo_world.push(b"x", key="k")
    for number in range(4):
        handle = mongo_world.take("next" if number % 2 else "work")
        target = Target("work" if number % 2 else "next", b"%d" % number)
        for _ in range(2):  # a repeated move has no second effect
            assert mongo_world.do(lambda do: do.move(handle, [target])) == [item]  # noqa: B023
        mongo_world.clock.now += 1
    mongo_world.commit(mongo_world.take())
    assert [entry.payload for entry in mongo_world.history()] == [b"3", b"1", b"x"]
    assert [entry.payload for entry in mongo_world.history("next")] == [b"2", b"0"]
    entries = [entry.entry for name in ("work", "next") for entry in mongo_world.history(name)]
    assert len(set(entries)) == 5
    assert {mongo_world.do(lambda do: do.entry(number)).item for number in entries} == {item}  # noqa: B023
    assert mongo_world.push(b"again", key="k") == [item]


def test_no_passage_is_lost_when_the_document_of_its_item_expires(mongo_world: World) -> None:
    mongo_world.configure(history_s=1000)
    mongo_world.configure("next", history_s=10)
    mongo_world.push(b"x")
    handle = mongo_world.take()
    mongo_world.do(lambda do: do.move(handle, [Target("next")]))
    mongo_world.commit(mongo_world.take("next"))
    mongo_world.clock.now += 10
    mongo_world.push(b"y")
    mongo_world.pop()
    assert mongo_world.history("next") == []
    assert [entry.payload for entry in mongo_world.history()] == [b"y", b"x"]
    mongo_world.clock.now += 1000
    mongo_world.push(b"z")
    mongo_world.pop()
    assert mongo_world.database.count_kept() == (1, 0)


def test_an_instance_of_a_schedule_that_was_replaced_or_deleted_is_never_taken(mongo_world: World) -> None:
    schedule = Schedule("tick", "work", "* * * * *", payload=b"old")
    mongo_world.do(lambda do: do.schedule(schedule))
    with mongo_world.database.connect().client as client:
        items = client.get_default_database()[ITEMS]
        left = items.find_one({"plans.name": "tick"})
        mongo_world.do(lambda do: do.unschedule("tick"))
        items.insert_one(left)  # as if a node had crashed before it was deleted
    mongo_world.clock.now += 60
    assert mongo_world.reserve(9) == []
    assert mongo_world.do(lambda do: do.next_due("work")) is None


# --- clock, waiting


async def test_a_mongodb_store_has_the_servers_clock(mongo_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)  # a machine whose clock is wrong
    async with QueueStore.open(mongo_database.url) as store:
        assert await store.transact(lambda do: do.now) > 1_700_000_000


async def test_a_waiter_looks_again_after_the_bound_where_no_notice_comes(
    mongo_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "LONGEST_SLEEP_S", 0.2)
    async with Queue.open(mongo_database.url, "work") as here, Queue.open(mongo_database.url, "work") as there:
        waiting = asyncio.create_task(here.pop(wait=None))
        await there.push(b"x")  # another store object: as another process, it sends no notice
        taken = await asyncio.wait_for(waiting, 30)
        assert taken is not None


# --- servers and addresses


async def test_a_server_that_loses_changes_is_refused() -> None:
    with running_ferretdb() as (host, port), pytest.raises(StoreUnreachable, match="atomically"):
        await MongoStore.open(f"mongodb://{host}:{port}/queues")


def test_a_server_that_does_not_answer_gets_three_lines() -> None:
    url = "mongodb://127.0.0.1:1/queues?serverSelectionTimeoutMS=100"
    program = "from oncewire.cli.main import main; main()"
    command = [sys.executable, "-P", "-c", program, "queue", "pop", "q", "--store", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    what, why, fix = done.stderr.splitlines()
    assert (what, fix.partition(",")[0]) == ("error: the store cannot be used", "what to do: check address")
    assert why.startswith("why: MongoDB says: 127.0.0.1:1")


@pytest.mark.parametrize("url", ["mongodb://", "mongodb://host", "mongodb://me:sec:ret@host/db", "mongodb://h:x/d"])
async def test_an_address_without_a_database_or_with_nonsense_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await open_any_store(url)
    assert "sec" not in str(refused.value)


async def test_without_pymongo_a_mongodb_store_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymongo", None)
    with pytest.raises(PartMissing, match="pip install"):
        await open_any_store("mongodb://host/database")


def test_a_number_that_no_database_holds_is_refused(mongo_world: World) -> None:
    with pytest.raises(StatementFailed, match="smaller"):
        mongo_world.do(lambda do: do.entry(10**30))


# --- indexes


def test_every_command_names_the_first_field_of_an_index(mongo_world: World) -> None:
    """The servers at hand do not explain how they find documents; MongoDB seeks where an index begins so."""
    from pymongo import monitoring

    filters: list[dict[str, Any]] = []

    class Listener(monitoring.CommandListener):  # type: ignore[misc]
        def started(self, event: monitoring.CommandStartedEvent) -> None:
            command = event.command
            if command.get(event.command_name) == ITEMS:
                filters.extend(command.get("updates", command.get("deletes", ())))
                filters.extend([command] if "filter" in command or "query" in command else ())
                filters.extend({"q": stage["$match"]} for stage in command.get("pipeline", ()) if "$match" in stage)

        def succeeded(self, _: monitoring.CommandSucceededEvent) -> None: ...
        def failed(self, _: monitoring.CommandFailedEvent) -> None: ...

    listeners = monitoring._LISTENERS.command_listeners
    monitoring.register(Listener())
    try:
        world = World(mongo_world.database, mongo_world.clock)
        do_everything(world)
        world.store.close()
    finally:
        listeners.pop()
    firsts = {"_id"} | {fields[0][0] for fields, _ in ITEM_INDEXES}
    found = [each.get("q") or each.get("filter") or each.get("query") or {} for each in filters]
    assert len(found) > 30
    assert [wanted for wanted in found if not firsts & set(wanted)] == []


def do_everything(world: World) -> None:
    """Every operation once."""
    world.configure("next")
    world.push(b"a", b"b", b"c", b"d", key="k")
    world.push(b"e", b"f", b"g")
    extended = world.take()
    world.do(lambda do: do.extend([extended], 60))
    world.commit(world.take())
    world.rollback(world.take(), 0.0)
    handle = world.take()
    world.do(lambda do: do.move(handle, [Target("next")]))
    world.pop()
    world.do(lambda do: do.schedule(Schedule("tick", "work", "* * * * *")))
    world.clock.now += 60
    world.pop(9)
    world.do(lambda do: do.unschedule("tick"))
    world.configure(max_retries=0)
    world.push(b"bad")
    world.rollback(world.take())
    (dead,) = world.history(ending=Ending.DEAD)
    world.do(lambda do: do.replay([dead.entry]))
    world.rollback(world.take())
    (dead,) = world.history(ending=Ending.DEAD)
    world.do(lambda do: do.discard([dead.entry]))
    world.do(lambda do: do.statistics("work"))
    world.do(lambda do: do.next_due("work"))
    world.do(lambda do: do.history(Search("work", since=START, until=START + 99)))


# --- crashes


def fill(database: Database) -> World:
    """Items to commit and to move, and a schedule whose instance is due."""
    world = World(database, Clock(START - 1000))
    for name in ("in", "out"):
        world.configure(name, max_retries=1000)
    world.push(b"a", b"m1", b"m2", queue="in")
    world.do(lambda do: do.schedule(Schedule("yearly", "in", "0 0 1 1 *", payload=b"tick")))
    database.make_all_due()
    return world


def judge(world: World) -> None:
    """Each item has ended in `in` once, the moved ones are in `out` once, and one next instance waits."""
    world.clock.now = time.time()
    ended = world.history("in")
    assert sorted((entry.payload, entry.ending.value) for entry in ended) == [
        (b"a", "done"),
        (b"m1", "moved"),
        (b"m2", "moved"),
        (b"tick", "done"),
    ]
    assert sorted(world.pop(9, "out")) == [b"m1", b"m2"]
    found = world.do(lambda do: do.statistics("in"))
    assert (found.ready, found.waiting, found.reserved) == (0, 1, 0)


def run_worker(database: Database, place: str) -> int:
    return killing.run_worker("tests.workqueue.mongodb_worker", database.url, place)


def work_on(database: Database) -> None:
    """What the next worker does, in this process."""
    from tests.workqueue.mongodb_worker import Killer, work

    asyncio.run(work(database.url, Killer("0")))


def test_workers_killed_between_their_commands_lose_nothing_and_do_nothing_twice(mongo_database: Database) -> None:
    world = fill(mongo_database)
    for number in (2, 3, 5, 8, 11):
        assert run_worker(mongo_database, str(number)) in {KILLED, 0}
    work_on(mongo_database)
    judge(world)
    world.store.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_killed_at_every_command_lose_nothing_and_do_nothing_twice(mongo_database: Database) -> None:
    for number in itertools.count(1):
        database = Database("mongodb", f"{mongo_database.address}_{number}")
        world = fill(database)
        code = run_worker(database, str(number))
        assert code in {KILLED, 0}
        work_on(database)
        judge(world)
        world.store.close()
        if code == 0:
            break
    assert number > 25
