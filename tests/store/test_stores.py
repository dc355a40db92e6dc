"""Both databases do the same: transactions, features side by side, versions of their tables, notices."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import closing

import pytest

from bridges.store.outbox import NewMessage, publish
from bridges.workqueue import Commit, NewItem, Operations, UnknownQueue
from bridges.workqueue.contents import QueueContents
from bridges.workqueue.merging_core import CommitJob, ReserveJob
from bridges.workqueue.sql_schema import QUEUES
from oncewire.client.transactions.store_schema import CONSUMERS
from oncewire.store.contents import Contents
from oncewire.store.dialects import POSTGRES, SQLITE
from oncewire.store.errors import StatementFailed, StoreVersionUnknown
from oncewire.store.migrations import Feature
from oncewire.store.owners import lease_left, take_over
from oncewire.store.store import Transaction
from oncewire.store.tables import BASE
from oncewire.store.transaction import Connection, SqlTransaction
from tests.store.databases import START, Clock, SqlDatabase

NOTES = Feature("notes", (("CREATE TABLE notes (number BIGINT NOT NULL, note TEXT NOT NULL)",),))
LATER = Feature("notes", (*NOTES.migrations, ("ALTER TABLE notes ADD COLUMN place TEXT",)))
NOTE = "INSERT INTO notes (number, note) VALUES (?, ?)"


def note(number: int, text: str = "x") -> Callable[[Transaction], None]:
    return lambda do: do.write(NOTE, (number, text))


def numbers(database: SqlDatabase) -> list[int]:
    return [number for (number,) in database.rows("SELECT number FROM notes ORDER BY number")]


# --- transactions


def test_jobs_are_one_transaction_and_an_error_has_changed_nothing(sql_database: SqlDatabase) -> None:
    def fail(do: Transaction) -> None:
        do.execute(NOTE, (3, "c"))
        raise LookupError("a job's own")

    with closing(sql_database.open_with(Contents([NOTES]))) as store:
        results, touched = store.transact([note(1), lambda do: do.execute("SELECT count(*) FROM notes")])
        assert (results, touched) == ([None, [(1,)]], frozenset())
        with pytest.raises(LookupError):
            store.transact([note(2), fail])
        assert numbers(sql_database) == [1]
        store.transact([note(4)])
        assert numbers(sql_database) == [1, 4]


@pytest.mark.parametrize("count", [0, 1, 3, 87, 1000])
def test_many_rows_are_written_or_none(sql_database: SqlDatabase, count: int) -> None:
    rows = [(number, f"é{number}") for number in range(count)]
    with closing(sql_database.open_with(Contents([NOTES]))) as store:
        store.transact([lambda do: do.write_many(NOTE, rows)])
        assert numbers(sql_database) == [*range(count)]
        gone = [(number,) for number, _ in rows]
        store.transact([lambda do: do.write_many("DELETE FROM notes WHERE number = ?", gone)])
        with pytest.raises(StatementFailed):
            store.transact([lambda do: do.write_many(NOTE, [(1, "a"), (2, None), (3, "c")])])
        assert numbers(sql_database) == []


def test_large_payloads_are_written_and_read(sql_database: SqlDatabase) -> None:
    """Larger than what a socket takes at once, in both directions."""
    rows = [(number, "x" * (4 << 20)) for number in range(8)]

    def job(do: Transaction) -> int:
        do.execute(NOTE, rows[0])
        do.write(NOTE, rows[1])
        do.write_many(NOTE, rows[2:])
        return sum(len(text) for (text,) in do.execute("SELECT note FROM notes"))

    with closing(sql_database.open_with(Contents([NOTES]))) as store:
        assert store.transact([job])[0] == [32 << 20]
    assert numbers(sql_database) == [*range(8)]


def test_a_row_that_is_there_many_times_is_written_one_after_the_other(sql_database: SqlDatabase) -> None:
    with closing(sql_database.open_with(Contents([NOTES]))) as store:
        store.transact([lambda do: do.execute("CREATE UNIQUE INDEX one ON notes (number)")])
        put = f"{NOTE} ON CONFLICT (number) DO UPDATE SET note = excluded.note"
        store.transact([lambda do: do.write_many(put, [(1, "a"), (2, "b"), (1, "c")])])
    assert sorted(sql_database.rows("SELECT number, note FROM notes")) == [(1, "c"), (2, "b")]


def test_the_time_of_a_transaction_is_the_stores(sql_database: SqlDatabase) -> None:
    with closing(sql_database.open_with(clock=Clock())) as store:
        assert store.transact([lambda do: do.now])[0] == [START]


def test_what_a_transaction_touched_is_announced_to_other_processes(sql_database: SqlDatabase) -> None:
    with closing(sql_database.open_with()) as store, closing(sql_database.open_with()) as other:
        descriptor = other.open_notices()
        _, touched = store.transact([lambda do: do.touched.update(("a", " b"))])
        assert touched == {"a", " b"}
        store.announce(touched)
        found: set[str] = set()
        while found != touched:
            assert select.select([descriptor], [], [], 10.0)[0]
            found |= other.read_notices()


# --- features


class Counted(SqlTransaction):
    """A feature's own object, which writes what is left at the end."""

    def __init__(self, connection: Connection, now: float) -> None:
        super().__init__(connection, now)
        self.count = 0

    def finish(self) -> None:
        if self.count:
            self.write(NOTE, (self.count, "counted"))


class CountedContents(Contents):
    def transaction(self, connection: Connection, now: float) -> Counted:
        return Counted(connection, now)


def test_jobs_get_the_object_of_the_contents_and_it_finishes_in_the_transaction(sql_database: SqlDatabase) -> None:
    def count(do: Counted) -> None:
        do.count += 1

    with closing(sql_database.open_with(CountedContents([NOTES]), Clock())) as store:
        store.transact([count, count])
        assert numbers(sql_database) == [2]


def test_queues_and_another_feature_stand_side_by_side_in_one_transaction(sql_database: SqlDatabase) -> None:
    def both(do: Operations) -> None:
        do.configure("work")
        do.push("work", [NewItem(b"x")])
        do.write(NOTE, (1, "pushed"))
        publish(do, [NewMessage("t", b"m")])

    def refused(do: Operations) -> None:
        both(do)
        do.reserve("none", 1, 30.0)

    with closing(sql_database.open_with(QueueContents([NOTES]))) as store:
        with pytest.raises(UnknownQueue):
            store.transact([refused])
        assert numbers(sql_database) == []
        store.transact([both])
        assert numbers(sql_database) == [1]
        assert sql_database.rows("SELECT topic, number FROM oncewire_outbox") == [("t", 0)]
        ((taken,),), _ = store.transact([ReserveJob("work", 1, 30.0)])
        store.transact([CommitJob((Commit(taken.handle),)), note(2)])
        assert numbers(sql_database) == [1, 2]


def test_programs_with_fewer_features_use_the_same_database(sql_database: SqlDatabase) -> None:
    for contents in (Contents(), Contents([NOTES]), QueueContents(), QueueContents([NOTES]), Contents()):
        with closing(sql_database.open_with(contents)) as store:
            store.transact([lambda do: take_over(do, "it")])
    assert sql_database.versions() == {"store": len(BASE.migrations), "notes": 1, "queues": len(QUEUES.migrations)}
    assert sql_database.rows("SELECT epoch FROM oncewire_owners") == [(5,)]


# --- versions


def test_a_feature_brings_its_tables_to_its_newest_version_and_keeps_what_is_there(sql_database: SqlDatabase) -> None:
    with closing(sql_database.open_with(Contents([NOTES]))) as store:
        store.transact([note(1)])
    with closing(sql_database.open_with(Contents([LATER]))):
        assert sql_database.rows("SELECT number, place FROM notes") == [(1, None)]
        assert sql_database.versions()["notes"] == 2


def test_a_feature_of_a_later_version_is_refused_and_left_alone(sql_database: SqlDatabase) -> None:
    sql_database.open_with(Contents([LATER])).close()
    with pytest.raises(StoreVersionUnknown, match="version 2, and this program knows up to 1"):
        sql_database.open_with(QueueContents([NOTES]))
    assert sql_database.versions() == {"store": len(BASE.migrations), "notes": 2}
    sql_database.open_with(QueueContents()).close()


def test_a_database_of_consumers_from_before_the_one_store_is_refused_with_what_to_do(
    sql_database: SqlDatabase,
) -> None:
    sql_database.run("CREATE TABLE oncewire_store_fences (store TEXT PRIMARY KEY, version INTEGER, fence BIGINT)")
    sql_database.run("CREATE TABLE oncewire_store_sources (store TEXT PRIMARY KEY, source TEXT)")
    sql_database.run("INSERT INTO oncewire_store_fences VALUES ('orders', 4, 7)")
    with pytest.raises(StoreVersionUnknown, match=r"earlier version of Oncewire made its tables.*use a new database"):
        sql_database.open_with(Contents([CONSUMERS]))
    assert sql_database.rows("SELECT version, fence FROM oncewire_store_fences") == [(4, 7)], "it is as it was"
    sql_database.run("DROP TABLE oncewire_store_fences")
    sql_database.run("DROP TABLE oncewire_store_sources")
    sql_database.open_with(Contents([CONSUMERS])).close()
    assert sql_database.versions()["consumers"] == 1


OLD = [(), QUEUES.migrations[0], *BASE.migrations[:4]]
"""What each version of a store of queues added when it had one version for all."""


@pytest.mark.parametrize("version", range(len(OLD)))
@pytest.mark.parametrize("is_first_with_queues", [True, False])
def test_a_store_that_had_one_version_for_all_goes_on(
    sql_database: SqlDatabase, version: int, is_first_with_queues: bool
) -> None:
    dialect = SQLITE if sql_database.kind == "sqlite" else POSTGRES
    with closing(sql_database.connect()) as connection:
        connection.execute("CREATE TABLE oncewire_queue_version (version INTEGER NOT NULL)")
        if version:
            connection.execute(f"INSERT INTO oncewire_queue_version VALUES ({version})")
        for statement in (statement for added in OLD[: version + 1] for statement in added):
            connection.execute(dialect.spell(statement))
        if version:
            connection.execute("INSERT INTO oncewire_queues VALUES ('work', 3, 1, 60, 3600, 1000)")
        if version >= 2:
            insert = "INSERT INTO oncewire_owners (name, container, epoch, incarnation) VALUES ('it', 'c', 7, 0)"
            connection.execute(insert)
    if not is_first_with_queues:
        sql_database.open_with().close()
    with closing(sql_database.open_with(QueueContents())) as store:
        results, _ = store.transact(
            [
                lambda do: do.queues(),
                lambda do: lease_left(do, "it"),
                lambda do: take_over(do, "it").epoch,
                lambda do: do.publish([NewMessage("t", b"m")]),
                lambda do: do.resume_link("link", []).generation,
            ]
        )
    assert results == [["work"] if version else [], 0.0, 8 if version >= 2 else 1, None, 1]
    assert sql_database.versions() == {"store": len(BASE.migrations), "queues": len(QUEUES.migrations)}


def test_a_store_of_queues_that_a_later_program_wrote_is_refused_and_left_alone(sql_database: SqlDatabase) -> None:
    sql_database.run("CREATE TABLE oncewire_queue_version (version INTEGER NOT NULL)")
    sql_database.run(f"INSERT INTO oncewire_queue_version VALUES ({len(OLD)})")
    with pytest.raises(StoreVersionUnknown):
        sql_database.open_with(QueueContents())
    assert sql_database.rows("SELECT version FROM oncewire_queue_version") == [(len(OLD),)]
