"""Logins over HTTP, one at a time: whoever guesses passwords from one address waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

MAX_FAILURES = 5
"""Wrong passwords from one address within `FAILURE_WINDOW_S`: a person mistypes less, a guesser gets 7,200 a day."""
FAILURE_WINDOW_S = 60.0
MAX_ADDRESSES = 1_000
"""Addresses whose failures are counted; the oldest is forgotten first."""
MAX_WAITING = 32
"""Logins that wait for each other: each wrong one takes 0.2 s of a thread."""


class TooManyLogins(Exception):
    """HTTP's 429.

    Attributes:
        fix: what the caller can do.
    """

    def __init__(self, error: str, fix: str) -> None:
        super().__init__(error)
        self.fix = fix


class GuardedLogins:
    """Checks one login after the other, and counts the failures of each address."""

    def __init__(self) -> None:
        """Nobody has failed."""
        self._failures: dict[str, list[float]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    async def check(self, peer: str, attempt: Callable[[int], Awaitable[T | None]]) -> T | None:
        """Check a login from this address.

        Args:
            peer: the address.
            attempt: checks it, given the number that a failure would have; returns None if it has failed.

        Raises:
            TooManyLogins: too many have failed from this address, or too many wait.
        """
        if self._waiting >= MAX_WAITING:
            raise TooManyLogins("too many logins at once", "try again")
        self._waiting += 1
        try:
            async with self._one_at_a_time:  # so that failures count before the next attempt
                return await self._check(peer, attempt)
        finally:
            self._waiting -= 1

    async def _check(self, peer: str, attempt: Callable[[int], Awaitable[T | None]]) -> T | None:
        now = time.monotonic()
        recent = [at for at in self._failures.get(peer, ()) if now - at < FAILURE_WINDOW_S]
        if len(recent) >= MAX_FAILURES:
            left = FAILURE_WINDOW_S - (now - recent[0])
            raise TooManyLogins("too many failed logins from your address", f"try again in {left:.0f} s")
        found = await attempt(len(recent) + 1)
        self._failures.pop(peer, None)
        if found is None:
            self._failures[peer] = [*recent, now]
            while len(self._failures) > MAX_ADDRESSES:
                self._failures.pop(next(iter(self._failures)))
        return found
