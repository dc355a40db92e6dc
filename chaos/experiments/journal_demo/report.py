"""What the demo says at its end: tables, the verdict in one sentence, and one JSON line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from rich.console import Console

from chaos.experiments.journal_demo.verdict_core import Finding
from chaos.experiments.kills import table_of_kills
from chaos.experiments.stage import StageResult
from chaos.experiments.tables import flag, print_verdict, table_of


class Kind(Enum):
    """What is killed."""

    ROUTER = "router"
    EDGE = "edge"
    READER = "reader"


class Loss(Enum):
    """How an edge loses what it owns to another one."""

    KILLED = "edge killed"
    STOPPED = "edge stopped"
    CUT_OFF = "edge cut off from the database"


@dataclass(frozen=True, slots=True)
class JournalResult(StageResult):
    """One run; `findings`: of the journal, then of each reader, a reader that replays once for each pass."""

    findings: Sequence[Finding]

    def faults(self) -> list[str]:
        """See StageResult."""
        return [
            f"{each.name}: lost {each.lost}, twice {each.twice}, reordered {each.reordered}, "
            f"unexpected {each.unexpected}"
            for each in self.findings
            if not each.is_exact
        ]

    def figures(self) -> dict[str, object]:
        """See StageResult."""
        return {
            "stored": self.findings[0].count,
            "lost": sum(each.lost for each in self.findings),
            "duplicated": sum(each.twice for each in self.findings),
            "reordered": sum(each.reordered for each in self.findings),
            "unexpected": sum(each.unexpected for each in self.findings),
            "places": [asdict(each) for each in self.findings],
        }


def print_result(console: Console, result: JournalResult) -> None:
    """Print the tables and the verdict in one sentence."""
    console.print(table_of_kills(result.kinds, result.kills))
    table = table_of(f"of {result.accepted} rows", "messages", "lost", "twice", "reordered")
    for each in result.findings:
        table.add_row(each.name, str(each.count), flag(each.lost), flag(each.twice), flag(each.reordered))
    console.print(table)
    print_verdict(
        console,
        "",
        result.seconds,
        result.reasons(),
        f"{result.accepted} flights stored once and read {len(result.findings) - 1} times, "
        f"lost 0, twice 0, reordered 0; {len(result.kills)} kills survived",
    )
