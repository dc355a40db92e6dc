"""The parts of a large delivery, which is never in one place as a whole (rules L-1 to L-4)."""

from __future__ import annotations

from enum import Enum
from typing import Final

NOT_WANTED: Final = (1 << 64) - 1
"""What a TAKEN states of a delivery that its subscription is not to be sent in parts any more (L-2)."""
HAS_IT: Final = NOT_WANTED - 1
"""The same of one that its subscriber was sent, and has not answered."""


class Part(Enum):
    """Which part of a large delivery this is."""

    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"
    ABORT = "abort"
    """There will be no more of it: what came of it is void (AMQP 1.0 section 2.7.5)."""


def taken_step(ahead: int) -> int:
    """L-4: an egress states what has been taken when it is so many bytes further; half of what a target may be sent."""
    return max(1, ahead // 2)
