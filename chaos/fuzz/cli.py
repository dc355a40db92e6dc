"""`oncewire chaos fuzz`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oncewire.cli.errors import CliError

if TYPE_CHECKING:
    from chaos.fuzz.ledger import Found
    from chaos.fuzz.targets import Goal

FAILED = 1
DEFAULT_LEDGER = Path("docs/evidence/fuzz.jsonl")
MAX_RUN = 2**53
"""Where JSON readers stop telling whole numbers apart."""
SHOWN = 10
"""Findings of a target that are printed."""


@click.command("fuzz", short_help="Feed mutated input to whatever reads what others wrote.")
@click.argument("names", nargs=-1, metavar="[TARGET]...")
@click.option(
    "--first", type=click.IntRange(0, MAX_RUN), default=0, show_default=True, help="Number of the first run."
)
@click.option(
    "--runs",
    type=click.IntRange(1, MAX_RUN),
    default=None,
    help="How many runs of each target.  [default: some seconds]",
)
@click.option(
    "--record", is_flag=True, help="Go on with the ledger until each target has its number of inputs."
)
@click.option("--page-only", is_flag=True, help="Run nothing: write the page again from the ledger.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="With --record: start no block after this time.",
)
@click.option(
    "--state", type=click.Path(path_type=Path), default=DEFAULT_LEDGER, show_default=True,
    help="The ledger to continue. The page lies beside it.",
)  # fmt: skip
@click.option("--list", "is_list", is_flag=True, help="Say what the targets are.")
@click.pass_context
def fuzz(
    ctx: click.Context, names: tuple[str, ...], first: int, runs: int | None, record: bool, page_only: bool,
    minutes: float | None, state: Path, is_list: bool,
) -> None:  # fmt: skip
    """Feed mutated input to decoders, logins, settings, HTTP and whole routers; all of it must be taken or refused.

    Each run comes from the name of its target and its number, and is always the same. Without names, all targets run.
    Exit code 0 only if nothing was found; each finding is printed with the command that repeats it.
    """
    from chaos.fuzz.fuzzing import Plan, make_record, rewrite_page
    from chaos.fuzz.targets import GOALS
    from chaos.ledger import LedgerError

    unknown = [name for name in names if name not in GOALS]
    if unknown:
        raise CliError(
            f"there is no target {unknown[0]}",
            f"the targets are {', '.join(GOALS)}",
            "name some of them, or none",
        )
    if state.suffix != ".jsonl":
        raise CliError(
            f"{state} is no ledger", "its name does not end in .jsonl", "give --state another file"
        )
    goals = {name: GOALS[name] for name in names or GOALS}
    if is_list:
        for name, goal in goals.items():
            click.echo(f"{name}: {goal.target.about}")
        return
    try:
        if page_only:
            rewrite_page(Plan(state, GOALS))
        elif record:
            plan = Plan(state, GOALS if not names else goals, None if minutes is None else minutes * 60)
            is_clean = make_record(
                plan, lambda block: _report(block.target, block.counts.inputs, block.found, block.cpu_s)
            )
            if names:
                rewrite_page(Plan(state, GOALS))
            ctx.exit(0 if is_clean else FAILED)
        else:
            ctx.exit(0 if _run_some(goals, first, runs) else FAILED)
    except LedgerError as error:
        raise CliError(error.what, error.why, error.fix) from None


def _run_some(goals: Mapping[str, Goal], first: int, runs: int | None) -> bool:
    import time

    from chaos.fuzz.fuzzing import make_runs

    is_clean = True
    for name, goal in goals.items():
        began = time.process_time()
        counts, found = make_runs(goal.target, range(first, first + (runs or goal.smoke)))
        _report(name, counts.inputs, found, time.process_time() - began)
        is_clean = is_clean and not found
    return is_clean


def _report(name: str, inputs: int, found: Sequence[Found], cpu_s: float) -> None:
    click.echo(f"{name}: {inputs:,} inputs in {cpu_s:.1f} s of CPU, {len(found)} findings")
    for each in found[:SHOWN]:
        click.echo(f"  {each.what}\n  repeat it: oncewire chaos fuzz {name} --first {each.run} --runs 1")
