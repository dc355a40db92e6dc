"""What Oncewire needs of etcd, as one small interface with typed errors (rules K-1 to K-7).

Three stores implement it: `GatewayStore` (a real etcd over its JSON gateway), `Etcd3Store` (a real etcd over gRPC) and
`MemoryStore` (one process, nothing kept). One conformance suite runs against all of them. Keys are text, values are
bytes, revisions are etcd's: every write increases the one revision of the whole store, so revisions order all
attachments of the cluster.

The contract has four parts. Reads are linearizable: an attach that reads its key sees every write that was answered
before (A-2b). A write compares the key's revision, and one further key may be bound to it in the same transaction
(SH-1). A write has three ends, and callers must distinguish them:
carried out, refused without effect (a failed compare, `StoreUnavailable`, `StoreRejected` and others), or unknown
(`StoreTimeout`). A store never repeats a write of unknown fate by itself, for it may still be carried out. Only the
watch shows what became of it, by the nonce in the value (K-2a).

The watch delivers each event once, in the order of revisions, and only whole revisions: who has been given a batch
knows all writes up to its revision (K-7). It outlasts lost connections and changes of the member, without gaps and
repeats. Where it cannot, it raises: `CompactedError` where events are missing but the history is the same (K-4),
`StoreReplaced` where another history answers (K-9). It never continues over a gap in silence.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

PREFIX = "/topics/v1/"
"""All keys of one Oncewire network."""
MAX_WRITES = 64
"""In one transaction. etcd takes 128 operations (`--max-txn-ops`), and less by these in each of them."""
MAX_WRITE_BYTES = 512 * 1024
"""Of keys and values in one transaction; etcd takes requests of 1.5 MiB (`--max-request-bytes`)."""
UNCONDITIONAL = None
"""`expect_mod_revision` of a put that does not care what is there."""
ABSENT = 0
"""`expect_mod_revision` of a put that must create the key."""


RESTORED_ADVICE = (
    "its data was restored from an older backup. Stop all routers, run `oncewire cluster new-nonce`, start them"
)
"""K-9: what an operator has to do when revisions went back."""
EMPTIED_ADVICE = (
    "its data was lost, or this is another etcd. Stop all routers, run `oncewire cluster new-nonce` to begin anew with "
    "what is there, start them"
)
"""K-9: what an operator has to do when what was there is not."""


class StoreError(Exception):
    """Something went wrong between this router and its store. The text says what, why and what to do."""


class StoreUnavailable(StoreError):
    """The store could not be reached or refused for now: definitely not applied, may be tried again."""


class StoreFull(StoreUnavailable):
    """The store takes no writes, for its database has reached its quota: an operator has to make room."""


class StoreUntrusted(StoreUnavailable):
    """No member could be reached, for TLS cannot be agreed: a certificate is refused. Trying again does not help."""


class StoreTimeout(StoreError):
    """No answer to a write that was sent: it may or may not have been applied. Read or watch to learn which (K-2a)."""


class CompactedError(StoreError):
    """Events since the asked revision are no longer kept: load a snapshot and watch from there (K-4)."""

    def __init__(self, compacted_revision: int) -> None:
        """Keep the revision up to which history is gone."""
        super().__init__(f"the store no longer keeps events up to revision {compacted_revision}")
        self.compacted_revision = compacted_revision


class LeaseLost(StoreError):
    """The lease does not exist: it expired or was revoked, and its keys are deleted."""

    def __init__(self, lease_id: int) -> None:
        """Keep the lease's id."""
        super().__init__(f"lease {lease_id:x} has expired or was revoked")
        self.lease_id = lease_id


class StoreAuthError(StoreError):
    """The store does not accept this user, password or permission. Trying again does not help."""


class StoreRejected(StoreError):
    """The store refused a request as wrong: definitely not applied, and trying again does not help."""


class StoreReplaced(StoreError):
    """Another cluster answers, or its revisions went back: every router must start anew (K-9)."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A key as the store holds it."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int
    """Id of the lease the key dies with; 0: none."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A second key that a compare-and-put writes in the same transaction, before the other one, at one revision."""

    key: str
    value: bytes
    expect_create_revision: int
    """`ABSENT`: no such key. Whoever wrote it again meanwhile does not matter."""


@dataclass(frozen=True, slots=True)
class Write:
    """One of the writes that go together in a transaction; it is carried out if its own compare holds."""

    key: str
    value: bytes | None
    """None: delete the key."""
    expect_mod_revision: int
    """`ABSENT`: no such key; to delete, at least 1."""


@dataclass(frozen=True, slots=True)
class PutResult:
    """Answer to a compare-and-put or compare-and-delete."""

    succeeded: bool
    """False: the compare failed, nothing was written."""
    revision: int
    """The store's revision: of this write if it succeeded."""


class EventKind(Enum):
    """What happened to a key."""

    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One key was written or deleted. For a deletion `value` is empty and `create_revision` 0."""

    kind: EventKind
    key: str
    value: bytes
    create_revision: int
    mod_revision: int


@dataclass(frozen=True, slots=True)
class LogProgress:
    """How far one member of the store has come. A history that goes on gains entries at least as fast as revisions."""

    index: int
    """Entries of its log, read after the revision."""
    revision: int

    @property
    def lead(self) -> int:
        """By how much the log is ahead."""
        return self.index - self.revision


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """All watched events of one or several whole revisions, in order (K-7)."""

    revision: int
    """Of the last event."""
    events: tuple[WatchEvent, ...]


class ClusterStore(Protocol):
    """A client of the store. All methods may raise `StoreUnavailable` and `StoreAuthError`; writes also `StoreTimeout`.

    A client belongs to the event loop it is first used in.
    """

    async def cluster_id(self) -> int:
        """Which cluster answers. Two stores with one history have one id."""
        ...

    async def log_progress(self) -> LogProgress | None:
        """How far the log of one member and its revisions are (K-9). None: the store does not report it."""
        ...

    async def grant_lease(self, ttl_s: int) -> int:
        """Take a lease that ends `ttl_s` seconds after its last keep-alive. Returns its id, never given twice."""
        ...

    async def keep_alive(self, lease_id: int) -> float:
        """Prolong the lease. Returns its time to live in seconds from when the store handled this.

        Raises:
            LeaseLost: it is gone, and so are its keys.
        """
        ...

    async def revoke(self, lease_id: int) -> None:
        """End the lease and delete its keys, in one revision. A lease that is gone already is not an error."""
        ...

    async def get(self, key: str) -> Stored | None:
        """Read one key linearizably: the answer holds every write that was answered before this call."""
        ...

    async def get_each(self, keys: Sequence[str]) -> list[Stored | None]:
        """Read these keys, `MAX_WRITES` at most, in one transaction; as `get`, in their order."""
        ...

    async def snapshot(self, prefix: str) -> tuple[int, list[Stored]]:
        """Read all keys under `prefix` at one revision, linearizably. Returns (revision, keys in key order)."""
        ...

    async def compare_and_put(
        self, key: str, value: bytes, expect_mod_revision: int | None, lease_id: int = 0, beside: Beside | None = None
    ) -> PutResult:
        """Write the key if its mod revision is the expected one (`ABSENT`: no such key; `UNCONDITIONAL`: anyway).

        With `beside` (and a mod revision to expect) that key is written, too: both are, or neither is.

        Raises:
            LeaseLost: `lease_id` does not exist; nothing was written.
            StoreTimeout: unknown whether it was written.
        """
        ...

    async def compare_and_delete(self, key: str, expect_mod_revision: int) -> PutResult:
        """Delete the key if its mod revision is the expected one. An absent key is a failed compare.

        Raises:
            StoreTimeout: unknown whether it was deleted.
        """
        ...

    async def write_each(self, writes: Sequence[Write]) -> list[bool]:
        """Write in one transaction each whose own compare holds; the answer says which did, in their order.

        All that are written have one revision, and their events come in their order. No key stands twice among them,
        and there are `MAX_WRITES` at most, of `MAX_WRITE_BYTES`.

        Raises:
            StoreRejected: nothing was written. Each alone may be accepted: etcd may have smaller limits.
            StoreTimeout: unknown of each whether it was written.
        """
        ...

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """All events under `prefix` from `from_revision` (at least 1) on, each once, in order, whole revisions.

        An outage delays it and never ends it: whoever must act on an outage looks at its lease. Close the generator
        (`contextlib.aclosing`) when done.

        Raises:
            CompactedError: `from_revision` is not above the compacted revision; take a snapshot.
            StoreReplaced: the history being watched is gone.
        """
        ...

    async def close(self) -> None:
        """Drop connections and end watches. Leases are left as they are."""
        ...
