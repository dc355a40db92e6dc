"""When a part that has failed is started again, and how fast a part works."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

FIRST_S = 0.2
LONGEST_S = 30.0
"""A part that cannot run is tried again twice a minute: what it lacks may be back at any time."""
AWAITED_S = 2.0
"""What has waited for its store already need not wait long until it does so again: it is to stand by, or to serve, soon
after the store is back."""
WELL_S = 60.0
"""A part that has run for so long is well: its next failure is the first one."""
WINDOW_S = 60.0


@dataclass(slots=True)
class Failures:
    """Of one part, one after the other.

    Attributes:
        count: since the process started.
        in_a_row: since it was well.
    """

    count: int = 0
    in_a_row: int = 0

    def next_delay(self, ran_s: float, chance: float, longest_s: float = LONGEST_S) -> float:
        """Seconds to wait after one more failure.

        Args:
            ran_s: for how long the part had run.
            chance: from 0 to 1: edges that failed together do not come back together.
            longest_s: the bound.
        """
        self.count += 1
        self.in_a_row = 1 if ran_s >= WELL_S else self.in_a_row + 1
        doublings = min(self.in_a_row - 1, 16)
        return float(min(longest_s, FIRST_S * 2**doublings) * (0.5 + chance / 2))


@dataclass(slots=True)
class Rate:
    """How many a part does each second, by a count that grows, over the last minute."""

    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    def note(self, now: float, count: int) -> None:
        """Take in the count of this moment."""
        self._samples.append((now, count))
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_S:
            self._samples.popleft()

    def per_second(self) -> float:
        """Between the first and the last sample; 0 where there is one at most."""
        if len(self._samples) < 2:
            return 0.0
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        return max(0.0, (after - before) / (end - begin)) if end > begin else 0.0
