"""Throughput of one router with several workers: so many flows at once, each of a publisher and a subscriber.

All clients connect to one port, and the kernel decides at which worker they are. CPU time is utime + stime of the
workers, from the start of the first flow to the end of the last one, for each delivered message. What a further worker
brings depends on idle cores: workers, load generators and etcd share those of the machine.

    python benchmarks/bench_workers.py [--workers 1 2] [--flows 4] [--rounds 3] [--seconds 3] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness import Router, Row, carry_out, run_load, show, spread

from router.commands.local_network import LocalNetwork

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@contextmanager
def router_of(workers: int) -> Iterator[Router]:
    """A router with so many workers, with an etcd, for the time of the block; its pid is that of the parent."""
    network = LocalNetwork(1, settings={"workers": str(workers)})
    with asyncio.Runner() as runner:
        try:
            runner.run(network.start())
            router = network.routers["r1"]
            yield Router(router.pid, *(urlsplit(url).netloc for url in (router.url, router.http)))
        finally:
            runner.run(network.stop())


def cpu_s(pid: int) -> float:
    """CPU time of a process and its children (proc(5))."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = 0.0
    for each in (str(pid), *children):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return total


def run_flows(router: Router, flows: int, mode: str, seconds: float) -> dict[str, float]:
    """All flows at once: messages a second of all together, and CPU time."""

    def run(number: int) -> dict[str, Any]:
        options = ("--mode", mode, "--seconds", str(seconds), "--topic", f"load-{number}", "--name", f"flow-{number}")
        return run_load(router, [router], [], *options)

    before, began = cpu_s(router.pid), time.monotonic()
    with ThreadPoolExecutor(flows) as pool:
        results = list(pool.map(run, range(flows)))
    used, took = cpu_s(router.pid) - before, time.monotonic() - began
    delivered = sum(result["delivered"] for result in results)
    return {
        "messages_per_s": sum(result["messages_per_s"] for result in results),
        "router_cpu_us_per_delivered": used / delivered * 1e6,
        "cores_used": used / took,
    }


def measure(counts: Sequence[int], options: argparse.Namespace) -> dict[int, list[dict[str, float]]]:
    """Every number of workers once in each round, so that a busy minute of the machine does not hit one alone."""
    found: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
    with ExitStack() as stack:
        routers = {count: stack.enter_context(router_of(count)) for count in counts}
        for number in range(options.rounds):
            for count in counts:
                print(f"round {number + 1} of {options.rounds}: {count} workers", file=sys.stderr)
                found[count].append(run_flows(routers[count], options.flows, options.mode, options.seconds))
    return found


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    found = measure(options.workers, options)
    rows: list[Row] = [
        {
            "workers": count,
            "messages/s (min-max)": spread(results, "messages_per_s", ",.0f"),
            "router CPU us per delivered": spread(results, "router_cpu_us_per_delivered", ".2f"),
            "cores used by workers": spread(results, "cores_used", ".2f"),
        }
        for count, results in found.items()
    ]
    show("workers", rows, options.json, **vars(options), runs=found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Throughput of one router with several workers.")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--flows", type=int, default=4, help="publishers with a subscriber each, at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run, behind half a second of warm-up")
    parser.add_argument("--mode", choices=["two-step", "three-step"], default="three-step")
    carry_out(parser, main)
