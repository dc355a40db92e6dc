"""The seam of optional rules: what is asked of each of them when something happens to a publisher's deliveries.

A plain delivery of a plain topic meets none. A rule that has something to remember of a publisher registers itself
with the publisher's fan-out (`Fanout.use`) when the first such thing comes up; from then on its hooks are called:

    hook            when                                                  rules that use it
    on_stored       a delivery is stored, before it goes out (I-1)        sharing
    forget          a delivery leaves the window (I-4, I-4a, I-9)         sharing, retries, letters, expiry, large ones
    leave           a subscription ends (I-3)                             retries, letters, large ones
    after_settling  the SETTLE of this turn is out (I-4)                  sharing, letters
    sync_router     the channel to a router starts again (T-4)            sharing, letters
    flush           a turn ends that touched the publisher                letters, large ones

The order in which rules registered is the order in which they are asked; none may rely on it.
"""

from __future__ import annotations

from delivery_records.publisher.window import Slot


class Policy:
    """One optional rule at work on the deliveries of one publisher. Each hook does nothing unless it is overridden."""

    __slots__ = ()

    def on_stored(self, slot: Slot) -> None:
        """I-1: a delivery is stored, and goes out."""

    def forget(self, slot: Slot) -> None:
        """A delivery has left the window: settled, given up or abandoned (I-4, I-4a, I-9)."""

    def leave(self, key: str) -> None:
        """The subscription `key` ends: what it owed is owed no longer (I-3)."""

    def after_settling(self) -> None:
        """I-4: what left the window in this turn is settled at all egresses."""

    def sync_router(self, rid: int) -> None:
        """T-4: the channel to that router has started again."""

    def flush(self) -> None:
        """The turn ends: carry out what it added up to."""
