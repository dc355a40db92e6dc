"""Nothing grows without a limit."""

from __future__ import annotations

from typing import Any

REMEMBERED = 10_000
"""Names or keys one table remembers; the oldest is forgotten first."""


def keep_newest(remembered: dict[str, Any]) -> None:
    """Forget the oldest of what is more than `REMEMBERED`."""
    while len(remembered) > REMEMBERED:
        remembered.pop(next(iter(remembered)))
