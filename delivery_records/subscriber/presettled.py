"""What was sent settled and waits at an egress: a bounded part of the router's memory, in no map (rule I-1c)."""

from __future__ import annotations

from delivery_records.model.limits import HELD_PRESETTLED
from delivery_records.model.turn import Turn


class HeldPresettled:
    """How many such messages one link holds, and their bytes, which count in the router's budget (C-6)."""

    __slots__ = ("_bytes", "_turn", "count")

    def __init__(self, turn: Turn) -> None:
        """None waits."""
        self._turn = turn
        self._bytes = 0
        self.count = 0

    def has_room(self, size: int, *, is_credit_known: bool) -> bool:
        """Whether one more may wait; before the subscriber's first credit, as many as a publisher may send."""
        limits, budget = self._turn.limits, self._turn.budget
        most = HELD_PRESETTLED if is_credit_known else max(HELD_PRESETTLED, limits.window)
        if self.count >= most:
            return False
        return not self.count or (self._bytes + size <= limits.window_bytes and budget.held + size <= budget.body_limit)

    def add(self, size: int) -> None:
        """One waits."""
        self.count += 1
        self._bytes += size
        self._turn.budget.add(size)

    def remove(self, size: int) -> None:
        """It is sent, or its time is over."""
        self.count -= 1
        self._bytes -= size
        self._turn.budget.add(-size)

    def release(self) -> None:
        """The link is gone, and with it all that waited."""
        self._turn.budget.add(-self._bytes)
        self._bytes = self.count = 0
