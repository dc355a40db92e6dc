"""What was refused at the doors of a process, for Prometheus; names that a router has, too, are the router's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from bridges.doors.gates import Doors


def of_doors(doors: Doors, logins_failed: str) -> Iterator[Metric]:
    """All families; `logins_failed` is the name of the last one."""
    gates = doors.gates.values()
    yield counts(
        "oncewire_connections_turned_away",
        "Connections refused, or closed before they had said who they are",
        "listener",
        {each.name: each.admission.closed + each.admission.refused for each in gates},
    )
    opening = GaugeMetricFamily(
        "oncewire_connections_opening", "Connections that have not said who they are", labels=["listener"]
    )
    for each in gates:
        opening.add_metric([each.name], each.admission.count)
    yield opening
    yield CounterMetricFamily(
        "oncewire_tls_handshakes_failed", "TLS handshakes that failed at the listeners", value=doors.handshakes_failed
    )
    yield counts(logins_failed, "Wrong secrets, passwords and tokens", "listener", doors.logins_failed)


def counts(name: str, text: str, label: str, found: Mapping[str, int]) -> Metric:
    """A counter with one label."""
    family = CounterMetricFamily(name, text, labels=[label])
    for key, count in list(found.items()):
        family.add_metric([key], count)
    return family
