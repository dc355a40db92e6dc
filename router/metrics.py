"""Metrics for Prometheus. Hot paths count in plain ints; this reads them when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.status import Numbers, Status

_COUNTERS = {
    "incarnations": ("oncewire_incarnations", "Lives of this router since its process started"),
    "accepted_connections": ("oncewire_client_connections_accepted", "Client connections accepted"),
    "loop_stalls": (
        "oncewire_loop_stalls",
        "Times the event loop stood still for half of what neighbours bear before they route around it",
    ),
    "refused_links": ("oncewire_links_refused", "Attaches refused before the record core heard of them"),
}
_GAUGES = {
    "connections": ("oncewire_client_connections", "Client connections that are open"),
    "window_deliveries": ("oncewire_window_deliveries", "Unsettled deliveries in the windows of this router"),
    "window_bytes": ("oncewire_window_bytes", "Bytes of their bodies"),
    "held_deliveries": ("oncewire_held_deliveries", "Deliveries that wait for a subscriber's credit"),
    "applied_revision": ("oncewire_applied_revision", "etcd revision this router has applied"),
    "lease_left_s": ("oncewire_lease_left_seconds", "Time until this router stops serving without etcd"),
    "loop_lag_s": ("oncewire_loop_lag_seconds", "How late the event loop was last"),
    "worst_loop_lag_s": ("oncewire_loop_lag_worst_seconds", "How late it was at most since the last scrape"),
}


class RouterCollector(Collector):
    """Turns the router's numbers into metric families at each scrape."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """All metrics of this moment."""
        numbers = self._status.numbers()
        for name, (metric, text) in _COUNTERS.items():
            yield CounterMetricFamily(metric, text, value=getattr(numbers, name))
        for name, (metric, text) in _GAUGES.items():
            yield GaugeMetricFamily(metric, text, value=getattr(numbers, name))
        yield GaugeMetricFamily(
            "oncewire_ready", "1 when clients are welcome", not self._status.waiting_for()
        )
        decisions = CounterMetricFamily(
            "oncewire_decisions", "Decisions of the record core", labels=["decision"]
        )
        for decision, count in numbers.decisions.items():
            decisions.add_metric([decision], count)
        yield decisions
        yield from _clients(numbers)
        yield from _neighbours(numbers)


def _clients(numbers: Numbers) -> Iterator[Metric]:
    transferred = CounterMetricFamily(
        "oncewire_client_bytes", "Bytes from and to clients", labels=["direction"]
    )
    transferred.add_metric(["in"], numbers.client_bytes_in)
    transferred.add_metric(["out"], numbers.client_bytes_out)
    yield transferred
    links = GaugeMetricFamily("oncewire_links", "Attached client links", labels=["kind"])
    links.add_metric(["publisher"], numbers.publisher_links)
    links.add_metric(["subscriber"], numbers.subscriber_links)
    yield links


def _neighbours(numbers: Numbers) -> Iterator[Metric]:
    yield GaugeMetricFamily("oncewire_neighbours", "Links to other routers", value=len(numbers.neighbours))
    transferred = CounterMetricFamily(
        "oncewire_neighbour_bytes", "Bytes from and to neighbours", labels=["neighbour", "direction"]
    )
    waiting = GaugeMetricFamily(
        "oncewire_neighbour_waiting_bytes", "Bytes that wait for a neighbour", labels=["neighbour"]
    )
    dropped = CounterMetricFamily(
        "oncewire_neighbour_dropped_frames",
        "Bodies dropped because a neighbour was slow",
        labels=["neighbour"],
    )
    for neighbour in numbers.neighbours:
        transferred.add_metric([neighbour.node_id, "in"], neighbour.bytes_in)
        transferred.add_metric([neighbour.node_id, "out"], neighbour.bytes_out)
        waiting.add_metric([neighbour.node_id], neighbour.waiting_bytes)
        dropped.add_metric([neighbour.node_id], neighbour.dropped_frames)
    yield from (transferred, waiting, dropped)


class Metrics:
    """The registry of one router process."""

    def __init__(self, status: Status) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(RouterCollector(status))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self._registry)
