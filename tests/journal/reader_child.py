"""A reader in a process of its own, to be killed: ``reader_child ROUTER FILE``.

Each message's number goes into a table of the file that also keeps the reader's map, in one transaction with its
acceptance.
"""

from __future__ import annotations

import asyncio
import sys

from oncewire.client import connect

TABLE = "CREATE TABLE IF NOT EXISTS seen (place INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER)"


async def read(router: str, file: str) -> None:
    """Until killed."""
    async with connect(router, journal=file) as client, client.journal("orders", name="reports") as reader:
        async for delivery in reader:
            assert isinstance(delivery.body, bytes)
            async with delivery.transaction() as database:
                database.execute(TABLE)
                database.execute("INSERT INTO seen (number) VALUES (?)", (int(delivery.body.split()[1]),))


if __name__ == "__main__":
    asyncio.run(read(*sys.argv[1:]))
