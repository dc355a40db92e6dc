"""`oncewire demo-journal`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click

from chaos import options
from chaos.clients.flights import FLIGHTS
from chaos.experiments.command import check_fresh, run_network
from chaos.experiments.journal_demo import MIN_KILLS, MIN_MESSAGES
from oncewire.cli.errors import CliError

MAX_KILLS = 100


@click.command("demo-journal", short_help="Topics kept in a journal, read late and twice; everything is killed.")
@options.number("--messages", MIN_MESSAGES, 5_000, "How many flights to publish, one message each.", FLIGHTS)
@options.number("--kills", MIN_KILLS, 6, "How many SIGKILLs: routers, edges and readers by turns.", MAX_KILLS)
@options.number("--routers", 2, 3, "How many router processes to run.", options.MAX_ROUTERS)
@click.option("--store", metavar="URL", help="postgresql://...: two edges over it. Default: one over a SQLite file.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides who is killed in which order.")
@options.keep("Leave the stores and logs in this folder.")
@options.as_json()
@click.pass_context
def demo_journal(ctx: click.Context, /, store: str | None, keep: Path | None, as_json: bool, **numbers: int) -> None:
    """Show that a journal keeps each message once, and that each reader reads each once and in order.

    Publishes the flights out of New York City in 2013, each to the topic of its carrier; an edge keeps all of these
    topics in one journal. One reader is away for a third of the run, one comes late, one keeps its position itself
    and reads everything twice. Routers, edges and readers are killed with SIGKILL, and two readers once more: by
    being away, and in the second pass. Exit code 0 only if nothing was lost, doubled or reordered in the journal or
    at a reader.
    """
    from rich.console import Console

    check_fresh(keep)
    from chaos.experiments.journal_demo.report import print_result
    from chaos.experiments.journal_demo.run import JournalOptions, run_journal_demo
    from oncewire.store.errors import EdgeError

    # With --json standard output is for programs.
    console = Console(stderr=as_json)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    wanted = JournalOptions(**numbers, store=store, keep=keep, is_takeover=False)
    try:
        result = run_network(partial(run_journal_demo, wanted, say), keep)
    except EdgeError as error:
        raise CliError(error.what, error.why, error.fix) from None
    print_result(console, result)
    if as_json:
        click.echo(json.dumps(result.as_json()))
    ctx.exit(0 if result.passed else options.FAILED)
