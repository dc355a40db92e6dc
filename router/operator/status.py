"""What the router reports about itself over HTTP: readiness, numbers, tables. Gathered only when asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from delivery_records.diagnostics.figures import Totals
from delivery_records.model.durations import Durations
from router.peers.neighbours import NeighbourNumbers


@dataclass(slots=True)
class VhostNumbers:
    """What one virtual host has at this router."""

    connections: int = 0
    publishers: int = 0
    subscribers: int = 0
    unsettled: int = 0
    """Deliveries in the windows of its publishers."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Everything that is exported as a metric."""

    router: str
    version: str
    decisions: Mapping[str, int]
    """Decisions of the record core since the process started, by name."""
    durations: Durations
    core: Totals
    events: Mapping[str, int]
    """Log events by level."""
    faults: Mapping[str, int]
    """Faults of the router's own code, by what they ended (K-3b)."""
    spans: Mapping[str, int]
    """What became of spans; empty without telemetry."""
    incarnations: int
    connections: int
    accepted_connections: int
    refused_links: int
    refused_handshakes: int
    """TLS handshakes that failed at the listeners."""
    opening: Mapping[str, int]
    """Connections that have a place at a listener's gate (see `Admission`), by listener."""
    turned_away: Mapping[str, int]
    """Connections that a gate has refused or closed, by listener."""
    attach_delays: int
    """Times a client was not read because it attaches too often."""
    excess_closed: int
    """Connections that were closed for what they made the router hold."""
    client_bytes_in: int
    client_bytes_out: int
    lease_left_s: float
    """Until this router fences itself; 0 without an incarnation."""
    lease_age_s: float
    """Since the last keep-alive that etcd answered was sent; 0 without an incarnation."""
    is_history_lost: bool
    """Whether etcd lacks what the router has seen, and no operator has confirmed that (K-9)."""
    loop_lag_s: float
    worst_loop_lag_s: float
    routers_unreachable: int = 0
    """Routers in the view, other than this one, without a path."""
    loop_stalls: int = 0
    """Times the loop was so late that neighbours may soon give this router up."""
    neighbours: list[NeighbourNumbers] = field(default_factory=list)
    vhosts: Mapping[str, VhostNumbers] = field(default_factory=dict)
    """By name; empty without the setting vhosts."""


class Status(Protocol):
    """The router as its HTTP side sees it."""

    def waiting_for(self) -> list[str]:
        """What is missing until the router accepts clients; empty when the router is ready."""
        ...

    def draining(self) -> dict[str, object] | None:
        """`limit_s`, and `left_s` until it; None while the router serves (K-8a)."""
        ...

    def drain(self) -> None:
        """Let the clients move to other routers, then stop (K-8a)."""
        ...

    def numbers(self) -> Numbers:
        """Counters and gauges for metrics."""
        ...

    def tables(self) -> dict[str, object]:
        """Tables for people, JSON-able."""
        ...
