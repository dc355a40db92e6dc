"""A subscriber in a process of its own that drops copies: ``copies_child.py ROUTERS JOURNAL HOLD``.

Each message is a row of the table ``effects``, in one transaction with its acceptance. With HOLD = 1 the message "hold"
is received and not processed: the process then waits until it is killed. It prints what it has done.
"""

from __future__ import annotations

import asyncio
import sys

from oncewire.client import SqliteJournal, connect


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main(routers: str, path: str, hold: str) -> None:
    """Run until killed."""
    journal = SqliteJournal(path)
    journal.connection.execute("CREATE TABLE IF NOT EXISTS effects (body TEXT NOT NULL)")
    async with connect(routers.split(","), journal=journal, container_id="store") as client:
        subscriber = await client.subscriber("orders", name="s", deduplicate=True)
        say("subscribed")
        async for delivery in subscriber:
            assert isinstance(delivery.body, bytes)
            body = delivery.body.decode()
            if body == "hold" and hold == "1":
                say("held")
                continue
            async with delivery.transaction() as connection:
                connection.execute("INSERT INTO effects VALUES (?)", (body,))
            say(body)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
