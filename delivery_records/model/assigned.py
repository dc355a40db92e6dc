"""How a member of a shared subscription comes by a delivery (rules SH-2, SH-5)."""

from __future__ import annotations

from enum import IntEnum


class Assigned(IntEnum):
    """Of a MSG that names a member; of all others it says nothing."""

    ANEW = 0
    AS_HEAD = 1
    """As what the publisher waits for, so its map may be full (C-4)."""
    BY_ITS_MAP = 2
    """It claims the delivery, and may need the body; an egress that has it no more drops that (SH-5)."""
