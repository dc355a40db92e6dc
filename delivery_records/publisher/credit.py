"""Credit toward publishers (rule C-1, with its byte side)."""

from __future__ import annotations

from delivery_records.channels.channel import Line
from delivery_records.model import effects
from delivery_records.model.limits import FIRST_CREDIT, KIB
from delivery_records.model.turn import Turn
from delivery_records.publisher.window import Window

_MEAN_WEIGHT = 16
"""The mean size follows the last 16 messages or so."""


class PublisherCredit:
    """How many deliveries a publisher may send in all on this attach."""

    __slots__ = (
        "_budget",
        "_counted",
        "_limits",
        "_map_bound",
        "_mean_bytes",
        "_session_reported",
        "_topic",
        "_turn",
        "_window",
        "limit",
        "received",
        "waiting_bodies",
        "waiting_bytes",
    )

    def __init__(self, turn: Turn, window: Window, topic: str, map_bound: int) -> None:
        """Nothing is granted yet. `map_bound` is how many entries fit the client's frame; 0 = unknown."""
        self._turn = turn
        self._limits = turn.limits
        self._budget = turn.budget
        self._window = window
        self._topic = topic
        self._map_bound = map_bound
        self._mean_bytes = float(KIB)
        self._counted = 0
        """Bytes that wait for a channel and are not in the window, as the budget has them."""
        self.waiting_bodies = 0
        """What waits for a channel: pre-settled messages, and what is in the window too or has left it (I-1c)."""
        self.waiting_bytes = 0
        self.received = 0
        """Deliveries counted on this attach: first transfers, also aborted, pre-settled and ignored ones."""
        self.limit = 0
        self._session_reported = False

    def look_at(self, line: Line | None) -> None:
        """What waits for a channel takes up the window as if it was in it."""
        if line is None and not self.waiting_bodies:
            return
        self.waiting_bodies, self.waiting_bytes = (0, 0) if line is None else (line.bodies, line.size)
        beside = max(0, self.waiting_bytes - self._window.body_bytes)
        self._budget.add(beside - self._counted)
        self._counted = beside

    def grant(self, link: int, session: int, has_released: bool) -> None:
        """C-1: credit for every unreceived map entry, and for what is free in the window."""
        if self._turn.is_draining:
            return
        if has_released:  # I-3c: what follows is released too, so the publisher must not go on sending
            self.withdraw(link)
            return
        limit = self._next_limit(self._turn.view.map_share(self._topic))
        if limit is not None:
            first = None if self._session_reported or not session else session
            self._session_reported = self._session_reported or first is not None
            self._turn.out.append(effects.GrantPublisherCredit(link, limit, first))

    def withdraw(self, link: int) -> None:
        """K-8a, I-3c: take back what was granted; what was sent on it is still received."""
        if self.limit > self.received:
            self.limit = self.received
            self._turn.out.append(effects.GrantPublisherCredit(link, self.limit))

    def _next_limit(self, map_share: int) -> int | None:
        """The new total to grant, or None while the outstanding credit is enough.

        I-3c and K-8a alone withdraw credit; a grant waits until it is worth a frame. C-4: the publishers' windows
        must together fit the smallest map of the topic's subscriptions, `map_share` is this one's (0: no bound).
        """
        window = self._window
        size = min(self._limits.window, map_share) if map_share else self._limits.window
        if self._map_bound:
            size = max(1, min(size, self._map_bound))
        elif self.received < FIRST_CREDIT // 2:
            size = min(size, FIRST_CREDIT)
        taken = max(len(window), self.waiting_bodies)
        wanted = window.unreceived + max(0, min(size - taken, self._room(window)))
        outstanding = self.limit - self.received
        if wanted - outstanding >= max(1, size // 4) or (outstanding <= 0 and wanted > 0):
            self.limit = self.received + wanted
            return self.limit
        return None

    def _room(self, window: Window) -> int:
        """Deliveries of the mean size that still fit the bytes; a window without bodies always takes one."""
        received = max(len(window) - window.unreceived, self.waiting_bodies)
        held = max(window.body_bytes, self.waiting_bytes)
        if received:
            self._mean_bytes += (held / received - self._mean_bytes) / _MEAN_WEIGHT
        free = min(self._limits.window_bytes - held, self._budget.body_room)
        if free <= 0:
            return 0
        room = int(free / max(KIB, self._mean_bytes))
        return max(room, 1) if held == 0 else room
