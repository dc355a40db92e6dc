"""How long publishers wait for the outcome of a delivery: few are timed, one of each topic in a second.

Nothing is done for a delivery that is not timed. Arrivals are noted by the record core anyway, one mark for a turn; the
outcomes that publishers get are looked at only while a chosen delivery is under way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from delivery_records.diagnostics.figures import PublisherFigures
from delivery_records.model.effects import Dispose
from router.incarnations.incarnation import Incarnation
from topology.inspector.rates_core import MINUTE_S, Acceptances, Quantiles
from topology.inspector.topic_names_core import topic_name

MAX_CHOSEN = 256
"""Deliveries under way that are timed: as many topics can be timed in a second."""
PATIENCE_S = 30.0
"""A publisher that sends nothing for so long is not waited for; one with a message every few seconds is."""


@dataclass(slots=True)
class _Chosen:
    """The next delivery of one publisher."""

    key: str
    """Of the publisher."""
    topic: str
    number: int
    """In its window."""
    chosen_at: float


class AcceptanceTimes:
    """Those of one incarnation."""

    def __init__(self, incarnation: Incarnation) -> None:
        """None is timed yet."""
        self._core = incarnation.records
        self._driver = incarnation.driver
        self._found = Acceptances()
        self._chosen: dict[int, _Chosen] = {}
        """By the number of the publisher's link."""
        self._received: dict[int, int] = {}
        self._turns: dict[int, int] = {}
        """When a publisher was chosen last, in turns."""
        self._turn = 0

    def choose(self, now: float) -> None:
        """Choose the next delivery of one publisher of each topic, among those that send."""
        self._turn += 1
        self._drop(now)
        received, turns = {}, {}
        best: dict[str, tuple[int, PublisherFigures]] = {}
        for publisher in self._core.figures.publishers():
            link = publisher.link
            if link is None:
                continue
            received[link] = publisher.received
            last = turns[link] = self._turns.get(link, 0)
            if link in self._chosen or self._received.get(link, 0) == received[link]:
                continue
            if publisher.topic not in best or last < best[publisher.topic][0]:
                best[publisher.topic] = (last, publisher)
        self._received, self._turns = received, turns
        for _, publisher in best.values():
            if len(self._chosen) >= MAX_CHOSEN or publisher.link is None:
                break
            turns[publisher.link] = self._turn
            self._chosen[publisher.link] = _Chosen(publisher.key, publisher.topic, publisher.end, now)
        self._driver.watch_outcomes(self._on_outcomes if self._chosen else None)

    def _drop(self, now: float) -> None:
        """Forget those whose publisher has left, or sends nothing."""
        for link, each in list(self._chosen.items()):
            found = self._core.figures.publisher_on(link)
            is_awaited = found is not None and (found.end > each.number or now - each.chosen_at < PATIENCE_S)
            if not is_awaited:
                del self._chosen[link]

    def _on_outcomes(self, effect: Dispose) -> None:
        each = self._chosen.get(effect.link)
        found = None if each is None else self._core.figures.publisher_on(effect.link)
        if each is None or found is None or found.decided <= each.number:
            return
        del self._chosen[effect.link]
        if not self._chosen:
            self._driver.watch_outcomes(None)
        arrived = self._core.figures.arrival(each.key, each.number)
        if arrived is not None:
            now = time.monotonic()
            self._found.note(topic_name(each.topic), now, now - arrived)

    def quantiles(self, now: float) -> tuple[Mapping[str, Quantiles], Mapping[str, Quantiles]]:
        """Of five minutes and of the last one: by the names of topics; of all together under the empty one."""
        waiting: dict[str, list[float]] = {}
        for each in self._chosen.values():
            found = self._core.figures.publisher(each.key)
            arrived = self._core.figures.arrival(each.key, each.number)
            if found is not None and found.end > each.number and arrived is not None:
                waiting.setdefault(topic_name(each.topic), []).append(now - arrived)
        return self._found.quantiles(now, waiting), self._found.quantiles(now, waiting, MINUTE_S)
