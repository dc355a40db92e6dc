"""What heartbeats cost: CPU time of a router with idle clients, by the idle time-out of these clients.

The router's own idle time-out is the default; it makes the clients send something, as theirs makes the router.

    python benchmarks/bench_idle.py [--clients 500] [--seconds 10] [--json]
"""

from __future__ import annotations

import argparse
import asyncio

import uvloop
from harness import Router, Row, amount, carry_out, show, standalone_router, whole

from oncewire.client import connect
from oncewire.client.connecting import IDLE_TIME_OUT_S

IDLE_TIME_OUTS_S = (IDLE_TIME_OUT_S, 5.0, 10.0, 30.0)
AT_ONCE = 50
"""Clients that connect together."""


async def measure(router: Router, clients: int, seconds: float, idle_time_out_s: float) -> float:
    """Connect, wait for the heartbeats to find their rhythm, and watch; CPU seconds a second."""
    idle = [connect(f"amqp://{router.address}", idle_time_out=idle_time_out_s) for _ in range(clients)]
    try:
        for start in range(0, clients, AT_ONCE):
            await asyncio.gather(*(client.start() for client in idle[start : start + AT_ONCE]))
        await asyncio.sleep(idle_time_out_s)
        before = router.cpu_s()
        await asyncio.sleep(seconds)
        return (router.cpu_s() - before) / seconds
    finally:
        await asyncio.gather(*(client.abandon() for client in idle))


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    rows: list[Row] = []
    with standalone_router() as router:
        for idle_s in IDLE_TIME_OUTS_S:
            share = uvloop.run(measure(router, options.clients, options.seconds, idle_s))
            rows.append({"idle time-out s": idle_s, "router CPU, cores": round(share, 4)})
    show("idle", rows, options.json, clients=options.clients)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="CPU time of a router with idle clients.")
    parser.add_argument("--clients", type=whole, default=500)
    parser.add_argument("--seconds", type=amount, default=10.0, help="of each measurement")
    carry_out(parser, main)
