"""Publishes the lines of a file exactly once, however often this program is killed and started again.

    python examples/durable_publisher.py orders.txt --topic orders --url amqp://127.0.0.1:5672

A message and the place in the file it came from are stored in one transaction. So after a crash two things are known:
which messages are still on their way (the journal holds them, and they go on by themselves), and where to read on.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from functools import partial
from pathlib import Path

from oncewire.client import SqliteJournal, connect

BATCH = 200  # lines in one transaction


def save_place(place: int, database: sqlite3.Connection) -> None:
    """Called inside the transaction that stores the messages."""
    database.execute("UPDATE source SET place = ?", (place,))


async def publish(path: Path, topic: str, urls: list[str], journal: SqliteJournal) -> None:
    """Publish what is left of the file."""
    journal.connection.execute("CREATE TABLE IF NOT EXISTS source (place INTEGER)")
    journal.connection.execute("INSERT INTO source SELECT 0 WHERE NOT EXISTS (SELECT * FROM source)")
    (place,) = journal.connection.execute("SELECT place FROM source").fetchone()
    # The same identity in each life: container-id and name.
    async with connect(urls, container_id="order-desk") as client:
        publisher = await client.publisher(topic, name="orders-of-the-day", journal=journal)
        print(f"reading on at byte {place}; {len(publisher.recovered)} messages of an earlier life are on their way")
        with path.open("rb") as file:
            file.seek(place)
            while lines := [line.rstrip(b"\n") for line in (file.readline() for _ in range(BATCH)) if line]:
                await publisher.submit_many(lines, effect=partial(save_place, file.tell()))
        await publisher.flush()  # until every subscription has processed every message
        print(f"{publisher.next_number} messages published in all, all of them accepted")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--url", action="append", help="may be repeated; default amqp://127.0.0.1:5672")
    parser.add_argument("--journal", type=Path, default=Path("publisher.db"))
    arguments = parser.parse_args()
    journal = SqliteJournal(arguments.journal)
    try:
        asyncio.run(publish(arguments.file, arguments.topic, arguments.url or ["amqp://127.0.0.1:5672"], journal))
    finally:
        journal.close()


if __name__ == "__main__":
    main()
