"""Memory of a router over a long time: one flow after the other, exactly-once, and a look at the process behind each.

Every flow has a publisher and a subscriber of its own names, which attach, carry so many messages with 500 unsettled
and 100 bytes each, unsubscribe and disconnect. Nothing may be lost, repeated or left unsettled. Exit code 1 if one is,
or if the router holds more at the end than behind the first fifth, by more than bench_memory.py allows.

    python benchmarks/bench_soak.py [--seconds 60] [--messages 200000] [--json]
"""

from __future__ import annotations

import argparse
import time

from bench_memory import ALLOWED_BYTES, ALLOWED_SHARE
from harness import Router, Row, carry_out, run_load, show, standalone_router, whole

FIRST_SHARE = 0.2


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


def main(options: argparse.Namespace) -> bool:
    """Measure and print."""
    with standalone_router() as router:
        began = time.monotonic()
        rows = soak(router, options.seconds, options.messages)
        took, cpu = time.monotonic() - began, router.cpu_s()
    first = rows[max(1, round(len(rows) * FIRST_SHARE))]["router MB"] * 1e6
    last = rows[-1]["router MB"] * 1e6
    fits = last - first <= max(ALLOWED_SHARE * first, ALLOWED_BYTES)
    carried = rows[-1]["messages"]
    beside = {
        "messages": carried,
        "flows": len(rows) - 1,
        "seconds": round(took),
        "router CPU s": round(cpu),
        "router CPU us per message": round(cpu * 1e6 / carried, 2),
        "fits": fits,
    }
    show("soak", rows, options.json, **beside)
    if not options.json:
        verdict = "flat" if fits else "MORE than allowed"
        print(f"\n{carried:,} messages in {took:.0f} s, {cpu:.0f} s of router CPU: {verdict}")
    return bool(fits)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Memory of a router over many flows.")
    parser.add_argument("--seconds", type=float, default=60.0, help="the flow that is running then is finished")
    parser.add_argument("--messages", type=whole, default=200_000, help="of each flow")
    carry_out(parser, main)
