"""Claims about stores, each on both databases."""

from __future__ import annotations

import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import oncewire.client.transactions.databases
import oncewire.client.transactions.store
import oncewire.store.sqlite
from oncewire.client.errors import (
    StoreCorrupt,
    StoreError,
    StoreFenced,
    StoreFull,
    StoreLocked,
    StoreUnusable,
    UsageError,
)
from oncewire.client.transactions.sequence_header import LAST_SEQUENCE, Flag, Producer, ProducerId, read_header
from oncewire.client.transactions.sequencer import Sequencer
from oncewire.client.transactions.store import Store
from oncewire.client.transactions.stores import PostgresStore, SqliteStore
from oncewire.wire import Message
from tests.client.store_world import Database, new_postgres_database

A = ProducerId("a", 1000)


def commit(store: Store[Any], effect: str | None = None, **sources: Sequencer[Any]) -> None:
    with store.transaction(sources) as connection:
        if effect is not None:
            connection.execute(effect)


def publish(store: Store[Any], topic: str = "totals", count: int = 1) -> Producer:
    """Pending messages that are accepted."""
    output = store.output(topic)
    for _ in range(count):
        output.settle(output.pending().sequence)
    return output


def table(database: Database) -> str:
    database.run("CREATE TABLE effects (text TEXT)")
    return "INSERT INTO effects VALUES ('done')"


def said(store: Store[Any]) -> list[tuple[str, int, int]]:
    return [(i.header.flag.value, i.header.begins, i.header.sequence) for i in store.unconfirmed]


# --- one decision -----------------------------------------------------------------------------------------------------


def test_effects_checkpoint_and_acks_commit_together(database: Database) -> None:
    effect = table(database)
    store = database.open()
    sequencer = Sequencer[str]()
    feed_pending(sequencer)
    publish(store, count=2)
    commit(store, effect, orders=sequencer)
    assert said(store) == [("ack", 1, 3)]
    store.close()
    assert database.rows("SELECT text FROM effects") == [("done",)]
    again = database.open()
    restored = Sequencer[str]()
    again.restore("orders", restored)
    assert (restored.position, restored.oldest_needed) == (2, 1)
    assert again.position("orders") == 2
    assert again.position("payments") == 0
    assert said(again)[0] == ("ack", 1, 3)
    again.close()


def feed_pending(sequencer: Sequencer[str]) -> Producer:
    a = Producer(A)
    sequencer.feed(1, a.pending(), "a1", 0.0)
    sequencer.feed(2, a.pending(), "a2", 0.0)
    return a


def test_a_failure_inside_the_transaction_leaves_nothing_and_ends_the_use(database: Database) -> None:
    effect = table(database)
    store = database.open()
    sequencer = Sequencer[str]()
    feed_pending(sequencer)
    publish(store)

    def fail() -> None:
        with store.transaction({"orders": sequencer}) as connection:
            connection.execute(effect)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    for use in (lambda: commit(store), lambda: store.output("totals 2"), lambda: store.position("orders")):
        with pytest.raises(StoreUnusable, match="close it, open it again"):
            use()
    store.close()
    assert database.rows("SELECT text FROM effects") == []
    again = database.open()
    assert again.position("orders") == 0
    assert said(again) == [("rollback", 1, LAST_SEQUENCE)]
    again.close()


def test_a_transaction_without_pending_messages_writes_no_intent(database: Database) -> None:
    store = database.open()
    store.output("totals")
    commit(store)
    assert store.unconfirmed == []
    store.close()


def test_no_ack_is_decided_before_all_its_messages_are_accepted(database: Database) -> None:
    store = database.open()
    output = store.output("totals")
    first, second = output.pending(), output.pending()
    output.settle(first.sequence)
    with pytest.raises(UsageError, match=f"message {second.sequence} to 'totals' is not accepted"):
        commit(store)
    store.close()


def test_the_next_commit_waits_for_the_acks_of_the_one_before(database: Database) -> None:
    store = database.open()
    publish(store)
    commit(store)
    store.confirm(store.unconfirmed)
    publish(store)
    commit(store)
    assert said(store) == [("ack", 3, 4)]
    publish(store)
    with pytest.raises(UsageError, match=r"message 4 to 'totals' is not accepted.* confirm each intent"):
        commit(store)
    store.close()


def test_an_ack_can_promise_that_nothing_below_it_is_still_to_come(database: Database) -> None:
    store = database.open()
    publish(store, count=3)
    commit(store)
    (intent,) = store.unconfirmed
    assert intent.header.floor == intent.header.sequence == 4
    assert read_header(intent.message().annotations) == intent.header
    store.close()


def test_the_block_must_not_end_the_transaction_itself(database: Database) -> None:
    store = database.open()
    with pytest.raises(UsageError, match="ended inside the block"), store.transaction({}) as connection:
        connection.execute("COMMIT")
    store.close()


def test_outputs_and_confirmations_are_not_for_the_inside_of_a_transaction(database: Database) -> None:
    store = database.open()
    with pytest.raises(UsageError, match="a transaction is open"), store.transaction({}):
        store.output("totals")
    store.close()


# --- the fence --------------------------------------------------------------------------------------------------------


def test_gazettes_zombie_old_commits_t1_new_recovers_and_olds_t2_fails(database: Database) -> None:
    effect = table(database)
    old = database.open()
    publish(old)
    commit(old, effect)
    old.confirm(old.unconfirmed)
    new = database.open()
    assert new.fence == old.fence + 1
    assert said(new) == [("rollback", 3, LAST_SEQUENCE)]
    publish(old)
    with pytest.raises(StoreFenced, match=f"fence {new.fence}, ours is {old.fence}"):
        commit(old, effect)
    assert database.rows("SELECT text FROM effects") == [("done",)]
    old.close()
    new.confirm(new.unconfirmed)
    commit(new, effect)
    new.close()
    third = database.open()
    assert third.unconfirmed == []  # Old's T2 left no intent
    third.close()


def test_a_fenced_owner_can_neither_confirm_nor_begin_an_output(database: Database) -> None:
    def begin_an_output(store: Store[Any]) -> None:
        store.output("more")

    def confirm(store: Store[Any]) -> None:
        store.confirm(store.unconfirmed)

    for use in (begin_an_output, confirm):
        old = database.open()
        publish(old)
        commit(old)
        database.open().close()
        with pytest.raises(StoreFenced):
            use(old)
        old.close()


def test_what_fails_on_a_row_that_a_later_owner_has_written_is_the_fence(database: Database) -> None:
    database.run("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
    insert = "INSERT INTO numbers VALUES (1)"
    old = database.open()
    with closing(database.open()) as new, new.transaction({}) as connection:
        connection.execute(insert)
    with pytest.raises(StoreFenced), old.transaction({}) as connection:
        connection.execute(insert)
    old.close()


@pytest.mark.needs("postgresql")
def test_an_owner_paused_inside_a_transaction_keeps_no_new_owner_out(postgresql: str) -> None:
    database = new_postgres_database(postgresql)
    effect = table(database)
    old = database.open()
    opened: list[Store[Any]] = []

    def commit_slowly() -> None:
        with old.transaction({}) as connection:
            connection.execute(effect)
            opened.append(database.open())

    with pytest.raises(StoreFenced):
        commit_slowly()
    new = opened[0]
    commit(new, effect)
    assert database.rows("SELECT text FROM effects") == [("done",)]
    old.close()
    new.close()


@pytest.mark.needs("postgresql")
def test_an_owner_paused_inside_a_transaction_holds_up_nothing_that_the_next_owner_writes(postgresql: str) -> None:
    """ST-9, and the one that was paused finds out why its session has ended."""
    database = new_postgres_database(postgresql)
    insert = "INSERT INTO oncewire_store_inputs VALUES ('billing', 1, 'orders', 0, 'x')"
    old = database.open()

    def commit_slowly() -> None:
        with old.transaction({}) as connection:
            connection.execute(insert)
            with closing(database.open()) as new:
                commit(new, insert)
            connection.execute("SELECT 1")

    with pytest.raises(StoreFenced, match="a later owner has opened it"):
        commit_slowly()
    assert database.rows("SELECT position FROM oncewire_store_inputs") == [(1,)]


def test_in_sqlite_the_new_owner_waits_for_an_open_transaction_and_recovers_it(tmp_path: Path) -> None:
    database = Database("sqlite", str(tmp_path / "store.db"))
    effect = table(database)
    old = database.open()
    opened: list[Store[Any]] = []
    with old.transaction({}) as connection:
        connection.execute(effect)
        opening = threading.Thread(target=lambda: opened.append(database.open()))
        opening.start()
    opening.join(30)
    assert database.rows("SELECT text FROM effects") == [("done",)]
    with pytest.raises(StoreFenced):
        commit(old, effect)
    old.close()
    opened[0].close()


def test_a_lock_that_is_never_let_go_of_is_reported(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oncewire.store.sqlite, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(oncewire.client.transactions.databases, "LOCK_SECONDS", 1)
    database.open().close()
    holder = database.connect()
    holder.execute("BEGIN IMMEDIATE" if database.kind == "sqlite" else "BEGIN")
    holder.execute("UPDATE oncewire_owners SET epoch = 7")
    with pytest.raises(StoreLocked, match="end the"):
        database.open()
    holder.execute("ROLLBACK")
    holder.close()
    store = database.open()
    assert store.fence == 2
    store.close()


def test_two_stores_of_one_database_do_not_disturb_each_other(database: Database) -> None:
    one, two = database.open("one"), database.open("two")
    publish(one)
    commit(one)
    commit(two)
    assert (one.fence, two.fence) == (1, 1)
    two.close()
    two = database.open("two")
    assert two.unconfirmed == []
    commit(one)
    one.close()
    two.close()


# --- intents ----------------------------------------------------------------------------------------------------------


def test_intents_are_published_again_by_each_owner_until_one_confirms_them(database: Database) -> None:
    first = database.open()
    publish(first)
    commit(first)
    ack = first.unconfirmed
    first.close()
    for _ in range(2):
        owner = database.open()
        assert owner.unconfirmed[:1] == ack
        assert said(owner) == [("ack", 1, 2), ("rollback", 3, LAST_SEQUENCE)]
        owner.close()
    last = database.open()
    last.confirm(last.unconfirmed)
    assert last.unconfirmed == []
    last.close()
    after = database.open()
    assert after.unconfirmed == []
    after.close()


def test_what_an_owner_left_pending_is_ended_even_where_it_never_committed(database: Database) -> None:
    old = database.open()
    publish(old, "totals")
    publish(old, "alarms")
    commit(old)
    publish(old, "totals")
    unheard = publish(old, "errors", 5)
    new = database.open()
    ends = {i.topic: i.header for i in new.unconfirmed if i.header.flag is Flag.ROLLBACK}
    assert {topic: header.begins for topic, header in ends.items()} == {"totals": 3, "alarms": 3, "errors": 1}
    assert ends["errors"].producer == unheard.producer
    numbers = [intent.number for intent in new.unconfirmed]
    assert numbers == sorted(set(numbers))
    old.close()
    new.close()


def test_each_owner_and_each_output_numbers_under_a_name_of_its_own(database: Database) -> None:
    names = set()
    for _ in range(2):
        owner = database.open()
        names |= {owner.output(topic).producer.name for topic in ("totals", "alarms", "totals")}
        owner.close()
    assert names == {"billing.1.1", "billing.1.2", "billing.2.1", "billing.2.2"}


def test_an_output_that_was_silent_for_long_begins_a_new_life(database: Database) -> None:
    store = database.open(renew_after=-1.0)
    old = store.output("totals")
    old.settle(old.pending().sequence)
    assert store.output("totals") is old  # not while something is pending
    commit(store)
    new = store.output("totals")
    assert (old.producer.name, new.producer.name) == ("billing.1.1", "billing.1.2")
    store.close()
    again = database.open()
    assert [i.header.producer for i in again.unconfirmed] == [old.producer, new.producer]  # one ack, one rollback
    again.close()


def test_undelivered_decisions_are_bounded_and_never_keep_an_owner_from_opening(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oncewire.client.transactions.store, "MAX_UNCONFIRMED", 1)
    store = database.open()
    publish(store)
    commit(store)
    with pytest.raises(StoreFull, match="1 intents are not confirmed"):
        commit(store)
    store.close()
    again = database.open()
    assert len(again.unconfirmed) == 2
    with pytest.raises(StoreFull):
        again.output("totals")
    again.confirm(again.unconfirmed)
    publish(again)
    commit(again)
    again.close()


def test_outputs_are_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oncewire.client.transactions.store, "MAX_OUTPUTS", 1)
    store = database.open()
    store.output("totals")
    with pytest.raises(UsageError, match="publishes to 1 topics already"):
        store.output("alarms")
    store.close()


# --- producer states --------------------------------------------------------------------------------------------------


def test_a_restored_sequencer_goes_on_in_the_middle_of_a_transaction(database: Database) -> None:
    store = database.open()
    sequencer = Sequencer[str]()
    a = feed_pending(sequencer)
    commit(store, orders=sequencer)
    store.close()
    again = database.open()
    restored = Sequencer[str]()
    again.restore("orders", restored)
    (_,) = restored.feed(3, a.ack(), "", 0.0).effects
    commit(again, orders=restored)
    assert not restored.changes()
    again.close()


def test_no_number_of_an_intent_is_given_twice(database: Database) -> None:
    """P-2: it is a delivery tag; with nothing left in the database the fence says which were given."""
    numbers = []
    for _ in range(3):
        owner = database.open()
        with owner.transaction({}):
            owner.publish("totals", Message(b""))
        numbers += [intent.number for intent in owner.unconfirmed]
        owner.confirm(owner.unconfirmed)
        owner.close()
    assert numbers == sorted(set(numbers))


def test_maps_of_topics_are_bounded_and_those_that_have_something_to_publish_stay(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oncewire.client.transactions.store, "MAX_OUTPUTS", 1)
    for topic in ("one", "two", "three"):
        owner = database.open()
        with owner.transaction({}):
            owner.publish(topic, Message(b""))
        if topic != "two":
            owner.confirm(owner.unconfirmed[-1:])
        owner.close()
    database.open().close()
    assert database.rows("SELECT topic FROM oncewire_store_publishers") == [("two",)]


def test_a_forgotten_producer_leaves_the_database_and_stays_refused(database: Database) -> None:
    store = database.open()
    sequencer = Sequencer[str](producer_retention=60.0)
    a = feed_pending(sequencer)
    commit(store, orders=sequencer)
    sequencer.prune(61.0)
    commit(store, orders=sequencer)
    assert database.rows("SELECT * FROM oncewire_store_sequences") == []
    store.close()
    again = database.open()
    restored = Sequencer[str]()
    again.restore("orders", restored)
    assert restored.feed(3, a.ack(), "", 61.0).outcome.value == "refused-pruned"
    again.close()


# --- faults of the database -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE oncewire_versions SET version = 99", "its tables are of version 99"),
        ("UPDATE oncewire_store_intents SET flag = 'maybe'", r"intent \d+: 'maybe'"),
        ("UPDATE oncewire_store_outputs SET begins = 0", "output 'totals': "),
        ("UPDATE oncewire_store_sequences SET state = 'x'", "producer a@1000 cannot be read"),
    ],
)
def test_damage_is_reported_with_what_is_damaged(database: Database, damage: str, said: str) -> None:
    store = database.open()
    sequencer = Sequencer[str]()
    feed_pending(sequencer)
    publish(store)
    commit(store, orders=sequencer)
    store.close()
    database.run(damage)

    def open_and_restore() -> None:
        with closing(database.open()) as again:
            again.restore("orders", Sequencer[str]())

    with pytest.raises(StoreCorrupt, match=said):
        open_and_restore()


@pytest.mark.parametrize("name", ["", "x" * 500])
def test_a_store_needs_a_name_of_a_sensible_length(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="1 to 192 bytes"):
        SqliteStore(tmp_path / "store.db", name)


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database " * 100)
    with pytest.raises(StoreCorrupt, match="give the path of a store"):
        SqliteStore(tmp_path / "text", "billing")
    with pytest.raises(StoreUnusable, match="check that the folder exists"):
        SqliteStore(tmp_path / "nowhere" / "store.db", "billing")


def test_sqlite_commits_survive_power_loss_and_errors_of_effects_pass_unchanged(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", "billing")
    assert store.connection.execute("PRAGMA synchronous").fetchone() == (2,)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        commit(store, "INSERT INTO nowhere VALUES (1)")
    store.close()


def test_without_psycopg_a_postgresql_store_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match=r'pip install "oncewire\[postgres\]"'):
        PostgresStore("dbname=none", "billing")


@pytest.mark.needs("postgresql")
def test_a_server_that_cannot_be_reached_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="check address"):
        PostgresStore(f"host={tmp_path} dbname=none", "billing")


@pytest.mark.needs("postgresql")
def test_a_broken_connection_commits_nothing_and_is_reported(postgresql: str) -> None:
    database = new_postgres_database(postgresql)
    effect = table(database)
    store = database.open()
    backend = store.connection.info.backend_pid

    def commit_into_the_void() -> None:
        with store.transaction({}) as connection:
            connection.execute(effect)
            database.run(f"SELECT pg_terminate_backend({backend}, 10000)")

    with pytest.raises(StoreError, match="PostgreSQL says"):
        commit_into_the_void()
    store.close()
    assert database.rows("SELECT text FROM effects") == []


@pytest.mark.needs("postgresql")
def test_postgresql_commits_wait_for_the_disk_whatever_the_default_says(postgresql: str) -> None:
    database = new_postgres_database(postgresql)
    lax = PostgresStore(database.address + " options='-c synchronous_commit=off'", "billing")
    assert lax.connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    assert lax.connection.execute("SHOW lock_timeout").fetchone() == ("0",)
    lax.close()
