"""How a router grows: idle connections, subscriptions, and the clients of a router that was killed.

- connections: memory and CPU time of each idle connection (open, one session, no link, no TLS).
- subscriptions: time, memory of the router they attach to and of another, and writes to etcd, for each subscription.
- storm: a router with so many subscriptions is killed, and all attach at once to another one: the time until each was
  answered, and until a message has reached them all.

    python benchmarks/bench_scale.py [connections] [subscriptions] [storm] [--count 1000 10000] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from abusers import subscriber
from bench_idle import cpu_seconds
from harness import BenchmarkError, Router, machine, standalone_router
from raw_clients import ATTACH, EMPTY_FRAME, TRANSFER, RawClient, connected, wait_for

from oncewire.client import ClientError, connect
from router.commands.local_network import LocalNetwork, LocalNetworkError, LocalRouter
from router.config_loading import SETTINGS
from topology.etcd_server import EtcdFailed, EtcdNotFound

FAILED = 1
UNLIMITED = {
    "limits.max_connections": "100000", "limits.attach_rate": "1000000", "limits.max_opening": "100000",
    "listen.idle_timeout_s": "600",
}  # fmt: skip
"""What a stranger may not have, and a benchmark needs."""
LINKS = 200
"""Of one connection."""
TOPICS = 100
IDLE_S = 5.0
WARM_UP = 10
"""Connections before the measured ones: the first ones pay for what all share."""

SETTINGS_BY_KEY = {each.key: each for each in SETTINGS.values()}

Row = dict[str, Any]


async def of_connections(count: int) -> Row:
    """Memory and CPU time of idle connections; each client sends a heartbeat a second."""
    flags = (f"{SETTINGS_BY_KEY[key].flag}={value}" for key, value in UNLIMITED.items())
    with standalone_router(*flags) as router:
        connected(router.address, WARM_UP, "warm")
        before = router.resident_bytes()
        began = time.monotonic()
        clients = connected(router.address, count, "idle")
        took = time.monotonic() - began
        grown = router.resident_bytes() - before
        spent = cpu_seconds(router)
        beats, ends = 0, time.monotonic() + IDLE_S
        while time.monotonic() < ends:
            for each in clients:
                each.send(EMPTY_FRAME)
            beats += count
            await asyncio.sleep(1.0)
        spent = cpu_seconds(router) - spent
        row = {
            "connections": count, "opened per s": round(count / took), "kB each": round(grown / count / 1000, 2),
            "router MB": megabytes(router), "CPU us per heartbeat": round(spent * 1e6 / beats, 1),
        }  # fmt: skip
        close(clients)
        return row


async def of_subscriptions(count: int) -> Row:
    """Attach, detach nothing, and look at what the two routers and etcd hold."""
    async with LocalNetwork(2, settings=UNLIMITED, log_level="error") as network:
        here, there = (router_of(network.routers[name]) for name in ("r1", "r2"))
        before = here.resident_bytes(), there.resident_bytes(), await etcd_revision(network)
        spent = cpu_seconds(here), cpu_seconds(there)
        began = time.monotonic()
        clients = await asyncio.to_thread(attach_all, here.address, count)
        took = time.monotonic() - began
        row = {
            "subscriptions": count, "attached per s": round(count / took),
            "writes to etcd each": round((await etcd_revision(network) - before[2]) / count, 2),
            "kB each, at its router": round((here.resident_bytes() - before[0]) / count / 1000, 2),
            "kB each, at another": round((there.resident_bytes() - before[1]) / count / 1000, 2),
            "CPU us each, at its router": round((cpu_seconds(here) - spent[0]) * 1e6 / count),
            "CPU us each, at another": round((cpu_seconds(there) - spent[1]) * 1e6 / count),
        }  # fmt: skip
        close(clients)
        return row


async def of_storm(count: int) -> Row:
    """Kill the router of all subscriptions; they come to another one at once, and get a message there."""
    async with LocalNetwork(2, settings=UNLIMITED, log_level="error") as network:
        close(await asyncio.to_thread(attach_all, network.routers["r1"].url, count))
        before = await etcd_revision(network)
        await network.kill("r1")
        began = time.monotonic()
        clients = await asyncio.to_thread(attach_all, network.routers["r2"].url, count)
        answered = time.monotonic() - began
        writes = await etcd_revision(network) - before
        async with connect(network.routers["r2"].url) as client:
            for number in range(min(TOPICS, count)):
                _ = await (await client.publisher(f"scale/{number}")).submit(b"here?")
            received = sizes(clients, count)
            await asyncio.to_thread(wait_for, clients, lambda each: each.counts.get(TRANSFER, 0) >= received[each])
            reached = time.monotonic() - began
            close(clients)
            await client.abandon()
        return {
            "subscriptions": count, "all answered after s": round(answered, 1),
            "all reached after s": round(reached, 1), "writes to etcd": writes,
        }  # fmt: skip


def attach_all(url: str, count: int) -> list[RawClient]:
    """Attach so many subscriptions over TOPICS topics, LINKS on each connection; all are answered when this returns."""
    clients = connected(url, -(-count // LINKS), "scale")
    wanted = sizes(clients, count)
    for number, each in enumerate(clients):
        first = number * LINKS
        for handle in range(wanted[each]):
            each.send(subscriber(handle, f"s{first + handle}", f"scale/{(first + handle) % TOPICS}"))
    wait_for(clients, lambda each: each.counts.get(ATTACH, 0) >= wanted[each])
    return clients


def sizes(clients: Sequence[RawClient], count: int) -> dict[RawClient, int]:
    """How many links each client has."""
    return {each: min(LINKS, count - number * LINKS) for number, each in enumerate(clients)}


def close(clients: Iterable[RawClient]) -> None:
    """End all connections."""
    for each in clients:
        each.close()


def router_of(router: LocalRouter) -> Router:
    """As the other benchmarks have it."""
    return Router(router.pid, urlsplit(router.url).netloc, urlsplit(router.http).netloc)


def megabytes(router: Router) -> float:
    """Resident memory."""
    return round(router.resident_bytes() / 1e6, 1)


async def etcd_revision(network: LocalNetwork) -> int:
    """How much was written to etcd so far: each transaction that changes something is one revision."""

    def ask() -> int:
        request = Request(f"{network.etcd_urls[0]}/v3/maintenance/status", data=b"{}", method="POST")
        with urlopen(request, timeout=10) as reply:
            return int(json.load(reply)["header"]["revision"])

    return await asyncio.to_thread(ask)


PARTS = {"connections": of_connections, "subscriptions": of_subscriptions, "storm": of_storm}
COUNTS = (1_000, 10_000)


async def run(part: str, counts: Sequence[int], *, as_json: bool) -> None:
    """Measure one part and print."""
    found = []
    for count in counts:
        row = await PARTS[part](count)
        found.append(row)
        if not as_json:
            if len(found) == 1:
                print(f"{machine()}\n\n| {' | '.join(row)} |\n|{'--:|' * len(row)}")
            print(f"| {' | '.join(f'{value:,}' for value in row.values())} |", flush=True)
    if as_json:
        print(json.dumps({"benchmark": f"scale {part}", "machine": machine(), "rows": found}))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Connections, subscriptions and storms of attaches, by number.")
    parser.add_argument("parts", choices=[*PARTS, []], nargs="*", help="without any: all")
    parser.add_argument("--count", type=int, nargs="+", default=COUNTS, help="10,000 sockets need `ulimit -n 20100`")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if any(count < 1 for count in options.count):
        parser.error("--count is at least 1")
    try:
        for part in options.parts or PARTS:
            asyncio.run(run(part, options.count, as_json=options.json))
    except (BenchmarkError, ClientError, EtcdFailed, EtcdNotFound, LocalNetworkError, OSError) as error:
        print(f"bench_scale: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
