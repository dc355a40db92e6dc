"""Named places between a topic and a store at which a crash must lose nothing and double nothing.

Nothing happens at them. `observe` lets a test count them, or kill the process there.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """A place in the code, in the order in which a message passes them."""

    FEED_RECEIVED = "feed-received"  # messages are here, nothing is stored
    FEED_PUSHED = "feed-pushed"  # their items are in the transaction
    FEED_COMMITTED = "feed-committed"  # durable; the network does not know
    CURSOR_MOVED = "cursor-moved"  # what a journal's reader has read is durable; its deliveries are not settled
    OUTBOX_WRITTEN = "outbox-written"  # a worker's messages are in its transaction
    ROWS_READ = "rows-read"  # by the publisher, which has noted nothing
    ROWS_NOTED = "rows-noted"  # in its transaction
    ROWS_EXPOSED = "rows-exposed"  # durable: from now on they may be sent; nothing is
    OUTCOMES_WRITTEN = "outcomes-written"  # the rows are deleted in the transaction
    OUTCOMES_COMMITTED = "outcomes-committed"  # durable; not settled toward the network


_observers: list[Callable[[CrashPoint], None]] = []


def observe(observer: Callable[[CrashPoint], None]) -> None:
    """Call `observer` at each place from now on, in whichever thread passes it."""
    _observers.append(observer)


def passed(point: CrashPoint) -> None:
    """The code is at this place."""
    for observer in _observers:
        observer(point)
