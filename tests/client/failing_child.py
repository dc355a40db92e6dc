"""A consumer whose function fails at some messages: ``failing_child.py STORE ROUTERS POINT NOTE``.

It publishes nothing but dead letters. It is killed (SIGKILL) when it reaches the named ``CrashPoint`` for the first
time after the function has failed at a message for the last time, and writes the message into the file NOTE before;
with any other POINT it runs until somebody ends it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from oncewire.client.transactions import Consumer, CrashPoint, ReceivedMessage, Transaction
from oncewire.client.transactions.crash_points import on_reach

SCHEMA = ("CREATE TABLE IF NOT EXISTS effects (message TEXT NOT NULL)",)
ATTEMPTS = 2
failures: dict[str, int] = {}


def process(tx: Transaction, message: ReceivedMessage) -> None:
    """Fails behind its effect."""
    body = message.body.decode()
    tx.execute("INSERT INTO effects VALUES (?)", (body,))
    if body.startswith("bad"):
        failures[body] = failures.get(body, 0) + 1
        raise ValueError(f"{body} cannot be processed")


def die_at(name: str, note: Path) -> None:
    """Arrange the death of this process."""

    def look(point: CrashPoint) -> None:
        last = [body for body, count in failures.items() if count >= ATTEMPTS]
        if point.name == name and last:
            note.write_text(last[0])
            os.kill(os.getpid(), signal.SIGKILL)

    on_reach.append(look)


async def main(store: str, routers: str, point: str, note: str) -> None:
    """Run until killed."""
    die_at(point, Path(note))
    async with Consumer(
        routers.split(","),
        store=store,
        name="billing",
        topics=["orders"],
        schema=SCHEMA,
        attempts=ATTEMPTS,
        dead_letters="dead",
    ) as consumer:
        await consumer.run(process)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
