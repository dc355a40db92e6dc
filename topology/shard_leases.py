"""Which of several processes is active: one leased key in etcd for each shard.

``oncewire.client.transactions.Consumer(shards=EtcdShards([...]))`` asks for the shard of its name. The owner's key is
deleted when it releases the shard, and by etcd when its lease has expired. This decides who works; what a consumer
writes is protected by the fence of its store. So the owner goes on while etcd cannot be reached: nobody else can take
over then either.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

from topology.etcd.gateway_http import GatewayOptions
from topology.etcd.gateway_store import GatewayStore
from topology.etcd.store import ABSENT, ClusterStore, CompactedError, EventKind, LeaseLost, StoreError, StoreTimeout

logger = logging.getLogger(__name__)

PREFIX = "/consumers/v1/"
"""Beside the keys of the network: operators see who owns what."""
LEASE_S = 5
"""From the crash of an owner to the start of its successor, at most; several keep-alives fit into it."""
RETRY_S = 0.5
"""After a call to etcd that failed."""


class EtcdShards:
    """Gives each shard to one of the processes that ask for it; the others wait.

    Args:
        urls: of etcd's members.
        lease_s: seconds after which a crashed owner is replaced.
        options: user, password, TLS and time-outs.
    """

    def __init__(self, urls: Sequence[str], *, lease_s: int = LEASE_S, options: GatewayOptions | None = None) -> None:
        self._urls = list(urls)
        self._lease_s = lease_s
        self._options = options
        self._id = secrets.token_hex(8).encode()

    @asynccontextmanager
    async def own(self, shard: str) -> AsyncIterator[asyncio.Event]:
        """Wait until this process owns the shard, and release it when the block ends.

        Yields an event that is set when another process may own it.
        """
        store = GatewayStore(self._urls, self._options)
        try:
            lease = await self._take(store, PREFIX + shard)
            lost = asyncio.Event()
            keeping = asyncio.create_task(self._keep(store, lease, lost))
            try:
                yield lost
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
                with suppress(StoreError):  # else it expires
                    await store.revoke(lease)
        finally:
            await store.close()

    async def _take(self, store: ClusterStore, key: str) -> int:
        while True:
            try:
                lease = await self._try(store, key)
                if lease:
                    return lease
                await self._until_free(store, key)
            except CompactedError:
                continue
            except StoreError as error:
                logger.warning("the shard %s cannot be asked for: %s", key, error)
                await asyncio.sleep(RETRY_S)

    async def _try(self, store: ClusterStore, key: str) -> int:
        """Returns the lease of the key if it is ours now, else 0."""
        if await store.get(key) is not None:
            return 0
        lease = await store.grant_lease(self._lease_s)
        try:
            if (await store.compare_and_put(key, self._id, ABSENT, lease)).succeeded:
                return lease
        except StoreTimeout:
            found = await store.get(key)
            if found is not None and found.lease == lease:
                return lease
        await store.revoke(lease)
        return 0

    async def _until_free(self, store: ClusterStore, key: str) -> None:
        found = await store.get(key)
        if found is None:
            return
        async with aclosing(store.watch(key, found.mod_revision + 1)) as batches:
            async for batch in batches:
                if any(event.key == key and event.kind is EventKind.DELETE for event in batch.events):
                    return

    async def _keep(self, store: ClusterStore, lease: int, lost: asyncio.Event) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 4)
            try:
                await store.keep_alive(lease)
            except LeaseLost:
                lost.set()
                return
            except StoreError as error:
                logger.warning("a keep-alive failed, the owner goes on: %s", error)
