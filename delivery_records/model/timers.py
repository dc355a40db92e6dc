"""Deadlines of the record core: set, cancel, due. Time is always an argument."""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import TypeAlias


class Timer(IntEnum):
    """What a deadline is for."""

    PROOF = 1
    RESEND = 2
    SETTLE = 3
    RETRY = 4
    ATTACH_RETRY = 5
    UNKNOWN_PUT = 6
    EXPIRY = 7
    BARRIER = 8
    GRACE = 9
    STOCK_REPLY = 10
    REDUCTION = 11
    CHANNEL = 12
    PARKED = 13
    PROVISIONAL = 14
    DRAIN = 15
    LIFE = 16
    ROOM = 17
    PATIENCE = 18
    HELD_EXPIRY = 19
    SHARE_EXPIRY = 20
    STREAM = 21
    PARTS = 22
    CREDIT = 23
    ENDING = 24
    MAP_REST = 25
    LETTERS = 26
    PIECES = 27


OF_AN_INGRESS = (
    Timer.PROOF,
    Timer.RESEND,
    Timer.SETTLE,
    Timer.RETRY,
    Timer.SHARE_EXPIRY,
    Timer.STREAM,
    Timer.ENDING,
    Timer.LETTERS,
)
"""Their owner is the key of a publisher here: they end with its records (I-7), and so does a fault with one (K-3b)."""
OF_AN_EGRESS = (
    Timer.STOCK_REPLY,
    Timer.PROVISIONAL,
    Timer.LIFE,
    Timer.REDUCTION,
    Timer.PATIENCE,
    Timer.HELD_EXPIRY,
    Timer.PARTS,
    Timer.CREDIT,
)
"""Likewise of a subscription here."""

Owner: TypeAlias = str | int
_LEFT_BEHIND = 256
"""Entries left behind that are not worth a sweep."""


class Timers:
    """Deadlines by (timer, owner); a later `set` replaces an earlier one."""

    __slots__ = ("_deadlines", "_heap", "_serial")

    def __init__(self) -> None:
        """No deadline yet."""
        self._deadlines: dict[tuple[Timer, Owner], float] = {}
        self._heap: list[tuple[float, int, Timer, Owner]] = []
        self._serial = 0

    def set(self, timer: Timer, owner: Owner, deadline: float) -> None:
        """Let `timer` of `owner` fall due at `deadline` (seconds)."""
        self._deadlines[(timer, owner)] = deadline
        self._serial += 1
        heapq.heappush(self._heap, (deadline, self._serial, timer, owner))
        if len(self._heap) > 2 * len(self._deadlines) + _LEFT_BEHIND:
            self._sweep()

    def _sweep(self) -> None:
        """Take out what was cancelled or set anew: far deadlines would stay for days."""
        kept = {entry[2:]: entry for entry in self._heap if self._deadlines.get(entry[2:]) == entry[0]}
        self._heap = sorted(kept.values(), key=lambda entry: entry[:2])

    def cancel(self, timer: Timer, owner: Owner) -> None:
        """Forget the deadline, if there is one."""
        self._deadlines.pop((timer, owner), None)

    def is_set(self, timer: Timer, owner: Owner) -> bool:
        """True while the deadline is neither due nor cancelled."""
        return (timer, owner) in self._deadlines

    def deadline(self, timer: Timer, owner: Owner) -> float | None:
        """When it falls due, or None when it is not set."""
        return self._deadlines.get((timer, owner))

    @property
    def size(self) -> int:
        """Entries held, those left behind included."""
        return len(self._heap)

    def next_deadline(self) -> float | None:
        """The earliest deadline, or None."""
        while self._heap:
            deadline, _, timer, owner = self._heap[0]
            if self._deadlines.get((timer, owner)) == deadline:
                return deadline
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> list[tuple[Timer, Owner]]:
        """Take out everything whose deadline has come, earliest first."""
        found: list[tuple[Timer, Owner]] = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            _, _, timer, owner = heapq.heappop(self._heap)
            del self._deadlines[(timer, owner)]
            found.append((timer, owner))
        return found
