"""`oncewire chaos simulate`, `mutants` and `campaign`."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaos import options
from oncewire.cli.errors import CliError

if TYPE_CHECKING:
    from rich.console import Console

    from chaos.campaign.kills import Kill
    from chaos.campaign.workers import WorkerDied
    from chaos.mutants.edits import Edit

MAX_SEEDS = 1_000_000_000

_jobs = click.option(
    "--jobs", type=click.IntRange(1, 256), default=None, help="Worker processes.  [default: one per CPU]"
)


def _console(as_json: bool) -> Console:
    from rich.console import Console

    # With --json standard output is for programs.
    return Console(stderr=as_json)


@contextmanager
def _ended_by_sigterm_as_by_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _worker_died(error: WorkerDied) -> CliError:
    how = f"signal {-error.code}" if error.code is not None and error.code < 0 else f"exit code {error.code}"
    return CliError(
        "the run ended early",
        f"a worker process ended with {how} at {error.task}",
        "look above for its words; if it was killed for want of memory, give fewer --jobs",
    )


@click.command("simulate", short_help="Run seeded worlds full of faults; nothing may be lost or duplicated.")
@options.number(
    "--seeds", 1, 200, "How many worlds; each seed draws its own kind of world, clients and faults.", MAX_SEEDS
)
@click.option("--first-seed", type=click.IntRange(0, options.MAX_SEED), default=0, show_default=True)
@_jobs
@click.option("--story", is_flag=True, help="Show the run of one seed, a line for each event.")
@click.option("--shorten", is_flag=True, help="With --story: leave out what a failing seed does not need to fail.")
@click.option("--verbose", "-v", is_flag=True, help="Print the counters, too: faults, rare situations, costs.")
@options.as_json()
@click.pass_context
def simulate(
    ctx: click.Context,
    seeds: int,
    first_seed: int,
    jobs: int | None,
    story: bool,
    shorten: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run the shipped cores of routers and clients in simulated worlds, under virtual time and seeded faults.

    Every seed is a world of its own kind. Faults happen, then everything heals and must come to rest. Each delivery is
    checked: lost, duplicated, reordered, or stuck after heal. Exit code 0 only if nothing was found. The same seed
    always gives the same run.
    """
    from chaos.campaign.progress import RunProgress
    from chaos.campaign.report import Report, print_report
    from chaos.campaign.seeds import Seeds, run_seeds
    from chaos.campaign.version import code_version
    from chaos.campaign.workers import WorkerDied, default_jobs

    if story and seeds != 1:
        raise CliError(
            f"the story of {seeds} seeds cannot be printed", "--story prints the run of one seed", "give --seeds 1 too"
        )
    if shorten and not story:
        raise CliError("nothing can be shortened", "--shorten is about a story", "give --story --seeds 1 too")
    console = _console(as_json)
    asked = Seeds(first_seed, seeds)
    with _ended_by_sigterm_as_by_ctrl_c():
        if story:
            _print_story(console, first_seed, shorten)
        try:
            with RunProgress(console, "seeds", seeds) as progress:
                outcome = run_seeds(asked, jobs or default_jobs(), on_progress=progress.show_seeds)
        except WorkerDied as error:
            raise _worker_died(error) from None
    report = Report(asked, outcome, code_version())
    print_report(console, report, verbose=verbose)
    if as_json:
        click.echo(json.dumps(report.as_json()))
    if outcome.is_interrupted:
        raise click.Abort
    ctx.exit(0 if outcome.tally.is_clean else options.FAILED)


def _print_story(console: Console, seed: int, shorten: bool) -> None:
    from chaos.campaign.report import say
    from chaos.campaign.story import shortened_story_of, story_of
    from chaos.simulator.schedule import run_seed

    result = run_seed(seed)
    if shorten and result.violation is None:
        raise CliError(
            f"the story of seed {seed} cannot be shortened",
            "it breaks no guarantee, so there is nothing that the shorter one would have to keep",
            "leave --shorten out",
        )
    story = shortened_story_of(result) if shorten else story_of(result)
    for line in (*story.head, "", *story.lines, "", f"ends with: {story.violation or 'everything at rest'}"):
        say(console, line)


@click.command("mutants", short_help="Take one rule out at a time: the simulator must notice.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options.number(
    "--seeds", 1, 10_000, "How many worlds to look at for each mutant before it counts as a survivor.", MAX_SEEDS
)
@options.limit("--seconds", "How long to look at each mutant at most.")
@_jobs
@options.as_json()
@click.pass_context
def mutants(
    ctx: click.Context, names: tuple[str, ...], seeds: int, seconds: float | None, jobs: int | None, as_json: bool
) -> None:
    """Take one rule at a time out of the cores and look for a seed that shows its absence.

    Without names, every mutant of the catalogue is tried. Each is an edit of the source in memory; the files stay as
    they are. Those that no seed shows have a written schedule in the project's folder, which is replayed. Exit code 0
    only if every one breaks a guarantee where the shipped cores keep it, and these break none on the way.
    """
    from chaos.campaign.kill_report import print_kills
    from chaos.campaign.kills import SCENARIOS, run_mutants, without_schedule
    from chaos.campaign.progress import RunProgress
    from chaos.campaign.workers import WorkerDied, default_jobs

    edits = _chosen(names)
    if absent := without_schedule(edits):
        raise CliError(
            f"the mutant {absent[0]} cannot be tried",
            f"its written schedule is not in {SCENARIOS}",
            "run this in the project's folder, or name mutants that seeds show",
        )
    console = _console(as_json)
    done = 0

    def count(kill: Kill) -> None:
        nonlocal done
        done += 1
        progress.show(done, kill.name)

    with _ended_by_sigterm_as_by_ctrl_c(), RunProgress(console, "mutants", len(edits)) as progress:
        try:
            kills = run_mutants(edits, seeds, seconds, jobs or default_jobs(), count)
        except WorkerDied as error:
            raise _worker_died(error) from None
    print_kills(console, kills)
    if as_json:
        click.echo(json.dumps(kills.as_json()))
    if kills.is_interrupted:
        raise click.Abort
    ctx.exit(0 if kills.is_good else options.FAILED)


@click.command("campaign", short_help="Run many seeds over many sessions, and write the page about it.")
@options.number(
    "--seeds",
    0,
    100_000,
    "Total number of seeds, from 0 on, to run with the current code. 0: mutants alone.",
    MAX_SEEDS,
)
@options.limit("--hours", "Start no new block after this time.")
@options.limit("--minutes", "As --hours.")
@options.ledger(
    "docs/evidence/simulation.jsonl",
    "The ledger to continue. Its summary, the page and the table of mutants lie beside it.",
)
@_jobs
@click.option("--page-only", is_flag=True, help="Run nothing: write summary and page again.")
@options.as_json()
@click.pass_context
def campaign(
    ctx: click.Context,
    seeds: int,
    hours: float | None,
    minutes: float | None,
    state: Path,
    jobs: int | None,
    page_only: bool,
    as_json: bool,
) -> None:
    """Try all mutants, then run seeds, block after block, into a ledger; resume where the last session ended.

    Seeds that ledger or summary have for the current code are not run again; after a change of the code all are, and
    the page keeps the numbers of each code apart. It is about the last code of which enough was run. Without a ledger
    a new one is begun, beside the summary. Ctrl-C loses only the running block. Exit code 0 only if no seed violated a
    guarantee and no mutant survived; the first line reports how far the goals are reached.
    """
    from chaos.campaign.campaign import Plan, print_summary, run_campaign, write_campaign_page
    from chaos.campaign.ledger import read_ledger
    from chaos.campaign.workers import WorkerDied, default_jobs

    if hours is not None and minutes is not None:
        raise CliError("the time is given twice", "--hours and --minutes are both there", "leave one of them out")
    seconds = hours * 3600 if hours is not None else minutes * 60 if minutes is not None else None
    console = _console(as_json)
    try:
        read_ledger(state)  # building the mutants takes seconds
        plan = Plan(state, seeds, seconds, jobs or default_jobs(), [] if page_only else _chosen(()))
        if page_only:
            write_campaign_page(plan)
            return
        with _ended_by_sigterm_as_by_ctrl_c():
            summary = run_campaign(plan, console)
    except WorkerDied as error:
        raise _worker_died(error) from None
    print_summary(console, summary, plan)
    if as_json:
        click.echo(json.dumps(summary.as_json()))
    if summary.is_interrupted:
        raise click.Abort
    ctx.exit(0 if summary.is_clean else options.FAILED)


def _chosen(names: tuple[str, ...]) -> list[Edit]:
    """The edits of these names, or all; each can be carried out."""
    from chaos.mutants.catalogue import ALL
    from chaos.mutants.edit_error import EditError
    from chaos.mutants.edits import load

    known = {edit.name: edit for edit in ALL}
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, 1)
            fix = f"did you mean {close[0]}?" if close else f"take some of {', '.join(known)}"
            raise CliError(f"there is no mutant {name}", "the catalogue has none of that name", fix)
    edits = [edit for edit in ALL if not names or edit.name in names]
    for edit in edits:
        try:
            load((edit,))
        except EditError as error:
            raise CliError(
                f"the mutant {edit.name} cannot be made",
                str(error),
                "bring its old text in chaos/mutants/rules up to the source, or remove it with its rule",
            ) from None
    return edits
