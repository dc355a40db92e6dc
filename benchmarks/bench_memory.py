"""Memory of a router that carries a million messages, exactly-once, from one publisher to one subscriber.

Nothing may be left of a delivery that both ends have settled: the resident memory after all messages is at most 5 % or
4 MB more than it was after the first tenth. Exit code 1 if it is more.

    python benchmarks/bench_memory.py [--messages 1000000] [--first 100000] [--json]
"""

from __future__ import annotations

import argparse
import json

from harness import BenchmarkError, Router, carry_out, machine, run_load, standalone_router, whole

ALLOWED_SHARE = 0.05
ALLOWED_BYTES = 4_000_000
"""The allocator's own grain: a router of 40 MB moves by more than 5 % without holding anything."""
MB = 1_000_000


def carry(router: Router, messages: int) -> int:
    """Send that many messages; the memory the router holds once all are settled and the clients are gone."""
    run_load(router, [router], [router], "--messages", str(messages), "--warmup", "0", "--name", "memory")
    return router.resident_bytes()


def main(options: argparse.Namespace) -> bool:
    """Measure and print."""
    if options.first >= options.messages:
        raise BenchmarkError("--first is less than --messages")
    with standalone_router() as router:
        at_start = router.resident_bytes()
        after_first = carry(router, options.first)
        after_all = carry(router, options.messages - options.first)
    grown = after_all - after_first
    fits = grown <= max(ALLOWED_SHARE * after_first, ALLOWED_BYTES)
    if options.json:
        result = {
            "benchmark": "memory",
            "machine": machine(),
            "at_start_bytes": at_start,
            "first": options.first,
            "after_first_bytes": after_first,
            "messages": options.messages,
            "after_all_bytes": after_all,
            "grown_bytes": grown,
            "fits": fits,
        }
        print(json.dumps(result))
    else:
        print(machine())
        print(f"before the first message       {at_start / MB:8.1f} MB")
        print(f"after {options.first:>9,} messages       {after_first / MB:8.1f} MB")
        print(f"after {options.messages:>9,} messages       {after_all / MB:8.1f} MB")
        allowed = f"{ALLOWED_SHARE:.0%} or {ALLOWED_BYTES / MB:.0f} MB"
        print(f"grown by {grown / MB:+.1f} MB ({grown / after_first:+.1%}); allowed: {allowed}")
    return fits


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Memory of a router over many messages.")
    parser.add_argument("--messages", type=whole, default=1_000_000, help="in all")
    parser.add_argument("--first", type=whole, default=100_000, help="messages before the first look")
    carry_out(parser, main)
