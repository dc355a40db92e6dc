"""How a router grows: idle connections, subscriptions, and the clients of a router that was killed.

- connections: memory and CPU time of each idle connection (open, one session, no link, no TLS).
- subscriptions: time, memory and CPU time of the router they attach to and of another, and writes, keys, bytes and CPU
  time of etcd, for each subscription. With more --routers, all the others watch.
- storm: a router with so many subscriptions is killed, and all attach at once to another one: the time until each was
  answered, and until a message has reached them all.

    python benchmarks/bench_scale.py [connections] [subscriptions] [storm] [--count 1000 10000] [--routers 2] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from abusers import subscriber
from harness import BenchmarkError, Router, Row, carry_out, show, standalone_router, whole
from raw_clients import ATTACH, EMPTY_FRAME, TRANSFER, RawClient, connected, wait_for

from oncewire.client import connect
from router.commands.local_network import LocalNetwork, LocalRouter
from router.settings.config_loading import SETTINGS

UNLIMITED = {
    "limits.max_connections": "100000",
    "limits.attach_rate": "1000000",
    "limits.max_opening": "100000",
    "listen.idle_timeout_s": "3600",
    "limits.open_timeout_s": "300",
}
"""What a stranger may not have, and a benchmark needs."""
LINKS = 200
"""Of one connection."""
TOPICS = 100
IDLE_S = 5.0
WARM_UP = 10
"""Connections before the measured ones: the first ones pay for what all share."""

SETTINGS_BY_KEY = {each.key: each for each in SETTINGS.values()}


def flags() -> list[str]:
    """UNLIMITED, for a command line."""
    return [f"{SETTINGS_BY_KEY[key].flag}={value}" for key, value in UNLIMITED.items()]


async def of_connections(count: int, routers: int) -> Row:
    """Memory and CPU time of idle connections; each client sends a heartbeat a second."""
    with standalone_router(*flags()) as router:
        connected(router.address, WARM_UP, "warm")
        before = router.resident_bytes()
        began = time.monotonic()
        clients = connected(router.address, count, "idle")
        took = time.monotonic() - began
        grown = router.resident_bytes() - before
        spent = router.cpu_s()
        beats, ends = 0, time.monotonic() + IDLE_S
        while time.monotonic() < ends:
            for each in clients:
                each.send(EMPTY_FRAME)
            beats += count
            await asyncio.sleep(1.0)
        spent = router.cpu_s() - spent
        row = {
            "connections": count,
            "opened per s": round(count / took),
            "kB each": round(grown / count / 1000, 2),
            "router MB": megabytes(router),
            "CPU us per heartbeat": round(spent * 1e6 / beats, 1),
        }
        close(clients)
        return row


async def of_subscriptions(count: int, routers: int) -> Row:
    """Attach, detach nothing, and look at what the first two routers and etcd hold."""
    async with LocalNetwork(routers, settings=UNLIMITED, log_level="error") as network:
        here, there = (router_of(network.routers[name]) for name in ("r1", "r2"))
        assert network.etcd is not None
        etcd = Router(network.etcd.pid, "", "")
        watched = (here, there, etcd)
        before, stored = [each.resident_bytes() for each in watched], await etcd_numbers(network)
        spent = [each.cpu_s() for each in watched]
        began = time.monotonic()
        clients = await asyncio.to_thread(attach_all, here.address, count)
        took = time.monotonic() - began
        grown = [each.resident_bytes() - size for each, size in zip(watched, before, strict=True)]
        cpu = [each.cpu_s() - seconds for each, seconds in zip(watched, spent, strict=True)]
        found = await etcd_numbers(network)
        row = {
            "subscriptions": count,
            "routers": routers,
            "attached per s": round(count / took),
            "writes to etcd each": round((found["revision"] - stored["revision"]) / count, 2),
            "keys in etcd each": round((found["keys"] - stored["keys"]) / count, 2),
            "etcd kB each, on disk": round((found["bytes"] - stored["bytes"]) / count / 1000, 2),
        }
        for place, name in enumerate(("at its router", "at another", "etcd")):
            row[f"kB each, {name}"] = round(grown[place] / count / 1000, 2)
            row[f"CPU us each, {name}"] = round(cpu[place] * 1e6 / count)
        close(clients)
        return row


async def of_storm(count: int, routers: int) -> Row:
    """Kill the router of all subscriptions; they come to another one at once, and get a message there."""
    async with LocalNetwork(routers, settings=UNLIMITED, log_level="error") as network:
        close(await asyncio.to_thread(attach_all, network.routers["r1"].url, count))
        before = (await etcd_numbers(network))["revision"]
        assert network.etcd is not None
        watched = router_of(network.routers["r2"]), Router(network.etcd.pid, "", "")
        spent = [each.cpu_s() for each in watched]
        await network.kill("r1")
        began = time.monotonic()
        clients = await asyncio.to_thread(attach_all, network.routers["r2"].url, count)
        answered = time.monotonic() - began
        writes = (await etcd_numbers(network))["revision"] - before
        cpu = [round(each.cpu_s() - seconds, 1) for each, seconds in zip(watched, spent, strict=True)]
        async with connect(network.routers["r2"].url) as client:
            for number in range(min(TOPICS, count)):
                _ = await (await client.publisher(f"scale/{number}")).submit(b"here?")
            received = sizes(clients, count)
            await asyncio.to_thread(wait_for, clients, lambda each: each.counts.get(TRANSFER, 0) >= received[each])
            reached = time.monotonic() - began
            close(clients)
            await client.abandon()
        return {
            "subscriptions": count,
            "all answered after s": round(answered, 1),
            "all reached after s": round(reached, 1),
            "writes to etcd": writes,
            "router CPU s": cpu[0],
            "etcd CPU s": cpu[1],
        }


def one_of_topics(number: int) -> str:
    """The topic of a subscription."""
    return f"scale/{number % TOPICS}"


def attach_all(url: str, count: int, topic_of: Callable[[int], str] = one_of_topics) -> list[RawClient]:
    """Attach so many subscriptions, LINKS on each connection; all are answered when this returns."""
    clients = connected(url, -(-count // LINKS), "scale")
    wanted = sizes(clients, count)
    for number, each in enumerate(clients):
        first = number * LINKS
        for handle in range(wanted[each]):
            each.send(subscriber(handle, f"s{first + handle}", topic_of(first + handle)))
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


async def etcd_numbers(network: LocalNetwork) -> dict[str, int]:
    """What etcd holds: its revision (one for each transaction that changes something), keys, bytes of its database."""

    def ask(path: str, **question: object) -> dict[str, Any]:
        request = Request(f"{network.etcd_urls[0]}/v3/{path}", data=json.dumps(question).encode(), method="POST")
        with urlopen(request, timeout=60) as reply:
            found: dict[str, Any] = json.load(reply)
            return found

    status = await asyncio.to_thread(ask, "maintenance/status")
    # "AA==" is a zero byte: from there to there means all keys.
    keys = await asyncio.to_thread(ask, "kv/range", key="AA==", range_end="AA==", count_only=True)
    return {"revision": int(status["header"]["revision"]), "keys": int(keys["count"]), "bytes": int(status["dbSize"])}


PARTS = {"connections": of_connections, "subscriptions": of_subscriptions, "storm": of_storm}
COUNTS = (1_000, 10_000)


async def run(part: str, counts: Sequence[int], routers: int, *, as_json: bool) -> None:
    """Measure one part and print."""
    show(f"scale {part}", [await PARTS[part](count, routers) for count in counts], as_json)


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    if options.routers < 2:
        raise BenchmarkError("--routers is at least 2")
    for part in options.parts or PARTS:
        asyncio.run(run(part, options.count, options.routers, as_json=options.json))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Connections, subscriptions and storms of attaches, by number.")
    parser.add_argument("parts", choices=[*PARTS, []], nargs="*", help="without any: all")
    parser.add_argument("--count", type=whole, nargs="+", default=COUNTS, help="10,000 sockets need `ulimit -n 20100`")
    parser.add_argument("--routers", type=int, default=2, help="of the network; connections need only one, alone")
    carry_out(parser, main)
