"""A program that closes what another of its threads uses: ``python -m tests.client.closing_child CASE FOLDER``.

In each case a statement runs in one thread when another one closes its database: SQLite calls the program back while
it executes a statement, so the program knows. It prints a line of JSON: the errors that it got, and what became of its
messages when it opened everything again.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bridges.node.arrow_bodies import count_topics, encode_rows
from bridges.node.model import StagedPart, Writer
from bridges.node.outbox import Outbox
from bridges.node.outbox_journal import OutboxJournal
from oncewire.client import Client, Publisher, SqliteJournal, Subscriber, connect
from oncewire.client.transactions import SqliteStore
from oncewire.wire import encode_data_message
from tests.client.shell_helpers import LONG, until
from tests.client.wire_server import Network, WireServer

SLOW = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3000000) SELECT count(*) FROM n"
"""Takes SQLite about a second; Python's own lock is free meanwhile."""
STEPS = 10_000
"""Instructions of SQLite's between two calls back."""
BODIES = [b"first", b"second"]


class Running:
    """Holds the first statement that runs in another thread than this, at its beginning."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._is_running, self._may_go_on = threading.Event(), threading.Event()
        own = threading.get_ident()

        def call_back() -> int:
            if threading.get_ident() != own:
                self._is_running.set()
                self._may_go_on.wait(LONG)
            return 0

        database.set_progress_handler(call_back, STEPS)

    async def wait(self) -> None:
        """Return while it runs: it has done a small part of its work."""
        assert await asyncio.to_thread(self._is_running.wait, LONG)
        self._may_go_on.set()


def slow_down(database: sqlite3.Connection, event: str) -> Running:
    """Let each statement of that kind take as long as `SLOW`."""
    database.execute("CREATE TABLE slow (x)")
    database.execute(f"CREATE TRIGGER slow_down AFTER {event} BEGIN INSERT INTO slow {SLOW}; END")
    return Running(database)


def as_before(path: Path) -> SqliteJournal:
    """The journal opened again, as fast as it was."""
    journal = SqliteJournal(path)
    journal.connection.execute("DROP TRIGGER IF EXISTS slow_down")
    return journal


async def error_of(work: Awaitable[object]) -> list[str]:
    """Name and text of what it raises."""
    try:
        await work
    except Exception as error:  # noqa: BLE001  # it is printed
        return [type(error).__name__, str(error)]
    return []


async def received(subscriber: Subscriber, publisher: Publisher) -> list[str]:
    """What a subscriber gets of a publisher in all, up to a message that is sent now."""
    last = await publisher.submit(b"last")
    found: list[str] = []
    while not found or found[-1] != "last":
        delivery = await subscriber.receive(LONG)
        found.append(delivery.value.decode())
        await delivery.accept()
    await last
    return found


async def publishing(url: str, path: Path) -> dict[str, Any]:
    """The journal's thread stores a message."""
    async with connect(url, container_id="other") as other:
        subscriber = await other.subscriber("t", name="s")
        journal = SqliteJournal(path)
        running = slow_down(journal.connection, "INSERT ON oncewire_messages")
        async with connect(url, container_id="c") as client:
            publisher = await client.publisher("t", name="p", journal=journal)
            sending = await publisher.submit(BODIES[0])
            await running.wait()
            journal.close()
            errors = [await error_of(publisher.send(BODIES[1], timeout=LONG)), await error_of(sending)]
        journal = as_before(path)
        async with connect(url, container_id="c") as client:
            publisher = await client.publisher("t", name="p", journal=journal)
            found = await received(subscriber, publisher)
        journal.close()
        return {"errors": errors, "received": found}


async def _subscribed(url: str, use: Callable[[Client], Awaitable[list[list[str]]]], path: Path) -> dict[str, Any]:
    """Two messages come while a client is used; another one with the same journal gets the rest."""
    async with connect(url, container_id="other") as other, other.publisher("t", name="p") as publisher:
        async with connect(url, container_id="c") as client:
            await (await client.subscriber("t", name="s", journal=path)).close()
        sendings = [await publisher.submit(body) for body in BODIES]
        client = await connect(url, container_id="c")
        errors = await use(client)
        await client.close()
        journal = as_before(path)
        async with connect(url, container_id="c") as client:
            found = await received(await client.subscriber("t", name="s", journal=journal), publisher)
            outcomes = [(await sending).is_accepted for sending in sendings]
        tables = "SELECT count(*) FROM sqlite_master WHERE name = 'effects'"
        effects = journal.connection.execute(tables).fetchone()[0]
        journal.close()
        return {"errors": errors, "received": found, "accepted": outcomes, "effects": effects}


async def accepting(url: str, path: Path) -> dict[str, Any]:
    """The journal's thread stores that a message was processed."""

    async def use(client: Client) -> list[list[str]]:
        journal = SqliteJournal(path)
        running = slow_down(journal.connection, "INSERT ON oncewire_deliveries")
        subscriber = await client.subscriber("t", name="s", journal=journal)
        first, second = [await subscriber.receive(LONG) for _ in BODIES]
        accepted = asyncio.ensure_future(first.accept())
        await running.wait()
        journal.close()
        return [await error_of(accepted), await error_of(second.accept())]

    return await _subscribed(url, use, path)


async def in_a_block(url: str, path: Path) -> dict[str, Any]:
    """The application's own statement runs in its own thread, in a block of `transaction()`."""

    async def use(client: Client) -> list[list[str]]:
        journal = SqliteJournal(path)
        subscriber = await client.subscriber("t", name="s", journal=journal)
        delivery = await subscriber.receive(LONG)
        running = Running(journal.connection)

        async def process() -> None:
            async with delivery.transaction() as database:
                await asyncio.to_thread(database.execute, f"CREATE TABLE effects AS {SLOW}")

        processing = asyncio.ensure_future(process())
        await running.wait()
        journal.close()
        return [await error_of(processing), await error_of(delivery.accept())]

    return await _subscribed(url, use, path)


async def left_behind(url: str, path: Path) -> dict[str, Any]:
    """The client itself closes its journal: a block of the application does not end in time."""

    async def use(client: Client) -> list[list[str]]:
        subscriber = await client.subscriber("t", name="s", journal=path)
        delivery = await subscriber.receive(LONG)
        entered: asyncio.Future[Running] = asyncio.get_running_loop().create_future()

        async def process() -> None:
            async with delivery.transaction() as database:
                entered.set_result(Running(database))
                await asyncio.to_thread(database.execute, f"CREATE TABLE effects AS {SLOW}")

        processing = asyncio.ensure_future(process())
        running = await entered
        leaving = asyncio.ensure_future(client.close())
        await until(lambda: subscriber._is_closing)
        await running.wait()
        leaving.cancel()  # it waits for no block any more
        await asyncio.wait([leaving])
        return [await error_of(processing)]

    return await _subscribed(url, use, path)


async def with_a_store(_url: str, path: Path) -> dict[str, Any]:
    """A consumer's store is closed while a thread is in a transaction."""
    store = SqliteStore(path, "billing")
    running = Running(store.connection)

    def process() -> None:
        with store.transaction({}) as database:
            database.execute(f"CREATE TABLE effects AS {SLOW}")

    processing = asyncio.ensure_future(asyncio.to_thread(process))
    await running.wait()
    store.close()
    errors = [await error_of(processing), await error_of(asyncio.to_thread(store.check_fence))]
    again = SqliteStore(path, "billing")
    with again.transaction({}) as database:
        effects = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'effects'").fetchone()[0]
    again.close()
    return {"errors": errors, "effects": effects}


async def with_an_outbox(_url: str, path: Path) -> dict[str, Any]:
    """The publishing end of a bridge node's outbox is closed while its thread stores what was sent."""
    outbox = Outbox(path, "sink")
    body = encode_rows(["t"], [encode_data_message(b"first")])
    writer, part = Writer("query", "run"), StagedPart(0, "a", 1, 1)
    outbox.stage(writer, 0, part, 0, count_topics(body), body)
    outbox.commit(writer, 0, [part])
    journal = OutboxJournal(path, "sink")
    state = journal.open_publisher("t")
    running = slow_down(journal._file.file._connection, "UPDATE ON node_topics")

    def begin_anew() -> None:
        journal.send_released("t")
        journal.open_publisher("t")

    storing = asyncio.ensure_future(asyncio.to_thread(begin_anew))
    await running.wait()
    journal.close()
    errors = [await error_of(storing), await error_of(asyncio.to_thread(journal.open_publisher, "t"))]
    again = OutboxJournal(path, "sink")
    is_same = again.open_publisher("t").next_number == state.next_number
    again.close()
    outbox.close()
    return {"errors": errors, "is_same": is_same}


async def main(case: str, folder: str) -> None:
    """Run one case."""
    async with WireServer(Network()) as server:
        found = await CASES[case](server.url, Path(folder) / "closed.db")
    sys.stdout.write(json.dumps(found) + "\n")


CASES = {case.__name__: case for case in (publishing, accepting, in_a_block, left_behind, with_a_store, with_an_outbox)}

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
