"""W-29: the outbox and queues in transactions of the application's own, on each kind of connection."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridges.workqueue import (
    AlreadyReassigned,
    InvalidRequest,
    NewItem,
    OutboxPublisher,
    PayloadTooLarge,
    Queue,
    QueueStore,
    UnknownQueue,
    new_message,
    outbox,
)
from oncewire.client import connect
from oncewire.testing import AmqpNetwork
from tests.store.databases import Servers, new_address
from tests.workqueue.own_connections import KINDS, POSTGRES, Own, by_psycopg, by_sqlite3, engine_of
from tests.workqueue.queue_world import Database

LONG = 60.0
Opener = Callable[[Database], AbstractAsyncContextManager[Own]]


@dataclass
class Shop:
    """A database with a store and a table of the application, and what opens a connection to it."""

    database: Database
    open: Opener

    def orders(self) -> list[str]:
        return [name for (name,) in self.database.rows("SELECT name FROM orders")]

    def outbox(self) -> list[tuple[Any, ...]]:
        return self.database.rows("SELECT topic, number, outcome, released FROM oncewire_outbox ORDER BY topic, number")


@pytest.fixture
async def shop(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Shop:
    kind, opener = request.param
    database = Database(kind, new_address(kind, tmp_path, servers))
    async with Queue.open(database.url, "jobs"):
        pass  # makes the tables
    database.run("CREATE TABLE orders (name TEXT)")
    return Shop(database, opener)


def on_each_kind(test: Any) -> Any:
    kinds = [pytest.param((each.values[0], each.values[1]), id=each.id, marks=each.marks) for each in KINDS]
    return pytest.mark.parametrize("shop", kinds, indirect=True)(test)


@pytest.fixture(scope="module")
def network() -> Iterator[AmqpNetwork]:
    with AmqpNetwork(1) as found:
        yield found


@asynccontextmanager
async def publishing(shop: Shop, network: AmqpNetwork) -> AsyncIterator[OutboxPublisher]:
    async with QueueStore.open(shop.database.url) as store:
        publisher = OutboxPublisher(store, network.urls)
        task = asyncio.create_task(publisher.run())
        try:
            yield publisher
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@on_each_kind
async def test_what_is_committed_is_published_once_and_what_is_rolled_back_leaves_nothing(
    shop: Shop, network: AmqpNetwork, request: pytest.FixtureRequest
) -> None:
    topic = f"of-{request.node.callspec.id}"
    async with connect(network.urls) as client, client.subscriber(topic) as reader, publishing(shop, network):
        async with shop.open(shop.database) as own:
            await own.run("INSERT INTO orders VALUES ('lost')")
            await own.add(topic, {"order": "lost"})
            await own.rollback()
        assert (shop.orders(), shop.outbox()) == ([], [])
        async with shop.open(shop.database) as own:
            await own.run("INSERT INTO orders VALUES ('a')")
            await own.add(topic, {"order": "a"}, b"raw")
            await own.add(topic, {"order": "b"})
            await own.commit()
        found = []
        async with asyncio.timeout(LONG):
            for _ in range(3):
                delivery = await reader.receive()
                found.append(delivery.body)
                await delivery.accept()
            while shop.outbox():  # noqa: ASYNC110  (what another thread does)
                await asyncio.sleep(0.01)
        assert reader.waiting == 0
    assert found == [b'{"order":"a"}', b"raw", b'{"order":"b"}']
    assert shop.orders() == ["a"]


@on_each_kind
async def test_the_rows_are_those_that_the_store_writes_itself(shop: Shop) -> None:
    async with QueueStore.open(shop.database.url) as store:
        await store.transact(lambda do: do.publish([new_message("t", {"a": 1})]))
        await store.transact(lambda do: do.push("jobs", [NewItem(b"x", priority=2)]))
    async with shop.open(shop.database) as own:
        await own.add("t", {"a": 1})
        assert [each.is_new for each in await own.push("jobs", NewItem(b"x", priority=2))] == [True]
        await own.commit()
    for columns, table in (
        ("topic, payload, outcome, released", "oncewire_outbox"),
        ("queue, priority, reserved, reservation, retries, payload, item_key, schedule, reason", "oncewire_items"),
    ):
        first, second = shop.database.rows(f"SELECT {columns} FROM {table}")
        assert list(map(str, first)) == list(map(str, second))
    assert [row[:2] for row in shop.outbox()] == [("t", 0), ("t", 1)]
    assert shop.database.rows("SELECT topic, assigned FROM oncewire_outbox_topics") == [("t", 2)]
    older, newer = (when for (when,) in shop.database.rows("SELECT created FROM oncewire_outbox ORDER BY number"))
    assert 0 <= newer - older < LONG * 1_000_000


@on_each_kind
async def test_an_item_is_there_with_the_commit_its_worker_wakes_and_a_key_adds_it_once(shop: Shop) -> None:
    async with Queue.open(shop.database.url, "jobs") as queue:
        worker = asyncio.create_task(queue.pop(wait=LONG))
        async with shop.open(shop.database) as own:
            (first,) = await own.push("jobs", NewItem(b"a", key="k"))
            (again,) = await own.push("jobs", NewItem(b"b", key="k"))
            assert (first.is_new, again.is_new, again.item) == (True, False, first.item)
            await own.run("INSERT INTO orders VALUES ('a')")
            await own.commit()
        taken = await worker
        assert taken is not None
        assert taken.payload == b"a"
        assert await queue.pop() is None


@on_each_kind
async def test_an_item_and_its_effect_are_one_transaction_of_the_application(shop: Shop) -> None:
    async with Queue.open(shop.database.url, "jobs", max_retries=3) as queue:
        await queue.push(b"a")
        async with queue.reserve(timeout=0.05) as item, shop.open(shop.database) as own:
            await own.run("INSERT INTO orders VALUES ('lost')")
            await own.commit_item(item)
            await own.rollback()
        async with queue.reserve() as item, shop.open(shop.database) as own:
            assert (item.payload, item.taken.retries) == (b"a", 1)
            item.result = {"paid": 1}
            item.publish("t", {"bill": 1})
            await own.run("INSERT INTO orders VALUES ('a')")
            await own.commit_item(item)
            await own.commit()
        (entry,) = (await queue.history()).entries
        assert (entry.payload, entry.result) == (b"a", b'{"paid":1}')
    assert shop.orders() == ["a"]
    assert shop.outbox() == [("t", 0, None, 0)]


@on_each_kind
async def test_an_item_that_is_another_workers_by_now_cannot_be_ended(shop: Shop) -> None:
    async with Queue.open(shop.database.url, "jobs") as queue:
        await queue.push(b"a")
        (late,) = await queue.reserve_many(1, timeout=0.01)
        (other,) = await queue.reserve_many(1, wait=LONG)
        async with shop.open(shop.database) as own:
            await own.run("INSERT INTO orders VALUES ('late')")
            with pytest.raises(AlreadyReassigned):
                await own.commit_item(late)
            await own.rollback()
        await other.commit()
    assert shop.orders() == []


@on_each_kind
async def test_what_is_refused_leaves_nothing_and_the_transaction_goes_on(shop: Shop) -> None:
    async with Queue.open(shop.database.url, "jobs", max_payload_bytes=5):
        pass
    async with shop.open(shop.database) as own:
        await own.run("INSERT INTO orders VALUES ('a')")
        with pytest.raises(InvalidRequest):
            await own.add("no|topic", "x")
        with pytest.raises(UnknownQueue):
            await own.push("nothing", NewItem(b"x"))
        with pytest.raises(PayloadTooLarge):
            await own.push("jobs", NewItem(b"x"), NewItem(b"too long"))
        await own.add("t", "x")
        await own.commit()
    assert shop.orders() == ["a"]
    assert shop.outbox() == [("t", 0, None, 0)]
    assert shop.database.rows("SELECT * FROM oncewire_items") == []


@on_each_kind
async def test_what_is_refused_after_its_first_statement_leaves_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridges.store.outbox.MAX_TOPICS", 1)
    async with shop.open(shop.database) as own:
        await own.add("t", "x")
        with pytest.raises(InvalidRequest, match="nothing was published to the topic 'u'"):
            await own.add("u", "x")
        await own.add("t", "y")
        await own.commit()
    assert shop.database.rows("SELECT topic, assigned FROM oncewire_outbox_topics") == [("t", 2)]


@on_each_kind
async def test_a_failure_of_the_database_in_the_middle_leaves_no_hole_in_the_numbers(shop: Shop) -> None:
    shop.database.run("ALTER TABLE oncewire_outbox RENAME TO moved")
    async with shop.open(shop.database) as own:
        with pytest.raises(InvalidRequest, match="nothing was written on this connection"):
            await own.add("t", "x")
        await own.run("INSERT INTO orders VALUES ('a')")
        await own.commit()
    shop.database.run("ALTER TABLE moved RENAME TO oncewire_outbox")
    assert shop.database.rows("SELECT * FROM oncewire_outbox_topics") == []
    assert shop.orders() == ["a"]


KILLED = """
import os, signal, sqlite3, sys
from bridges.workqueue import outbox
connection = sqlite3.connect(sys.argv[1])
connection.execute("INSERT INTO orders VALUES (?)", (sys.argv[2],))
outbox.add(connection, "t", {"order": sys.argv[2]})
if sys.argv[2] == "committed":
    connection.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("shop", [("sqlite", by_sqlite3)], indirect=True)
async def test_a_program_killed_on_either_side_of_its_commit_has_both_rows_or_none(shop: Shop) -> None:
    for when in ("open", "committed"):
        command = [sys.executable, "-c", KILLED, shop.database.address, when]
        done = await asyncio.to_thread(subprocess.run, command, check=False, timeout=LONG)
        assert done.returncode == -signal.SIGKILL
    assert shop.orders() == ["committed"]
    ((payload,),) = shop.database.rows("SELECT payload FROM oncewire_outbox")
    assert b"committed" in payload


async def test_a_queue_takes_a_connection_too(tmp_path: Path) -> None:
    database = Database("sqlite", str(tmp_path / "q.db"))
    async with Queue.open(database.url, "jobs") as queue:
        with closing(sqlite3.connect(database.address)) as connection:
            await queue.push({"a": 1}, connection=connection, priority=3)
            connection.rollback()
            await queue.push({"a": 2}, connection=connection, priority=3)
            connection.commit()
        taken = await queue.pop()
        assert taken is not None
        assert (taken.payload, taken.priority) == (b'{"a":2}', 3)
        assert await queue.pop() is None


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("foreign", [None, "postgresql://x", object()])
async def test_what_is_no_connection_is_one_error_that_names_those_that_are(foreign: object) -> None:
    for call in (lambda: outbox.add(foreign, "t", "x"), lambda: outbox.push(foreign, "jobs", NewItem(b"x"))):
        with pytest.raises(InvalidRequest) as caught:
            call()
        assert "is no connection that is supported" in caught.value.why
        assert "give a connection of sqlite3, psycopg or asyncpg, or a Connection, Session" in caught.value.fix
    with pytest.raises(InvalidRequest):
        await outbox.add_async(foreign, "t", "x")


def test_a_database_without_a_store_is_one_error_that_says_how_it_gets_one(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection, pytest.raises(InvalidRequest) as caught:
        outbox.add(connection, "t", "x")
    assert caught.value.why == "there is no store in this database: no such table: oncewire_outbox_topics"
    assert "open the store once" in caught.value.fix


def test_without_a_transaction_nothing_is_added(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        with pytest.raises(InvalidRequest) as caught:
            outbox.add(connection, "t", "x")
        assert "no transaction is open on it: its isolation_level is None" in caught.value.why


@POSTGRES
@pytest.mark.parametrize("shop", [("postgresql", by_psycopg)], indirect=True)
async def test_a_connection_of_psycopg_with_autocommit_needs_a_block(shop: Shop) -> None:
    with shop.database.connect() as connection:
        with pytest.raises(InvalidRequest) as caught:
            outbox.add(connection, "t", "x")
        assert "it has autocommit, and no transaction() is open" in caught.value.why
        with connection.transaction():
            outbox.add(connection, "t", "x")
    assert len(shop.outbox()) == 1


@POSTGRES
@pytest.mark.needs("asyncpg", "sqlalchemy")
@pytest.mark.parametrize("shop", [("postgresql", KINDS[5].values[1])], indirect=True)
async def test_a_connection_that_is_awaited_is_refused_where_nobody_awaits(shop: Shop) -> None:
    async with shop.open(shop.database) as own:
        with pytest.raises(InvalidRequest) as caught:
            outbox.add(own.connection, "t", "x")
        assert caught.value.fix == "await the function whose name ends with _async"
        await own.rollback()
        with pytest.raises(InvalidRequest) as caught:
            await own.add("t", "x")
        assert "no transaction() is open" in caught.value.why


@pytest.mark.needs("sqlalchemy")
@pytest.mark.parametrize(
    ("kind", "driver"),
    [
        ("sqlite", ""),
        pytest.param("postgresql", "psycopg", marks=POSTGRES),
        pytest.param("postgresql", "asyncpg", marks=[POSTGRES, pytest.mark.needs("asyncpg")]),
    ],
)
async def test_a_connection_of_sqlalchemy_with_autocommit_is_refused(
    kind: str, driver: str, tmp_path: Path, servers: Servers
) -> None:
    database = Database(kind, new_address(kind, tmp_path, servers))
    async with Queue.open(database.url, "jobs"):
        pass
    is_awaited = driver == "asyncpg"
    engine = engine_of(database, driver, is_awaited=is_awaited, isolation_level="AUTOCOMMIT")
    if is_awaited:
        async with engine.connect() as connection:
            with pytest.raises(InvalidRequest) as caught:
                await outbox.add_async(connection, "t", "x")
        await engine.dispose()
    else:
        with engine.connect() as connection, pytest.raises(InvalidRequest) as caught:
            outbox.add(connection, "t", "x")
        engine.dispose()
    assert "its isolation_level is AUTOCOMMIT" in caught.value.why
    assert database.rows("SELECT * FROM oncewire_outbox_topics") == []


async def test_values_are_encoded_by_a_codec(tmp_path: Path) -> None:
    @dataclass
    class Order:
        number: int

    database = Database("sqlite", str(tmp_path / "q.db"))
    async with Queue.open(database.url, "jobs"):
        pass
    with closing(sqlite3.connect(database.address)) as connection:
        outbox.add(connection, "t", Order(3), codec=Order)
        connection.commit()
    ((payload,),) = database.rows("SELECT payload FROM oncewire_outbox")
    assert b"application/json" in payload
    assert payload.endswith(b'{"number":3}')
