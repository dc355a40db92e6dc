"""`oncewire chaos record`."""

from __future__ import annotations

from pathlib import Path

import click

from chaos import options
from chaos.record import FAULTS
from oncewire.cli.errors import CliError

MAX_FAULTS = 1_000_000


@click.command("record", short_help="Run all experiments over and over, and write the page about it.")
@options.number(
    "--faults", 1, FAULTS, "How many faults shall have been fired in the end with the code as it is now.", MAX_FAULTS
)
@click.option("--first-seed", type=click.IntRange(0, options.MAX_SEED), default=1, show_default=True)
@options.limit("--minutes", "Begin nothing new after so long.")
@options.ledger("docs/evidence/chaos.jsonl", "The ledger to continue. The page and its plots lie beside it.")
@click.option("--page-only", is_flag=True, help="Run nothing: write the page and its plots anew from the ledger.")
@options.as_json()
@click.pass_context
def record(
    ctx: click.Context, faults: int, first_seed: int, minutes: float | None, state: Path, page_only: bool, as_json: bool
) -> None:
    """Run all experiments, seed after seed, into a ledger, until it has enough faults; go on where it ended.

    A run that is in the ledger for the code as it is now is not made again; after a change of the code everything is,
    kinds of faults that no run has fired yet first. The page keeps the numbers of each code apart, and is about the
    last code with enough faults. Ctrl-C loses no more than the experiment that runs. The first one that fails ends
    it, and its journals and logs are kept. Exit code 0 only if every run of today's code passed.
    """
    from rich.console import Console

    from chaos.experiments.cli import run_named
    from chaos.experiments.report import print_result
    from chaos.experiments.results import ExperimentResult
    from chaos.record.plots import PlotsNotPossible, require_matplotlib
    from chaos.record.record import Plan, make_record, write_record_page

    console = Console(stderr=as_json)
    plan = Plan(state, faults, first_seed, None if minutes is None else minutes * 60)

    def run_once(name: str, seed: int, folder: Path) -> ExperimentResult:
        console.rule(f"{name}, seed {seed}")
        result = run_named(name, seed, folder, console)
        print_result(console, result)
        return result

    try:
        require_matplotlib()
        if page_only:
            write_record_page(plan)
            return
        summary = make_record(plan, run_once)
    except PlotsNotPossible as error:
        fix = "run `pip install matplotlib`, or `make tools` in the project's folder"
        raise CliError("the page's plots cannot be drawn", str(error), fix) from None
    counts = summary.as_json()
    said = (
        f"code {summary.code}: {summary.faults} of {faults} faults in {len(summary.runs)} runs of experiments: "
        f"lost {counts['lost']}, duplicated {counts['duplicated']}, reordered {counts['reordered']}, "
        f"stuck {counts['stuck']}; the page is {plan.page}"
    )
    options.end_record(ctx, console, said, counts, as_json=as_json)
