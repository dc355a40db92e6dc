"""How long one message to many subscriptions takes of a router's event loop in one piece.

Subscribers take the message and answer nothing, so what the router does for it is to hand it to all of them and to
write it to their sockets. Measured is the CPU time of its process for each of some messages that come one at a time.
With `elsewhere` the publisher is at another router (one etcd, loopback); measured is the router of the subscriptions.

    python benchmarks/bench_fan_out.py [here] [elsewhere] [--subscriptions 360 3600] [--messages 20] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench_scale import UNLIMITED, attach_all, close, flags, router_of, sizes
from harness import Router, carry_out, machine, standalone_router
from raw_clients import TRANSFER, wait_for

from oncewire.cli.version import is_compiled
from oncewire.client import connect
from router.commands.local_network import LocalNetwork

TOPIC = "fan"
BODY = b"x" * 100
REST_S = 0.05
"""Behind each message, for what the router does later."""


def cpu_ms(router: Router) -> float:
    """CPU time of the process so far, exact to the scheduler's clock."""
    return int(Path(f"/proc/{router.pid}/schedstat").read_text().split()[0]) / 1e6


@asynccontextmanager
async def routers(place: str) -> AsyncIterator[tuple[Router, Router]]:
    """Where the publisher connects, and the subscribers."""
    if place == "here":
        with standalone_router(*flags()) as router:
            yield router, router
        return
    async with LocalNetwork(2, settings=UNLIMITED, log_level="error") as network:
        yield router_of(network.routers["r1"]), router_of(network.routers["r2"])


async def measure(place: str, subscriptions: int, messages: int) -> dict[str, Any]:
    """CPU milliseconds of the subscriptions' router for each message."""
    times: list[float] = []
    async with routers(place) as (near, far):
        clients = await asyncio.to_thread(attach_all, far.address, subscriptions, lambda _: TOPIC)
        async with connect(f"amqp://{near.address}", container_id="fan") as client:
            publisher = await client.publisher(TOPIC, name="p", window=messages + 1)
            for number in range(messages):
                began = cpu_ms(far)
                await publisher.submit(BODY)
                wanted = {each: (number + 1) * links for each, links in sizes(clients, subscriptions).items()}
                await asyncio.to_thread(
                    wait_for, clients, lambda each, w=wanted: each.counts.get(TRANSFER, 0) >= w[each]
                )
                await asyncio.sleep(REST_S)
                times.append(cpu_ms(far) - began)
            await client.abandon()
        close(clients)
    median = statistics.median(times)
    return {
        "publisher": place,
        "subscriptions": subscriptions,
        "build": "compiled" if is_compiled() else "pure",
        "median_ms": round(median, 1),
        "most_ms": round(max(times), 1),
        "us_a_subscription": round(1000 * median / subscriptions, 1),
    }


async def run(options: argparse.Namespace) -> None:
    """All of them, one after the other."""
    rows = []
    for place in options.places or ("here", "elsewhere"):
        for count in options.subscriptions:
            rows.append(await measure(place, count, options.messages))
            if not options.json:
                print(" ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
    if options.json:
        print(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What one message to many subscriptions takes in one piece.")
    parser.add_argument("places", nargs="*", choices=["here", "elsewhere", []], help="where the publisher is")
    parser.add_argument("--subscriptions", type=int, nargs="+", default=[360, 3600])
    parser.add_argument("--messages", type=int, default=20)
    carry_out(parser, lambda options: asyncio.run(run(options)))
