"""Rates of this router, for the inspector: its counters are read every five seconds, and cost a message nothing."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from delivery_records.model.outcomes import Decision
from router.clients.subscriber_link import SubscriberLink
from router.incarnations.incarnation import Incarnation
from router.operator.acceptance import AcceptanceTimes
from topology.inspector.rates_core import POINT_S, Counters, Quantiles, Series
from topology.inspector.rows_core import LINKS, PUBLISHERS, ROUTERS, SUBSCRIPTIONS, TOPICS, Row
from topology.inspector.topic_names_core import topic_name

CHOOSE_S = 1.0
"""Between two choices of deliveries whose acceptance is timed."""
PUBLISHED, DELIVERED, BYTES = "published_rate", "delivered_rate", "bytes_rate"
SERIES = {
    ROUTERS: (PUBLISHED, DELIVERED),
    LINKS: (BYTES,),
    TOPICS: (PUBLISHED, DELIVERED),
    SUBSCRIPTIONS: (DELIVERED,),
    PUBLISHERS: (PUBLISHED,),
}
"""What is measured in each table, by the names of the attributes that have it."""
_RECEIVED = (Decision.TRANSFER_STORED, Decision.TRANSFER_REPEATED, Decision.TRANSFER_PRESETTLED)
_SENT = (Decision.DELIVERED, Decision.DELIVERED_AGAIN)


class Rates:
    """Those of one incarnation, from its beginning to `stop`."""

    def __init__(self, incarnation: Incarnation) -> None:
        """Begin to look at the counters."""
        self._incarnation = incarnation
        self._core = incarnation.records
        self._series = {table: {name: Series() for name in names} for table, names in SERIES.items()}
        self._counters = {table: Counters() for table in (ROUTERS, LINKS, SUBSCRIPTIONS, PUBLISHERS)}
        self._times = AcceptanceTimes(incarnation)
        self._quantiles: Mapping[str, Quantiles] = {}
        self._of_minute: Mapping[str, Quantiles] = {}
        self._taken_at = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(CHOOSE_S, self._on_timer)

    def stop(self) -> None:
        """The incarnation is over."""
        self._timer.cancel()

    def _on_timer(self) -> None:
        self._timer = self._loop.call_later(CHOOSE_S, self._on_timer)
        now = time.monotonic()
        self._times.choose(now)
        if now - self._taken_at > POINT_S - CHOOSE_S / 2:
            self.take(now)

    def take(self, now: float) -> None:
        """One more point of everything."""
        seconds, self._taken_at = max(now - self._taken_at, CHOOSE_S), now
        core = self._core
        published = self._counters[PUBLISHERS].differences(self._publishers())
        delivered = self._counters[SUBSCRIPTIONS].differences(self._subscriptions())
        to_topics: Counter[str] = Counter()
        from_topics: Counter[str] = Counter()
        for key, count in published.items():
            publisher = core.view.publishers.get(key)
            if publisher is not None:
                to_topics[topic_name(publisher.record.topic)] += count
        for key, count in delivered.items():
            subscription = core.view.subscriptions.get(key)
            if subscription is not None:
                from_topics[topic_name(subscription.record.topic)] += count
        own = f"{core.rid:x}"
        all_of_it = self._counters[ROUTERS].differences(
            (name, 0, sum(core.counts[each] for each in decisions))
            for name, decisions in ((PUBLISHED, _RECEIVED), (DELIVERED, _SENT))
        )
        self._take(PUBLISHERS, PUBLISHED, published, seconds)
        self._take(SUBSCRIPTIONS, DELIVERED, delivered, seconds)
        self._take(TOPICS, PUBLISHED, to_topics, seconds)
        self._take(TOPICS, DELIVERED, from_topics, seconds)
        for name in SERIES[ROUTERS]:
            self._take(ROUTERS, name, {own: all_of_it.get(name, 0)}, seconds)
        self._take(LINKS, BYTES, self._counters[LINKS].differences(self._links()), seconds)
        self._quantiles, self._of_minute = self._times.quantiles(now)

    def _take(self, table: str, name: str, differences: Mapping[str, float], seconds: float) -> None:
        self._series[table][name].take(differences, seconds)

    # --- counters that are there anyway -------------------------------------------------------------------------------

    def _publishers(self) -> Iterable[tuple[str, int, int]]:
        for each in self._core.figures.publishers():
            if each.link is not None:
                yield each.key, each.link, each.received

    def _subscriptions(self) -> Iterable[tuple[str, int, int]]:
        shells = self._incarnation.driver.links
        for each in self._core.figures.subscribers():
            shell = shells.get(each.link)
            if isinstance(shell, SubscriberLink):
                yield each.key, each.link, shell.sent

    def _links(self) -> Iterable[tuple[str, int, int]]:
        own = self._core.rid
        for rid, link in self._incarnation.neighbours.links.items():
            yield f"{own:x}>{rid:x}", id(link), link.bytes_out
            yield f"{rid:x}>{own:x}", id(link), link.bytes_in

    # --- what the inspector shows -------------------------------------------------------------------------------------

    def of(self, table: str, key: str) -> Row:
        """The attributes of one row."""
        row: Row = {name: series.latest.get(key, 0.0) for name, series in self._series.get(table, {}).items()}
        return row | _accepted("accepted", self._quantiles, table, key)

    def keys(self, table: str) -> set[str]:
        """Rows in which something moved in the last five minutes."""
        return {key for series in self._series[table].values() for key in series.moved()}

    def history(self, table: str, key: str, points: int) -> Row:
        """The last points of one row, by the names of its attributes, and its times of acceptance in a minute."""
        row: Row = {name: series.points(key)[-points:] for name, series in self._series[table].items()}
        return row | _accepted("accepted_minute", self._of_minute, table, key)

    @property
    def age_s(self) -> float:
        """How long ago the last point was taken."""
        return time.monotonic() - self._taken_at


def _accepted(name: str, times: Mapping[str, Quantiles], table: str, key: str) -> Row:
    """The times of a row; nothing of tables that have none."""
    if table not in (TOPICS, ROUTERS):
        return {}
    found = times.get(key if table == TOPICS else "")
    return {
        f"{name}_p50_s": None if found is None else found.p50,
        f"{name}_p99_s": None if found is None else found.p99,
    }
