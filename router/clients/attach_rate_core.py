"""How often clients may attach: each attach writes to etcd, which all routers share. Token buckets, a pure core.

Nothing is refused: a connection that has attached too often is not read for a while.
"""

from __future__ import annotations

from collections import OrderedDict

BURST_S = 100.0
"""What was not used for so long may be used at once: all clients of a user attach again after a failover."""
CONNECTION_PART = 5
"""One connection has one in so many of the attaches of its user."""
MAX_USERS = 10_000
"""Users and addresses that are remembered; one that did not attach for longest is forgotten first, and begins anew."""
FEW = 16
"""Attaches at once that never wait for etcd's sake: those of most programs."""
BUSY = 256
"""Operations that wait for etcd, four transactions full: who has attached a lot waits until there are fewer."""
BUSY_DELAY_S = 0.05
LONGEST_S = 0.5
"""A connection is looked at again after this time, and has its heartbeat: clients wait 2 s for one, or longer."""


class Bucket:
    """Tokens that come back at a steady rate; what is taken beyond them has to be waited for."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, now: float) -> None:
        """It is full.

        Args:
            rate: tokens a second.
            now: seconds, monotonic.
        """
        self._rate = rate
        self._burst = rate * BURST_S
        self._tokens = self._burst
        self._at = now

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now

    def change(self, rate: float, now: float) -> None:
        """Tokens come back at this rate from now on."""
        if rate != self._rate:
            self._fill(now)
            self._rate, self._burst = rate, rate * BURST_S
            self._tokens = min(self._tokens, self._burst)

    def take(self, now: float) -> None:
        """Take one, be it there or not."""
        self._fill(now)
        self._tokens -= 1.0

    def wait(self, now: float) -> float:
        """Seconds until what was taken is paid for."""
        self._fill(now)
        return max(0.0, -self._tokens / self._rate)

    def used(self, now: float) -> float:
        """Tokens that have not come back."""
        self._fill(now)
        return self._burst - self._tokens


class AttachRates:
    """The buckets of all users, and of all addresses without a login."""

    __slots__ = ("_users", "delayed")

    def __init__(self) -> None:
        """Nobody has attached."""
        self._users: OrderedDict[str, Bucket] = OrderedDict()
        self.delayed = 0
        """Times a connection was not read for it."""

    def take(self, user: str, own: Bucket, rate: float, now: float) -> None:
        """A client attaches.

        Args:
            user: who it is.
            own: the bucket of its connection.
            rate: attaches a second of a user.
            now: seconds, monotonic.
        """
        bucket = self._users.pop(user, None) or Bucket(rate, now)
        self._users[user] = bucket
        if len(self._users) > MAX_USERS:
            self._users.popitem(last=False)
        bucket.change(rate, now)
        bucket.take(now)
        own.take(now)

    def delay(self, user: str, own: Bucket, waiting: int, now: float) -> float:
        """Seconds for which the connection is not to be read; 0 = go on.

        Args:
            user: who it is.
            own: the bucket of its connection.
            waiting: operations that wait for etcd.
            now: seconds, monotonic.
        """
        bucket = self._users.get(user)
        wait = max(own.wait(now), 0.0 if bucket is None else bucket.wait(now))
        if waiting > BUSY and own.used(now) > FEW:
            wait = max(wait, BUSY_DELAY_S)
        if wait:
            self.delayed += 1
        return min(wait, LONGEST_S)
