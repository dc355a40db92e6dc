"""An etcd in memory: for unit tests and `--standalone`. One process, nothing is kept, no high availability.

`MemoryEtcd` is the server: plain calls under a lock, driven by an injected clock. `MemoryStore` is a client of it with
the asyncio interface of store.py; several clients, also in several threads, share one server. Faults are switched on
per client or for the server as a whole.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from topology.etcd.store import (
    Beside,
    CompactedError,
    EventKind,
    LeaseLost,
    LogProgress,
    PutResult,
    Stored,
    StoreRejected,
    StoreTimeout,
    StoreUnavailable,
    WatchBatch,
    WatchEvent,
    Write,
)

_Answer = TypeVar("_Answer")

HISTORY_REVISIONS = 100_000
"""Revisions kept for watches; the older half is compacted when there are more, so that memory stays bounded."""
BATCH_REVISIONS = 1_000
"""Revisions a watch hands over at once when it catches up; etcd uses the same number."""


@dataclass(slots=True)
class Faults:
    """What is broken. Each switch works at once and until it is switched off."""

    unavailable: bool = False
    """Calls fail with StoreUnavailable, watches stand still."""
    lose_requests: bool = False
    """Writes time out and were not applied."""
    lose_answers: bool = False
    """Writes time out and were applied."""
    hold_watches: bool = False
    """Watches stand still, everything else works: a router that lags behind."""


@dataclass(slots=True)
class _Lease:
    ttl_s: float
    ends_at: float
    keys: set[str] = field(default_factory=set)


class MemoryEtcd:
    """The server: keys with revisions, leases on `clock`, a history to watch.

    Leases expire when any call arrives, or in `tick()`: nothing happens by itself.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, cluster_id: int = 1) -> None:
        """Start empty at revision 1, as etcd does."""
        self.faults = Faults()
        self.cluster_id = cluster_id
        self.log_lead = 0
        """By how much its log is ahead of its revision."""
        self._clock = clock
        self._lock = threading.RLock()
        self._revision = 1
        self._compacted = 0
        self._keys: dict[str, Stored] = {}
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0
        self._history: list[tuple[WatchEvent, ...]] = []
        """One entry per revision; the last entry is that of `_revision`."""
        self._watchers: list[_Watcher] = []

    def client(self) -> MemoryStore:
        """A new client with faults of its own."""
        return MemoryStore(self)

    def tick(self) -> None:
        """Let leases expire that are due."""
        with self._lock:
            self._expire()

    def wake_watches(self) -> None:
        """Make watches look again; call it after switching off `hold_watches` or `unavailable`."""
        with self._lock:
            for watcher in self._watchers:
                watcher.wake()

    def compact(self, revision: int) -> None:
        """Forget the events up to `revision`."""
        with self._lock:
            if not self._compacted < revision <= self._revision:
                raise StoreRejected(f"cannot compact at {revision}: compacted {self._compacted}, now {self._revision}")
            self._compacted = revision
            del self._history[: len(self._history) - (self._revision - revision)]
            self.wake_watches()

    def log_progress(self) -> LogProgress:
        """See `Store.log_progress`."""
        with self._lock:
            return LogProgress(self._revision + self.log_lead, self._revision)

    def grant(self, ttl_s: int) -> int:
        """See `Store.grant_lease`."""
        with self._lock:
            self._expire()
            if ttl_s < 1:
                raise StoreRejected(f"a lease of {ttl_s} s is too short: at least 1 s")
            self._last_lease += 1
            self._leases[self._last_lease] = _Lease(ttl_s, self._clock() + ttl_s)
            return self._last_lease

    def keep_alive(self, lease_id: int) -> float:
        """See `Store.keep_alive`."""
        with self._lock:
            self._expire()
            lease = self._lease(lease_id)
            lease.ends_at = self._clock() + lease.ttl_s
            return lease.ttl_s

    def revoke(self, lease_id: int) -> None:
        """See `Store.revoke`."""
        with self._lock:
            self._expire()
            if lease_id in self._leases:
                self._end_lease(lease_id)

    def get(self, key: str) -> Stored | None:
        """See `Store.get`."""
        with self._lock:
            self._expire()
            return self._keys.get(key)

    def snapshot(self, prefix: str) -> tuple[int, list[Stored]]:
        """See `Store.snapshot`."""
        with self._lock:
            self._expire()
            return self._revision, [self._keys[key] for key in sorted(self._keys) if key.startswith(prefix)]

    def compare_and_put(
        self, key: str, value: bytes, expect: int | None, lease_id: int, beside: Beside | None = None
    ) -> PutResult:
        """See `Store.compare_and_put`."""
        with self._lock:
            self._expire()
            old = self._keys.get(key)
            if expect is not None and expect != (0 if old is None else old.mod_revision):
                return PutResult(False, self._revision)
            events = []
            if beside is not None:
                there = self._keys.get(beside.key)
                if beside.expect_create_revision != (0 if there is None else there.create_revision):
                    return PutResult(False, self._revision)
                events.append(self._put(beside.key, beside.value, 0))
            if lease_id:
                self._lease(lease_id).keys.add(key)
            if old is not None and old.lease != lease_id:
                self._take_from_lease(old)
            events.append(self._put(key, value, lease_id))
            self._append(tuple(events))
            return PutResult(True, self._revision)

    def _put(self, key: str, value: bytes, lease_id: int) -> WatchEvent:
        """Write a key at the next revision; the caller appends the event."""
        revision, old = self._revision + 1, self._keys.get(key)
        created = revision if old is None else old.create_revision
        self._keys[key] = Stored(key, value, created, revision, lease_id)
        return WatchEvent(EventKind.PUT, key, value, created, revision)

    def compare_and_delete(self, key: str, expect: int) -> PutResult:
        """See `Store.compare_and_delete`."""
        with self._lock:
            self._expire()
            old = self._keys.get(key)
            if old is None or old.mod_revision != expect:
                return PutResult(False, self._revision)
            self._delete([key])
            return PutResult(True, self._revision)

    def get_each(self, keys: Sequence[str]) -> list[Stored | None]:
        """See `Store.get_each`."""
        with self._lock:
            return [self.get(key) for key in keys]

    def write_each(self, writes: Sequence[Write]) -> list[bool]:
        """See `Store.write_each`."""
        with self._lock:
            self._expire()
            if len({write.key for write in writes}) < len(writes):
                raise StoreRejected("duplicate key given in txn request")
            held = [self._keys.get(write.key) for write in writes]
            done = [
                write.expect_mod_revision == (0 if old is None else old.mod_revision)
                for write, old in zip(writes, held, strict=True)
            ]
            events = [self._carry_out(write) for write, is_done in zip(writes, done, strict=True) if is_done]
            if events:
                self._append(tuple(events))
            return done

    def _carry_out(self, write: Write) -> WatchEvent:
        if write.value is None:
            return self._take_out(write.key)
        old = self._keys.get(write.key)
        if old is not None:
            self._take_from_lease(old)
        return self._put(write.key, write.value, 0)

    def events(self, prefix: str, from_revision: int) -> WatchBatch | int:
        """Events under `prefix` from that revision on, or, if there are none, the revision to go on from."""
        with self._lock:
            self._expire()
            if from_revision <= self._compacted:
                raise CompactedError(self._compacted)
            first_kept = self._revision - len(self._history) + 1
            start = max(from_revision - first_kept, 0)
            found: list[WatchEvent] = []
            for events in self._history[start : start + BATCH_REVISIONS]:
                found.extend(event for event in events if event.key.startswith(prefix))
            if found:
                return WatchBatch(found[-1].mod_revision, tuple(found))
            return max(from_revision, min(self._revision + 1, first_kept + start + BATCH_REVISIONS))

    def has_history_from(self, revision: int) -> bool:
        """True while there are revisions from that one on which a watch has not looked at."""
        with self._lock:
            return revision <= self._revision

    def add_watcher(self, watcher: _Watcher) -> None:
        """Wake this watcher at each write."""
        with self._lock:
            self._watchers.append(watcher)

    def remove_watcher(self, watcher: _Watcher) -> None:
        """Stop waking it."""
        with self._lock:
            self._watchers.remove(watcher)

    def _lease(self, lease_id: int) -> _Lease:
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseLost(lease_id)
        return lease

    def _expire(self) -> None:
        now = self._clock()
        due = sorted((lease.ends_at, lease_id) for lease_id, lease in self._leases.items() if lease.ends_at <= now)
        for _, lease_id in due:
            self._end_lease(lease_id)

    def _end_lease(self, lease_id: int) -> None:
        self._delete(sorted(self._leases.pop(lease_id).keys))

    def _delete(self, keys: list[str]) -> None:
        if not keys:
            return
        self._append(tuple(self._take_out(key) for key in keys))

    def _take_out(self, key: str) -> WatchEvent:
        """Delete a key at the next revision; the caller appends the event."""
        self._take_from_lease(self._keys.pop(key))
        return WatchEvent(EventKind.DELETE, key, b"", 0, self._revision + 1)

    def _take_from_lease(self, stored: Stored) -> None:
        if stored.lease in self._leases:
            self._leases[stored.lease].keys.discard(stored.key)

    def _append(self, events: tuple[WatchEvent, ...]) -> None:
        self._revision += 1
        self._history.append(events)
        if len(self._history) > HISTORY_REVISIONS:
            self._compacted = self._revision - HISTORY_REVISIONS // 2
            del self._history[: -(HISTORY_REVISIONS // 2)]
        for watcher in self._watchers:
            watcher.wake()


class _Watcher:
    """One running watch: an event of the loop it runs in, set from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self) -> None:
        await self._changed.wait()
        self._changed.clear()


class MemoryStore:
    """A client of a `MemoryEtcd`; implements `topology.etcd.store.Store`."""

    def __init__(self, etcd: MemoryEtcd) -> None:
        """Talk to `etcd`; `faults` are this client's own."""
        self.faults = Faults()
        self._etcd = etcd
        self._closed = False

    async def cluster_id(self) -> int:
        """See `Store`."""
        self._check_available()
        return self._etcd.cluster_id

    async def log_progress(self) -> LogProgress | None:
        """See `Store`."""
        self._check_available()
        return self._etcd.log_progress()

    async def grant_lease(self, ttl_s: int) -> int:
        """See `Store`."""
        return self._write(lambda: self._etcd.grant(ttl_s))

    async def keep_alive(self, lease_id: int) -> float:
        """See `Store`."""
        self._check_available()
        return self._etcd.keep_alive(lease_id)

    async def revoke(self, lease_id: int) -> None:
        """See `Store`."""
        self._write(lambda: self._etcd.revoke(lease_id))

    async def get(self, key: str) -> Stored | None:
        """See `Store`."""
        self._check_available()
        return self._etcd.get(key)

    async def get_each(self, keys: Sequence[str]) -> list[Stored | None]:
        """See `Store`."""
        self._check_available()
        return self._etcd.get_each(keys)

    async def snapshot(self, prefix: str) -> tuple[int, list[Stored]]:
        """See `Store`."""
        self._check_available()
        return self._etcd.snapshot(prefix)

    async def compare_and_put(
        self, key: str, value: bytes, expect_mod_revision: int | None, lease_id: int = 0, beside: Beside | None = None
    ) -> PutResult:
        """See `Store`."""
        return self._write(lambda: self._etcd.compare_and_put(key, value, expect_mod_revision, lease_id, beside))

    async def compare_and_delete(self, key: str, expect_mod_revision: int) -> PutResult:
        """See `Store`."""
        return self._write(lambda: self._etcd.compare_and_delete(key, expect_mod_revision))

    async def write_each(self, writes: Sequence[Write]) -> list[bool]:
        """See `Store`."""
        return self._write(lambda: self._etcd.write_each(writes))

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """See `Store`."""
        watcher = _Watcher()
        self._etcd.add_watcher(watcher)
        next_revision = from_revision
        try:
            while not self._closed:
                if self._watch_stands_still() or not self._etcd.has_history_from(next_revision):
                    await watcher.wait()
                    continue
                found = self._etcd.events(prefix, next_revision)
                if isinstance(found, WatchBatch):
                    next_revision = found.revision + 1
                    yield found
                else:
                    next_revision = found
        finally:
            self._etcd.remove_watcher(watcher)

    async def close(self) -> None:
        """See `Store`."""
        self._closed = True
        self._etcd.wake_watches()

    def _watch_stands_still(self) -> bool:
        faults = (self.faults, self._etcd.faults)
        return any(f.unavailable or f.hold_watches for f in faults)

    def _check_available(self) -> None:
        if self._closed:
            raise StoreUnavailable("this client of the in-memory store is closed")
        if self.faults.unavailable or self._etcd.faults.unavailable:
            raise StoreUnavailable("the in-memory store is switched off (injected fault)")

    def _write(self, apply: Callable[[], _Answer]) -> _Answer:
        self._check_available()
        if self.faults.lose_requests or self._etcd.faults.lose_requests:
            raise StoreTimeout("no answer from the in-memory store (injected fault)")
        answer = apply()
        if self.faults.lose_answers or self._etcd.faults.lose_answers:
            raise StoreTimeout("no answer from the in-memory store (injected fault)")
        return answer
