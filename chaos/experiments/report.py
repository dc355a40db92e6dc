"""What people see of experiments: the list of them, one result, and the sum of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from chaos.experiments.plans import Experiment
from chaos.experiments.results import COUNTS, ExperimentResult, percentiles, recoveries, summary_of


def print_list(console: Console, experiments: Mapping[str, Experiment]) -> None:
    """Print each experiment with its faults."""
    for experiment in experiments.values():
        console.print(f"[bold]{experiment.name}[/bold]  {experiment.summary}", highlight=False)
        for faults in experiment.rounds:
            console.print(
                "    " + " + ".join(str(fault) for fault in faults),
                markup=False,
                highlight=False,
                soft_wrap=True,
            )


def print_result(console: Console, result: ExperimentResult) -> None:
    """Print the faults with what they cost, and the verdict in one sentence."""
    table = _table("fault", "target", "unsettled\nthen", "mended\nafter", "recovery", "longest\nwait")
    for cost in result.rounds:
        for fault in cost.faults:
            costs = map(_ms, (cost.mended_s, cost.recovery_s, cost.wait_s))
            table.add_row(fault.kind, fault.target, str(fault.unsettled), *costs)
    console.print(table)
    reasons = result.reasons()
    if not reasons:
        total = result.verdict.total
        console.print(
            f"{result.experiment.name} passed in {result.seconds:.1f} s: {total('accepted')} messages accepted, "
            f"lost 0, duplicated 0, reordered 0, stuck 0; {result.resumed_links} links resumed",
            style="green",
            soft_wrap=True,
        )
        return
    console.print(f"{result.experiment.name} FAILED after {result.seconds:.1f} s:", style="bold red")
    for reason in reasons:
        console.print(f"  {reason}", style="red", markup=False, soft_wrap=True)


def print_summary(console: Console, results: Sequence[ExperimentResult]) -> None:
    """Print one line per experiment, one per kind of fault, and how many passed."""
    table = _table("experiment, seed", "faults", "accepted", "lost", "dupl.", "reord.", "stuck", "")
    for result in results:
        total = result.verdict.total
        verdict = "passed" if result.passed else "[bold red]FAILED[/bold red]"
        numbers = (len(result.faults), total("accepted"), *(total(count) for count in COUNTS))
        table.add_row(f"{result.experiment.name}, {result.seed}", *map(str, numbers), verdict)
    console.print(table)
    kinds = _table("kind of fault", "rounds", "recovery\np50", "p95", "max")
    for kind, times in sorted(recoveries(results).items()):
        found = percentiles(times)
        kinds.add_row(kind, str(len(times)), *(f"{found[part]} ms" for part in ("p50", "p95", "max")))
    console.print(kinds)
    summary = summary_of(results)
    passed = sum(result.passed for result in results)
    counts = ", ".join(f"{count} {summary[count]}" for count in COUNTS)
    console.print(
        f"{passed} of {len(results)} experiments passed; {summary['faults']} faults: {counts}",
        style="green" if passed == len(results) else "bold red",
        soft_wrap=True,
    )


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    # Names of faults are long; they give way to the numbers.
    table.add_column(first, overflow="fold")
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
