"""`oncewire chaos fuzz`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaos import options
from oncewire.cli.errors import CliError

if TYPE_CHECKING:
    from chaos.fuzz.ledger import Found
    from chaos.fuzz.targets import Goal

DEFAULT_CORPUS = Path(".fuzz")
SHOWN = 10
"""Findings of a target that are printed."""


@click.command("fuzz", short_help="Feed mutated input to whatever reads what others wrote.")
@click.argument("names", nargs=-1, metavar="[TARGET]...")
@options.number("--first", 0, 0, "Number of the first run.", options.MAX_SEED)
@click.option(
    "--runs",
    type=click.IntRange(1, options.MAX_SEED),
    default=None,
    help="How many runs of each target.  [default: some seconds]",
)
@click.option("--record", is_flag=True, help="Go on with the ledger until each target has its number of inputs.")
@click.option("--page-only", is_flag=True, help="Run nothing: write the page again from the ledger.")
@options.limit("--minutes", "With --record: start no block after this time.")
@options.ledger("docs/evidence/fuzz.jsonl", "The ledger to continue. The page lies beside it.")
@click.option(
    "--guided",
    type=click.IntRange(1, options.MAX_SEED),
    default=None,
    metavar="INPUTS",
    help="Make so many coverage-guided inputs (package atheris) of each target; with --record they get a line each.",
)
@click.option(
    "--corpus",
    type=click.Path(path_type=Path),
    default=DEFAULT_CORPUS,
    show_default=True,
    help="Where --guided keeps inputs that reach something, and those that were found.",
)
@click.option(
    "--input",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=None,
    help="Repeat one input that --guided has found, of the one target.",
)
@click.option("--list", "is_list", is_flag=True, help="Say what the targets are.")
@options.as_json("Print lines of JSON, one for each target or block.")
@click.pass_context
def fuzz(
    ctx: click.Context,
    names: tuple[str, ...],
    first: int,
    runs: int | None,
    record: bool,
    page_only: bool,
    minutes: float | None,
    state: Path,
    guided: int | None,
    corpus: Path,
    file: Path | None,
    is_list: bool,
    as_json: bool,
) -> None:
    """Feed mutated input to decoders, logins, settings, HTTP and whole routers; all of it must be taken or refused.

    Each run comes from the name of its target and its number, and is always the same. Without names, all targets run.
    Exit code 0 only if nothing was found; each finding is printed with the command that repeats it.
    """
    from chaos.fuzz.fuzzing import Plan, make_record, rewrite_page
    from chaos.fuzz.targets import GOALS

    unknown = [name for name in names if name not in GOALS]
    if unknown:
        raise CliError(
            f"there is no target {unknown[0]}", f"the targets are {', '.join(GOALS)}", "name some of them, or none"
        )
    goals = {name: GOALS[name] for name in names or GOALS}
    report = _Report(as_json)
    if is_list:
        for name, goal in goals.items():
            report.show({"target": name, "about": goal.target.about}, f"{name}: {goal.target.about}")
        return
    if file is not None:
        _repeat(names, file, report)
        return
    if guided is not None:
        ctx.exit(0 if _run_guided(goals, guided, corpus, state if record else None, report) else options.FAILED)
    if page_only:
        rewrite_page(Plan(state, GOALS))
    elif record:
        plan = Plan(state, GOALS if not names else goals, None if minutes is None else minutes * 60)
        is_clean = make_record(
            plan, lambda block: report.runs(block.target, block.counts.inputs, block.found, block.cpu_s)
        )
        if names:
            rewrite_page(Plan(state, GOALS))
        ctx.exit(0 if is_clean else options.FAILED)
    else:
        ctx.exit(0 if _run_some(goals, first, runs, report) else options.FAILED)


class _Report:
    """Prints what came of the targets, for people or as lines of JSON."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def show(self, document: Mapping[str, object], *lines: str) -> None:
        click.echo(json.dumps(document) if self._as_json else "\n".join(lines))

    def runs(self, name: str, inputs: int, found: Sequence[Found], cpu_s: float) -> None:
        repeats = [f"oncewire chaos fuzz {name} --first {each.run} --runs 1" for each in found]
        listed = [
            {"run": each.run, "what": each.what, "repeat": repeat} for each, repeat in zip(found, repeats, strict=True)
        ]
        self.show(
            {"target": name, "inputs": inputs, "cpu_s": round(cpu_s, 3), "guided": False, "findings": listed},
            f"{name}: {inputs:,} inputs in {cpu_s:.1f} s of CPU, {len(found)} findings",
            *(f"  {each['what']}\n  repeat it: {each['repeat']}" for each in listed[:SHOWN]),
        )

    def guided(self, name: str, inputs: int, found: Sequence[Found], cpu_s: float, crash: Path | None) -> None:
        repeat = [] if crash is None else [f"oncewire chaos fuzz {name} --input {crash}"]
        listed = [{"what": each.what, "repeat": again} for each, again in zip(found, repeat, strict=True)]
        self.show(
            {"target": name, "inputs": inputs, "cpu_s": round(cpu_s, 3), "guided": True, "findings": listed},
            f"{name}: {inputs:,} coverage-guided inputs in {cpu_s:.1f} s of CPU, {len(found)} findings",
            *(f"  repeat it: {again}" for again in repeat),
        )


def _run_some(goals: Mapping[str, Goal], first: int, runs: int | None, report: _Report) -> bool:
    import time

    from chaos.fuzz.fuzzing import make_runs

    is_clean = True
    for name, goal in goals.items():
        began = time.process_time()
        counts, found = make_runs(goal.target, range(first, first + (runs or goal.smoke)))
        report.runs(name, counts.inputs, found, time.process_time() - began)
        is_clean = is_clean and not found
    return is_clean


def _repeat(names: Sequence[str], file: Path, report: _Report) -> None:
    from chaos.fuzz.guided import PLACES, take_of

    if len(names) != 1 or names[0] not in PLACES:
        raise CliError(
            f"the input {file} cannot be repeated",
            "it is not said of which target it is",
            f"name one of {', '.join(PLACES)}",
        )
    take_of(names[0])(file.read_bytes())
    document = {"target": names[0], "input": str(file), "findings": []}
    report.show(document, f"{names[0]}: the input is taken or refused, as it should be")


def _run_guided(goals: Mapping[str, Goal], inputs: int, corpus: Path, state: Path | None, report: _Report) -> bool:
    from chaos.fuzz.fuzzing import Plan, make_guided, rewrite_page
    from chaos.fuzz.guided import PLACES, GuidedNotPossible
    from chaos.fuzz.ledger import fuzz_ledger
    from chaos.fuzz.targets import GOALS

    is_clean = True
    for name in (each for each in goals if each in PLACES):
        try:
            block, crash = make_guided(goals[name], inputs, corpus)
        except GuidedNotPossible as error:
            raise CliError(
                f"{name} cannot be fuzzed with coverage",
                str(error),
                "pip install 'oncewire[fuzz]', or leave --guided out",
            ) from None
        report.guided(name, inputs, block.found, block.cpu_s, crash)
        is_clean = is_clean and crash is None
        if state is not None:
            with fuzz_ledger(state) as ledger:
                ledger.append(block)
    if state is not None:
        rewrite_page(Plan(state, GOALS))
    return is_clean
