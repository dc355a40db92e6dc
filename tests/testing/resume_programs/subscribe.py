"""Subscribes with the Python client, as the conformance kit asks: ``[forgetful|plain] URLS TOPIC COUNT FOLDER``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from oncewire.client import Journal, MemoryJournal, SqliteJournal, connect


def say(*words: object) -> None:
    """Print a line at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(way: str, urls: str, topic: str, count: str, folder: str) -> None:
    """Run. A forgetful one has no journal, a plain one does not ask for exactly once."""
    journal: Journal = MemoryJournal() if way == "forgetful" else SqliteJournal(Path(folder) / "subscriber.db")
    async with connect(urls.split(","), container_id="lines") as client:
        subscriber = await client.subscriber(topic, name="lines", journal=journal, exactly_once=way != "plain")
        say("ready")
        for _ in range(int(count)):
            delivery = await subscriber.receive()
            body = delivery.body
            say(body.decode() if isinstance(body, bytes) else body)
            await delivery.accept()


*ways, urls, topic, count, folder = sys.argv[1:]
asyncio.run(main("".join(ways), urls, topic, count, folder))
