"""CPU time of a router by the size of a message's body, from nothing to 64 MB, exactly-once, 1 -> 1.

python benchmarks/bench_sizes.py [--rounds 3] [--seconds 2] [--json]
"""

from __future__ import annotations

import argparse
import statistics

from harness import Row, amount, carry_out, run_load, show, standalone_router, whole

SIZES = (0, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 64_000_000)
"""Bytes; the last one is just below the limit for a message."""
WINDOW, WINDOW_BYTES = 500, 64_000_000
"""Unsettled messages, and no more of them than this many bytes but for one."""
LARGE, LARGE_BYTES = 1_000_000, 640_000_000
"""So large ones are counted and not timed: those that a run has begun would count for too much."""


def measure(rounds: int, seconds: float) -> list[Row]:
    """Run every size once in each round."""
    runs: dict[int, list[Row]] = {size: [] for size in SIZES}
    with standalone_router() as router:
        for _ in range(rounds):
            for size, found in runs.items():
                window = max(1, min(WINDOW, WINDOW_BYTES // (size + 1)))
                length = ["--seconds", str(seconds)] if size < LARGE else ["--messages", str(LARGE_BYTES // size)]
                options = ["--size", str(size), "--window", str(window), *length]
                found.append(run_load(router, [router], [router], *options))
    return [row_of(size, found) for size, found in runs.items()]


def row_of(size: int, found: list[Row]) -> Row:
    """The medians of one size."""
    rate = statistics.median(run["messages_per_s"] for run in found)
    cpu = statistics.median(run["router_cpu_us_per_delivered"] for run in found)
    return {
        "bytes": size,
        "messages/s": round(rate),
        "MB/s": round(rate * size / 1e6, 1),
        "router CPU us": round(cpu, 2),
        "router CPU us per kB": round(cpu * 1000 / size, 3) if size else "",
    }


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    show("sizes", measure(options.rounds, options.seconds), options.json)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="CPU time by the size of messages.")
    parser.add_argument("--rounds", type=whole, default=3)
    parser.add_argument("--seconds", type=amount, default=2.0, help="of each run with messages below a megabyte")
    carry_out(parser, main)
