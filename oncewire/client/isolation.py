"""Which of the messages of transactions a reader sees."""

from __future__ import annotations

from enum import Enum


class Isolation(Enum):
    """What a reader sees of transactions."""

    READ_COMMITTED = "read_committed"
    """Pending messages when they commit, never before, and never if they are rolled back."""
    READ_UNCOMMITTED = "read_uncommitted"
    """Pending messages as they come, once each, also those that are rolled back later."""
