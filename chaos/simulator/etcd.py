"""A simulated etcd: linearizable, with revisions; each router sees a prefix of the log, arbitrarily late (N-2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from delivery_records.model.effects import Propose, SharedPut
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
from topology.keys.epochs import last_epoch_of

EpochOf: TypeAlias = Callable[[int, int], int]
"""Of a revision and an ordinal: `topology.keys.epochs.epoch_of`, or one with a rule edited out."""


@dataclass(frozen=True, slots=True)
class Held:
    """A key's value and revisions."""

    record: Record
    create_revision: int
    mod_revision: int


LEASE_TTL_S = 10.0
"""Time to live of a router's lease: what routers ask for (`topology.members.membership`)."""


class SimEtcd:
    """The event log and its fold. Change n is `log[n - 1]`; what a watch has seen is counted in changes.

    Each change has a number that names it, its epoch. It is its place in the log, or, where several writes of a
    transaction have one revision (A-2e), what is made of revision and ordinal.
    """

    def __init__(self, epoch_of: EpochOf | None = None) -> None:
        """Empty.

        Args:
            epoch_of: makes epochs of revisions and ordinals; None: each write has a revision of its own.
        """
        self._epoch_of = epoch_of
        self._revisions: list[int] = []
        """Of each change, with `epoch_of`."""
        self._writing = 0
        """The revision of the transaction that is being carried out, with `epoch_of`."""
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
        """Changes whose next one is of the same transaction: whoever sees one sees both (K-7)."""
        self.is_up = True
        self.compacted = 0
        """A watch cannot begin behind so many changes: K-4."""
        self.leases: dict[int, float] = {}
        """Router incarnation -> when its lease ends; only in worlds with leases."""

    @property
    def revision(self) -> int:
        """How many changes there were."""
        return len(self.log)

    @property
    def applied(self) -> int:
        """How far a view is that has applied all of them."""
        return self.applied_at(len(self.log))

    def applied_at(self, seen: int) -> int:
        """How far a view is that has applied the first `seen` changes: no later epoch is of their revisions."""
        return seen if self._epoch_of is None or not seen else last_epoch_of(self._revisions[seen - 1])

    @property
    def next_epoch(self) -> int:
        """Of what is written next, alone."""
        return len(self.log) + 1 if self._epoch_of is None else self._epoch_of(self._next_revision(), 0)

    def _next_revision(self) -> int:
        return self._revisions[-1] + 1 if self._revisions else 1

    def _begin(self) -> None:
        """What is written until the next one is one transaction."""
        self._writing = self._next_revision()

    def _new_epoch(self, ordinal: int) -> int:
        if self._epoch_of is None:
            return len(self.log) + 1
        self._revisions.append(self._writing)
        return self._epoch_of(self._writing, ordinal)

    def put(self, kind: Kind, key: str, record: Record) -> int:
        """Write unconditionally; returns the epoch."""
        self._begin()
        return self._put(kind, key, record)

    def _put(self, kind: Kind, key: str, record: Record, ordinal: int = 0) -> int:
        held = self.keys.get((kind, key))
        revision = self._new_epoch(ordinal)
        first = revision if self._epoch_of is None else self._epoch_of(self._writing, 0)
        created = first if held is None else held.create_revision
        if held is None:
            self.created.setdefault((kind, key), set()).add(created)
        self.keys[(kind, key)] = Held(record, created, revision)
        if isinstance(record, RouterRecord):
            self.routers[record.rid] = None
        self.log.append(Change(kind, key, record, created, revision))
        self.on_written(kind, key, record)
        return revision

    def delete(self, kind: Kind, key: str) -> None:
        """Delete a key that exists."""
        self._begin()
        self._delete(kind, key)

    def _delete(self, kind: Kind, key: str) -> None:
        held = self.keys.pop((kind, key))
        if isinstance(held.record, RouterRecord):
            self.routers.pop(held.record.rid, None)
        self.log.append(Change(kind, key, None, held.create_revision, self._new_epoch(0)))
        self.on_deleted(key, held)

    def compare_and_swap(self, path: str, expect: int, record: Record | None, shared: SharedPut | None = None) -> bool:
        """Put or delete if the key's mod revision is `expect` (0: absent).

        With `shared`, put that before it, if its create revision is as it says: two changes of one transaction.
        """
        if not self._holds(path, expect):
            return False
        self._begin()
        if shared is not None:
            of_shared = split_path(shared.key)
            there = self.keys.get(of_shared)
            if (0 if there is None else there.create_revision) != shared.created:
                return False
            self._put(*of_shared, shared.record)
            self.joined.add(len(self.log))
        self._carry_out(path, record)
        return True

    def write_each(self, writes: Sequence[Propose]) -> list[bool]:
        """A-2e: each of one transaction is carried out if its own compare holds; no key stands twice among them."""
        done = [self._holds(write.key, write.expect) for write in writes]
        self._begin()
        before = len(self.log)
        for ordinal, (write, holds) in enumerate(zip(writes, done, strict=True)):
            if holds:
                self._carry_out(write.key, write.record, ordinal)
        self.joined |= set(range(before + 1, len(self.log)))
        return done

    def _holds(self, path: str, expect: int) -> bool:
        held = self.keys.get(split_path(path))
        return (0 if held is None else held.mod_revision) == expect

    def _carry_out(self, path: str, record: Record | None, ordinal: int = 0) -> None:
        kind, key = split_path(path)
        if record is not None:
            self._put(kind, key, record, ordinal)
        elif (kind, key) in self.keys:
            self._delete(kind, key)

    def read(self, nonce: str, path: str) -> ReadDone:
        """A linearizable read, as the record core wants it answered."""
        held = self.keys.get(split_path(path))
        if held is None:
            return ReadDone(nonce, None)
        assert isinstance(held.record, (PublisherRecord, SubscriptionRecord))
        return ReadDone(nonce, held.record, held.create_revision, held.mod_revision)

    def snapshot(self) -> tuple[int, list[Change]]:
        """All keys, and how many changes made them."""
        entries = [
            Change(kind, key, held.record, held.create_revision, held.mod_revision)
            for (kind, key), held in self.keys.items()
        ]
        return self.revision, entries

    def changes(self, seen: int, count: int) -> list[Change]:
        """What a watch that has delivered `seen` changes delivers next: `count`, and what belongs to those."""
        return self.log[seen : self._whole(min(seen + count, self.revision))]

    def _whole(self, count: int) -> int:
        """So many changes, and those of the transaction that the last one is of."""
        while count in self.joined:
            count += 1
        return count

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
        """Go back to the first changes, as from a backup: later epochs will be given a second time."""
        kept = self._whole(revision)
        del self.log[kept:], self._revisions[kept:]
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
