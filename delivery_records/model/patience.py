"""What a policy allows a subscriber that makes no progress (rule K-5b)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SlowAction(Enum):
    """What becomes of a subscription that makes no progress (K-5b)."""

    DETACH = "detach"
    """Its link is detached; T_sub counts from then on."""
    EXPEL = "expel"
    """It ends, as by an operator's order (K-5a)."""


@dataclass(frozen=True, slots=True)
class Patience:
    """What a policy grants a subscriber; without one its publishers wait without limit (G5)."""

    seconds: float
    """Without progress; above 0."""
    action: SlowAction

    def __post_init__(self) -> None:
        """Reject what no subscriber could keep to."""
        if not self.seconds > 0:
            raise ValueError("patience must be more than 0 seconds")
