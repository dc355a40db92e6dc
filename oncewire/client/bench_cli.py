"""`oncewire bench`: rates and latencies of the user's own network."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import click

from oncewire.cli.errors import CliError
from oncewire.cli.progress import progress_of
from oncewire.client.cli import router_options, run_client, target_of

if TYPE_CHECKING:
    from oncewire.client.bench import BenchPlan, BenchResult

MAX_CLIENTS = 256
"""Of each kind, all in this process: more of them measure its event loop."""
MAX_SIZE = 16 << 20
VERDICT_NO = 1


@click.command("bench", short_help="Measure rates and latencies of your network.")
@click.argument("topic", required=False, metavar="[TOPIC]")
@click.option(
    "--messages", "-n", type=click.IntRange(1), default=20_000, show_default=True, help="Of all publishers together."
)
@click.option("--size", type=click.IntRange(16, MAX_SIZE), default=128, show_default=True, help="Bytes of each one.")
@click.option("--publishers", type=click.IntRange(1, MAX_CLIENTS), default=1, show_default=True)
@click.option("--subscribers", type=click.IntRange(0, MAX_CLIENTS), default=1, show_default=True)
@click.option(
    "--window",
    type=click.IntRange(1, 100_000),
    default=256,
    show_default=True,
    help="Messages of each publisher that wait for their outcome at the same time. 1 shows the latency of one alone.",
)
@click.option("--settled", is_flag=True, help="At-most-once: no outcomes.")
@router_options
def bench(
    topic: str | None,
    messages: int,
    size: int,
    publishers: int,
    subscribers: int,
    window: int,
    settled: bool,
    urls: tuple[str, ...],
    vhost: str | None,
    connect_timeout: float | None,
    as_json: bool,
) -> int:
    """Publish and subscribe at the network, and measure.

    Without TOPIC it takes one of its own, so that nobody else gets the messages. *Acceptance* is the time from handing
    a message over until every subscription has processed it, *arrival* until a subscriber has it. All clients run in
    this process, each with its own connection: at high rates they, not the routers, set the limit. Start more of them
    on other machines, with the same TOPIC, to find that of the routers. Exit code 1: a message was not accepted.
    """
    from oncewire.client.bench import BenchPlan, run_bench

    plan = BenchPlan(
        topic or f"oncewire-bench-{secrets.token_hex(4)}", messages, size, publishers, subscribers, window, settled
    )
    if settled and not subscribers:
        why = "with --settled and without a subscriber nothing comes back"
        raise CliError("there is nothing to measure", why, "leave one of both out")
    target = target_of(plan.topic, urls, vhost, connect_timeout)
    with progress_of("messages", messages) as show:
        result = run_client(run_bench(plan, target.connect, show))
    if as_json:
        click.echo(
            json.dumps(
                {
                    "topic": plan.topic,
                    "size": size,
                    "publishers": publishers,
                    "subscribers": subscribers,
                    "window": window,
                    **result.as_json(),
                }
            )
        )
    else:
        _print(plan, result)
    return 0 if settled or result.accepted == result.published else VERDICT_NO


def _print(plan: BenchPlan, result: BenchResult) -> None:
    from oncewire.client.bench import percentiles_ms, rate
    from oncewire.client.outcomes import counted

    done = "written" if plan.settled else "accepted"
    rows = [(done, result.published if plan.settled else result.accepted, result.publish_s, result.acceptance)]
    if plan.subscribers:
        rows.append(("arrived", result.received, result.receive_s, result.arrival))
    table = [("", "messages", "messages/s", "MB/s", "p50", "p90", "p99", "longest")]
    for name, count, seconds, times in rows:
        each = rate(count, seconds)
        found = percentiles_ms(times)
        p50, p90, p99, longest = (f"{found[key]:,.2f} ms" if found else "-" for key in ("p50", "p90", "p99", "max"))
        table.append((name, f"{count:,}", f"{each:,}", f"{each * plan.size / 1e6:.2f}", p50, p90, p99, longest))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    click.echo(
        f"{counted(plan.publishers, 'publisher')}, {counted(plan.subscribers, 'subscriber')}, "
        f"{counted(plan.size, 'byte')}, window {plan.window}"
    )
    for row in table:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        click.echo("  ".join(cells))
