"""Where a publisher's link is in its life, which `ingress.py` explains."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Where a publisher's link is in its life."""

    PROVING = "proving"
    WAITING = "waiting"
    STARTING = "starting"
    ACTIVE = "active"
    ENDING = "ending"
    CLOSING = "closing"
    SUSPENDED = "suspended"
