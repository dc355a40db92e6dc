"""Prometheus metrics of an application's clients and consumers.

A collector reads the statistics that clients keep anyway, when Prometheus asks: nothing is counted twice, and no
message passes through here. Nothing else imports this file: an application without metrics needs no package for them.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from oncewire.client.errors import UsageError
from oncewire.client.events import ClientStatistics, ConsumerStatistics
from oncewire.client.links import OpenLink
from oncewire.client.publisher import Publisher
from oncewire.client.subscriber import Subscriber

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
except ImportError as error:
    raise UsageError(
        "no metrics can be served", f"prometheus_client cannot be loaded ({error})", "run pip install prometheus-client"
    ) from error

LINK_LABELS = ("container", "link", "topic", "role")
Labels = tuple[str, ...]
Watched = TypeVar("Watched")


class WatchedClient(Protocol):
    """A client, of `oncewire.client` or `oncewire.client.sync`."""

    statistics: ClientStatistics

    @property
    def container_id(self) -> str:
        """The identity in use."""

    @property
    def links(self) -> list[OpenLink]:
        """Those that are open."""


class WatchedConsumer(Protocol):
    """A consumer over topics and a database."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def statistics(self) -> ConsumerStatistics:
        """What it has processed."""

    @property
    def is_idle(self) -> bool:
        """Whether all that has come is processed."""


@dataclass(frozen=True, slots=True)
class _Number:
    """One metric: its name behind `oncewire_client_`, what it means, whether it only grows."""

    name: str
    help: str
    counts: bool = True

    def family(self, labels: Iterable[str], samples: dict[Labels, float]) -> Metric:
        kind = CounterMetricFamily if self.counts else GaugeMetricFamily
        family = kind(f"oncewire_client_{self.name}", self.help, labels=list(labels))
        for values, number in samples.items():
            family.add_metric(list(values), number)
        return family


def _unfinished(link: OpenLink) -> int:
    if isinstance(link, Publisher):
        return link.unfinished
    if isinstance(link, Subscriber):
        numbers = link.statistics
        return link.waiting + max(0, numbers.messages - numbers.accepted - numbers.not_accepted)
    return 0


_CONNECTIONS = _Number("connections", "Connections that were opened; more than one: it changed the router.")
_LINKS: tuple[tuple[_Number, Callable[[OpenLink], float]], ...] = (
    (
        _Number("link_messages", "Publisher: messages taken. Subscriber: deliveries handed to the application."),
        lambda link: link.statistics.messages,
    ),
    (_Number("link_accepted", "Of these, how many ended with accepted."), lambda link: link.statistics.accepted),
    (
        _Number("link_not_accepted", "Of these, how many ended with another outcome."),
        lambda link: link.statistics.not_accepted,
    ),
    (
        _Number("link_copies", "Copies that a subscriber with `deduplicate` dropped."),
        lambda link: link.statistics.copies,
    ),
    (_Number("link_resumed", "Times the link was resumed at a router."), lambda link: link.statistics.resumed_links),
    (
        _Number("link_longest_gap_seconds", "Longest time the link was disconnected.", counts=False),
        lambda link: link.statistics.longest_gap_s,
    ),
    (
        _Number("link_unfinished", "Messages and deliveries that are here and have no outcome.", counts=False),
        _unfinished,
    ),
)
_OLDEST = _Number("link_oldest_seconds", "Time since the oldest unfinished message was first seen here.", counts=False)
_CONSUMERS: tuple[tuple[_Number, Callable[[WatchedConsumer], float]], ...] = (
    (
        _Number("consumer_transactions", "Transactions that processed something."),
        lambda consumer: consumer.statistics.transactions,
    ),
    (_Number("consumer_messages", "Messages processed."), lambda consumer: consumer.statistics.messages),
    (
        _Number("consumer_dead_letters", "Messages published as dead letters."),
        lambda consumer: consumer.statistics.dead_letters,
    ),
    (_Number("consumer_skipped", "Messages kept in the store instead."), lambda consumer: consumer.statistics.skipped),
    (
        _Number("consumer_idle", "1: all that came is processed, all that it published is accepted.", counts=False),
        lambda consumer: consumer.is_idle,
    ),
)


class _Seen(NamedTuple):
    """The number of the oldest unfinished message of a publisher, and when it was first seen."""

    number: int
    at: float


class ClientCollector:
    """Serves the statistics of clients and consumers as metrics of Prometheus.

    ``ClientCollector().watch(connection, consumer)``, then `prometheus_client.start_http_server(9100)`, or its
    `make_asgi_app()` in a web service. It may be asked from any thread.

    Args:
        registry: to register with; None = with none, for a program that registers it itself.
        clock: seconds that only grow.
    """

    def __init__(
        self, registry: CollectorRegistry | None = REGISTRY, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._clients: list[weakref.ref[WatchedClient]] = []
        self._consumers: list[weakref.ref[WatchedConsumer]] = []
        self._seen: weakref.WeakKeyDictionary[Publisher, _Seen] = weakref.WeakKeyDictionary()
        if registry is not None:
            registry.register(self)

    def watch(self, *watched: WatchedClient | WatchedConsumer) -> ClientCollector:
        """Serve these, too, as long as the application has them. Returns the collector.

        Of two with one container-id, or one name, the last that was passed counts: a service that opens its client
        again passes the new one.
        """
        for each in watched:
            if isinstance(each.statistics, ConsumerStatistics):
                self._consumers.append(weakref.ref(each))
            else:
                self._clients.append(weakref.ref(each))
        return self

    def describe(self) -> list[Metric]:
        """What it serves, without a look at any client: a registry asks once."""
        return [
            _CONNECTIONS.family(["container"], {}),
            *(number.family(LINK_LABELS, {}) for number, _ in _LINKS),
            _OLDEST.family(LINK_LABELS, {}),
            *(number.family(["consumer"], {}) for number, _ in _CONSUMERS),
        ]

    def collect(self) -> Iterator[Metric]:
        """The metrics now; Prometheus' client asks for them."""
        clients, consumers = _alive(self._clients), _alive(self._consumers)
        links = {labels: link for client in clients for labels, link in _links_of(client)}
        yield _CONNECTIONS.family(
            ["container"], {(client.container_id,): client.statistics.connections for client in clients}
        )
        for number, read in _LINKS:
            yield number.family(LINK_LABELS, {labels: read(link) for labels, link in links.items()})
        oldest = {labels: self._oldest(link) for labels, link in links.items() if isinstance(link, Publisher)}
        yield _OLDEST.family(LINK_LABELS, oldest)
        for of_consumer, value in _CONSUMERS:
            yield of_consumer.family(["consumer"], {(each.name,): value(each) for each in consumers})

    def _oldest(self, publisher: Publisher) -> float:
        """Seconds; messages do not carry the time at which they were sent, so it begins with the first look."""
        oldest, now = next(iter(publisher._unanswered), None), self._clock()
        if oldest is None:
            self._seen.pop(publisher, None)
            return 0.0
        seen = self._seen.get(publisher)
        if seen is None or seen.number != oldest.number:
            seen = self._seen[publisher] = _Seen(oldest.number, now)
        return now - seen.at


def _alive(references: list[weakref.ref[Watched]]) -> list[Watched]:
    """What the application still has; the others are forgotten."""
    found = [(each, known) for each in list(references) if (known := each()) is not None]
    references[:] = [each for each, _ in found]
    return [known for _, known in found]


def _links_of(client: WatchedClient) -> Iterator[tuple[Labels, OpenLink]]:
    for link in client.links:
        role = "subscriber" if isinstance(link, Subscriber) else "publisher"
        yield (client.container_id, link.name, link.topic, role), link
