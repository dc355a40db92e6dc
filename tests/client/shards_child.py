"""Four consumers in a process of their own, which shares them with others: ``shards_child STORE ROUTERS LEASE_S``.

Each notes what it processes with its process id, and publishes a message for it, marked with the process id as well.
"""

from __future__ import annotations

import asyncio
import os
import sys

from oncewire.client.transactions import Consumer, ReceivedMessage, StoreShards, Transaction

NAMES = ("africa", "asia", "europe", "oceania")
SCHEMA = "CREATE TABLE effects (attempt TEXT NOT NULL, topic TEXT NOT NULL, message TEXT NOT NULL)"


def consumer(routers: list[str], store: str, name: str, shards: StoreShards | None = None) -> Consumer:
    """One shard."""
    return Consumer(routers, store=store, name=f"billing-{name}", topics=[f"orders/{name}"], shards=shards, batch=20)


def process(tx: Transaction, message: ReceivedMessage) -> None:
    """One effect, and one message out."""
    body = message.body.decode()
    tx.execute("INSERT INTO effects VALUES (?, ?, ?)", (str(os.getpid()), message.topic, body))
    tx.publish("totals", f"{body}#{os.getpid()}")


async def main(store: str, routers: str, lease_s: str) -> None:
    """Run until killed."""
    shards = StoreShards(store, lease_s=float(lease_s))
    async with asyncio.TaskGroup() as group:
        for name in NAMES:
            group.create_task(run(consumer(routers.split(","), store, name, shards)))


async def run(each: Consumer) -> None:
    """Run one of them."""
    async with each:
        await each.run(process)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
