"""What seeds of both kinds of worlds find."""

from __future__ import annotations

from chaos.queries.code import Code
from chaos.queries.journal_world import BatchesWorld
from chaos.queries.world import QueryWorld
from chaos.routed.world import Kind, Result, simulate

OF_AN_EDGE = "J-29"
"""The rule of queries on journals of edges; all others are of bridge nodes."""


def kind_of(rule: str) -> Kind:
    """The world that shows that a rule is missing."""
    return BatchesWorld if rule == OF_AN_EDGE else QueryWorld


def first_finding(code: Code, seeds: int, kind: Kind) -> Result | None:
    """The first of the seeds that finds something."""
    for seed in range(seeds):
        result = simulate(code, seed, kind)
        if result.violation:
            return result
    return None
