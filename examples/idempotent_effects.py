"""Adds up payments in SQLite and PostgreSQL, each exactly once, though each message may be processed several times.

    python examples/idempotent_effects.py --topic payments --sqlite totals.db --postgres "host=127.0.0.1 dbname=totals"

Two databases cannot commit together, and neither with the acceptance of a message. So a message is accepted after its
effects, and a crash in between makes it come again. Its delivery hash is then the same: each database keeps the hashes
of what it has done in the transaction that does it, and does nothing twice.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from contextlib import AbstractContextManager, closing
from typing import Any, Protocol

from oncewire.client import Delivery, connect
from oncewire.client.delivery_hash import delivery_hash

PROCESSOR = "add-up-payments"


class Ledger(Protocol):
    """A database that adds payments up."""

    def add(self, key: str, amount: int) -> bool:
        """Add the amount unless it was added under this key; returns whether it was."""
        raise NotImplementedError


class SqliteLedger:
    """Hashes and total in a SQLite file."""

    def __init__(self, path: str) -> None:
        # One thread at a time, but not always the same one.
        self.database = database = sqlite3.connect(path, check_same_thread=False)
        with database:
            database.execute("CREATE TABLE IF NOT EXISTS payments (delivery_hash TEXT PRIMARY KEY, amount INTEGER)")
            database.execute("CREATE TABLE IF NOT EXISTS total (amount INTEGER)")
            database.execute("INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT * FROM total)")

    def add(self, key: str, amount: int) -> bool:
        """See Ledger."""
        with self.database:  # one transaction: the hash and what it stands for
            inserted = self.database.execute(
                "INSERT INTO payments VALUES (?, ?) ON CONFLICT DO NOTHING", (key, amount)
            ).rowcount
            if inserted:
                self.database.execute("UPDATE total SET amount = amount + ?", (amount,))
        return bool(inserted)


class PostgresLedger:
    """Hashes and total in a PostgreSQL database."""

    def __init__(self, database: Any) -> None:
        self.database = database
        with self.transaction():
            database.execute("CREATE TABLE IF NOT EXISTS payments (delivery_hash TEXT PRIMARY KEY, amount BIGINT)")
            database.execute("CREATE TABLE IF NOT EXISTS total (amount BIGINT)")
            database.execute("INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT * FROM total)")

    def transaction(self) -> AbstractContextManager[Any]:
        """One transaction of the database."""
        transaction: AbstractContextManager[Any] = self.database.transaction()
        return transaction

    def add(self, key: str, amount: int) -> bool:
        """See Ledger."""
        with self.transaction():
            inserted = self.database.execute(
                "INSERT INTO payments VALUES (%s, %s) ON CONFLICT DO NOTHING", (key, amount)
            ).rowcount
            if inserted:
                self.database.execute("UPDATE total SET amount = amount + %s", (amount,))
        return bool(inserted)


async def process(delivery: Delivery, topic: str, ledgers: list[Ledger]) -> None:
    """User code with side effects: it may run again for the same message, with the same hash."""
    # The tag is where the message stands in the subscription: it does not change when the message comes again.
    key = delivery_hash(PROCESSOR, {topic: delivery.tag})
    assert isinstance(delivery.body, bytes)
    amount = int(delivery.body)
    for ledger in ledgers:
        if not await asyncio.to_thread(ledger.add, key, amount):
            print(f"{key[:8]} was added before", flush=True)


async def subscribe(topic: str, urls: list[str], ledgers: list[Ledger]) -> None:
    """Process messages for ever, at least once each."""
    # The same identity in each life: what was not accepted comes again.
    async with connect(urls, container_id="accounting") as client:
        subscriber = await client.subscriber(topic, name="payments", timeout=3600)
        print("subscribed", flush=True)
        async for delivery in subscriber:
            await process(delivery, topic, ledgers)
            await delivery.accept()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topic", default="payments")
    parser.add_argument("--url", action="append", help="may be repeated; default amqp://127.0.0.1:5672")
    parser.add_argument("--sqlite", default="totals.db", help="a file")
    parser.add_argument("--postgres", help="a connection string; without it only SQLite is written to")
    arguments = parser.parse_args()
    ledgers: list[Ledger] = [SqliteLedger(arguments.sqlite)]
    urls = arguments.url or ["amqp://127.0.0.1:5672"]
    if arguments.postgres is None:
        asyncio.run(subscribe(arguments.topic, urls, ledgers))
        return
    import psycopg  # pip install "oncewire[postgres]"

    with closing(psycopg.connect(arguments.postgres, autocommit=True)) as database:
        asyncio.run(subscribe(arguments.topic, urls, [*ledgers, PostgresLedger(database)]))


if __name__ == "__main__":
    main()
