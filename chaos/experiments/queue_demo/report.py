"""What the demo says at its end: tables, the verdict in one sentence, and one JSON line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from chaos.experiments.kills import Kill, count_kills, table_of_kills
from chaos.experiments.queue_demo.flight_core import Verdict
from chaos.experiments.queue_demo.processes import Kind
from chaos.experiments.tables import flag, print_verdict, table_of


@dataclass(frozen=True, slots=True)
class QueueResult:
    """One run.

    Attributes:
        messages: rows that were to be published.
        accepted: of them, those that were accepted.
        verdict: on what became of them.
        kills: that were done.
        kills_planned: how many there should have been.
        seconds: from the start of the processes to the last one's end.
        problems: what kept the run from its end; empty when nothing did.
    """

    messages: int
    accepted: int
    verdict: Verdict
    kills: Sequence[Kill]
    kills_planned: int
    seconds: float
    problems: Sequence[str]

    @property
    def passed(self) -> bool:
        """True when every row came out once or is one dead letter, and every kill was done."""
        return not self.reasons()

    def reasons(self) -> list[str]:
        """Why the run did not pass: one line each."""
        verdict = self.verdict
        reasons = list(self.problems)
        if not verdict.is_exact:
            reasons.append(
                f"lost {verdict.lost}, duplicated {verdict.duplicated}, effects twice {verdict.effects_twice}, "
                f"unexpected {verdict.unexpected}"
            )
        if self.accepted != self.messages:
            reasons.append(f"only {self.accepted} of {self.messages} rows were accepted")
        if len(self.kills) < self.kills_planned:
            reasons.append(f"only {len(self.kills)} of {self.kills_planned} kills were done")
        return reasons

    def as_json(self) -> dict[str, object]:
        """The content of the JSON line."""
        verdict = self.verdict
        return {
            "published": self.accepted,
            "received": verdict.received,
            "dead_letters": verdict.dead,
            "lost": verdict.lost,
            "duplicated": verdict.duplicated,
            "effects_twice": verdict.effects_twice,
            "unexpected": verdict.unexpected,
            "kills": count_kills(Kind, self.kills),
            "seconds": round(self.seconds, 1),
            "passed": self.passed,
        }


def print_result(console: Console, result: QueueResult) -> None:
    """Print the tables and the verdict in one sentence."""
    console.print(table_of_kills(Kind, result.kills))
    verdict = result.verdict
    table = table_of("published", "received", "dead\nletters", "lost", "duplicated", "effects\ntwice")
    wrong = (flag(verdict.lost), flag(verdict.duplicated), flag(verdict.effects_twice))
    table.add_row(str(result.accepted), str(verdict.received), str(verdict.dead), *wrong)
    console.print(table)
    print_verdict(
        console,
        "",
        result.seconds,
        result.reasons(),
        f"{result.accepted} flights in, {verdict.received} delays out, {verdict.dead} dead letters, "
        f"lost 0, done twice 0; {len(result.kills)} kills survived",
    )
