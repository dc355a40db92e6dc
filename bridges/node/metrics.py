"""Metrics of a node for Prometheus. Hot paths count in plain ints; this reads them on a scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bridges.doors.metrics import counts, of_doors
from bridges.node.node import BridgeNode
from bridges.node.server import Server

_OF_SUBSCRIPTION = {
    "last": ("oncewire_node_journal_last", "Newest position of the journal"),
    "trimmed": ("oncewire_node_journal_trimmed", "Position up to which the pipeline is done"),
    "live_bytes": ("oncewire_node_journal_bytes", "Bytes the journal keeps"),
    "max_bytes": ("oncewire_node_journal_max_bytes", "Bytes at which the journal takes no more messages"),
    "is_full": ("oncewire_node_journal_full", "1 while no messages are taken"),
    "unread_s": ("oncewire_node_journal_unread_seconds", "Seconds since a query has asked for the subscription"),
    "producers": ("oncewire_node_producers", "Producers that number their messages"),
}
_COUNTS_OF_SUBSCRIPTION = {
    "dropped": ("oncewire_node_journal_dropped", "Messages deleted that no query had processed (drop_unread_s)"),
    "groups": ("oncewire_node_journal_commits", "Groups of messages written to the journal"),
    "commit_seconds": ("oncewire_node_journal_commit_seconds", "Time these took until they were durable"),
    "new_incarnations": (
        "oncewire_node_subscription_incarnations",
        "Times the network had deleted the subscription: messages are missing",
    ),
}
_OF_SINK = {
    "waiting_manifests": ("oncewire_node_outbox_waiting_batches", "Batches decided and not yet published"),
    "waiting_bytes": ("oncewire_node_outbox_waiting_bytes", "Bytes of them"),
    "staged_bytes": ("oncewire_node_outbox_staged_bytes", "Bytes staged for batches that are not decided"),
    "unfinished": ("oncewire_node_outbox_unfinished", "Rows that were sent and have no outcome"),
    "epoch": ("oncewire_node_outbox_epoch", "Epoch of the newest run that writes"),
}


class NodeCollector(Collector):
    """Turns the node's state into metric families at each scrape."""

    def __init__(self, node: BridgeNode, server: Server) -> None:
        self._node = node
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """All metrics of this moment."""
        state: dict[str, Any] = self._node.state()
        yield GaugeMetricFamily("oncewire_node_ready", "1 when everything is attached", state["ready"])
        yield GaugeMetricFamily("oncewire_node_connections", "Connections of pipelines", self._server.connection_count)
        yield counts("oncewire_node_requests", "Requests of pipelines", "op", self._server.requests)
        yield counts("oncewire_node_request_errors", "Requests refused", "code", self._server.errors)
        yield from of_doors(self._server.doors, "oncewire_node_logins_failed")
        yield from _gauges(_OF_SUBSCRIPTION, "subscription", state["subscriptions"])
        for key, (name, text) in _COUNTS_OF_SUBSCRIPTION.items():
            counter = CounterMetricFamily(name, text, labels=["subscription"])
            for subscription, values in state["subscriptions"].items():
                counter.add_metric([subscription], values[key])
            yield counter
        yield GaugeMetricFamily(
            "oncewire_node_subscriptions_ended", "Subscriptions not received any more", len(state["ended"])
        )
        yield _two_labels(
            "oncewire_node_messages",
            "Messages received",
            ("subscription", "judgement"),
            "messages",
            state["subscriptions"],
        )
        yield from _gauges(_OF_SINK, "sink", state["sinks"])
        yield _two_labels("oncewire_node_rows", "Rows published", ("sink", "outcome"), "outcomes", state["sinks"])


def _gauges(
    names: Mapping[str, tuple[str, str]], label: str, states: Mapping[str, Mapping[str, Any]]
) -> Iterator[Metric]:
    for key, (name, text) in names.items():
        family = GaugeMetricFamily(name, text, labels=[label])
        for item, values in states.items():
            family.add_metric([item], float(values[key]))
        yield family


def _two_labels(
    name: str, text: str, labels: tuple[str, str], key: str, states: Mapping[str, Mapping[str, Any]]
) -> Metric:
    family = CounterMetricFamily(name, text, labels=list(labels))
    for item, values in states.items():
        for kind, count in values[key].items():
            family.add_metric([item, kind], count)
    return family


class Metrics:
    """The registry of one node."""

    def __init__(self, node: BridgeNode, server: Server) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(NodeCollector(node, server))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self._registry)
