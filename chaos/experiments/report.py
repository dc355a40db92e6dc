"""What people see of experiments: the list of them, one result, and the sum of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from chaos.experiments.journals import JOURNALS
from chaos.experiments.plans import ClientSignal, Experiment
from chaos.experiments.results import COUNTS, ExperimentResult, percentiles, recoveries, summary_of
from chaos.experiments.tables import milliseconds, outcome, print_verdict, table_of


def print_list(console: Console, experiments: Mapping[str, Experiment]) -> None:
    """Print each experiment with its faults."""
    for experiment in experiments.values():
        console.print(f"[bold]{experiment.name}[/bold]  {experiment.summary}", highlight=False)
        for faults in experiment.rounds:
            console.print(
                "    " + " + ".join(str(fault) for fault in faults), markup=False, highlight=False, soft_wrap=True
            )


def print_journals(console: Console) -> None:
    """Print the experiments on journals with what happens in each."""
    for experiment in JOURNALS.values():
        console.print(f"[bold]{experiment.name}[/bold]  {experiment.summary}", highlight=False)
        for kind in experiment.kinds:
            console.print(f"    {kind}", markup=False, highlight=False, soft_wrap=True)


def print_result(console: Console, result: ExperimentResult) -> None:
    """Print the faults with what they cost, and the verdict in one sentence."""
    table = table_of("fault", "target", "unsettled\nthen", "repaired\nafter", "recovery", "longest\nwait")
    for cost in result.rounds:
        for fault in cost.faults:
            costs = map(milliseconds, (cost.repaired_s, cost.recovery_s, cost.wait_s))
            table.add_row(fault.kind, fault.target, str(fault.unsettled), *costs)
    console.print(table)
    total = result.verdict.total
    print_verdict(
        console,
        f"{result.experiment.name} ",
        result.seconds,
        result.reasons(),
        f"{total('accepted')} messages accepted, "
        f"lost 0, duplicated 0, {_order(result)}, stuck 0; {result.resumed_links} links resumed" + _repeats(result),
    )


def _order(result: ExperimentResult) -> str:
    load = result.experiment.load
    if load.groups:
        return "within groups reordered 0"
    return "reordered 0" if load.share is None else "order not promised and not judged"


def _repeats(result: ExperimentResult) -> str:
    """What members that left had processed and not given back: only the sign that comes with it shows it (SH-3)."""
    if not any(isinstance(each, ClientSignal) and not each.returns for each in result.experiment.plans):
        return ""
    repeated = result.verdict.total("repeated")
    return f"; {repeated} processed by a second member, each with the sign that somebody had it before"


def print_summary(console: Console, results: Sequence[ExperimentResult]) -> None:
    """Print one line per experiment, one per kind of fault, and how many passed."""
    table = table_of("experiment, seed", "faults", "accepted", "lost", "dupl.", "reord.", "stuck", "")
    for result in results:
        total = result.verdict.total
        numbers = (len(result.faults), total("accepted"), *(total(count) for count in COUNTS))
        table.add_row(f"{result.experiment.name}, {result.seed}", *map(str, numbers), outcome(result.passed))
    console.print(table)
    kinds = table_of("kind of fault", "rounds", "recovery\np50", "p95", "max")
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
