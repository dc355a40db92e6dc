"""When a process that serves looks for garbage: seldom, and not among what it consists of."""

from __future__ import annotations

import gc

YOUNG = 10_000
"""Objects that are new since the last look at the new ones. With Python's 700 it looks at each few messages under way,
which no cycle holds: that took up to a fifth of what an outbox needs for a row."""


def collect_seldom() -> None:
    """Call it once, when all is imported and open: what is there stays for the life of the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
