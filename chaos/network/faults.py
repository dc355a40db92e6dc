"""What was done to the network, and what it cost: the record of each fault of an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chaos.checker import Gap, longest_gap_within


@dataclass(frozen=True, slots=True)
class Fault:
    """Something done to a process or a connection under load."""

    t: float
    """When, on the clock of the journals."""
    target: str
    kind: str
    """What was done: a signal's name, or the name of another fault."""
    unsettled: int
    """Deliveries that were unsettled through the target just before."""


@dataclass(frozen=True, slots=True)
class FaultCost:
    """A fault with the longest gap any subscription had from then until the next fault."""

    fault: Fault
    gap_s: float

    def as_json(self, start: float) -> dict[str, object]:
        """Return what the demo's JSON line says of it; `start` is the beginning of the load."""
        return {
            "at_ms": round((self.fault.t - start) * 1000),
            "router": self.fault.target,
            "signal": self.fault.kind,
            "unsettled_then": self.fault.unsettled,
            "gap_ms": round(self.gap_s * 1000),
        }


def costs_of(faults: Sequence[Fault], gaps: Sequence[Gap]) -> list[FaultCost]:
    """Attribute to each fault the longest gap of the time until the next one."""
    ends = [later.t for later in faults[1:]] + [float("inf")] * bool(faults)
    costs = []
    for fault, end in zip(faults, ends, strict=True):
        costs.append(FaultCost(fault, longest_gap_from(gaps, fault.t, end)))
    return costs


def longest_gap_from(gaps: Sequence[Gap], start: float, end: float) -> float:
    """Seconds of the longest gap of the time from `start` to `end`; 0 when there was none."""
    gap = longest_gap_within(gaps, start, end)
    return 0.0 if gap is None else gap.seconds
