"""What hostile clients do to others: latency of a publisher and a subscriber without abuse and under it.

One router process with its etcd on loopback, for each abuse a fresh one. A publisher sends 100 messages a second;
measured is the time from each message to its delivery. Newcomers connect meanwhile, one after the other, and attach a
publisher. The abusers (`abusers.py`) are another process, of low priority: they would be on a machine of their own.

    python benchmarks/bench_abuse.py [--seconds 5] [--begun 1] [--only PART_OF_A_NAME] [--json | --markdown]

`--markdown` prints the table of docs/threats.md; the columns *before*, of code that is no more, are those of the page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop
from abusers import FAN_OUT_FROM_ELSEWHERE, PREPARED, abuses
from harness import Router, carry_out, machine
from steady_flow import Flow, steady_flow

from oncewire.cli.users_file import line_of, write
from oncewire.client import connect
from router.commands.local_network import LocalNetwork

WARM_UP_S = 1.0
"""Of the flow, before it is measured."""
NEWCOMER_S = 30.0
BETWEEN_S = 0.1
PREPARED_S = 300.0
ABUSERS = Path(__file__).with_name("abusers.py")
PAGE = Path(__file__).parents[1] / "docs" / "threats.md"
HEADER = "| abuse | p50 | p99 | times | p99 before | newcomer | newcomer before | memory | memory before |"


@dataclass(slots=True)
class Result:
    """One line of the table; times in milliseconds, memory in MiB."""

    abuse: str
    p50: float
    p99: float
    p50_abused: float
    p99_abused: float
    p50_accepted: float
    p99_accepted: float
    p50_accepted_abused: float
    p99_accepted_abused: float
    newcomer: float
    """Median of the time in which a newcomer was served under abuse."""
    newcomers_failed: int
    rss: float
    rss_abused: float

    @property
    def ratio(self) -> float:
        """p99 under abuse by p99 without."""
        return self.p99_abused / self.p99


def percentiles(flow: Flow, begin: float, end: float, ended_at: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 of the messages that were sent between two moments; those that have not come count as long as now.

    `ended_at`: when each was delivered, or accepted.
    """
    now = time.monotonic()
    late = [now] * (len(flow.sent_at) - len(ended_at))
    times = [
        (came - sent) * 1000 for sent, came in zip(flow.sent_at, [*ended_at, *late], strict=True) if begin <= sent < end
    ]
    found = statistics.quantiles(times, n=100)
    return round(found[49], 1), round(found[98], 1)


async def newcomers(url: str, until: float) -> tuple[list[float], int]:
    """Times in which newcomers were served, in milliseconds, and how many were not."""
    times: list[float] = []
    failed = 0
    while time.monotonic() < until:
        began = time.monotonic()
        client = connect([url], container_id=f"new-{began}")
        try:
            async with asyncio.timeout(NEWCOMER_S):
                await client.start()
                await client.publisher("newcomers", name="p")
            times.append((time.monotonic() - began) * 1000)
        except TimeoutError:
            failed += 1
        await client.abandon()
        await asyncio.sleep(BETWEEN_S)
    return times, failed


@asynccontextmanager
async def abusing(name: str, amqp: int, http: int, other: int) -> AsyncIterator[None]:
    """The abuse, for the time of the block."""
    ports = map(str, (amqp, http, other))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ABUSERS), name, *ports, stderr=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        if name in PREPARED:
            async with asyncio.timeout(PREPARED_S):
                await process.stdout.readline()
        yield
    finally:
        process.kill()
        await process.wait()


async def measure(name: str, options: argparse.Namespace, settings: Mapping[str, str]) -> Result:
    """One abuse of a fresh router with these settings."""
    seconds, begun_s, log_folder = options.seconds, options.begun, options.logs
    routers = 2 if name == FAN_OUT_FROM_ELSEWHERE else 1
    async with LocalNetwork(routers, settings=settings, log_folder=log_folder) as network:
        at, other = network.routers["r1"], list(network.routers.values())[-1]
        router = Router(at.pid, at.url, at.http)
        async with steady_flow("steady", [at.url], [at.url]) as flow:
            await asyncio.sleep(WARM_UP_S)
            begin = time.monotonic()
            await asyncio.sleep(seconds)
            quiet = percentiles(flow, begin, time.monotonic(), flow.delivered_at)
            quiet_accepted = percentiles(flow, begin, time.monotonic(), flow.accepted_at)
            rss = router.resident_bytes()
            async with abusing(name, at.amqp_port, at.http_port, other.amqp_port):
                await asyncio.sleep(begun_s)
                begin = time.monotonic()
                times, failed = await newcomers(at.url, begin + seconds)
                abused = percentiles(flow, begin, begin + seconds, flow.delivered_at)
                abused_accepted = percentiles(flow, begin, begin + seconds, flow.accepted_at)
                rss_abused = router.resident_bytes()
    median = statistics.median(times) if times else float("inf")
    return Result(
        name,
        *quiet,
        *abused,
        *quiet_accepted,
        *abused_accepted,
        round(median, 1),
        failed,
        rss // (1 << 20),
        rss_abused // (1 << 20),
    )


def show(result: Result) -> None:
    """One line."""
    failed = f", {result.newcomers_failed} failed" if result.newcomers_failed else ""
    print(
        f"{result.abuse:<44} p50 {result.p50:5.1f} -> {result.p50_abused:7.1f}  p99 {result.p99:5.1f} -> "
        f"{result.p99_abused:7.1f} ms ({result.ratio:5.1f}x)  accepted p50 {result.p50_accepted_abused:7.1f} p99 "
        f"{result.p99_accepted_abused:7.1f} ms  newcomer {result.newcomer:7.1f} ms{failed}  "
        f"RSS {result.rss:4.0f} -> {result.rss_abused:4.0f} MiB",
        flush=True,
    )


def markdown(results: Sequence[Result], page: str) -> list[str]:
    """The table of the page, with these rows; a row that the page does not have has nothing before."""
    lines = page.splitlines()
    first = lines.index(HEADER)
    former = {cells[0]: cells for line in lines[first + 2 :] if len(cells := cells_of(line)) == len(cells_of(HEADER))}
    table = lines[first : first + 2]
    for each in results:
        before = former.get(each.abuse, ["-"] * len(cells_of(HEADER)))
        failed = f" ({each.newcomers_failed} failed)" if each.newcomers_failed else ""
        cells = [
            each.abuse,
            f"{each.p50} to {each.p50_abused}",
            f"{each.p99} to {each.p99_abused}",
            f"{each.ratio:.1f}",
            before[4],
            f"{each.newcomer}{failed}",
            before[6],
            f"{each.rss_abused:.0f}",
            before[8],
        ]
        table.append(f"| {' | '.join(cells)} |")
    return table


def cells_of(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip("|").split("|")]


async def run(names: Sequence[str], options: argparse.Namespace) -> None:
    """All of them, one after the other."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        users = str(Path(folder, "users"))
        write(users, [line_of("ann", "a long password")])
        settings = {"http.websocket": "true", "users_file": users}
        for name in names:
            results.append(await measure(name, options, settings))
            if not options.json:
                show(results[-1])
    if options.markdown:
        print("\n".join(markdown(results, PAGE.read_text())))
    if options.json:
        print(json.dumps([{**asdict(each), "ratio": round(each.ratio, 2)} for each in results]))


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    if not options.json:
        print(f"{machine()}\n")
    uvloop.run(run([name for name in abuses(0, 0, 0) if options.only in name], options))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Latency of honest clients beside hostile ones.")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--begun", type=float, default=1.0, help="seconds of abuse before it is measured")
    parser.add_argument("--only", default="", help="part of the name of an abuse")
    parser.add_argument("--logs", type=Path, help="folder for the logs of the routers")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/threats.md, too")
    carry_out(parser, main)
