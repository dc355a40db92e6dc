"""A simulated router process: its record core, its clock, its lease and what etcd has for it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from delivery_records.model import inputs
from delivery_records.model.view import RouterRecord, router_key
from delivery_records.records import Records
from topology.members.history_core import SeenHistory
from topology.members.lease_clock import LeaseClock


@dataclass(slots=True)
class Router:
    """One router process; `records` is None while it is down or fenced."""

    index: int
    rid: int = 0
    records: Records | None = None
    seen: int = 0
    """Revisions of the etcd log its watch has delivered."""
    skipped: int = 0
    """Changes up to this revision may have been skipped by a snapshot (K-4)."""
    is_isolated: bool = False
    """Cut off from etcd; its lease runs out after it fenced itself (N-3)."""
    replies: deque[inputs.Input] = field(default_factory=deque)
    rate: float = 1.0
    """Seconds of its clock in a second of etcd's (N-3)."""
    lease: LeaseClock | None = None
    """Only in worlds with leases."""
    stalled_until: float = 0.0
    """Until then it does nothing at all, and its timers are late (K-3a)."""
    is_frozen: bool = False
    """The stall is the whole process's, so that the thread that keeps the lease alive is stalled, too."""
    drains_until: float | None = None
    """K-8a: what its clock shows at the limit of its drain; None while it serves."""
    must_reload: bool = False
    """Its watch was cancelled: only a snapshot helps (K-4)."""
    history: SeenHistory = field(default_factory=SeenHistory)
    """What it remembers of etcd, also over restarts (K-9)."""
    _clock: float = 0.0

    def saw(self, nonce: bytes, revision: int) -> None:
        """Its watch, or a snapshot, has come to this revision."""
        self.seen = revision
        self.history.note(nonce, revision, None)

    def clock(self, now: float) -> float:
        """This router's clock at `now`; it never goes back."""
        self._clock = max(self._clock, now * self.rate)
        return self._clock

    def when(self, reading: float) -> float:
        """The moment its clock shows `reading`."""
        return reading / self.rate

    def wake(self, reading: float) -> None:
        """Its clock shows at least `reading`: floating point must not hold a due timer back."""
        self._clock = max(self._clock, reading)

    def is_stalled(self, now: float) -> bool:
        """True while it does nothing."""
        return now < self.stalled_until

    def next_deadline(self) -> float | None:
        """When its record core wants to be called; later if it is stalled then."""
        if self.records is None:
            return None
        deadline = self.records.next_deadline()
        return None if deadline is None else max(self.when(deadline), self.stalled_until)


def record_of(router: Router, *, leaving: bool = False) -> RouterRecord:
    """What the router's key says."""
    draining = router.drains_until is not None
    return RouterRecord(f"r{router.index}", router.rid, leaving=leaving, draining=draining)


def key_of(router: Router) -> str:
    """The last part of the router's key."""
    return router_key(record_of(router))
