"""Workers that are killed at every place of their work: nothing is lost, and nothing is done twice (W-1, W-4, W-5)."""

from __future__ import annotations

import itertools

import pytest

from bridges.workqueue import Ending, Search
from tests.store import killing
from tests.store.databases import START, Clock
from tests.store.killing import KILLED, NOWHERE
from tests.workqueue.queue_world import Database, World

ITEMS = ["a", "m1", "b", "m2"]


def run_worker(database: Database, place: str) -> int:
    """Run a worker to its end or its death; returns its exit code."""
    return killing.run_worker("tests.workqueue.crash_worker", database.kind, database.address, place)


def fill(database: Database) -> World:
    """All items in `in`, with the time of the machine: the workers have no other."""
    world = World(database, Clock(START - 1000))
    for name in ("in", "out"):
        world.configure(name, max_retries=1000)
    world.do(lambda do: do.execute("CREATE TABLE effects (name TEXT NOT NULL, process BIGINT NOT NULL)"))
    world.push(*[name.encode() for name in ITEMS], queue="in")
    return world


def judge(world: World) -> None:
    """Each item had its effect once and is in `out` once; the history has one end for each passage."""
    assert sorted(name for name, _ in world.do(lambda do: do.execute("SELECT * FROM effects"))) == sorted(ITEMS)
    ended = world.do(lambda do: do.execute("SELECT item, ending FROM oncewire_history WHERE queue = 'in'"))
    assert sorted(ending for _, ending in ended) == ["done", "done", "moved", "moved"]
    assert len({item for item, _ in ended}) == len(ITEMS)
    world.clock.now = START * 2
    assert sorted(world.pop(99, "out")) == sorted(name.upper().encode() for name in ITEMS)
    assert world.pop(99, "in") == []


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_workers_killed_at_every_place_lose_nothing_and_do_nothing_twice(sql_database: Database) -> None:
    world = fill(sql_database)
    killed = 0
    for place in (f"{number} {side}" for number in itertools.count(1) for side in ("before", "after")):
        code = run_worker(sql_database, place)
        if code == 0:
            break
        assert code == KILLED
        killed += 1
    judge(world)
    # The places of one item's work are all behind it: every worker was killed one place later than the one before.
    assert killed >= 20
    world.store.close()


def test_workers_killed_inside_their_transactions_lose_nothing_and_do_nothing_twice(sql_database: Database) -> None:
    world = fill(sql_database)
    codes = [run_worker(sql_database, f"{number} after") for number in (3, 7, 10, 13, 15)]
    assert codes == [KILLED] * 5
    assert run_worker(sql_database, NOWHERE) == 0
    judge(world)
    world.store.close()


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_worker_killed_around_the_commit_of_its_work_has_done_it_not_at_all_or_once(
    sql_database: Database, side: str
) -> None:
    world = fill(sql_database)
    # The first commit is of the reservation, the second one of the work.
    assert run_worker(sql_database, f"commit 2 {side}") == KILLED
    done = world.do(lambda do: do.execute("SELECT count(*) FROM effects"))
    assert done == [(0 if side == "before" else 1,)]
    assert run_worker(sql_database, NOWHERE) == 0
    judge(world)
    world.store.close()


def test_a_commit_whose_reply_was_lost_is_repeated_without_a_second_effect(database: Database) -> None:
    world = World(database)
    world.push(b"x")
    handle = world.take()
    world.commit(handle, result=b"1")
    world.store.close()  # the reply never came; the worker connects anew
    again = World(database, world.clock)
    again.commit(handle, result=b"1")
    entries = again.do(lambda do: do.history(Search("work"))).entries
    assert [(entry.ending, entry.result) for entry in entries] == [(Ending.DONE, b"1")]
    again.store.close()
