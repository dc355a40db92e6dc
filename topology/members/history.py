"""Joins a life of etcd's data, or begins one, where these data go on from all that is known of them (K-9)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

from topology.etcd.store import (
    ABSENT,
    PREFIX,
    RESTORED_ADVICE,
    UNCONDITIONAL,
    ClusterStore,
    CompactedError,
    Stored,
    StoreError,
    StoreRejected,
    StoreReplaced,
    StoreTimeout,
    StoreUnavailable,
)
from topology.keys.attachments import (
    CLUSTER_KEY,
    LOST_KEY,
    ClusterLife,
    LostHistory,
    MalformedValue,
    decode_life,
    encode_life,
    encode_lost,
    new_life,
    why_marked,
)
from topology.members.history_core import SeenHistory, digest, why_restored

LAST_EVENT_S = 2.0
"""For etcd to report an event of the past once more; it takes milliseconds."""


async def join_life(store: ClusterStore, seen: SeenHistory) -> tuple[ClusterLife, int]:
    """The life in the store and the revision it was written at; the first router of all begins it.

    Raises:
        StoreReplaced: an operator has to confirm what is there.
        StoreError: the store cannot be asked, or the nonce is unreadable.
    """
    etcd_id = await store.cluster_id()
    while True:
        revision, found = await store.snapshot(CLUSTER_KEY)
        values = {held.key: held for held in found}
        stored = values.get(CLUSTER_KEY)
        if stored is None:
            _refuse(seen.why_strange(None, is_confirmed=False))
            # Whoever wins, and whatever became of this put: the next read shows it.
            life = new_life(etcd_id, await log_lead(store), is_confirmed=False)
            with suppress(StoreTimeout):
                await store.compare_and_put(CLUSTER_KEY, encode_life(life), ABSENT)
            continue
        try:
            life = decode_life(stored.value)
        except MalformedValue as error:
            raise StoreRejected(
                f"the cluster nonce in etcd is unreadable ({error}): stop all routers and run "
                "`oncewire cluster new-nonce`"
            ) from None
        _refuse(seen.why_strange(life.nonce, is_confirmed=life.is_confirmed))
        _refuse(_why_broken(life, etcd_id, values.get(LOST_KEY)))
        lost = seen.why_lost(life.nonce, revision) or await _why_other_past(store, seen, life.nonce)
        lost = lost or await why_from_snapshot(store, life, stored.mod_revision)
        if lost:
            # For all routers, and for good: what shows it here may soon be hidden by new revisions.
            with suppress(StoreError):
                await store.compare_and_put(LOST_KEY, encode_lost(LostHistory(life.nonce, lost)), UNCONDITIONAL)
            raise StoreReplaced(lost)
        return life, stored.mod_revision


async def why_broken(store: ClusterStore, life: ClusterLife, life_revision: int, lost: Stored | None) -> str:
    """What etcd itself shows: why this life cannot go on; empty: nothing. For those who remember nothing."""
    found = _why_broken(life, await store.cluster_id(), lost)
    return found or await why_from_snapshot(store, life, life_revision)


async def why_from_snapshot(store: ClusterStore, life: ClusterLife, life_revision: int) -> str:
    """Whether the data came out of a snapshot since this life began: the log began anew, and revisions did not."""
    progress = None if life.log_lead is None else await store.log_progress()
    if progress is None or progress.revision < life_revision:  # a member that has not come so far says nothing
        return ""
    return why_restored(life.log_lead, progress.lead)


async def log_lead(store: ClusterStore) -> int | None:
    """How far etcd's log is ahead of its revision now, at least; None: it does not report that."""
    progress = await store.log_progress()
    if progress is None:
        return None
    revision, _ = await store.snapshot(CLUSTER_KEY)  # read after the log: that can make the lead smaller only
    return progress.index - revision


def _why_broken(life: ClusterLife, etcd_id: int, lost: Stored | None) -> str:
    marked = why_marked(None if lost is None else lost.value, life.nonce)
    if marked or life.etcd_id in (0, etcd_id):
        return marked
    return f"this is etcd cluster {etcd_id:x}, and its data began in {life.etcd_id:x}: {RESTORED_ADVICE}"


def _refuse(why: str) -> None:
    if why:
        raise StoreReplaced(why)


async def _why_other_past(store: ClusterStore, seen: SeenHistory, nonce: bytes) -> str:
    """A history that was set back may have grown again: then another event stands where the last one was seen.

    Raises:
        StoreUnavailable: that is not known now.
    """
    last = seen.last_event(nonce)
    if last is None:
        return ""
    try:
        async with asyncio.timeout(LAST_EVENT_S), aclosing(store.watch(PREFIX, last.last_revision)) as batches:
            batch = await anext(batches)
    except CompactedError:
        return ""
    except TimeoutError:
        raise StoreUnavailable(
            f"etcd does not report what happened at revision {last.last_revision}: if it stays so, {RESTORED_ADVICE}"
        ) from None
    if any(digest(event) == last.last_digest for event in batch.events):
        return ""
    return f"etcd reports another history up to revision {last.last_revision} than before: {RESTORED_ADVICE}"
