"""CPU time of a router by the size of a message's body, from nothing to 64 MB, exactly-once, 1 -> 1.

python benchmarks/bench_sizes.py [--rounds 3] [--seconds 2] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any

from harness import BenchmarkError, machine, run_load, standalone_router

FAILED = 1
SIZES = (0, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 64_000_000)
"""Bytes; the last one is just below the limit for a message."""
WINDOW, WINDOW_BYTES = 500, 64_000_000
"""Unsettled messages, and no more of them than this many bytes but for one."""
LARGE, LARGE_BYTES = 1_000_000, 640_000_000
"""So large ones are counted and not timed: those that a run has begun would count for too much."""

Row = dict[str, Any]


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


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU time by the size of messages.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run with messages below a megabyte")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds is at least 1, and --seconds more than 0")
    try:
        rows = measure(options.rounds, options.seconds)
    except BenchmarkError as error:
        print(f"bench_sizes: {error}", file=sys.stderr)
        return FAILED
    if options.json:
        print(json.dumps({"benchmark": "sizes", "machine": machine(), "rows": rows}))
        return 0
    print(f"{machine()}\n\n| {' | '.join(rows[0])} |\n|{'--:|' * len(rows[0])}")
    for row in rows:
        print(f"| {' | '.join(f'{value:,}' if value != '' else '' for value in row.values())} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
