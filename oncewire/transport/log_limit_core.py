"""The same event again and again is logged once a minute: hostile clients must not fill disks. A pure core."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

AGAIN_S = 60.0
"""An event that was logged is logged again after this time, with how often it came meanwhile."""
MAX_EVENTS = 1_000
"""Different events that are remembered; the one that was logged first is forgotten first."""


class LogLimit:
    """What was logged of late."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        """Nothing was."""
        self._seen: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def take(self, event: Hashable, now: float) -> int | None:
        """How often an event came that was not logged since it was logged last; None = it is not to be logged now.

        Args:
            event: what makes it the same one.
            now: seconds, monotonic.
        """
        at, times = self._seen.get(event, (-AGAIN_S, 0))
        if now - at < AGAIN_S:
            self._seen[event] = at, times + 1
            return None
        self._seen.pop(event, None)
        self._seen[event] = now, 0
        if len(self._seen) > MAX_EVENTS:
            self._seen.popitem(last=False)
        return times
