"""What an operation costs does not grow with the queue: every statement seeks in an index, with 20,000 items there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bridges.workqueue import Commit, Ending, NewItem, Operations, Rollback, Search, Target, new_message
from bridges.workqueue import sql_statements as sql
from bridges.workqueue.unpublished import outbox_numbers
from oncewire.store.store import Row
from tests.workqueue.queue_world import Database, World

MANY = 20_000
SCANS = re.compile(
    r"\bSCAN (?:box|oncewire_\w+)(?! USING (?:COVERING )?INDEX)|Seq Scan on oncewire_(?:items|history|keys)"
)


def fill(world: World) -> None:
    """Items and history straight into the tables: ready, waiting, at three priorities."""
    world.configure("out")
    world.do(lambda do: do.publish([new_message("done", b"x")]))
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
    half = MANY // 2
    start = int(world.clock.now * 1_000_000)
    column = "CAST('x' AS BLOB)" if world.database.kind == "sqlite" else "CAST('x' AS BYTEA)"
    for sign in (1, -1):
        world.do(
            lambda do: do.execute(
                f"INSERT INTO oncewire_items (queue, priority, due, created, payload) {numbers}"
                f"SELECT 'work', i % 3, ? + {sign} * i, 0, {column} FROM n",  # noqa: B023
                (half, start),
            )
        )
    world.do(
        lambda do: do.execute(
            "INSERT INTO oncewire_history (item, queue, ending, created, ended, expires, retries, reservation,"
            f" priority, payload, reason, targets) {numbers} "
            f"SELECT 1000000 + i, 'work', 'done', 0, i, ?, 0, 1, 4, {column}, '', '[]' FROM n",
            (MANY, start * 2),
        )
    )
    world.do(
        lambda do: do.execute(
            f"INSERT INTO oncewire_keys (queue, item_key, item) {numbers} SELECT 'work', 'k' || i, i FROM n", (MANY,)
        )
    )
    if world.database.kind == "postgresql":
        world.do(lambda do: do.execute("ANALYZE"))


def everything(do: Operations) -> None:
    """Every operation once."""
    do.push("work", [NewItem(b"x"), NewItem(b"y")])
    do.push("work", [NewItem(b"new", key="new"), NewItem(b"known", key="k7")])
    taken = [each.handle for each in do.reserve("work", 5, 30)]
    do.extend(taken[:1], 60)
    do.commit([Commit(taken[0])])
    do.rollback([Rollback(taken[1])])
    do.move(taken[2], [Target("out")])
    do.move(taken[3], [Target("out"), Target("out")])
    do.pop("work", 1)
    do.next_due("work")
    page = do.history(Search("work", limit=1))
    do.history(Search("work", ending=Ending.DEAD))
    do.replay([page.entries[0].entry])
    do.statistics("work")
    outbox_numbers(do)


@pytest.fixture
def filled(sql_world: World) -> World:
    fill(sql_world)
    return sql_world


def test_no_statement_reads_a_whole_table(filled: World) -> None:
    plain = filled.store.execute  # type: ignore[attr-defined]
    explain = "EXPLAIN QUERY PLAN " if filled.database.kind == "sqlite" else "EXPLAIN "
    plans: dict[str, str] = {}

    def execute(statement: str, parameters: Any = ()) -> list[Row]:
        if (
            statement.split(maxsplit=1)[0] in {"SELECT", "UPDATE", "DELETE", "WITH", "INSERT"}
            and "oncewire_" in statement
        ):
            plans[statement] = " | ".join(str(row) for row in plain(explain + statement, parameters))
        rows: list[Row] = plain(statement, parameters)
        return rows

    filled.store.execute = filled.store.write = execute  # type: ignore[attr-defined]
    filled.do(everything)
    if filled.database.kind == "postgresql":
        filled.do(lambda do: do.execute(sql.COMMIT_AHEAD, (None, "{1,2}", "{1,1}", "{1,2}", [1], [b"x"], [None])))
        ahead = ("work", "work", None, "work", 5, 5, 30_000_000)
        assert len(filled.do(lambda do: do.execute(sql.RESERVE_AHEAD, ahead))) == 5
    assert len(plans) > 25
    assert {statement: plan for statement, plan in plans.items() if SCANS.search(plan)} == {}


def test_statistics_stop_counting_at_their_limit(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridges.workqueue.sql_operations.COUNT_LIMIT", 10)
    world = World(database)
    world.push(*[b"x"] * 30)
    world.push(*[b"y"] * 12, delay=60)
    found = world.do(lambda do: do.statistics("work"))
    assert (found.ready, found.waiting, found.count_limit) == (10, 10, 10)
    world.store.close()
