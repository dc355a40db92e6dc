"""When the deliveries of a window arrived, at no cost for the single one: one mark for all that came in a turn."""

from __future__ import annotations

import math
from bisect import bisect_right

from delivery_records.publisher.window import Window

MAX_MARKS = 512
"""Turns remembered; beyond, every second mark is dropped, and deliveries count as older by one turn."""

FEW_MARKS = 32
"""Turns whose settled deliveries are not worth looking for."""


class Arrivals:
    """Times of arrival by running number. Numbers grow with time, so a mark is the first number of a turn."""

    __slots__ = ("_firsts", "_times", "end", "presented")

    def __init__(self, end: int, now: float) -> None:
        """What the publisher's map presented (numbers below `end`) counts as arrived `now`."""
        self.presented = end
        """Numbers below it came with the map: their deliveries are older than their time here says."""
        self.end = end
        """First number without a time."""
        self._firsts = [0]
        self._times = [now]

    def mark(self, window: Window, now: float) -> None:
        """At the end of a turn: everything new in the window arrived `now`."""
        firsts, times = self._firsts, self._times
        firsts.append(self.end)
        times.append(now)
        self.end = window.end
        if len(firsts) > FEW_MARKS:
            settled = bisect_right(firsts, window.base) - 1
            del firsts[:settled]
            del times[:settled]
            if len(firsts) > MAX_MARKS:
                del firsts[1::2]
                del times[1::2]

    def before(self, at: float, end: int) -> int:
        """The first number that arrived later than `at`; `end`, the window's, when none did."""
        later = bisect_right(self._times, at)
        return self._firsts[later] if later < len(self._times) else end

    def at(self, number: int) -> float:
        """When a delivery of the window arrived: seconds on the record core's clock; not later than it says."""
        return self._times[max(0, bisect_right(self._firsts, number) - 1)]

    def known(self, number: int) -> float | None:
        """As `at`; None where its mark is no longer there, as of one that was settled with its outcome."""
        at = self.at(number)
        return at if self.before(math.nextafter(at, -math.inf), number + 1) <= number else None
