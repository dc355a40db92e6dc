"""The committed table of mutants, `mutants.json` beside the ledger: the campaign fills it in, the page shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.campaign.kills import Kill, shipped_failures
from chaos.evidence.ledger import LedgerError, replace_file


@dataclass(slots=True)
class MutantsTable:
    """What came of the mutants of one catalogue on one version of the code."""

    code: str = ""
    """`chaos.campaign.version.code_version` of the cores and the simulator."""
    catalogue: str = ""
    """`chaos.campaign.version.mutants_version`: the same with the catalogue."""
    seeds_each: int = 0
    names: list[str] = field(default_factory=list)
    """All mutants of the catalogue, in its order."""
    rows: dict[str, Kill] = field(default_factory=dict)
    """By name, those that were tried."""

    @property
    def killed(self) -> int:
        """How many were killed."""
        return sum(row.is_killed for row in self.rows.values())

    @property
    def is_done(self) -> bool:
        """True when every mutant of the catalogue was tried and killed, and the shipped cores broke nothing there."""
        return 0 < len(self.names) == self.killed and not self.shipped_failures

    @property
    def shipped_failures(self) -> list[str]:
        """Where the shipped cores broke a guarantee on the way, in a sentence each."""
        return shipped_failures(self.ordered())

    def ordered(self) -> list[Kill]:
        """The rows in the order of the catalogue."""
        return [self.rows[name] for name in self.names if name in self.rows]

    def write(self, path: Path) -> None:
        """Replace the file as a whole.

        Raises:
            LedgerError: the file cannot be written.
        """
        content = {
            "code": self.code,
            "catalogue": self.catalogue,
            "seeds_each": self.seeds_each,
            "names": self.names,
            "total": len(self.names),
            "killed": self.killed,
            "rows": [row.as_json() for row in self.ordered()],
        }
        replace_file(path, json.dumps(content, indent=1) + "\n")


def read_table(path: Path) -> MutantsTable:
    """The table of the file; an empty one where there is none.

    Raises:
        LedgerError: the file cannot be read, or is no table.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = [_kill(row) for row in content["rows"]]
        return MutantsTable(
            content["code"],
            content["catalogue"],
            content["seeds_each"],
            content["names"],
            {row.name: row for row in rows},
        )
    except FileNotFoundError:
        return MutantsTable()
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise LedgerError(
            f"the table of mutants {path} cannot be read", why, "remove it; the campaign makes it anew"
        ) from None


def _kill(row: Mapping[str, Any]) -> Kill:
    return Kill(
        row["name"],
        row["rule"],
        row["why"],
        tuple(row["aim"]),
        row["seeds"],
        row["found_as"],
        row["violation"],
        row["crash"],
        row["shipped_seed"],
        row["shipped_violation"],
        row["cpu_s"],
        row["directed"],
    )
