"""Bytes of bodies that are held for one user at this router, against the quota: one limit over all of its sessions.

It is looked at where session windows are (C-6): at the end of a turn, never for a message.
"""

from __future__ import annotations

import math
from typing import Protocol

ENOUGH_AGAIN = 16
"""One part of the limit in so many is worth a look at the user's connections that wait for room."""


class Waiter(Protocol):
    """A connection."""

    def mark_dirty(self) -> None:
        """Look at its windows at the end of this turn."""


class UserBytes:
    """Held, and offered, to all connections of a user."""

    __slots__ = ("_waiting", "held", "limit", "offered")

    def __init__(self) -> None:
        """Nothing is held, and there is no limit."""
        self.limit: float = math.inf
        self.held = 0
        """Bodies in windows of publishers, and what has come of incomplete deliveries."""
        self.offered = 0
        """What sessions were offered, and has not come."""
        self._waiting: dict[Waiter, None] = {}

    @property
    def is_limited(self) -> bool:
        """Whether there is a quota."""
        return self.limit < math.inf

    def set_limit(self, limit: int | None) -> None:
        """The quota in force; None: no quota."""
        self.limit = math.inf if limit is None else limit

    def room(self, own: int) -> float:
        """Bytes that a session may be offered, which was offered `own` before."""
        return max(0.0, self.limit - self.held - self.offered + own)

    def wait(self, waiter: Waiter) -> None:
        """This connection has less room than it could use."""
        self._waiting[waiter] = None

    def leave(self, waiter: Waiter) -> None:
        """This connection has ended."""
        self._waiting.pop(waiter, None)

    def wake(self) -> None:
        """There is more room than before: look at those that wait, if it is worth it."""
        if self._waiting and (not self.held or self.room(0) >= self.limit / ENOUGH_AGAIN):
            waiting, self._waiting = self._waiting, {}
            for waiter in waiting:
                waiter.mark_dirty()
