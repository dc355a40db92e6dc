"""The process of an edge, as far as a journal needs it: ``journal_worker.py STORE ROUTERS POINT PASS``.

It is killed (SIGKILL) when it passes a crash point for the PASS-th time; with POINT "" it is not.
"""

from __future__ import annotations

import asyncio
import sys

from bridges.journal import log
from bridges.journal.address import ADDRESSES
from bridges.journal.contents import JOURNALS
from bridges.journal.model import JournalSettings
from bridges.journal.subscription import JournalSubscription
from bridges.store.serving import AddressService
from oncewire.store.contents import Contents
from oncewire.store.open_store import OpenStore
from oncewire.store.opening import open_store
from oncewire.store.store import Transaction
from tests.store.killing import die_at_point


async def run(url: str, routers: list[str]) -> None:
    """Store topic `in` in journal `log`, and serve it."""
    store: OpenStore[Transaction] = OpenStore(open_store(url, Contents([JOURNALS])))
    await store.transact(lambda do: log.configure(do, "log", JournalSettings()))
    async with asyncio.TaskGroup() as group:
        group.create_task(JournalSubscription(store, "log", "in", routers).run())
        group.create_task(AddressService(store, routers, ADDRESSES, "edge").run())


def main(url: str, routers: str, point: str, times: str) -> None:
    """Run until the end."""
    if point:
        die_at_point(point, int(times))
    asyncio.run(run(url, routers.split(",")))


if __name__ == "__main__":
    main(*sys.argv[1:])
