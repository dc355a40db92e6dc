"""What earlier links of an identity failed to do at this router, so that it does not go on for ever (I-9, C-4)."""

from __future__ import annotations

from delivery_records.model.bounded import keep_newest
from delivery_records.model.limits import REDUCTION_ROUNDS, RESEND_FAILURES


class PastFailures:
    """Counts by the key of an attachment; they go with it."""

    __slots__ = ("_reductions", "_resends")

    def __init__(self) -> None:
        """Nobody has failed."""
        self._resends: dict[str, list[float]] = {}
        self._reductions: dict[str, int] = {}

    def count_resend(self, key: str, now: float, within_s: float) -> int:
        """How often this publisher missed T_resend at this router in the last `within_s` seconds (I-9)."""
        times = [time for time in self._resends.pop(key, []) if now - time < within_s]
        times.append(now)
        self._resends[key] = times[max(0, len(times) - RESEND_FAILURES) :]
        keep_newest(self._resends)
        return len(self._resends[key])

    def forget_resends(self, key: str) -> None:
        """The publisher's key is gone; a later one starts anew (I-9)."""
        self._resends.pop(key, None)

    def end_round(self, key: str, has_progressed: bool) -> None:
        """C-4: a link with a part of a map is detached."""
        if has_progressed:
            self.forget_reductions(key)
        else:
            self._reductions[key] = self._reductions.get(key, 0) + 1
            keep_newest(self._reductions)

    def forget_reductions(self, key: str) -> None:
        """The map fits, or became smaller: rounds without progress are counted anew (C-4)."""
        self._reductions.pop(key, None)

    def refuses_reduction(self, key: str) -> bool:
        """True after REDUCTION_ROUNDS rounds without progress (C-4). True once: publishers may be back next time."""
        if self._reductions.get(key, 0) < REDUCTION_ROUNDS:
            return False
        self.forget_reductions(key)
        return True
