"""How long publishers wait for the outcome of a delivery: few are timed, one of each topic in a second.

Nothing is done for a delivery that is not timed. Arrivals are noted by the record core anyway, one mark for a turn; the
outcomes that publishers get are looked at only while a chosen delivery is under way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from delivery_records.model.effects import Dispose
from delivery_records.publisher.arrivals import Arrivals
from delivery_records.publisher.ingress import Ingress
from router.incarnation import Incarnation
from topology.inspector.rates_core import MINUTE_S, Acceptances, Quantiles
from topology.inspector.topic_names_core import topic_name

MAX_CHOSEN = 256
"""Deliveries under way that are timed: as many topics can be timed in a second."""
PATIENCE_S = 30.0
"""A publisher that sends nothing for so long is not waited for; one with a message every few seconds is."""


@dataclass(slots=True)
class _Chosen:
    """The next delivery of one publisher."""

    ingress: Ingress
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
        best: dict[str, tuple[int, int, Ingress]] = {}
        for ingress in self._core.ingresses.values():
            link = ingress.link
            if link is None:
                continue
            received[link] = ingress.credit.received
            last = turns[link] = self._turns.get(link, 0)
            if link in self._chosen or self._received.get(link, 0) == received[link]:
                continue
            if ingress.topic not in best or last < best[ingress.topic][0]:
                best[ingress.topic] = (last, link, ingress)
        self._received, self._turns = received, turns
        for _, link, ingress in best.values():
            if len(self._chosen) >= MAX_CHOSEN:
                break
            turns[link] = self._turn
            self._chosen[link] = _Chosen(ingress, ingress.window.end, now)
        self._driver.watch_outcomes(self._on_outcomes if self._chosen else None)

    def _drop(self, now: float) -> None:
        """Forget those whose publisher has left, or sends nothing."""
        for link, each in list(self._chosen.items()):
            has_come = each.ingress.window.end > each.number
            is_here = each.ingress.link == link and self._core.ingresses.get(each.ingress.key) is each.ingress
            if not is_here or not (has_come or now - each.chosen_at < PATIENCE_S):
                del self._chosen[link]

    def _on_outcomes(self, effect: Dispose) -> None:
        each = self._chosen.get(effect.link)
        if each is None or each.ingress.window.next_accept <= each.number:
            return
        del self._chosen[effect.link]
        if not self._chosen:
            self._driver.watch_outcomes(None)
        arrived = arrival_of(each.ingress.arrivals, each.number)
        if arrived is not None:
            now = time.monotonic()
            self._found.note(topic_name(each.ingress.topic), now, now - arrived)

    def quantiles(self, now: float) -> tuple[Mapping[str, Quantiles], Mapping[str, Quantiles]]:
        """Of five minutes and of the last one: by the names of topics; of all together under the empty one."""
        waiting: dict[str, list[float]] = {}
        for each in self._chosen.values():
            if each.ingress.window.end > each.number:
                age = now - each.ingress.arrivals.at(each.number)
                waiting.setdefault(topic_name(each.ingress.topic), []).append(age)
        return self._found.quantiles(now, waiting), self._found.quantiles(now, waiting, MINUTE_S)


def arrival_of(arrivals: Arrivals, number: int) -> float | None:
    """When a delivery arrived; None where its mark is no longer there, as of one that was settled with its outcome."""
    at = arrivals.at(number)
    is_known = arrivals.before(math.nextafter(at, -math.inf), number + 1) <= number
    return at if is_known else None
