"""This router as a member of the network: its lease, its key, what the watch reports (rules K-1 to K-4, K-7, K-8).

One `Membership` is one incarnation. It ends when `follow` returns, with the reason; the owner then closes everything,
forgets everything, and joins anew.

The order of the start is the safety argument: lease, key, snapshot, watch, clients (K-1). The snapshot is read after
the put of the key. So the view is never older than the key: a subscription that others confirmed without asking this
router was confirmed before its key was there, and the snapshot has it.

The lease is kept by a thread with its own loop and its own client of the store: a short stall of this loop must not
cost the lease, nor a slow watch delay a keep-alive. The thread only moves the deadline of `LeaseClock`; `vet` asks that
deadline on this loop, and its first *no* is final. The deadline lies two thirds of the TTL after the last answered
keep-alive was sent, so the router stops before etcd deletes its key (K-3). Where the system has such a clock, it also
runs while the machine is suspended.

`follow` runs two tasks: one puts the key, loads snapshots and hands on the batches of the watch, the other watches the
deadline. Whichever ends first decides the reason. A compacted watch is no reason: the next snapshot covers the gap
(K-4). The deletion of its own key, another nonce, an older history, a mark that data were lost, and a store that
refuses this router each end the incarnation (K-3, K-9). An outage of etcd ends it by the deadline alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from delivery_records.model.inputs import StoreHealth, ViewChanges, ViewSnapshot
from delivery_records.model.view import RouterRecord
from topology.etcd.store import (
    PREFIX,
    UNCONDITIONAL,
    ClusterStore,
    CompactedError,
    EventKind,
    LeaseLost,
    Stored,
    StoreError,
    StoreRejected,
    StoreReplaced,
    StoreTimeout,
    StoreUnavailable,
    WatchBatch,
    WatchEvent,
)
from topology.keys.attachments import (
    CLUSTER_KEY,
    LOST_KEY,
    ClusterLife,
    MalformedValue,
    change_of_event,
    change_of_stored,
    decode_life,
    readable_changes,
    router_store_key,
    why_marked,
)
from topology.keys.epochs import last_epoch_of
from topology.keys.router_secrets import RouterSecrets
from topology.members.history import join_life
from topology.members.history_core import SeenHistory
from topology.members.keep_alive import KeepAliveThread
from topology.members.lease_clock import LeaseClock

LEASE_TTL_S = 10
"""Survives an etcd election and lost keep-alives; a dead router holds confirmations up for so long (A-6)."""
KEEP_ALIVE_S = 1.0
"""Between two keep-alives, at most."""
KEEP_ALIVES_PER_TTL = 8
"""At least, so that several may fail before the fence deadline also with a short lease."""
RETRY_S = 0.1
"""Between two attempts at a call the store could not answer; the fence deadline ends them."""
PULSE_S = 1.0
"""At least so often the keep-alive thread hears that this loop runs."""
REVOKE_TIMEOUT_S = 1.0
"""For ending the lease of an incarnation that is over: that only spares others the rest of its time."""

MembershipInput: TypeAlias = StoreHealth | ViewSnapshot | ViewChanges
_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class FenceReason(Enum):
    """Why this incarnation must stop at once (K-3). The value is the log's word."""

    DEADLINE = "deadline"
    """No keep-alive was answered in time, or the lease is known to be gone."""
    KEY_DELETED = "key_deleted"
    """Its own key is not there any more."""
    CLUSTER_CHANGED = "cluster_changed"
    """Another cluster, an older history, or another nonce: network tags of before mean nothing now."""
    STORE_REFUSED = "store_refused"
    """The store refuses this router for good: login, permission, or not an etcd."""


class _Fenced(Exception):
    def __init__(self, reason: FenceReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


_LEASE_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def lease_time() -> float:
    """Seconds on a clock that also runs while the machine is suspended, as the lease does in the store."""
    return time.monotonic() if _LEASE_CLOCK is None else time.clock_gettime(_LEASE_CLOCK)


class Membership:
    """One incarnation of this router."""

    def __init__(
        self,
        store: ClusterStore,
        open_store: Callable[[], ClusterStore],
        record: RouterRecord,
        life: tuple[ClusterLife, int],
        clock: LeaseClock,
        seen: SeenHistory,
    ) -> None:
        """Use `join`."""
        self.store = store
        """For reads and proposals of this incarnation only: it may not outlive a change of cluster."""
        self.rid = record.rid
        """The lease's id (K-1a)."""
        self.life, self.life_revision = life
        """Nonce and era of the cluster, and the revision they were written at (K-9)."""
        self.is_joined = False
        """Whether the first snapshot has been handed over."""
        self.secrets = RouterSecrets()
        """Of this router and the others (K-1b)."""
        self._record = record
        self._key = router_store_key(record)
        self._clock = clock
        self._seen = seen
        self._has_left = False
        self._is_healthy = True
        self._on_inputs: Callable[[list[MembershipInput]], None] | None = None
        self._keep_alive = KeepAliveThread(open_store, record.rid, clock, lease_time, self._on_health)

    @classmethod
    async def join(
        cls,
        open_store: Callable[[], ClusterStore],
        record: RouterRecord,
        ttl_s: int = LEASE_TTL_S,
        seen: SeenHistory | None = None,
    ) -> Membership:
        """Take a lease and learn the cluster's nonce. Nobody sees this router before `follow`.

        Args:
            open_store: makes a new client of the store; called here and in the keep-alive thread.
            record: what others learn of this router; its `rid` is replaced by the lease's id.
            ttl_s: time to live of the lease, seconds.
            seen: what earlier incarnations of this process saw, and this one adds to.

        Raises:
            StoreReplaced: etcd's data went back, and no new nonce was written since (K-9).
            StoreError: it did not work; nothing is left behind but perhaps a lease that ends by itself.
        """
        store = open_store()
        try:
            seen = seen or SeenHistory()
            life = await join_life(store, seen)
            asked_at = lease_time()
            rid = await store.grant_lease(ttl_s)
        except BaseException:
            await store.close()
            raise
        clock = LeaseClock(ttl_s, min(KEEP_ALIVE_S, ttl_s / KEEP_ALIVES_PER_TTL), asked_at)
        return cls(store, open_store, replace(record, rid=rid), life, clock, seen)

    @property
    def nonce(self) -> bytes:
        """Of the cluster, for network tags."""
        return self.life.nonce

    def vet(self, now: float) -> bool:
        """Whether what was read before `now` (on `time.monotonic`) may be handled; the first False is final (K-3a)."""
        # Both clocks tick alike while the machine is awake; the later one also counts its sleep.
        return self._clock.vet(max(now, lease_time()))

    def lease_left(self) -> float:
        """Seconds until this router fences itself, 0 if it has to now."""
        return max(0.0, self._clock.deadline - lease_time())

    def lease_age(self) -> float:
        """Seconds since the last keep-alive that etcd answered was sent."""
        return self._clock.age(lease_time())

    async def follow(self, on_inputs: Callable[[list[MembershipInput]], None]) -> FenceReason:
        """Put this router's key, then hand over a snapshot and all changes after it, until the incarnation must end.

        Args:
            on_inputs: called in this loop, in order, with the input of the record core.

        Returns:
            Why this router must fence itself now (K-3).
        """
        self._on_inputs = on_inputs
        following = asyncio.create_task(self._follow())
        watching = asyncio.create_task(self._watch_deadline())
        try:
            done, _ = await asyncio.wait((following, watching), return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            self._clock.lose()
            for task in (following, watching):
                task.cancel()
            await asyncio.gather(following, watching, return_exceptions=True)

    async def announce_draining(self) -> None:
        """K-8a: notify the others that nobody is to be sent here any more. Without etcd they are not notified."""
        self._record = replace(self._record, draining=True)
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(REVOKE_TIMEOUT_S):
                await self.store.compare_and_put(self._key, self.secrets.encode(self._record), UNCONDITIONAL, self.rid)

    async def leave(self) -> None:
        """K-8: notify the others that no grace time is needed, and end the lease. What fails here ends by itself."""
        self._has_left = True
        leaving = replace(self._record, leaving=True)
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(REVOKE_TIMEOUT_S):
                await self.store.compare_and_put(self._key, self.secrets.encode(leaving), UNCONDITIONAL, self.rid)
                await self.store.revoke(self.rid)

    async def close(self) -> None:
        """The incarnation is over and everything of it forgotten: end keep-alives, the lease, and connections."""
        self._clock.lose()
        self._on_inputs = None
        await self._keep_alive.stop()
        if not self._has_left:
            # Nothing is accepted under this lease any more; without it nobody has to wait for its end.
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(REVOKE_TIMEOUT_S):
                    await self.store.revoke(self.rid)
        await self.store.close()

    # --- inside

    async def _follow(self) -> FenceReason:
        try:
            # Unconditional: a put of unknown fate is simply repeated, the key is ours alone.
            await self._insist(
                lambda: self.store.compare_and_put(
                    self._key, self.secrets.encode(self._record), UNCONDITIONAL, self.rid
                )
            )
            while True:
                # K-1, K-4: the snapshot is read after the put, so its revision is not older.
                revision = await self._load_snapshot()
                with suppress(CompactedError):
                    await self._follow_watch(revision)
        except _Fenced as fenced:
            return fenced.reason
        except LeaseLost:
            return FenceReason.KEY_DELETED
        except StoreReplaced as error:
            _log.error("this incarnation ends: %s", error, extra={"event": "incarnation_ending"})
            return FenceReason.CLUSTER_CHANGED
        except StoreError as error:
            _log.error("this incarnation ends: %s", error, extra={"event": "incarnation_ending"})
            return FenceReason.STORE_REFUSED

    async def _insist(self, call: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Try until the store answers; the fence deadline ends that from outside."""
        while True:
            try:
                return await call()
            except (StoreUnavailable, StoreTimeout):
                await asyncio.sleep(RETRY_S)

    async def _load_snapshot(self) -> int:
        revision, stored = await self._insist(lambda: self.store.snapshot(PREFIX))
        values = {found.key: found.value for found in stored}
        if self._key not in values:
            raise _Fenced(FenceReason.KEY_DELETED)
        self._check_nonce(values.get(CLUSTER_KEY, b""))
        self._check_marked(values.get(LOST_KEY))
        self._check_lease()
        self._seen.note(self.nonce, revision, _last_put(stored))
        self.secrets.load(stored)
        snapshot = ViewSnapshot(last_epoch_of(revision), readable_changes(change_of_stored, stored))
        if self.is_joined:
            self._hand_over([snapshot])
        else:
            self.is_joined = True
            self._hand_over([StoreHealth(self._is_healthy), snapshot])
        return revision

    async def _follow_watch(self, revision: int) -> None:
        async with aclosing(self.store.watch(PREFIX, revision + 1)) as batches:
            async for batch in batches:
                self._check_own(batch)
                self._check_lease()
                self._seen.note(self.nonce, batch.revision, batch.events[-1])
                self.secrets.apply(batch.events)
                changes = readable_changes(change_of_event, batch.events)
                self._hand_over([ViewChanges(last_epoch_of(batch.revision), changes)])
        raise StoreRejected("the store's client was closed while this router was a member")

    def _check_lease(self) -> None:
        # After a stall the deadline's own timer may be handled later than what the stall left unread.
        if not self.vet(time.monotonic()):
            raise _Fenced(FenceReason.DEADLINE)

    def _check_own(self, batch: WatchBatch) -> None:
        for event in batch.events:
            if event.key == self._key and event.kind is EventKind.DELETE and not self._has_left:
                raise _Fenced(FenceReason.KEY_DELETED)
            if event.key == CLUSTER_KEY:
                self._check_nonce(event.value)
            if event.key == LOST_KEY and event.kind is EventKind.PUT:
                self._check_marked(event.value)

    def _check_nonce(self, value: bytes) -> None:
        with suppress(MalformedValue):
            if decode_life(value) == self.life:
                return
        raise _Fenced(FenceReason.CLUSTER_CHANGED)

    def _check_marked(self, value: bytes | None) -> None:
        """K-9: another router knows of a later past than these data."""
        why = why_marked(value, self.nonce)
        if why:
            raise StoreReplaced(why)

    async def _watch_deadline(self) -> FenceReason:
        while self.vet(time.monotonic()):
            self._keep_alive.pulse()
            await asyncio.sleep(min(self.lease_left(), PULSE_S))
        return FenceReason.DEADLINE

    def _on_health(self, healthy: bool) -> None:
        self._is_healthy = healthy
        if self.is_joined:
            self._hand_over([StoreHealth(healthy)])

    def _hand_over(self, inputs: Sequence[MembershipInput]) -> None:
        if self._on_inputs is not None:
            self._on_inputs(list(inputs))


def _last_put(stored: Sequence[Stored]) -> WatchEvent | None:
    """The latest event of a snapshot, as a watch would report it."""
    last = max(stored, key=lambda held: held.mod_revision, default=None)
    if last is None:
        return None
    return WatchEvent(EventKind.PUT, last.key, last.value, last.create_revision, last.mod_revision)
