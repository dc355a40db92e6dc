"""Sends a mail for each payment: an edge feeds the topic into a work queue, this worker takes items from it.

The mail server fails now and then. The item is then given back, and comes again after a pause.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from bridges.workqueue import AlreadyReassigned, Operations, Queue
from bridges.workqueue.queue import Reserved

STORE = f"sqlite:///{Path(os.environ.get('SHOP_DATA', '.')) / 'mails.db'}"
RESERVED_S = 5.0
"""An item of a worker that was killed comes back after this time."""


class MailServerDown(Exception):
    """Try again later."""


def send(do: Operations, item: Reserved) -> None:
    """Send the mail, and end the item in the same transaction.

    The row stands for the mail. A real mail server is in no transaction: give it the order's number as the key under
    which it sends once.
    """
    number = item.json["number"]
    if number % 7 == 0 and not item.taken.retries:
        raise MailServerDown("the mail server is down")
    do.execute("INSERT INTO sent VALUES (?)", (number,))
    do.commit([item.as_commit()])


async def main() -> None:
    """Run until the process is ended."""
    async with Queue.open(STORE, "mails") as mails:
        await mails.transact(lambda do: do.execute("CREATE TABLE IF NOT EXISTS sent (number BIGINT)"))
        async for item in mails.items(RESERVED_S):
            with suppress(AlreadyReassigned):  # this worker was too slow, and another one has the item
                try:
                    await mails.transact(partial(send, item=item))
                except MailServerDown as error:
                    await item.rollback(str(error))


if __name__ == "__main__":
    asyncio.run(main())
