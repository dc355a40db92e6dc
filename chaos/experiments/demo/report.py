"""What the demo says at its end: a table per publisher and subscriber, the faults, and one JSON line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from chaos.checker import Gap, Verdict
from chaos.experiments.tables import flag, milliseconds, outcome, print_verdict, table_of
from chaos.network.faults import FaultCost

FAULTS_PLANNED = 3


@dataclass(frozen=True, slots=True)
class DemoResult:
    """One run of the demo."""

    verdict: Verdict
    faults: Sequence[FaultCost]
    start: float
    """Beginning of the load, on the clock of the journals."""
    seconds: float
    """From the start of the processes to the last one's end."""
    etcd: str
    problems: Sequence[str]
    """What kept the run from its end, or from proving something; empty when nothing did."""

    @property
    def passed(self) -> bool:
        """True when nothing was lost, duplicated or reordered, and faults were really survived."""
        return not self.reasons()

    def reasons(self) -> list[str]:
        """Why the run did not pass: one line each."""
        reasons = [*self.problems, *self.verdict.findings()]
        if len(self.faults) < FAULTS_PLANNED:
            reasons.append(f"only {len(self.faults)} of {FAULTS_PLANNED} faults fired")
        if not self.resumed_links:
            reasons.append("no link was resumed, so nothing was proven")
        if any(each.incarnations > 1 for each in self.verdict.subscribers):
            reasons.append("a subscription expired during the run")
        return reasons

    @property
    def resumed_links(self) -> int:
        """How many times a link was attached again with its state kept."""
        return self.verdict.total("resumed")

    def as_json(self) -> dict[str, object]:
        """Return the content of the JSON line."""
        total = self.verdict.total
        longest = max((gap.seconds for gap in self.verdict.gaps), default=0.0)
        return {
            "published": total("published"),
            "accepted": total("accepted"),
            "lost": total("lost"),
            "duplicated": total("duplicated"),
            "reordered": total("reordered"),
            "max_gap_ms": round(longest * 1000),
            "resumed_links": self.resumed_links,
            "redelivered": total("redelivered"),
            "kills": [cost.as_json(self.start) for cost in self.faults],
            "unexpected": total("unexpected"),
            "stuck": total("stuck"),
            "seconds": round(self.seconds, 1),
            "etcd": self.etcd,
            "passed": self.passed,
        }


def print_result(console: Console, result: DemoResult) -> None:
    """Print tables, the faults, and the verdict in one sentence."""
    console.print(_table_of_publishers(result.verdict))
    console.print(_table_of_subscribers(result.verdict))
    console.print(_table_of_faults(result))
    total = result.verdict.total
    print_verdict(
        console,
        "",
        result.seconds,
        result.reasons(),
        f"{total('accepted')} messages accepted, "
        f"lost 0, duplicated 0, reordered 0; {result.resumed_links} links resumed",
    )


def print_summary(console: Console, seed: int, results: Sequence[DemoResult]) -> None:
    """Print one line per run, the first with this seed, and how many passed."""
    counts = ("accepted", "lost", "duplicated", "reordered", "resumed_links", "redelivered", "max_gap_ms")
    headings = (count.replace("_", "\n", 1) for count in counts)
    table = table_of("seed", *headings, "unsettled\nat the faults", "seconds", "")
    for number, result in enumerate(results, seed):
        numbers = result.as_json()
        unsettled = ", ".join(str(cost.fault.unsettled) for cost in result.faults)
        values = [str(numbers[count]) for count in counts]
        table.add_row(str(number), *values, unsettled, f"{result.seconds:.1f}", outcome(result.passed))
    console.print(table)
    passed = sum(result.passed for result in results)
    style = "green" if passed == len(results) else "bold red"
    console.print(f"{passed} of {len(results)} runs passed", style=style)


def _table_of_publishers(verdict: Verdict) -> Table:
    table = table_of("publisher", "published", "accepted", "resumed\nlinks", "longest\ngap")
    for each in verdict.publishers:
        counts = (str(each.published), str(each.accepted), str(each.resumed))
        table.add_row(each.name, *counts, _gap(each.longest_gap))
    return table


def _table_of_subscribers(verdict: Verdict) -> Table:
    table = table_of("subscriber", "received", "lost", "duplicated", "reordered", "resumed\nlinks", "longest\ngap")
    for each in verdict.subscribers:
        wrong = (flag(each.lost), flag(each.duplicated), flag(each.reordered))
        table.add_row(each.name, str(each.received), *wrong, str(each.resumed), _gap(each.longest_gap))
    return table


def _table_of_faults(result: DemoResult) -> Table:
    table = table_of("router", "signal", "after", "deliveries\nunsettled then", "longest\ngap")
    for cost in result.faults:
        fault = cost.fault
        after = f"{fault.t - result.start:.1f} s"
        table.add_row(fault.target, fault.kind, after, str(fault.unsettled), milliseconds(cost.gap_s))
    return table


def _gap(gap: Gap | None) -> str:
    return "-" if gap is None else milliseconds(gap.seconds)
