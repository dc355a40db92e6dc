"""Waiting for what another process does: on the condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 180.0
"""Far more than any of these take on a busy machine: the longest, a mutant, takes 7 s on one that is free."""
POLL_S = 0.05


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return as soon as the condition holds.

    Raises:
        AssertionError: it does not within WAIT_S; `what` says what was waited for.
    """
    ends_at = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends_at, what
        time.sleep(POLL_S)
