"""A simulated etcd: linearizable, with revisions; each router sees a prefix of the log, arbitrarily late (N-2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delivery_records.model.effects import SharedPut
from delivery_records.model.inputs import ReadDone
from delivery_records.model.view import (
    Change,
    Kind,
    PublisherRecord,
    Record,
    RouterRecord,
    SubscriptionRecord,
    router_key,
)


@dataclass(frozen=True, slots=True)
class Held:
    """A key's value and revisions."""

    record: Record
    create_revision: int
    mod_revision: int


LEASE_TTL_S = 10.0
"""Time to live of a router's lease: what routers ask for (`topology.members.membership`)."""


class SimEtcd:
    """The event log and its fold. Revision n is `log[n - 1]`."""

    def __init__(self) -> None:
        """Empty, at revision 0."""
        self.log: list[Change] = []
        self.keys: dict[tuple[Kind, str], Held] = {}
        self.created: dict[tuple[Kind, str], set[int]] = {}
        """Every create revision a key has had."""
        self.on_deleted: Callable[[str, Held], None] = lambda _key, _held: None
        """Hears of every deletion."""
        self.on_written: Callable[[Kind, str, Record], None] = lambda _kind, _key, _record: None
        """Hears of every put."""
        self.routers: dict[int, None] = {}
        """Incarnations that have a key."""
        self.joined: set[int] = set()
        """Revisions whose next one is of the same transaction: whoever sees one sees both (K-7)."""
        self.is_up = True
        self.compacted = 0
        """A watch cannot begin behind this revision: K-4."""
        self.leases: dict[int, float] = {}
        """Router incarnation -> when its lease ends; only in worlds with leases."""

    @property
    def revision(self) -> int:
        """The newest revision."""
        return len(self.log)

    def put(self, kind: Kind, key: str, record: Record) -> int:
        """Write unconditionally; returns the revision."""
        held = self.keys.get((kind, key))
        revision = self.revision + 1
        created = revision if held is None else held.create_revision
        if held is None:
            self.created.setdefault((kind, key), set()).add(revision)
        self.keys[(kind, key)] = Held(record, created, revision)
        if isinstance(record, RouterRecord):
            self.routers[record.rid] = None
        self.log.append(Change(kind, key, record, created, revision))
        self.on_written(kind, key, record)
        return revision

    def delete(self, kind: Kind, key: str) -> None:
        """Delete a key that exists."""
        held = self.keys.pop((kind, key))
        if isinstance(held.record, RouterRecord):
            self.routers.pop(held.record.rid, None)
        self.log.append(Change(kind, key, None, held.create_revision, self.revision + 1))
        self.on_deleted(key, held)

    def compare_and_swap(self, path: str, expect: int, record: Record | None, shared: SharedPut | None = None) -> bool:
        """Put or delete if the key's mod revision is `expect` (0: absent).

        With `shared`, put that before it, if its create revision is as it says: two revisions here that count as one.
        """
        kind, key = split_path(path)
        held = self.keys.get((kind, key))
        if (0 if held is None else held.mod_revision) != expect:
            return False
        if shared is not None:
            of_shared = split_path(shared.key)
            there = self.keys.get(of_shared)
            if (0 if there is None else there.create_revision) != shared.created:
                return False
            self.joined.add(self.put(*of_shared, shared.record))
        if record is not None:
            self.put(kind, key, record)
        elif held is not None:
            self.delete(kind, key)
        return True

    def read(self, nonce: str, path: str) -> ReadDone:
        """A linearizable read, as the record core wants it answered."""
        held = self.keys.get(split_path(path))
        if held is None:
            return ReadDone(nonce, None)
        assert isinstance(held.record, (PublisherRecord, SubscriptionRecord))
        return ReadDone(nonce, held.record, held.create_revision, held.mod_revision)

    def snapshot(self) -> tuple[int, list[Change]]:
        """All keys at the newest revision."""
        entries = [
            Change(kind, key, held.record, held.create_revision, held.mod_revision)
            for (kind, key), held in self.keys.items()
        ]
        return self.revision, entries

    def changes(self, seen: int, count: int) -> list[Change]:
        """What a watch that has delivered `seen` revisions delivers next: `count`, and what belongs to those."""
        stop = min(seen + count, self.revision)
        return self.log[seen : stop + (stop in self.joined)]

    def renew(self, rid: int, now: float) -> bool:
        """A keep-alive; False when the lease is gone."""
        if rid not in self.leases:
            return False
        self.leases[rid] = now + LEASE_TTL_S
        return True

    def come_back(self, now: float) -> None:
        """After an outage every lease that had not ended gets its whole time again."""
        self.is_up = True
        for rid in self.leases:
            self.leases[rid] = now + LEASE_TTL_S

    def restore(self, revision: int) -> None:
        """Go back to an older state, as from a backup: later revisions will be given a second time."""
        del self.log[revision + (revision in self.joined) :]
        self.joined = {joined for joined in self.joined if joined < len(self.log)}
        self.keys = {}
        for change in self.log:
            if change.record is None:
                self.keys.pop((change.kind, change.key), None)
            else:
                held = Held(change.record, change.create_revision, change.mod_revision)
                self.keys[(change.kind, change.key)] = held
        held_records = (held.record for held in self.keys.values())
        self.routers = {record.rid: None for record in held_records if isinstance(record, RouterRecord)}
        self.compacted = 0

    def start_router(self, record: RouterRecord) -> None:
        """K-1: the router's key."""
        self.put(Kind.ROUTER, router_key(record), record)


def split_path(path: str) -> tuple[Kind, str]:
    """`subs/<h>` -> (Kind.SUBSCRIPTION, h)."""
    kind, _, key = path.partition("/")
    return Kind(kind), key
