"""When to write what has come: in groups, by time and by count, and not at all while the journal is too deep. Pure."""

from __future__ import annotations

GROUP_S = 0.005
"""A disk takes 0.2 to 10 ms for a durable write: waiting as long again costs little and saves most of the writes."""
GROUP_COUNT = 512
"""Enough for one durable write to be cheap for each: a group of so many waits no longer. What has come by then is in
it, so that on a slow disk groups are as large as the credit lets them be."""
RESUME_SHARE = 0.9
"""A journal that was full takes messages again below this share of its limit, so that it does not flutter."""


class GroupCommit:
    """Decides when a group is complete.

    Args:
        wait_s: how long the first message of a group waits for others.
        count: how many messages make a group complete at once.
    """

    def __init__(self, wait_s: float = GROUP_S, count: int = GROUP_COUNT) -> None:
        assert wait_s >= 0.0
        assert count >= 1
        self._wait_s = wait_s
        self._count = count
        self._waiting = 0
        self._ends_at = 0.0

    def arrived(self, messages: int, now: float) -> None:
        """Messages joined the group."""
        if self._waiting == 0:
            self._ends_at = now + self._wait_s
        self._waiting += messages

    def wait_s(self, now: float) -> float:
        """How long to wait for more; 0.0 = write now. The group must not be empty."""
        assert self._waiting
        return 0.0 if self._waiting >= self._count else max(0.0, self._ends_at - now)

    def written(self) -> None:
        """The group is written; the next one starts."""
        self._waiting = 0


class DepthGate:
    """Shuts when the journal is deep, opens when it is clearly less deep: back-pressure by credit.

    Args:
        max_bytes: bytes the journal may hold; one group more may still come.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._is_open = True

    def is_open(self, live_bytes: int) -> bool:
        """Whether messages may be taken with `live_bytes` in the journal."""
        limit = self._max_bytes if self._is_open else int(self._max_bytes * RESUME_SHARE)
        self._is_open = live_bytes < limit
        return self._is_open
