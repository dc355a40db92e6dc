"""Rates of the last five minutes, from counters that exist anyway: their differences, one point every five seconds.

Memory is bounded: a series is kept only while something moved in it, and of each kind there are `MAX_SERIES` at most.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

POINT_S = 5.0
"""Between two points: a reader sees a change soon, and 10,000 subscriptions take 3 to 13 ms of it."""
POINTS = 60
"""Of each series: five minutes, and as many as a small picture can show."""
MAX_SERIES = 2_000
"""Of each kind: 250 bytes each. Those that move first are kept; further ones have a rate and no history."""
ACCEPTANCES = 300
"""Acceptances kept of each topic: one a second for five minutes. With fewer, a p99 would be the maximum."""
ACCEPTANCE_S = POINT_S * POINTS
"""Older ones do not count."""
MINUTE_S = 60.0
"""What a page shows of a network at rest: of these acceptances alone."""
MAX_TOPICS = 500
"""Topics whose acceptances are kept: 300 pairs of numbers each, 2.4 MB in all."""
DIGITS = 3
"""Of a rate, and of a duration in seconds, behind the point."""


class Counters:
    """Turns counts into differences. A count belongs to a link; that of another link begins at 0 again."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        """Nothing was counted yet."""
        self._last: dict[str, tuple[int, int]] = {}

    def differences(self, counts: Iterable[tuple[str, int, int]]) -> dict[str, int]:
        """What each has counted since the last call; without those that have counted nothing.

        Args:
            counts: key, number of its link, count; all there are now.
        """
        last, now = self._last, {}
        found: dict[str, int] = {}
        for key, link, count in counts:
            before = last.get(key)
            if before is not None and before[0] == link:
                now[key] = before if before[1] == count else (link, count)
                if count > before[1]:
                    found[key] = count - before[1]
            else:
                now[key] = (link, count)
                if count > 0:
                    found[key] = count
        self._last = now
        return found


class Series:
    """The last points of many things of one kind."""

    __slots__ = ("_at", "_moved", "_rings", "latest")

    def __init__(self) -> None:
        """Nothing has moved yet."""
        self._rings: dict[str, array[float]] = {}
        self._moved: dict[str, int] = {}
        """The last point at which something moved."""
        self._at = 0
        """Points taken so far."""
        self.latest: Mapping[str, float] = {}
        """The rates at the last point; what is missing did not move."""

    def take(self, differences: Mapping[str, float], seconds: float) -> None:
        """One more point: what has moved in so many seconds."""
        self._at += 1
        place = self._at % POINTS
        self.latest = {key: round(value / seconds, DIGITS) for key, value in differences.items() if value > 0}
        for key, ring in list(self._rings.items()):
            ring[place] = self.latest.get(key, 0.0)
            if key not in self.latest and self._at - self._moved[key] >= POINTS:
                del self._rings[key], self._moved[key]
        for key, rate in self.latest.items():
            if key not in self._rings:
                if len(self._rings) >= MAX_SERIES:
                    continue
                self._rings[key] = array("f", bytes(4 * POINTS))
                self._rings[key][place] = rate
            self._moved[key] = self._at

    def moved(self) -> Iterable[str]:
        """Everything that moved in these five minutes."""
        return self._rings

    def points(self, key: str) -> list[float]:
        """The points of one thing, the oldest first; zeros where nothing moved."""
        ring = self._rings.get(key)
        if ring is None:
            return [0.0] * POINTS
        first = self._at % POINTS + 1
        return [round(value, DIGITS) for value in (*ring[first:], *ring[:first])]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """How long acceptance took, in seconds."""

    p50: float
    p99: float


class Acceptances:
    """How long deliveries waited for their outcome: a few of each topic."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        """None is known yet."""
        self._by_topic: dict[str, deque[tuple[float, float]]] = {}

    def note(self, topic: str, at: float, seconds: float) -> None:
        """A delivery of this topic was accepted, or otherwise decided, at `at`, so long after it had arrived."""
        found = self._by_topic.get(topic)
        if found is None:
            if len(self._by_topic) >= MAX_TOPICS:
                return
            found = self._by_topic[topic] = deque(maxlen=ACCEPTANCES)
        found.append((at, seconds))

    def quantiles(
        self, now: float, waiting: Mapping[str, Sequence[float]], within_s: float = ACCEPTANCE_S
    ) -> dict[str, Quantiles]:
        """Of each topic, and under the empty name of all together.

        Args:
            now: what is older than five minutes is forgotten.
            waiting: ages of deliveries that wait now: their acceptance takes at least as long.
            within_s: only acceptances of so many seconds count.
        """
        for topic, found in list(self._by_topic.items()):
            while found and now - found[0][0] > ACCEPTANCE_S:
                found.popleft()
            if not found:
                del self._by_topic[topic]
        every: list[float] = []
        quantiles: dict[str, Quantiles] = {}
        for topic in self._by_topic.keys() | waiting.keys():
            timed = (seconds for at, seconds in self._by_topic.get(topic, ()) if now - at <= within_s)
            times = sorted([*timed, *waiting.get(topic, ())])
            if times:
                quantiles[topic] = _quantiles(times)
                every += times
        if every:
            quantiles[""] = _quantiles(sorted(every))
        return quantiles


def _quantiles(times: Sequence[float]) -> Quantiles:
    return Quantiles(round(_at(times, 0.5), DIGITS + 1), round(_at(times, 0.99), DIGITS + 1))


def _at(times: Sequence[float], share: float) -> float:
    """The smallest that this share of all does not exceed."""
    return times[min(len(times) - 1, math.ceil(share * len(times)) - 1)]
