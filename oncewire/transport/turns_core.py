"""Who has the next turn: the one that has used least, a pure core.

Everybody has a count of the seconds that its turns took while others waited. The next turn is for the lowest count. One
that was idle is not given what it did not use, but for `RESTED_S` of it: it is served ahead of those that always have
more to do, and cannot save up for a flood.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

RESTED_S = 0.005
"""Head start of one that was idle, over those that used their turns: as much as a turn, so that a client with little
to do waits for the turn under way and for none beside it."""
NEWCOMER_S = 0.001
"""A newcomer begins so far behind those that were idle: thousands that connect at once do not hold up those that are
there already, and those that use their turns do not hold up newcomers."""

W = TypeVar("W")


class Account:
    """What one has used."""

    __slots__ = ("is_waiting", "used_s")

    def __init__(self, used_s: float) -> None:
        """See `WaitingLine.newcomer`."""
        self.used_s = used_s
        self.is_waiting = False


class WaitingLine(Generic[W]):
    """Those that wait for a turn, in the order of what they have used; equal ones in the order in which they came."""

    __slots__ = ("_floor_s", "_heap", "_number")

    def __init__(self) -> None:
        """Nobody waits."""
        self._heap: list[tuple[float, int, Account, W]] = []
        self._number = 0
        self._floor_s = 0.0
        """The highest count that was ever the lowest: that of one that has a fair part."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._heap)

    def newcomer(self) -> Account:
        """The account of one that was not here before."""
        return Account(self._floor_s + NEWCOMER_S)

    def add(self, account: Account, who: W) -> None:
        """Let one wait for its turn.

        Args:
            account: of it; what its last turn took counts by now.
            who: once is enough.
        """
        if account.is_waiting:
            return
        account.is_waiting = True
        account.used_s = max(account.used_s, self._floor_s - RESTED_S)
        self._number += 1
        heapq.heappush(self._heap, (account.used_s, self._number, account, who))

    @property
    def is_next_rested(self) -> bool:
        """Whether the next one has used less than its part: it was idle."""
        return self._heap[0][0] < self._floor_s

    def pop(self) -> W:
        """Whose turn it is."""
        used_s, _, account, who = heapq.heappop(self._heap)
        self._floor_s = max(self._floor_s, used_s)
        account.is_waiting = False
        return who
