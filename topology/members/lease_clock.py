"""Until when this router may act as a member (rules K-3, K-3a): pure arithmetic, time is given.

The lease in etcd ends at the earliest one TTL after the last successful keep-alive was *sent*. The router stops two
thirds of a TTL after that instant on its own clock, so its clock may run up to one third slow (N-3).
"""

from __future__ import annotations

FENCE_FRACTION = 2 / 3
"""Part of the TTL after which a router without a newer keep-alive fences itself (K-3)."""


class LeaseClock:
    """The fence deadline of one lease.

    One thread may report keep-alives while another vets: each number has one writer, and flags only go up.
    """

    __slots__ = ("_fenced", "_lost", "_period_s", "_ttl_s", "deadline", "next_keep_alive")

    def __init__(self, ttl_s: float, period_s: float, granted_at: float) -> None:
        """Start with a lease that was just granted.

        Args:
            ttl_s: time to live of the lease, seconds.
            period_s: seconds between two keep-alives.
            granted_at: when the request for the lease was *sent*, on the clock all calls use.
        """
        self._ttl_s = ttl_s
        self._period_s = period_s
        self._fenced = False
        self._lost = False
        self.deadline = granted_at + FENCE_FRACTION * ttl_s
        """From this instant on nothing may be read or confirmed any more."""
        self.next_keep_alive = granted_at + period_s
        """When the next keep-alive is due."""

    def keep_alive_sent(self, now: float) -> None:
        """A keep-alive is being sent; the next is due one period later, whatever becomes of this one."""
        self.next_keep_alive = now + self._period_s

    def keep_alive_due(self, now: float) -> None:
        """The last keep-alive failed: the next is due at `now` already."""
        self.next_keep_alive = now

    def keep_alive_succeeded(self, sent_at: float) -> None:
        """The keep-alive sent at `sent_at` was answered: the lease lived on from then, however late the answer is."""
        self.deadline = max(self.deadline, sent_at + FENCE_FRACTION * self._ttl_s)

    def age(self, now: float) -> float:
        """Seconds since the last keep-alive that was answered (or the grant) was sent."""
        return now - (self.deadline - FENCE_FRACTION * self._ttl_s)

    def lose(self) -> None:
        """The lease is known to be gone: no later instant passes `vet`."""
        self._lost = True

    def vet(self, now: float) -> bool:
        """Whether what was read before `now` may be handled (K-3a).

        The first False is final: the router has begun to forget, and no late keep-alive brings it back.
        """
        if self._lost or now >= self.deadline:
            self._fenced = True
        return not self._fenced
