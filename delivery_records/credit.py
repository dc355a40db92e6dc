"""Credit toward publishers (rule C-1, with its byte side)."""

from __future__ import annotations

from delivery_records.budget import Budget
from delivery_records.limits import FIRST_CREDIT, KIB, Limits
from delivery_records.window import Window

_MEAN_WEIGHT = 16
"""The mean size follows the last 16 messages or so."""


class PublisherCredit:
    """How many deliveries a publisher may send in all on this attach."""

    __slots__ = ("_budget", "_limits", "_map_bound", "_mean_bytes", "limit", "received", "session_told")

    def __init__(self, limits: Limits, map_bound: int, budget: Budget) -> None:
        """Nothing is granted yet. `map_bound` is how many entries fit the client's frame; 0 = unknown."""
        self._limits = limits
        self._budget = budget
        self._map_bound = map_bound
        self._mean_bytes = float(KIB)
        self.received = 0
        """Deliveries counted on this attach: first transfers, also aborted, pre-settled and ignored ones."""
        self.limit = 0
        self.session_told = False

    def next_limit(self, window: Window, map_share: int) -> int | None:
        """The new total to grant, or None while the outstanding credit is enough.

        I-3c and K-8a alone withdraw credit; a grant waits until it is worth a frame. C-4: the publishers' windows
        must together fit the smallest map of the topic's subscriptions, `map_share` is this one's (0: no bound).
        """
        size = min(self._limits.window, map_share) if map_share else self._limits.window
        if self._map_bound:
            size = max(1, min(size, self._map_bound))
        elif self.received < FIRST_CREDIT // 2:
            size = min(size, FIRST_CREDIT)
        wanted = window.unreceived + max(0, min(size - len(window), self._room(window)))
        outstanding = self.limit - self.received
        if wanted - outstanding >= max(1, size // 4) or (outstanding <= 0 and wanted > 0):
            self.limit = self.received + wanted
            return self.limit
        return None

    def _room(self, window: Window) -> int:
        """Deliveries of the mean size that still fit the bytes; a window without bodies always takes one."""
        received = len(window) - window.unreceived
        if received:
            mean = window.body_bytes / received
            self._mean_bytes += (mean - self._mean_bytes) / _MEAN_WEIGHT
        free = min(self._limits.window_bytes - window.body_bytes, self._budget.body_room)
        if free <= 0:
            return 0
        room = int(free / max(KIB, self._mean_bytes))
        return max(room, 1) if window.body_bytes == 0 else room
