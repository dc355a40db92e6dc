"""A consumer in a process of its own: ``consumer_child STORE ROUTERS POINT NOTE [ETCD]``.

It is killed (SIGKILL) when it reaches the named ``CrashPoint`` for the second time (the first time where there is only
one), and writes the point into the file NOTE before; with any other POINT it runs until somebody ends it. It logs each
message with its process id, adds it to a sum and publishes two messages for it, marked with the process id as well: a
mixture of two attempts would show. With etcd's address it stands by while another process is active.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from oncewire.client.transactions import Consumer, CrashPoint, ReceivedMessage, Transaction
from oncewire.client.transactions.crash_points import on_reach
from tests.client.store_world import value_of
from topology.shard_leases import EtcdShards

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS effects (attempt TEXT NOT NULL, message TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS sums (number INTEGER PRIMARY KEY, total BIGINT NOT NULL)",
    "INSERT INTO sums VALUES (1, 0) ON CONFLICT DO NOTHING",
)


def process(tx: Transaction, message: ReceivedMessage) -> None:
    """Effects in two tables, and two messages out."""
    body = message.body.decode()
    tx.execute("INSERT INTO effects VALUES (?, ?)", (str(os.getpid()), body))
    tx.execute("UPDATE sums SET total = total + ?", (value_of(body),))
    for part in "xy":
        tx.publish("totals", f"{body}>{part}#{os.getpid()}")


def die_at(name: str, note: Path) -> None:
    """Arrange the death of this process."""
    left = 1 if name == CrashPoint.OPENED.name else 2

    def look(point: CrashPoint) -> None:
        nonlocal left
        if point.name != name:
            return
        left -= 1
        if left == 0:
            note.write_text(point.name)
            os.kill(os.getpid(), signal.SIGKILL)

    on_reach.append(look)


async def main(store: str, routers: str, point: str, note: str, etcd: str = "") -> None:
    """Run until killed."""
    die_at(point, Path(note))
    async with Consumer(
        routers.split(","),
        store=store,
        name="billing",
        topics=["orders"],
        schema=SCHEMA,
        batch=20,
        ring_messages=5,
        shards=EtcdShards([etcd], lease_s=2) if etcd else None,
    ) as consumer:
        await consumer.run(process)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
