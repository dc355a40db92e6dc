"""`oncewire chaos run`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from chaos import options
from chaos.experiments.command import check_fresh, make_folder, run_network
from oncewire.cli.errors import CliError

if TYPE_CHECKING:
    from rich.console import Console

    from chaos.experiments.results import ExperimentResult

ALL = "all"


@click.command("run", short_help="Break a real network through Toxiproxy; nothing may be lost or duplicated.")
@click.argument("names", nargs=-1)
@options.number(
    "--seed",
    0,
    1,
    "Decides who is hit, which client prefers which router, and what the experiment `random` does.",
    options.MAX_SEED,
)
@options.number("--repeat", 1, 1, "Run everything this many times, with seeds counting up.")
@click.option("--store", metavar="URL", help="postgresql://...: the database of `journal-takeover`.")
@options.keep("Leave journals, logs and timelines in this folder (one folder per run inside it).")
@options.as_json("One line of JSON on stdout per run, and one that sums up.")
@click.option("--list", "only_list", is_flag=True, help="Show the experiments and what each does, and run none.")
@click.pass_context
def run(
    ctx: click.Context,
    names: tuple[str, ...],
    seed: int,
    repeat: int,
    store: str | None,
    keep: Path | None,
    as_json: bool,
    only_list: bool,
) -> None:
    """Run experiments by NAME, or `all` of a network: routers, etcd and clients, and Toxiproxy between them.

    `journal` and `journal-takeover` run edges with a journal and its readers, and need no Toxiproxy.

    Each fault waits until 100 deliveries are unsettled through its target. Each client keeps a journal of what it saw;
    the verdict compares the journals with the data. Exit code 0 only if every verdict is clean, every fault fired, and
    what the experiment expects of the network held.
    """
    from rich.console import Console

    from chaos.experiments.catalogue import catalogue
    from chaos.experiments.journals import JOURNALS, JournalRun, run_journals
    from chaos.experiments.report import print_journals, print_list, print_result, print_summary
    from chaos.experiments.results import summary_of

    # With --json standard output is for programs.
    console = Console(stderr=as_json)
    if only_list:
        print_list(console, catalogue(seed))
        print_journals(console)
        return
    chosen = _chosen(names, catalogue(seed), JOURNALS)
    check_fresh(keep)
    results: list[ExperimentResult] = []
    runs: list[ExperimentResult | JournalRun] = []
    for each in range(seed, seed + repeat):
        for name in chosen:
            console.rule(f"{name}, seed {each}")
            with _folder(keep, f"{name}-{each}") as folder:
                result: ExperimentResult | JournalRun
                if name in JOURNALS:
                    result = run_journals(name, each, store, folder, console)
                else:
                    result = run_named(name, each, folder, console)
                    results.append(result)
                    print_result(console, result)
                runs.append(result)
                if keep is not None:
                    (folder / "timeline.txt").write_text(result.timeline_text())
            if as_json:
                click.echo(json.dumps(result.as_json()))
    if len(results) > 1:
        print_summary(console, results)
    if as_json and results:
        click.echo(json.dumps(summary_of(results)))
    ctx.exit(0 if all(result.passed for result in runs) else options.FAILED)


def _chosen(names: tuple[str, ...], network: Mapping[str, object], journals: Mapping[str, object]) -> list[str]:
    experiments = {**network, **journals}
    fix = "give names, or `all`; `oncewire chaos run --list` prints them"
    if not names:
        raise CliError("no experiment is named", "what to run is not guessed", fix)
    for name in names:
        if name not in experiments and name != ALL:
            close = get_close_matches(name, [*experiments, ALL], 1)
            fix = f"did you mean `{close[0]}`?" if close else fix
            raise CliError(f"there is no experiment {name}", "it is not in the list", fix)
    found = dict.fromkeys(name for each in names for name in (network if each == ALL else (each,)))
    return list(found)


@contextmanager
def _folder(keep: Path | None, name: str) -> Iterator[Path]:
    if keep is None:
        with TemporaryDirectory(prefix="oncewire-chaos-") as folder:
            yield Path(folder)
        return
    make_folder(keep / name)
    yield (keep / name).absolute()


def run_named(name: str, seed: int, folder: Path, console: Console) -> ExperimentResult:
    """Run one experiment of the catalogue in an empty folder. Raises CliError and click.Abort."""
    from chaos.experiments.catalogue import catalogue
    from chaos.experiments.runner import run_experiment

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    return run_network(lambda: run_experiment(catalogue(seed)[name], seed, folder, say), None, "experiment")
