"""The network as a whole, as etcd holds it: what is there, and a new life after a restore (K-9)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from delivery_records.model.view import Change, Kind, PublisherRecord, RouterRecord, session_of_record
from topology.etcd.store import ABSENT, PREFIX, ClusterStore, StoreTimeout
from topology.keys.attachments import (
    CLUSTER_KEY,
    LOST_KEY,
    ClusterLife,
    MalformedValue,
    change_of_stored,
    decode_life,
    encode_life,
    new_life,
    readable_changes,
)
from topology.keys.epochs import epoch_of
from topology.members.history import log_lead, why_broken

LOOK_S = 0.25
"""Between two looks while router keys of before are to end."""


class RoutersLive(Exception):
    """There are router keys, so routers may be at work."""

    def __init__(self, routers: Mapping[int, RouterRecord]) -> None:
        """Keep which."""
        super().__init__(f"{len(routers)} router keys are in etcd")
        self.routers = routers


class ChangedMeanwhile(Exception):
    """Somebody else wrote the nonce at the same time."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What etcd holds of one network, at one revision."""

    etcd_id: int
    revision: int
    life: ClusterLife | None
    """None: no router was ever here, or the value is unreadable."""
    life_revision: int
    """0: there is no such key."""
    routers: Mapping[int, RouterRecord]
    """By incarnation."""
    subscriptions: int
    publishers: int
    ended_sessions: int
    """Of the publishers: their session is older than the nonce, so it is over."""
    why_restored: str
    """Why these data need a new nonce: they were restored or copied, or lack what a router has seen. Empty: not so."""


async def read_cluster(store: ClusterStore) -> ClusterState:
    """What is there now.

    Raises:
        StoreError: etcd cannot be asked.
    """
    etcd_id = await store.cluster_id()
    revision, stored = await store.snapshot(PREFIX)
    changes = readable_changes(change_of_stored, stored)
    cluster = next((held for held in stored if held.key == CLUSTER_KEY), None)
    life: ClusterLife | None = None
    broken = ""
    if cluster is not None:
        with suppress(MalformedValue):
            life = decode_life(cluster.value)
            lost = next((held for held in stored if held.key == LOST_KEY), None)
            broken = await why_broken(store, life, cluster.mod_revision, lost)
    life_revision = 0 if cluster is None else cluster.mod_revision
    count = Counter(change.kind for change in changes)
    return ClusterState(
        etcd_id=etcd_id,
        revision=revision,
        life=life,
        life_revision=life_revision,
        routers={c.record.rid: c.record for c in changes if isinstance(c.record, RouterRecord)},
        subscriptions=count[Kind.SUBSCRIPTION],
        publishers=count[Kind.PUBLISHER],
        ended_sessions=sum(_has_ended(change, life_revision) for change in changes),
        why_restored=broken,
    )


async def begin_new_life(store: ClusterStore, *, wait_s: float = 0.0, force: bool = False) -> ClusterState:
    """Write a new nonce and era; returns what is there then.

    Args:
        store: of the network.
        wait_s: so long at most, wait for router keys to end: those of a backup do when their leases have.
        force: write it although there are router keys. Their routers see it, end their incarnation and begin anew.

    Raises:
        RoutersLive: there still are router keys. Nothing was written.
        ChangedMeanwhile: somebody else wrote it. Nothing was written.
        StoreError: etcd cannot be asked; after a `StoreTimeout` look at what is there.
    """
    ends_at = time.monotonic() + wait_s
    state = await read_cluster(store)
    while state.routers and not force:
        if time.monotonic() >= ends_at:
            raise RoutersLive(state.routers)
        await asyncio.sleep(LOOK_S)
        state = await read_cluster(store)
    life = new_life(state.etcd_id, await log_lead(store), is_confirmed=True)
    try:
        put = await store.compare_and_put(CLUSTER_KEY, encode_life(life), state.life_revision or ABSENT)
        if not put.succeeded:
            raise ChangedMeanwhile
    except StoreTimeout:
        found = await store.get(CLUSTER_KEY)
        if found is None or found.value != encode_life(life):
            raise
    return await read_cluster(store)


def _has_ended(change: Change, life_revision: int) -> bool:
    if not isinstance(change.record, PublisherRecord):
        return False
    return 0 < session_of_record(change.record, change.mod_revision) < epoch_of(life_revision)
