"""`oncewire demo` and the group `oncewire chaos`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click

from chaos import options
from chaos.campaign import cli as campaign_commands
from chaos.evidence.cli import evidence as list_changes
from chaos.experiments.cli import run as run_experiments
from chaos.experiments.command import check_fresh, run_network
from chaos.experiments.demo import MIN_MESSAGES
from chaos.experiments.spark_demo.cli import spark as record_spark_kills
from chaos.fuzz.cli import fuzz as fuzz_targets
from chaos.record.cli import record as record_experiments


@click.command("demo", short_help="Kill routers under load; nothing is lost or duplicated.")
@options.number("--messages", MIN_MESSAGES, 20_000, "How many rows of the source to send, one message a row.")
@options.number("--routers", 3, 3, "How many router processes to run; three of them are struck.", options.MAX_ROUTERS)
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path),
    default=None,
    help="Send the lines of this text file instead of the flights out of New York City in 2013.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Decides which client prefers which router.")
@options.number("--repeat", 1, 1, "Run this many times, with seeds counting up, and sum up.")
@options.keep("Leave journals and logs in this folder (one folder per seed inside it).")
@options.as_json("End with one line of JSON on stdout per run.")
@click.pass_context
def demo(
    ctx: click.Context,
    messages: int,
    routers: int,
    file: Path | None,
    seed: int,
    repeat: int,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Show a network survive killed routers: nothing lost, nothing twice, nothing out of order.

    Starts a real etcd and router processes, two publishers and five subscribers, and sends real data through them
    while routers are killed, stopped beyond their lease, and restarted. Each client keeps a journal of what it saw; the
    verdict compares the journals with the data. Exit code 0 only if the verdict is clean, every fault fired and links
    were resumed.
    """
    from rich.console import Console

    from chaos.experiments.demo.report import print_result, print_summary
    from chaos.experiments.demo.run import DemoOptions, run_demo

    # With --json standard output is for programs.
    console = Console(stderr=as_json)
    check_fresh(keep)
    results = []
    for each in range(seed, seed + repeat):
        folder = None if keep is None else keep / f"seed-{each}"
        wanted = DemoOptions(messages, routers, each, None if file is None else file.absolute(), folder)
        if repeat > 1:
            console.rule(f"run {each - seed + 1} of {repeat}, seed {each}")
        result = run_network(partial(run_demo, wanted, console), folder)
        results.append(result)
        print_result(console, result)
        if as_json:
            click.echo(json.dumps(result.as_json()))
    if repeat > 1:
        print_summary(console, seed, results)
    ctx.exit(0 if all(result.passed for result in results) else options.FAILED)


@click.group(
    "chaos", invoke_without_command=True, short_help="Real networks and simulated worlds full of faults, and mutants."
)
@click.pass_context
def chaos(ctx: click.Context) -> None:
    """Check the claim of exactly-once: broken real networks, seeded worlds in virtual time, mutants of the protocol."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _command in (
    run_experiments,
    record_experiments,
    record_spark_kills,
    campaign_commands.simulate,
    campaign_commands.mutants,
    campaign_commands.campaign,
    fuzz_targets,
    list_changes,
):
    chaos.add_command(_command)
