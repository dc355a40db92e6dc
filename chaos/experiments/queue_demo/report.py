"""What the demo says at its end: tables, the verdict in one sentence, and one JSON line."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from chaos.experiments.kills import table_of_kills
from chaos.experiments.queue_demo.flight_core import Verdict
from chaos.experiments.stage import StageResult
from chaos.experiments.tables import flag, print_verdict, table_of


@dataclass(frozen=True, slots=True)
class QueueResult(StageResult):
    """One run; `verdict` says what became of its rows: each came out once, or is one dead letter."""

    verdict: Verdict

    def faults(self) -> list[str]:
        """See StageResult."""
        verdict = self.verdict
        found = (
            f"lost {verdict.lost}, duplicated {verdict.duplicated}, effects twice {verdict.effects_twice}, "
            f"unexpected {verdict.unexpected}"
        )
        return [] if verdict.is_exact else [found]

    def figures(self) -> dict[str, object]:
        """See StageResult."""
        verdict = self.verdict
        return {
            "received": verdict.received,
            "dead_letters": verdict.dead,
            "lost": verdict.lost,
            "duplicated": verdict.duplicated,
            "effects_twice": verdict.effects_twice,
            "unexpected": verdict.unexpected,
        }


def print_result(console: Console, result: QueueResult) -> None:
    """Print the tables and the verdict in one sentence."""
    console.print(table_of_kills(result.kinds, result.kills))
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
