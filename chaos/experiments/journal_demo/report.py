"""What the demo says at its end: tables, the verdict in one sentence, and one JSON line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from rich.console import Console

from chaos.experiments.journal_demo.verdict_core import Finding
from chaos.experiments.kills import Kill, count_kills, table_of_kills
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
class JournalResult:
    """One run.

    Attributes:
        messages: rows that were to be published.
        accepted: of them, those that were accepted.
        findings: of the journal, then of each reader, a reader that replays once for each pass.
        kills: that were done.
        kills_planned: how many there should have been.
        seconds: from the start of the processes to the last one's end.
        problems: what kept the run from its end; empty when nothing did.
        kinds: of kills.
    """

    messages: int
    accepted: int
    findings: Sequence[Finding]
    kills: Sequence[Kill]
    kills_planned: int
    seconds: float
    problems: Sequence[str]
    kinds: Sequence[Enum] = tuple(Kind)

    @property
    def passed(self) -> bool:
        """True when the journal and each reader have each row once and in order, and every kill was done."""
        return not self.reasons()

    def reasons(self) -> list[str]:
        """Why the run did not pass: one line each."""
        reasons = list(self.problems)
        reasons += [
            f"{each.name}: lost {each.lost}, twice {each.twice}, reordered {each.reordered}, "
            f"unexpected {each.unexpected}"
            for each in self.findings
            if not each.is_exact
        ]
        if self.accepted != self.messages:
            reasons.append(f"only {self.accepted} of {self.messages} rows were accepted")
        if len(self.kills) < self.kills_planned:
            reasons.append(f"only {len(self.kills)} of {self.kills_planned} kills were done")
        return reasons

    def as_json(self) -> dict[str, object]:
        """The content of the JSON line."""
        return {
            "published": self.accepted,
            "stored": self.findings[0].count,
            "lost": sum(each.lost for each in self.findings),
            "duplicated": sum(each.twice for each in self.findings),
            "reordered": sum(each.reordered for each in self.findings),
            "unexpected": sum(each.unexpected for each in self.findings),
            "places": [asdict(each) for each in self.findings],
            "kills": count_kills(self.kinds, self.kills),
            "seconds": round(self.seconds, 1),
            "passed": self.passed,
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
