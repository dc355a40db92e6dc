"""CPU time and throughput of real router processes: one router, and a chain of three.

A publisher keeps 500 messages of 100 bytes unsettled; one or four subscribers accept them at once. Two steps: settled
with the acceptance (at-least-once). Three steps: exactly-once, with the capability `topic-exactly-once`. CPU time is
utime + stime of the router processes, the sum of all three in a chain, for each delivered message.

    python benchmarks/bench_router.py [--rounds 3] [--seconds 3] [--only one|chain] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from harness import Router, Row, carry_out, run_load, show, spread, standalone_router

from router.commands.local_network import LocalNetwork, chain

ONE, CHAIN = "one router", "chain of three"
TWO_STEP, THREE_STEP = "two-step", "three-step"


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table."""

    routers: str
    subscribers: int
    mode: str

    def __str__(self) -> str:
        return f"{self.routers}, 1 -> {self.subscribers}, {self.mode}"


CASES = [
    Case(routers, subscribers, mode)
    for routers in (ONE, CHAIN)
    for subscribers in (1, 4)
    for mode in (TWO_STEP, THREE_STEP)
]

# CPU microseconds per delivered message of two routers written in C, measured on the same kind of machine with a load
# generator in C, 100 B, window 500; medians of 3 or 4 interleaved runs. Source: the comparison of AMQP 1.0 peers made
# for this project; the run's name stands behind each line. Nobody measured 1 -> 4 over a chain.
QPID_DISPATCH = {
    Case(ONE, 1, TWO_STEP): 3.72,  # "qdr single", first, n = 4
    Case(ONE, 1, THREE_STEP): 4.54,  # "qdr single", second, n = 4
    Case(ONE, 4, TWO_STEP): 1.82,  # "qdr1 sat" 1/4, first, n = 3
    Case(ONE, 4, THREE_STEP): 2.23,  # "qdr1 sat" 1/4, second, n = 3
    Case(CHAIN, 1, TWO_STEP): 21.12,  # "qdr A-C 2 hops", first, n = 4
    Case(CHAIN, 1, THREE_STEP): 27.64,  # "qdr A-C 2 hops", second, n = 4
}
SKUPPER_ROUTER = {
    Case(ONE, 1, TWO_STEP): 3.16,  # "skr single", first, n = 4
    Case(ONE, 1, THREE_STEP): 4.72,  # "skr single", second, n = 4
    Case(ONE, 4, TWO_STEP): 2.12,  # "skr1 sat" 1/4, first, n = 3
    Case(ONE, 4, THREE_STEP): 2.65,  # "skr1 sat" 1/4, second, n = 3
    Case(CHAIN, 1, TWO_STEP): 33.50,  # "skr A-C 2 hops", first, n = 4
    Case(CHAIN, 1, THREE_STEP): 29.43,  # "skr A-C 2 hops", second, n = 4
}


@contextmanager
def chain_of_three() -> Iterator[list[Router]]:
    """Three routers in a row, with an etcd, for the time of the block."""
    names = ["r1", "r2", "r3"]
    network = LocalNetwork(len(names), edges=chain(names))
    with asyncio.Runner() as runner:
        try:
            runner.run(network.start())
            routers = [network.routers[name] for name in names]
            yield [Router(each.pid, *(urlsplit(url).netloc for url in (each.url, each.http))) for each in routers]
        finally:
            runner.run(network.stop())


def run_case(case: Case, routers: Sequence[Router], seconds: float) -> dict[str, Any]:
    """Publish at the first router, subscribe at the last, watch all of them."""
    options = ["--mode", case.mode, "--subscribers", str(case.subscribers), "--seconds", str(seconds)]
    return run_load(routers[0], [routers[-1]], routers, *options)


def measure(cases: Sequence[Case], rounds: int, seconds: float) -> dict[Case, list[dict[str, Any]]]:
    """Run every case once in each round, so that a busy minute of the machine does not hit one case alone."""
    runs: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases}
    wanted = {case.routers for case in cases}
    with ExitStack() as stack:
        routers: dict[str, Sequence[Router]] = {}
        if ONE in wanted:
            routers[ONE] = [stack.enter_context(standalone_router())]
        if CHAIN in wanted:
            routers[CHAIN] = stack.enter_context(chain_of_three())
        for number in range(rounds):
            for case in cases:
                print(f"round {number + 1} of {rounds}: {case}", file=sys.stderr)
                runs[case].append(run_case(case, routers[case.routers], seconds))
    return runs


def row_of(case: Case, runs: Sequence[dict[str, Any]]) -> Row:
    """One case beside the peers."""
    row: Row = {
        "run": str(case),
        "messages/s (min-max)": spread(runs, "messages_per_s", ",.0f"),
        "router CPU us per delivered": spread(runs, "router_cpu_us_per_delivered", ".2f"),
    }
    ours = statistics.median(run["router_cpu_us_per_delivered"] for run in runs)
    for name, peer in (("qpid-dispatch", QPID_DISPATCH), ("skupper-router", SKUPPER_ROUTER)):
        row[f"{name} us"] = f"{peer[case]:.2f}" if case in peer else ""
        row[f"ratio to {name}"] = f"{ours / peer[case]:.2f}" if case in peer else ""
    return row


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    only = {"one": ONE, "chain": CHAIN}.get(options.only)
    runs = measure([case for case in CASES if only is None or case.routers == only], options.rounds, options.seconds)
    results = {str(case): found for case, found in runs.items()}
    rows = [row_of(case, found) for case, found in runs.items()]
    show("router", rows, options.json, rounds=options.rounds, seconds=options.seconds, results=results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="CPU time and throughput of real routers.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run, behind half a second of warm-up")
    parser.add_argument("--only", choices=["one", "chain"], help="leave the other half out")
    carry_out(parser, main)
