"""How much time is left to a message (rule E-10)."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TypeAlias

ReadTtl: TypeAlias = Callable[[bytes, int], int | None]
"""(message, message-format) -> milliseconds of its header's ttl; None: it has none, or cannot be read."""


def no_ttl(message: bytes, message_format: int) -> int | None:
    """For runs without a wire format: no message has a ttl."""
    return None


def remaining_ms(deadline: float, now: float) -> int:
    """What is left, rounded up, so that nothing expires before its time; 0: nothing."""
    return max(0, ceil((deadline - now) * 1000))
