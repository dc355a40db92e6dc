"""What the demo says at its end: the verdict, the kills, what the job found out, and one JSON line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from chaos.experiments.spark_demo.history_core import HistoryVerdict
from chaos.experiments.spark_demo.kills import NUMBERED, Kill, Kind
from chaos.experiments.spark_demo.outputs_core import OutputVerdict
from chaos.experiments.tables import flag, print_verdict, table_of

CARRIERS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class SparkResult:
    """One run.

    Attributes:
        messages: rows that were to be published.
        accepted: of them, those that were reported to the publisher as accepted.
        verdict: on what was received.
        kills: that were done.
        kills_planned: how many there should have been.
        starts: lives of the job.
        query_failures: what its query failed with by itself; it was started again.
        start: beginning of the load, on the clock of the kills.
        seconds: from the start of the processes to the last one's end.
        problems: what kept the run from its end; empty when nothing did.
        history: verdict on the journal and the late query.
        history_kills: SIGKILLs while the late query read, by what they hit.
    """

    messages: int
    accepted: int
    verdict: OutputVerdict
    kills: Sequence[Kill]
    kills_planned: int
    starts: int
    query_failures: Sequence[str]
    start: float
    seconds: float
    problems: Sequence[str]
    history: HistoryVerdict
    history_kills: Mapping[str, int]

    @property
    def passed(self) -> bool:
        """True when every row had its output exactly once, and every kill was done."""
        return not self.reasons()

    def reasons(self) -> list[str]:
        """Why the run did not pass: one line each."""
        reasons = [*self.problems, *self.verdict.findings, *self.history.findings]
        if not self.verdict.is_exact and not self.verdict.findings:
            reasons.append("the outputs are not exact")
        if self.accepted != self.messages:
            reasons.append(f"only {self.accepted} of {self.messages} rows were accepted")
        if len(self.kills) < self.kills_planned:
            reasons.append(f"only {len(self.kills)} of {self.kills_planned} kills were done")
        if not self.history.groups or not all(self.history_kills.values()):
            reasons.append("the late query was not killed, or published nothing")
        if len(self.verdict.runs) < 2:
            reasons.append("the rows of one life of the job came out, so nothing was proven")
        return reasons

    def as_json(self) -> dict[str, object]:
        """The content of the JSON line."""
        verdict = self.verdict
        return {
            "published": self.accepted,
            "received": verdict.received,
            "lost": verdict.lost,
            "duplicated": verdict.duplicated,
            "torn": verdict.torn,
            "kills": {kind.name.lower(): self.count(kind) for kind in Kind},
            "batches": verdict.batches,
            "driver_starts": self.starts,
            "query_failures": len(self.query_failures),
            "seconds": round(self.seconds, 1),
            "history": {
                "kept": self.history.kept,
                "counts": self.history.groups,
                "lost": self.history.lost,
                "duplicated": self.history.duplicated,
                "torn": self.history.torn,
                "kills": dict(self.history_kills),
            },
            "strikes": [kill.as_json(self.start) for kill in self.kills],
            "passed": self.passed,
        }

    def count(self, kind: Kind) -> int:
        """How many of a kind were killed."""
        return sum(kill.kind is kind for kill in self.kills)


def print_result(console: Console, result: SparkResult) -> None:
    """Print the tables and the verdict in one sentence."""
    console.print(_table_of_carriers(result.verdict))
    console.print(_table_of_kills(result))
    console.print(_table_of_rows(result))
    console.print(_table_of_history(result.history))
    for failure in result.query_failures:
        console.print(f"{failure} (started again)", style="yellow", markup=False, soft_wrap=True)
    print_verdict(
        console,
        "",
        result.seconds,
        result.reasons(),
        f"{result.accepted} flights in, {result.verdict.received} delays out "
        f"in {result.verdict.batches} batches, {result.history.groups} counts of the late query, "
        f"lost 0, duplicated 0, torn 0; {len(result.kills) + sum(result.history_kills.values())} kills survived",
    )


def _table_of_rows(result: SparkResult) -> Table:
    verdict = result.verdict
    table = table_of("published", "received", "lost", "duplicated", "torn", "batches", "lives of\nthe job")
    wrong = (flag(verdict.lost), flag(verdict.duplicated), flag(verdict.torn))
    table.add_row(str(result.accepted), str(verdict.received), *wrong, str(verdict.batches), str(result.starts))
    return table


def _table_of_history(verdict: HistoryVerdict) -> Table:
    table = table_of("in the\njournal", "counts of the\nlate query", "lost", "duplicated", "torn")
    wrong = (flag(verdict.lost), flag(verdict.duplicated), flag(verdict.torn))
    table.add_row(str(verdict.kept), str(verdict.groups), *wrong)
    return table


def _table_of_kills(result: SparkResult) -> Table:
    table = table_of("SIGKILL to", "after", "deliveries\nunsettled then")
    table.add_column("during")
    for kill in result.kills:
        name = f"{kill.kind.value} {kill.fault.target}" if kill.kind in NUMBERED else kill.kind.value
        table.add_row(name, f"{kill.fault.t - result.start:.1f} s", str(kill.fault.unsettled), kill.during)
    return table


def _table_of_carriers(verdict: OutputVerdict) -> Table:
    table = table_of("carrier", "flights that\narrived", "minutes late\non average")
    for carrier, flights in verdict.late_flights.most_common(CARRIERS_SHOWN):
        table.add_row(carrier, str(flights), f"{verdict.late_minutes[carrier] / flights:.1f}")
    return table
