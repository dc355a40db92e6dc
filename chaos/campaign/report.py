"""What `oncewire chaos simulate` says at its end: Jepsen's words, faults, rare situations, failing seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from chaos.campaign.seeds import SeedOutcome, Seeds
from chaos.campaign.tally import FINDINGS, Failing, Tally
from chaos.simulator.fault_names import ALL_FAULTS

MAX_SHOWN = 20
"""Failing seeds printed in full; the JSON line has more."""
WORDS = {"stuck": "stuck after heal"}
"""Findings by the words of a table."""


@dataclass(frozen=True, slots=True)
class Report:
    """A run of seeds and which seeds it was to be."""

    asked: Seeds
    outcome: SeedOutcome
    code: str

    @property
    def tally(self) -> Tally:
        """What was counted."""
        return self.outcome.tally

    def as_json(self) -> dict[str, object]:
        """Return the content of the JSON line."""
        return {
            "seeds": self.tally.seeds,
            "first_seed": self.asked.first,
            **tally_as_json(self.tally),
            "never_met": self.tally.never_met,
            "failing": [each.as_json() for each in self.tally.failing],
            "code": self.code,
            "interrupted": self.outcome.is_interrupted,
        }


def tally_as_json(tally: Tally) -> dict[str, object]:
    """The sums, under the names that the JSON line and the ledger share."""
    return {
        "attempted": tally.attempted,
        "acknowledged": tally.acknowledged,
        "deliveries": tally.deliveries,
        **{word: tally.found[word] for word in FINDINGS},
        "faults": dict(sorted(tally.faults.items())),
        "coverage": dict(sorted(tally.coverage.items())),
        "steps": tally.steps,
        "simulated_hours": round(tally.simulated_hours, 3),
        "cpu_s": round(tally.cpu_s, 2),
        "deliveries_per_cpu_s": round(tally.deliveries_per_cpu_s),
        "memory_mb": tally.memory_mb,
    }


def print_report(console: Console, report: Report, *, verbose: bool) -> None:
    """Print the numbers, the failing seeds, and the verdict in one sentence; with `verbose` all that was counted."""
    tally = report.tally
    console.print(_numbers(tally))
    if verbose:
        _print_counters(console, tally)
    _print_failing(console, tally.failing)
    done = f"{tally.seeds:,} seeds" if tally.seeds != 1 else "1 seed"
    if report.outcome.is_interrupted:
        say(console, f"interrupted: {done} of {report.asked.count:,} were run", style="bold yellow")
    if tally.is_clean:
        words = ", ".join(f"{tally.found[word]} {word}" for word in FINDINGS)
        say(console, f"{done}: {words}", style="green" if tally.seeds else "")
    else:
        say(console, f"FAILED: {tally.found.total():,} of {done} broke a guarantee", style="bold red")


def _print_counters(console: Console, tally: Tally) -> None:
    say(console, f"faults: {_counts(tally.faults)}")
    if missing := [fault for fault in ALL_FAULTS if not tally.faults[fault]]:
        say(console, f"faults that did not occur: {', '.join(missing)}")
    if tally.coverage:
        say(console, f"situations met: {_counts(tally.coverage, '; ')}")
    if missing := tally.never_met:
        say(console, f"situations not met: {'; '.join(missing)}")
    say(
        console,
        f"{tally.simulated_hours:,.1f} simulated hours in {tally.cpu_s:.1f} s of CPU: "
        f"{tally.deliveries_per_cpu_s:,.0f} checked deliveries per CPU second, {tally.memory_mb} MiB a process",
    )


def _numbers(tally: Tally) -> Table:
    rows = [
        ("messages attempted", f"{tally.attempted:,}"),
        ("messages acknowledged", f"{tally.acknowledged:,}"),
        ("deliveries checked", f"{tally.deliveries:,}"),
        *((WORDS.get(word, word), _flag(tally.found[word])) for word in FINDINGS),
    ]
    return table_of((f"{tally.seeds:,} seeds" if tally.seeds != 1 else "1 seed", ""), rows, left=1)


def _flag(count: int) -> str:
    return f"[bold red]{count:,}[/bold red]" if count else "0"


def _print_failing(console: Console, failing: Sequence[Failing]) -> None:
    for each in failing[:MAX_SHOWN]:
        say(console, f"\nseed {each.seed}: {each.found_as}: {each.violation}", style="red")
        say(console, f"  drawn: {each.setting}")
        say(console, f"  replay: {each.replay}")
    if len(failing) > MAX_SHOWN:
        say(console, f"\nand {len(failing) - MAX_SHOWN} more failing seeds, see --json", style="red")


def say(console: Console, text: str, style: str = "") -> None:
    """Print text as it is, on one line however long."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def table_of(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> Table:
    """A table of numbers; the first `left` columns are words."""
    table = Table(box=SIMPLE_HEAD)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _counts(counts: Mapping[str, int], between: str = ", ") -> str:
    return between.join(f"{name} {count:,}" for name, count in sorted(counts.items()) if count) or "none"
