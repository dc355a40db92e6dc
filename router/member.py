"""This router as a member of the cluster: its lease, its key, and what the watch tells (rules K-1 to K-4, K-7, K-8)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import replace

from delivery_records.inputs import Input, StoreHealth, ViewChanges, ViewSnapshot
from delivery_records.tags import NONCE_BYTES
from delivery_records.view import RouterRecord
from topology.attachments import (
    CLUSTER_KEY,
    change_of_event,
    change_of_stored,
    decode_nonce,
    encode_nonce,
    encode_record,
    readable_changes,
    router_store_key,
)
from topology.lease_clock import LeaseClock
from topology.store import ABSENT, PREFIX, UNCONDITIONAL, CompactedError, LeaseLost, Store, StoreError

KEEP_ALIVE_PERIOD_S = 1.0
KEEP_ALIVE_RETRY_S = 0.2


class Member:
    """One incarnation's membership."""

    def __init__(self, store: Store, rid: int, nonce: bytes, clock: LeaseClock, record: RouterRecord) -> None:
        self.rid = rid
        self.nonce = nonce
        self.clock = clock
        self.is_joined = False
        self._store = store
        self._record = record
        self._is_healthy = False

    @classmethod
    async def join(cls, store: Store, record: RouterRecord, ttl_s: int) -> Member:
        """Take a lease and learn the cluster's nonce."""
        asked_at = time.monotonic()
        rid = await store.grant_lease(ttl_s)
        clock = LeaseClock(ttl_s, KEEP_ALIVE_PERIOD_S, asked_at)
        return cls(store, rid, await _cluster_nonce(store), clock, replace(record, rid=rid))

    def vet(self, now: float) -> bool:
        """K-3a: whether what was read before `now` may be handled; the first False is final."""
        return self.clock.vet(now)

    def lease_left(self, now: float) -> float:
        """Seconds until this router fences itself."""
        return max(0.0, self.clock.deadline - now)

    async def follow(self, on_view: Callable[[list[Input]], None]) -> None:
        """K-1: put the key, load a snapshot at a later revision, then watch, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_alive(on_view))
            key = router_store_key(self._record)
            await self._store.compare_and_put(key, encode_record(self._record), UNCONDITIONAL, self.rid)
            while True:
                revision, stored = await self._store.snapshot(PREFIX)
                self.is_joined = True
                self._is_healthy = True
                entries = readable_changes(change_of_stored, stored)
                on_view([StoreHealth(True), ViewSnapshot(revision, entries)])
                with contextlib.suppress(CompactedError):
                    await self._watch(revision, on_view)

    async def _watch(self, revision: int, on_view: Callable[[list[Input]], None]) -> None:
        async with contextlib.aclosing(self._store.watch(PREFIX, revision + 1)) as batches:
            async for batch in batches:
                changes = readable_changes(change_of_event, batch.events)
                on_view([ViewChanges(batch.revision, changes)])

    async def _keep_alive(self, on_view: Callable[[list[Input]], None]) -> None:
        while True:
            now = time.monotonic()
            await asyncio.sleep(max(0.0, self.clock.next_keep_alive - now))
            sent_at = time.monotonic()
            self.clock.keep_alive_sent(sent_at)
            try:
                await self._store.keep_alive(self.rid)
            except LeaseLost:
                self.clock.lose()
                return
            except StoreError:
                self._set_health(False, on_view)
                await asyncio.sleep(KEEP_ALIVE_RETRY_S)
            else:
                self.clock.keep_alive_succeeded(sent_at)
                self._set_health(True, on_view)

    def _set_health(self, healthy: bool, on_view: Callable[[list[Input]], None]) -> None:
        if self.is_joined and healthy is not self._is_healthy:
            self._is_healthy = healthy
            on_view([StoreHealth(healthy)])

    async def leave(self) -> None:
        """K-8: say that nobody has to wait for a grace time, then end the lease."""
        with contextlib.suppress(StoreError):
            leaving = replace(self._record, leaving=True)
            await self._store.compare_and_put(
                router_store_key(leaving), encode_record(leaving), UNCONDITIONAL, self.rid
            )
            await self._store.revoke(self.rid)


async def _cluster_nonce(store: Store) -> bytes:
    while True:
        stored = await store.get(CLUSTER_KEY)
        if stored is not None:
            return decode_nonce(stored.value, NONCE_BYTES)
        await store.compare_and_put(CLUSTER_KEY, encode_nonce(secrets.token_bytes(NONCE_BYTES)), ABSENT)
