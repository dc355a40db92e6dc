"""A consumer of two journals in a process of its own, to be killed: ``consumer_child STORE ROUTERS POINT NOTE``.

As ``tests.client.consumer_child``; besides, it keeps in which order the messages of each journal were processed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from oncewire.client.transactions import Consumer, ReceivedMessage, Transaction
from tests.client import consumer_child

JOURNALS = ("orders", "returns")
SCHEMA = (
    *consumer_child.SCHEMA,
    "CREATE TABLE IF NOT EXISTS seen (place BIGINT NOT NULL, journal TEXT NOT NULL, position BIGINT NOT NULL)",
)


def process(tx: Transaction, message: ReceivedMessage) -> None:
    """Effects and messages out, and the message's place in the order of processing."""
    tx.execute(
        "INSERT INTO seen SELECT COALESCE(MAX(place), 0) + 1, ?, ? FROM seen", (message.topic, message.journal_position)
    )
    consumer_child.process(tx, message)


async def main(store: str, routers: str, point: str, note: str) -> None:
    """Run until killed."""
    consumer_child.die_at(point, Path(note))
    async with Consumer(
        routers.split(","), store=store, name="billing", journals=JOURNALS, schema=SCHEMA, batch=20
    ) as consumer:
        await consumer.run(process)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
