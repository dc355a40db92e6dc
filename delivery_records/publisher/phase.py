"""Where a publisher's link is in its life, which `ingress.py` explains."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Phase(Enum):
    """Where a publisher's link is in its life."""

    PROVING = "proving"
    """The client has not answered the echo yet (A-4)."""
    WAITING = "waiting"
    """Without the capability: for what it resumes, or for its first transfer (A-3b)."""
    STARTING = "starting"
    """The put that starts its session is on its way (A-4)."""
    ACTIVE = "active"
    ENDING = "ending"
    """The client has ended the link; what was read of it gets its outcome first (A-9a)."""
    CLOSING = "closing"
    """The deletion of its key is on its way (I-8)."""
    SUSPENDED = "suspended"
    """Without a link; the window is kept (A-9)."""


_ENDS = (Phase.CLOSING, Phase.SUSPENDED)
PHASE_NEXT: Final = {
    Phase.PROVING: (Phase.STARTING, Phase.ACTIVE, *_ENDS),
    Phase.WAITING: (Phase.ACTIVE, *_ENDS),
    Phase.STARTING: (Phase.ACTIVE, *_ENDS),
    Phase.ACTIVE: (Phase.ENDING, *_ENDS),
    Phase.ENDING: _ENDS,
    Phase.CLOSING: (Phase.SUSPENDED,),
    Phase.SUSPENDED: (),
}
"""A-4: starting, active; A-9a: ending; I-8: closing; A-9: suspended. docs/protocol.md draws it."""


def step(former: Phase, phase: Phase) -> Phase:
    """Go on to a phase. Only the steps of PHASE_NEXT are taken: another one is a fault of ours."""
    assert phase in PHASE_NEXT[former], f"{former} -> {phase}"
    return phase
