"""Metrics for Prometheus. Hot paths count in plain ints; this reads them when somebody scrapes.

Labels are bounded: names of rules, outcomes, levels, routers and virtual hosts, never a client's name.
`docs/monitoring.md` says what each metric means and when to act.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from delivery_records.diagnostics.waits import Reason
from delivery_records.model.durations import BOUNDS_S, Histogram
from delivery_records.model.outcomes import Decision
from router.operator.status import Numbers, Status
from topology.inspector.schema.model import EntityType
from topology.inspector.schema.own import NEIGHBOUR, OVERVIEW
from topology.keys.epochs import revision_of

_COUNTERS = {
    "incarnations": ("oncewire_incarnations", "Lives of this router since its process started"),
    "accepted_connections": ("oncewire_client_connections_accepted", "Client connections accepted"),
    "loop_stalls": (
        "oncewire_loop_stalls",
        "Times the event loop was stalled for half of the time after which neighbours route around the router",
    ),
    "refused_handshakes": ("oncewire_tls_handshakes_failed", "TLS handshakes that failed at the listeners"),
    "attach_delays": ("oncewire_attach_delays", "Times a client was not read because it attaches too often"),
    "excess_closed": (
        "oncewire_connections_closed_for_excess",
        "Client connections closed for what they made the router hold",
    ),
    "refused_links": ("oncewire_links_refused", "Attaches refused before the record core heard of them"),
}
_GAUGES = {
    "is_history_lost": (
        "oncewire_history_lost",
        "1: etcd lacks what this router has seen, and the router waits for an operator",
    ),
    "lease_age_s": ("oncewire_lease_age_seconds", "Since etcd last answered a keep-alive of this router"),
    "loop_lag_s": ("oncewire_loop_lag_seconds", "How late the event loop was last"),
    "worst_loop_lag_s": ("oncewire_loop_lag_worst_seconds", "How late it was at most since the last scrape"),
}
_CORE_GAUGES = {
    "window_deliveries": ("oncewire_window_deliveries", "Unsettled deliveries in the windows of this router"),
    "window_bytes": ("oncewire_window_bytes", "Bytes of their bodies"),
    "held_deliveries": ("oncewire_held_deliveries", "Deliveries that wait for a subscriber's credit"),
    "publisher_credit": ("oncewire_publisher_credit_deliveries", "Deliveries that publishers here may send now"),
    "publishers_without_credit": ("oncewire_publishers_without_credit", "Attached publishers that may send nothing"),
    "subscriber_credit": ("oncewire_subscriber_credit_deliveries", "Deliveries that subscribers here take now"),
    "subscribers_without_credit": ("oncewire_subscribers_without_credit", "Attached subscribers that take nothing"),
    "dead_letters_waiting": (
        "oncewire_dead_letters_waiting",
        "Dead letters of publishers here that no subscription is there for",
    ),
    "trace_steps": ("oncewire_trace_steps", "Steps of deliveries that the trace holds"),
}
_DELIVERIES = {
    "oncewire_deliveries_received": (
        "Deliveries from publishers",
        "kind",
        {
            "new": Decision.TRANSFER_STORED,
            "again": Decision.TRANSFER_REPEATED,
            "presettled": Decision.TRANSFER_PRESETTLED,
            "malformed": Decision.TRANSFER_MALFORMED,
        },
    ),
    "oncewire_deliveries_reported": (
        "Deliveries whose outcome was reported to their publisher",
        "outcome",
        {
            "accepted": Decision.DELIVERY_ACCEPTED,
            "rejected": Decision.DELIVERY_REJECTED,
            "released": Decision.DELIVERY_RELEASED,
        },
    ),
    "oncewire_deliveries_sent": (
        "Deliveries to subscribers",
        "kind",
        {
            "first": Decision.DELIVERED,
            "again": Decision.DELIVERED_AGAIN,
            "dropped": Decision.DROPPED_AT_MOST_ONCE,
            "expired": Decision.EXPIRED,
        },
    ),
    "oncewire_deliveries_answered": (
        "What subscribers said of deliveries: done with them, or wanted again",
        "answer",
        {"done": Decision.OUTCOME_DONE, "again": Decision.OUTCOME_AGAIN},
    ),
    "oncewire_deliveries_settled": (
        "Deliveries settled by publishers, and at subscribers",
        "side",
        {
            "publisher": Decision.DELIVERY_SETTLED,
            "publisher-early": Decision.DELIVERY_GIVEN_UP,
            "subscriber": Decision.SETTLED_AT_SUBSCRIBER,
        },
    ),
    "oncewire_dead_letters": (
        "Failed messages: sent to their dead-letter topic, done there, without a subscriber there, or without a topic",
        "event",
        {
            "sent": Decision.DEAD_LETTER_SENT,
            "done": Decision.DEAD_LETTER_DONE,
            "waited": Decision.DEAD_LETTER_WAITS,
            "given-up": Decision.DEAD_LETTER_GIVEN_UP,
            "no-topic": Decision.DELIVERY_FAILED,
        },
    ),
}


class RouterCollector(Collector):
    """Turns the router's numbers into metric families at each scrape."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """All metrics of this moment."""
        numbers = self._status.numbers()
        yield from _overview(self._status, numbers)
        for name, (metric, text) in _COUNTERS.items():
            yield CounterMetricFamily(metric, text, value=getattr(numbers, name))
        for name, (metric, text) in _GAUGES.items():
            yield GaugeMetricFamily(metric, text, value=getattr(numbers, name))
        for name, (metric, text) in _CORE_GAUGES.items():
            yield GaugeMetricFamily(metric, text, value=getattr(numbers.core, name))
        info = GaugeMetricFamily("oncewire_router_info", "Always 1", labels=["router", "version"])
        info.add_metric([numbers.router, numbers.version], 1)
        yield info
        # Zeros, too, here and below: a rate needs a beginning.
        decisions = {decision.value: 0 for decision in Decision} | dict(numbers.decisions)
        yield _labelled("oncewire_decisions", "Decisions of the record core", "decision", decisions)
        yield _labelled("oncewire_events", "Log events, shown or not", "level", numbers.events)
        yield _labelled(
            "oncewire_faults", "Faults of the router's own code, by what they ended", "part", numbers.faults
        )
        yield _labelled(
            "oncewire_connections_turned_away",
            "Connections refused, or closed before they had said who they are",
            "listener",
            numbers.turned_away,
        )
        opening = GaugeMetricFamily(
            "oncewire_connections_opening", "Connections that have not said who they are", labels=["listener"]
        )
        for listener, count in numbers.opening.items():
            opening.add_metric([listener], count)
        yield opening
        yield _labelled("oncewire_spans", "Spans for the OpenTelemetry collector", "result", numbers.spans)
        yield from _deliveries(numbers)
        yield from _durations(numbers)
        yield from _clients(numbers)
        yield from _vhosts(numbers)
        yield from _neighbours(numbers)


def _labelled(metric: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(metric, text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _deliveries(numbers: Numbers) -> Iterator[Metric]:
    for metric, (text, label, decisions) in _DELIVERIES.items():
        counts = {value: numbers.decisions.get(decision.value, 0) for value, decision in decisions.items()}
        yield _labelled(metric, text, label, counts)
    late = numbers.core.late
    yield GaugeMetricFamily(
        "oncewire_delivery_oldest_seconds", "Age of the oldest unsettled delivery here", value=late.oldest_s
    )
    yield GaugeMetricFamily(
        "oncewire_publishers_waiting", "Publishers here with unsettled deliveries", value=late.publishers
    )
    for metric, text, counted in (
        ("oncewire_deliveries_delayed", "Unsettled deliveries here that are older than 1 s", late.delayed),
        ("oncewire_deliveries_stuck", "Unsettled deliveries here that are older than 10 s", late.stuck),
    ):
        family = GaugeMetricFamily(metric, text, labels=["waits_for"])
        for reason in Reason:
            family.add_metric([reason.value], counted[reason])
        yield family


def _durations(numbers: Numbers) -> Iterator[Metric]:
    durations = numbers.durations
    attach = HistogramMetricFamily("oncewire_attach_seconds", "From an attach to its entry in etcd", labels=["kind"])
    for kind, found in (("publisher", durations.attach_publisher), ("subscriber", durations.attach_subscriber)):
        attach.add_metric([kind], _buckets(found), found.sum_s)
    yield attach
    for metric, text, found in (
        ("oncewire_barrier_seconds", "From there until every router knows the subscription", durations.barrier),
        (
            "oncewire_failover_seconds",
            "From a publisher's attach until all it had unsettled has come again",
            durations.failover,
        ),
    ):
        yield HistogramMetricFamily(metric, text, _buckets(found), found.sum_s)


def _buckets(found: Histogram) -> list[tuple[str, int]]:
    bounds = [*(str(bound) for bound in BOUNDS_S), "+Inf"]
    return list(zip(bounds, accumulate(found.counts), strict=True))


def _clients(numbers: Numbers) -> Iterator[Metric]:
    transferred = CounterMetricFamily("oncewire_client_bytes", "Bytes from and to clients", labels=["direction"])
    transferred.add_metric(["in"], numbers.client_bytes_in)
    transferred.add_metric(["out"], numbers.client_bytes_out)
    yield transferred
    links = GaugeMetricFamily("oncewire_links", "Attached client links", labels=["kind"])
    links.add_metric(["publisher"], numbers.core.publisher_links)
    links.add_metric(["subscriber"], numbers.core.subscriber_links)
    yield links


def _vhosts(numbers: Numbers) -> Iterator[Metric]:
    connections = GaugeMetricFamily("oncewire_vhost_connections", "Client connections", labels=["vhost"])
    links = GaugeMetricFamily("oncewire_vhost_links", "Attached client links", labels=["vhost", "kind"])
    unsettled = GaugeMetricFamily("oncewire_vhost_unsettled_deliveries", "Unsettled deliveries", labels=["vhost"])
    for name, found in numbers.vhosts.items():
        connections.add_metric([name], found.connections)
        links.add_metric([name, "publisher"], found.publishers)
        links.add_metric([name, "subscriber"], found.subscribers)
        unsettled.add_metric([name], found.unsettled)
    yield from (connections, links, unsettled)


def _neighbours(numbers: Numbers) -> Iterator[Metric]:
    yield GaugeMetricFamily("oncewire_neighbours", "Links to other routers", value=len(numbers.neighbours))
    yield GaugeMetricFamily(
        "oncewire_routers_unreachable", "Routers in etcd to which there is no path", value=numbers.routers_unreachable
    )
    yield from _of_entities(NEIGHBOUR, "neighbour", {each.node_id: each for each in numbers.neighbours})


def _of_entities(entity: EntityType, label: str, entities: Mapping[str, object]) -> Iterable[Metric]:
    """The metrics of the schema that show attributes of each of these entities, labelled with their names."""
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for attribute, metric in entity.metrics():
        directions = [metric.direction] if metric.direction else []
        if metric.name not in families:
            kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            labels = [label, "direction"] if directions else [label]
            families[metric.name] = kind(metric.name, metric.help, labels=labels)
        for name, each in entities.items():
            families[metric.name].add_metric([name, *directions], getattr(each, attribute))
    return families.values()


def _overview(status: Status, numbers: Numbers) -> Iterator[Metric]:
    """The metrics of the schema that show the router itself."""
    core = numbers.core
    values: Mapping[str, float] = {
        "ready": not status.waiting_for(),
        "draining": status.draining() is not None,
        "lease_left_s": numbers.lease_left_s,
        "applied": revision_of(core.applied_revision),
        "routers": core.routers,
        "subscriptions": core.subscriptions,
        "publishers": core.publishers,
        "joining": core.barriers_waiting,
        "connections": numbers.connections,
    }
    for attribute, metric in OVERVIEW.metrics():
        yield GaugeMetricFamily(metric.name, metric.help, values[attribute])


class Metrics:
    """The registry of one router process."""

    def __init__(self, status: Status) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(RouterCollector(status))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self._registry)
