"""What the router tells about itself over HTTP: readiness, numbers, tables. Gathered only when asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class NeighbourNumbers:
    """Counters of the link to one neighbour."""

    node_id: str
    cost: int
    bytes_in: int
    bytes_out: int
    waiting_bytes: int
    dropped_frames: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """Everything that is exported as a metric."""

    decisions: Mapping[str, int]
    """Decisions of the record core since the process started, by name."""
    incarnations: int
    connections: int
    accepted_connections: int
    refused_links: int
    client_bytes_in: int
    client_bytes_out: int
    publisher_links: int
    subscriber_links: int
    window_deliveries: int
    window_bytes: int
    held_deliveries: int
    applied_revision: int
    lease_left_s: float
    """Until this router fences itself; 0 without an incarnation."""
    loop_lag_s: float
    worst_loop_lag_s: float
    loop_stalls: int = 0
    """Times the loop was so late that neighbours may soon give this router up."""
    neighbours: list[NeighbourNumbers] = field(default_factory=list)


class Status(Protocol):
    """The router as its HTTP side sees it."""

    def waiting_for(self) -> list[str]:
        """What is missing until clients are welcome; empty when the router is ready."""
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
