"""A journal in a network of routers, and what publishes to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bridges.journal import log
from bridges.journal.address import ADDRESSES
from bridges.journal.contents import JOURNALS
from bridges.journal.model import JournalSettings
from bridges.journal.subscription import JournalSubscription
from bridges.store.serving import AddressService
from oncewire.client import Client
from oncewire.store.contents import Contents
from oncewire.store.open_store import OpenStore
from oncewire.store.opening import open_store
from oncewire.store.store import Transaction
from tests.support.waiting import eventually

DEADLINE_S = 60.0
COUNT = 20


@dataclass
class Edge:
    """A process of an edge, as far as a journal needs it."""

    store: OpenStore[Transaction]
    subscription: JournalSubscription
    tasks: list[asyncio.Task[None]]


@asynccontextmanager
async def edge(store_url: str, *urls: str, name: str = "edge") -> AsyncIterator[Edge]:
    """A journal in this process, and its address."""
    store: OpenStore[Transaction] = OpenStore(open_store(store_url, Contents([JOURNALS])))
    try:
        await store.transact(lambda do: log.configure(do, "orders", JournalSettings()))
        subscription = JournalSubscription(store, "orders", "orders.#", urls)
        service = AddressService(store, urls, ADDRESSES, name)
        tasks = [asyncio.create_task(subscription.run()), asyncio.create_task(service.run())]
        try:
            await eventually(lambda: subscription.subscribed.is_set() and len(service.service.connected) == len(urls))
            yield Edge(store, subscription, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await store.close()


async def publish(client: Client, first: int = 0, count: int = COUNT) -> None:
    async with client.publisher("orders.new") as publisher:
        for number in range(first, first + count):
            assert (await publisher.send(f"order {number}")).is_accepted
