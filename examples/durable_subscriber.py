"""Processes each message of a topic exactly once, however often this program is killed and started again.

    python examples/durable_subscriber.py --topic orders --url amqp://127.0.0.1:5672

What a message does (here: a row and a count) and its acceptance are stored in one transaction of one SQLite file. So
there is no moment at which a crash could leave one without the other.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from oncewire.client import NewIncarnation, SqliteJournal, connect

BATCH = 200  # messages in one transaction: one write to the disk for all of them


def warn(event: object) -> None:
    """Report what an operator must know: we were disconnected for too long, and the network kept nothing for us."""
    if isinstance(event, NewIncarnation):
        print("the subscription had expired: messages sent in between are missing")


async def subscribe(topic: str, urls: list[str], journal: SqliteJournal, count: int | None) -> None:
    """Process messages until there are `count` in the table."""
    journal.connection.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, text TEXT)")
    # The same identity in each life: container-id and name. The network keeps what it owes us for an hour.
    async with connect(urls, container_id="warehouse", on_event=warn) as client:
        subscriber = await client.subscriber(topic, name="orders", journal=journal, timeout=3600)
        print("subscribed", flush=True)
        while True:
            deliveries = await subscriber.receive_many(BATCH)
            async with subscriber.transaction(*deliveries) as database:
                for delivery in deliveries:
                    database.execute("INSERT INTO orders (text) VALUES (?)", (delivery.body,))
            (total,) = journal.connection.execute("SELECT count(*) FROM orders").fetchone()
            if count is not None and total >= count:
                print(f"{total} orders are in the table")
                return


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--url", action="append", help="may be repeated; default amqp://127.0.0.1:5672")
    parser.add_argument("--journal", type=Path, default=Path("subscriber.db"))
    parser.add_argument("--count", type=int, help="end when the table has so many rows")
    arguments = parser.parse_args()
    journal = SqliteJournal(arguments.journal)
    try:
        asyncio.run(subscribe(arguments.topic, arguments.url or ["amqp://127.0.0.1:5672"], journal, arguments.count))
    finally:
        journal.close()


if __name__ == "__main__":
    main()
