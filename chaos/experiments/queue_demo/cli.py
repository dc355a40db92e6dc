"""`oncewire demo-queue`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click

from chaos import options
from chaos.clients.flights import FLIGHTS
from chaos.experiments.command import check_fresh, run_network
from chaos.experiments.queue_demo import MIN_KILLS, MIN_MESSAGES

MAX_KILLS = 100


@click.command("demo-queue", short_help="Topic, work queues, topic; everything is killed.")
@options.number("--messages", MIN_MESSAGES, 5_000, "How many flights to publish, one message each.", FLIGHTS)
@options.number(
    "--kills",
    MIN_KILLS,
    10,
    "How many SIGKILLs: workers, feed, outbox publisher, reader and routers by turns.",
    MAX_KILLS,
)
@options.number("--routers", 2, 3, "How many router processes to run.", options.MAX_ROUTERS)
@click.option("--seed", type=int, default=1, show_default=True, help="Decides who is killed in which order.")
@options.keep("Leave the store and logs in this folder.")
@options.as_json()
@click.pass_context
def demo_queue(
    ctx: click.Context, messages: int, kills: int, routers: int, seed: int, keep: Path | None, as_json: bool
) -> None:
    """Show that a chain of topic, work queues and topic does its work exactly once, whatever is killed.

    Publishes the flights out of New York City in 2013 to a topic. A feed pushes them into a queue; workers take them
    through three queues with failures, a delay and dead letters, and publish each flight's delay to another topic.
    Workers, feed, outbox publisher, reader and routers are killed with SIGKILL. Exit code 0 only if every row came out
    once, or is one dead letter, and had its effect once.
    """
    from rich.console import Console

    check_fresh(keep)
    from chaos.experiments.queue_demo.report import print_result
    from chaos.experiments.queue_demo.run import QueueOptions, run_queue_demo

    # With --json standard output is for programs.
    console = Console(stderr=as_json)
    wanted = QueueOptions(messages, kills, routers, seed, keep)
    result = run_network(partial(run_queue_demo, wanted, console), keep)
    print_result(console, result)
    if as_json:
        click.echo(json.dumps(result.as_json()))
    ctx.exit(0 if result.passed else options.FAILED)
