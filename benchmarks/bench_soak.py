"""Memory of a router over a long time: one flow after the other, exactly-once, and a look at the process behind each.

Every flow has a publisher and a subscriber of its own names, which attach, carry so many messages with 500 unsettled
and 100 bytes each, unsubscribe and disconnect. Nothing may be lost, repeated or left unsettled. Exit code 1 if one is,
or if the router holds more at the end than behind the first fifth, by more than bench_memory.py allows.

    python benchmarks/bench_soak.py [--seconds 60] [--messages 200000] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from bench_idle import cpu_seconds
from bench_memory import ALLOWED_BYTES, ALLOWED_SHARE
from harness import BenchmarkError, Router, machine, run_load, standalone_router

FAILED = 1
FIRST_SHARE = 0.2

Row = dict[str, Any]


def soak(router: Router, seconds: float, messages: int) -> list[Row]:
    """Flows until the time is over: messages so far, memory behind each."""
    rows = [{"messages": 0, "router MB": megabytes(router)}]
    ends = time.monotonic() + seconds
    while time.monotonic() < ends or len(rows) < 3:
        options = ["--messages", str(messages), "--warmup", "0", "--name", f"soak-{len(rows)}"]
        run_load(router, [router], [router], *options)
        rows.append({"messages": messages * len(rows), "router MB": megabytes(router)})
    return rows


def megabytes(router: Router) -> float:
    """Resident memory."""
    return round(router.resident_bytes() / 1e6, 2)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Memory of a router over many flows.")
    parser.add_argument("--seconds", type=float, default=60.0, help="the flow that is running then is finished")
    parser.add_argument("--messages", type=int, default=200_000, help="of each flow")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.messages < 1 or options.seconds < 0:
        parser.error("--messages is at least 1, and --seconds at least 0")
    try:
        with standalone_router() as router:
            began = time.monotonic()
            rows = soak(router, options.seconds, options.messages)
            took, cpu = time.monotonic() - began, cpu_seconds(router)
    except BenchmarkError as error:
        print(f"bench_soak: {error}", file=sys.stderr)
        return FAILED
    first = rows[max(1, round(len(rows) * FIRST_SHARE))]["router MB"] * 1e6
    last = rows[-1]["router MB"] * 1e6
    fits = last - first <= max(ALLOWED_SHARE * first, ALLOWED_BYTES)
    carried = rows[-1]["messages"]
    result = {
        "benchmark": "soak",
        "machine": machine(),
        "messages": carried,
        "flows": len(rows) - 1,
        "seconds": round(took),
        "router CPU s": round(cpu),
        "router CPU us per message": round(cpu * 1e6 / carried, 2),
        "fits": fits,
        "rows": rows,
    }
    if options.json:
        print(json.dumps(result))
    else:
        print(f"{machine()}\n\n| messages | router MB |\n|--:|--:|")
        for row in rows:
            print(f"| {row['messages']:,} | {row['router MB']} |")
        verdict = "flat" if fits else "MORE than allowed"
        print(f"\n{carried:,} messages in {took:.0f} s, {cpu:.0f} s of router CPU: {verdict}")
    return 0 if fits else FAILED


if __name__ == "__main__":
    sys.exit(main())
