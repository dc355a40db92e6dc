"""The modules under simulation, as they are or with one rule taken out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chaos.mutants.edits import Edit, read_edits
from chaos.routed.code import copies
from chaos.sources import source_of

MODULES = (
    "bridges.journal.log",
    "bridges.node.producers_core",
    "bridges.node.batch_ends",
    "bridges.node.gaps",
    "bridges.node.retention",
    "bridges.node.group_commit_core",
    "bridges.node.shard_core",
    "bridges.node.shards",
    "bridges.node.committed_order",
    "bridges.node.journal_tables",
    "bridges.node.journal_reader",
    "bridges.node.journal",
    "bridges.node.receiver",
    "bridges.node.storage",
    "bridges.node.node",
    "bridges.node.embedded",
    "bridges.spark.offsets",
    "bridges.spark.gap_checks",
    "bridges.spark.reading",
    "bridges.spark.journal_reading",
)
"""In the order in which they import each other."""
EDITS = read_edits(source_of("chaos.queries").with_name("mutants.toml"))
"""The rules, each taken out: a run of some seed must notice."""


@dataclass(frozen=True, slots=True)
class Code:
    """The modules of a run that the simulation itself uses, by the last part of their names."""

    shard_core: Any
    receiver: Any
    storage: Any
    node: Any
    embedded: Any
    reading: Any
    journal_reading: Any


def load(edit: Edit | None = None) -> Code:
    """A copy of the modules of its own, with an edit or without.

    Raises:
        EditError: the edit does not fit.
    """
    made = copies(MODULES, edit)
    short = {name.rpartition(".")[2]: module for name, module in made.items()}
    return Code(**{field: short[field] for field in Code.__slots__})
