"""All edits, and the rules that none can take out.

An edit is named by the counterexample (C1 to C16), mutant or finding (F1 to F39) of docs/counterexamples.md that made
its rule, or by what the edited code does.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from chaos.mutants.edits import Edit, read_edits
from chaos.sources import source_of

__all__ = ["ALL", "DIRECTED", "EDITS", "LATER", "WITHOUT", "Elsewhere", "by_name"]

RULES = source_of("chaos.mutants").parent / "rules"
"""A file for each part of the code, a table for each edit: see `chaos.mutants.edits.Edit`."""
_FILES = (
    "store ingress egress channel client drain operator patience identity require sharing filter copies policy "
    "letters expiry large departure resuming annotations"
)
"""In the order of the table of mutants."""

EDITS: tuple[Edit, ...] = tuple(edit for name in _FILES.split() for edit in read_edits(RULES / f"{name}.toml"))
"""Shown by seeds."""
DIRECTED = read_edits(RULES / "directed.toml")
"""Shown by a schedule that is written down in `tests/delivery_records/scenarios`, which no seed finds."""
ALL = (*EDITS, *DIRECTED)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Why seeds cannot show that a rule is missing, and the test that does."""

    reason: str
    test: str
    """`path::function`, below tests."""


WITHOUT = {rule: Elsewhere(**said) for rule, said in tomllib.loads((RULES / "elsewhere.toml").read_text()).items()}
"""Rules that no edit takes out, or whose absence no guarantee shows."""

LATER: frozenset[str] = frozenset()
"""Rules that are not built."""


def by_name(name: str) -> Edit:
    """The edit of that name."""
    return next(edit for edit in ALL if edit.name == name)
