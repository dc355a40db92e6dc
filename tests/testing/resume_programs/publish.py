"""Publishes rows with the Python client, as the conformance kit asks: ``[forgetful|plain] URLS TOPIC COUNT FOLDER``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from oncewire.client import Journal, MemoryJournal, Publisher, Sending, SqliteJournal, connect


def say(*words: object) -> None:
    """Print a line at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def report(sending: Sending) -> None:
    """Print its outcome."""
    say(sending.number + 1, (await sending).kind.value)


async def publish(publisher: Publisher, count: int) -> None:
    """Publish what is left."""
    async with asyncio.TaskGroup() as reports:
        for sending in publisher.recovered:
            reports.create_task(report(sending))
        while publisher.next_number < count:
            sending = await publisher.submit(f"row {publisher.next_number + 1}")
            reports.create_task(report(sending))


async def main(way: str, urls: str, topic: str, count: str, folder: str) -> None:
    """Run. A forgetful one has no journal, a plain one does not ask for exactly once."""
    journal: Journal = MemoryJournal() if way == "forgetful" else SqliteJournal(Path(folder) / "publisher.db")
    async with connect(urls.split(","), container_id="rows") as client:
        publisher = await client.publisher(topic, name="rows", journal=journal, exactly_once=way != "plain")
        await publish(publisher, int(count))


*ways, urls, topic, count, folder = sys.argv[1:]
asyncio.run(main("".join(ways), urls, topic, count, folder))
