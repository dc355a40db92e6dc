"""What heartbeats cost: CPU time of a router with idle clients, by the idle time-out of these clients.

The router's own idle time-out is the default; it makes the clients send something, as theirs makes the router.

    python benchmarks/bench_idle.py [--clients 500] [--seconds 10] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path

import uvloop
from harness import Router, amount, carry_out, machine, standalone_router, whole

from oncewire.client import connect
from oncewire.client.connecting import IDLE_TIME_OUT_S

IDLE_TIME_OUTS_S = (IDLE_TIME_OUT_S, 5.0, 10.0, 30.0)
AT_ONCE = 50
"""Clients that connect together."""


def cpu_seconds(router: Router) -> float:
    """utime + stime of the router."""
    fields = Path(f"/proc/{router.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(router: Router, clients: int, seconds: float, idle_time_out_s: float) -> float:
    """Connect, wait for the heartbeats to find their rhythm, and watch; CPU seconds a second."""
    idle = [connect(f"amqp://{router.address}", idle_time_out=idle_time_out_s) for _ in range(clients)]
    try:
        for start in range(0, clients, AT_ONCE):
            await asyncio.gather(*(client.start() for client in idle[start : start + AT_ONCE]))
        await asyncio.sleep(idle_time_out_s)
        before = cpu_seconds(router)
        await asyncio.sleep(seconds)
        return (cpu_seconds(router) - before) / seconds
    finally:
        await asyncio.gather(*(client.abandon() for client in idle))


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    shares: dict[float, float] = {}
    with standalone_router() as router:
        for idle_s in IDLE_TIME_OUTS_S:
            shares[idle_s] = uvloop.run(measure(router, options.clients, options.seconds, idle_s))
    if options.json:
        result = {"benchmark": "idle", "machine": machine(), "clients": options.clients, "cpu_share": shares}
        print(json.dumps(result))
    else:
        print(f"{machine()}\n\n| idle time-out of {options.clients} idle clients | router CPU |\n|--:|--:|")
        for idle_s, share in shares.items():
            print(f"| {idle_s:g} s | {share:.2%} of a core |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="CPU time of a router with idle clients.")
    parser.add_argument("--clients", type=whole, default=500)
    parser.add_argument("--seconds", type=amount, default=10.0, help="of each measurement")
    carry_out(parser, main)
