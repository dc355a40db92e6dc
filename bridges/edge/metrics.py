"""Metrics of an edge for Prometheus: the same families for parts of each kind, with the labels `kind` and `name`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bridges.doors.gates import Doors
from bridges.doors.metrics import of_doors
from bridges.edge.supervisor import Shown

GAUGES: Mapping[str, str] = {
    "bytes": "Bytes that it stores",
    "max_bytes": "Bytes at which it takes no more",
    "full": "1 while it takes nothing more, and publishers wait",
    "readers": "Readers that are attached, and those whose place it keeps",
    "reader_lag": "Messages that its slowest reader has not read",
    "late_readers": "Readers whose next message was trimmed: they are refused until their cursors are moved",
    "dead": "Dead letters",
    "reserved": "Items that a worker has reserved",
    "unpublished": "Messages that ended otherwise than accepted, and wait for a decision",
}
"""What parts may have in `Row.gauges`; the metric is `oncewire_edge_part_NAME`."""
_LABELS = ["kind", "name"]


class EdgeCollector(Collector):
    """Turns what was read of the parts into metric families."""

    def __init__(self, edge: str, doors: Doors) -> None:
        self._edge = edge
        self._doors = doors
        self.parts: Sequence[Shown] = ()
        self.waiting_for: Sequence[str] = ()

    def collect(self) -> Iterator[Metric]:
        """All metrics of this moment."""
        info = GaugeMetricFamily("oncewire_edge_info", "Its name, as a label", labels=["edge"])
        info.add_metric([self._edge], 1)
        yield info
        yield GaugeMetricFamily("oncewire_edge_ready", "1 when all parts run and the store answers", self._is_ready)
        runs = self._gauge("runs", "1 while it runs here, or stands by, without trouble")
        owner = self._gauge("owner", "1 while this edge runs it")
        depth = self._gauge("depth", "What waits in it")
        oldest = self._gauge("oldest_seconds", "For how long the oldest of that has waited")
        rate = self._gauge("rate", "What it has done each second of the last minute")
        restarts = CounterMetricFamily("oncewire_edge_part_restarts", "Times it was started again", labels=_LABELS)
        done = CounterMetricFamily("oncewire_edge_part_done", "Messages it took or published here", labels=_LABELS)
        more = {name: self._gauge(name, text) for name, text in GAUGES.items()}
        for each in self.parts:
            labels, row = [each.kind, each.name], each.row
            runs.add_metric(labels, not each.trouble and each.state in ("owner", "stands by"))
            owner.add_metric(labels, each.state == "owner")
            restarts.add_metric(labels, each.restarts)
            for family, value in ((depth, row.depth), (oldest, row.oldest_s), (rate, each.rate), (done, each.done)):
                if value is not None:
                    family.add_metric(labels, value)
            for name, value in row.gauges.items():
                more[name].add_metric(labels, value)
        yield from (runs, owner, restarts, depth, oldest, rate, done, *more.values())
        yield from of_doors(self._doors, "oncewire_edge_logins_failed")

    @property
    def _is_ready(self) -> float:
        return 0.0 if self.waiting_for else 1.0

    @staticmethod
    def _gauge(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"oncewire_edge_part_{name}", text, labels=_LABELS)


class Metrics:
    """The registry of one edge."""

    def __init__(self, edge: str, doors: Doors) -> None:
        self._collector = EdgeCollector(edge, doors)
        self._registry = CollectorRegistry()
        self._registry.register(self._collector)
        ProcessCollector(registry=self._registry)

    def text(self, parts: Sequence[Shown], waiting_for: Sequence[str]) -> bytes:
        """All metrics in the Prometheus text format, for what was read of the parts."""
        self._collector.parts, self._collector.waiting_for = parts, waiting_for
        return generate_latest(self._registry)
