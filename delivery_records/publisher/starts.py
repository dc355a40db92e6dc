"""Where a subscription's stream starts in a window that its publisher brought along (rule I-6a).

A *start* (stop, revision) is a fact about a publisher's deliveries: all below number `stop` were sent before `revision`
was applied by their ingress. A subscription that was created at that revision or later was not confirmed when they were
sent, so they are not owed to it (G1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import TypeAlias

from delivery_records.publisher.window import Window

Start: TypeAlias = tuple[int, int]
"""(first number that is not covered, revision)."""


def presented_starts(window: Window, presented: Iterable[tuple[bytes, int]], epoch: int) -> list[Start]:
    """The starts of a window that is as the publisher presented it.

    Args:
        window: the unsettled entries of the presented map.
        presented: (tag, revision) as reported to the publisher; tags that are not in the window say nothing.
        epoch: of the attach. Everything in its map was sent before it.
    """
    starts = [(slot.number + 1, revision) for tag, revision in presented if (slot := window.find(tag)) is not None]
    return [*starts, (window.end, epoch)]


class Starts:
    """Starts in the order of their revisions. An activation asks for each subscription: each costs one bisection."""

    __slots__ = ("_revisions", "_stops")

    def __init__(self, starts: Iterable[Start]) -> None:
        """Know these; in any order."""
        ordered = sorted(starts, key=lambda start: start[1])
        self._revisions = [revision for _, revision in ordered]
        self._stops = list(accumulate((stop for stop, _ in ordered), max))

    def of(self, created: int) -> int:
        """The first number that is owed to a subscription which was created at revision `created`."""
        place = bisect_right(self._revisions, created)
        return self._stops[place - 1] if place else 0
