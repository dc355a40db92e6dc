"""Where a consumer can crash: each place between two steps whose order matters.

Tests kill the process at each of them (``tests/client/test_consumer_crashes.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class CrashPoint(Enum):
    """A place that a consumer reaches; the value says what is done and what is not."""

    OPENED = "the fence is raised, nothing is recovered"
    RECEIVED = "messages have come, none is recorded"
    RECORDING = "messages are written, their transaction is not committed"
    RECORDED = "messages are recorded, the network is not notified"
    PROCESSED = "the function has returned, its messages are not stored"
    DECIDED = "effects, checkpoint and messages are written, not committed"
    COMMITTED = "the transaction is committed, nothing of it is published"
    EXPOSED = "messages are in the maps of their publishers, none is sent"
    PUBLISHED_IN_PART = "some messages are published, none is confirmed"
    ACCEPTED = "messages are accepted, not confirmed"
    CONFIRMED = "messages are confirmed"
    RELEASED = "messages were sent to nobody and are marked, their session has not ended"
    ENDED = "their session has ended, they are still marked"


on_reach: list[Callable[[CrashPoint], None]] = []
"""For tests: called at each point, in the thread that reaches it."""


def reach(point: CrashPoint) -> None:
    """The calling code is at this point."""
    for call in on_reach:
        call(point)
