"""Journals from end to end: publisher, router, edge, and readers; all of them are processes of their own.

    python benchmarks/bench_edge.py [--messages 300000] [--rounds 3] [--publishers 1] [--only client settled spark]

An edge subscribes a journal in a SQLite file that syncs each transaction (FULL). A light publisher (load.py) keeps a
window of messages unsettled until all are accepted, exactly once. Then the journal is read from its start: by our
client with a cursor (each message accepted), by our client settled (the reader keeps its position), and by a batch of
Spark with one slot, where Spark is there. Each line has messages a second, and what one costs in processor time of
router, edge and client. Beside it the syncs a second that the disk allows, before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_journal import syncs
from harness import LOAD, LOAD_TIMEOUT_S, BenchmarkError, Row, carry_out, is_missing, show, spread, standalone_router
from load import cpu_s

from oncewire.client import connect

NAME, TOPIC = "bench", "bench.load"
BYTES = 100
WINDOW = 1000
"""Messages that the publisher keeps unsettled; routers let it have 1,024."""
PREFETCH = 1024
"""Messages that may come ahead of a reader: as many as an edge sends without an outcome."""
KINDS = ("append", "client", "settled", "spark")
TITLES = {
    "append": "publisher -> router -> journal, exactly once",
    "client": "journal -> our client with a cursor, each accepted",
    "settled": "journal -> our client, settled",
    "spark": "journal -> Spark, a batch, one slot",
}
DEADLINE_S = 600.0
ONCEWIRE = [sys.executable, "-P", "-c", "from oncewire.cli.main import main; main()"]


@dataclass(frozen=True, slots=True)
class World:
    """What runs.

    Attributes:
        url: of the router.
        http: of the edge.
        router: pid.
        edge: pid.
    """

    url: str
    http: str
    router: int
    edge: int

    def cpu(self) -> tuple[float, float]:
        """Seconds that router and edge have used."""
        return cpu_s(self.router), cpu_s(self.edge)


@contextmanager
def running_edge(folder: Path, url: str) -> Iterator[tuple[int, str]]:
    """An edge with one journal: its pid, and where its HTTP is. It is ready when the subscription is."""
    config = folder / "edge.toml"
    config.write_text(
        f'[edge]\nstore = "sqlite:///{folder}/edge.db"\nrouters = ["{url}"]\n'
        f'[log]\nlevel = "warning"\n[[journal]]\nname = "{NAME}"\ntopics = ["bench.#"]\nmax_bytes = "64GiB"\n'
    )
    command = [*ONCEWIRE, "edge", "serve", "--config", str(config), "--announce", "--http-port=0"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise BenchmarkError(f"the edge ended with code {process.wait()} before it was ready")
        yield process.pid, json.loads(line)["http"]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@contextmanager
def world() -> Iterator[World]:
    """A router and an edge with an empty journal."""
    with (
        tempfile.TemporaryDirectory(dir=".") as name,
        standalone_router() as router,
        running_edge(Path(name).resolve(), f"amqp://{router.address}") as (pid, http),
    ):
        yield World(f"amqp://{router.address}", http, router.pid, pid)


def figures(count: int, seconds: float, router_s: float, edge_s: float, client_s: float) -> dict[str, float]:
    """What one run says."""
    return {
        "messages_s": count / seconds,
        "router_us": 1e6 * router_s / count,
        "edge_us": 1e6 * edge_s / count,
        "client_us": 1e6 * client_s / count,
    }


def append(running: World, options: argparse.Namespace) -> dict[str, float]:
    """Publish all messages until each is accepted; with several publishers each has its share."""
    share = options.messages // options.publishers
    address = running.url.removeprefix("amqp://")
    command = [sys.executable, str(LOAD), "--publish", address, "--subscribe", address, "--subscribers", "0"]
    command += ["--topic", TOPIC, "--window", str(WINDOW), "--size", str(BYTES), "--warmup", "0"]
    before, began = running.cpu(), time.perf_counter()
    loads = [
        subprocess.Popen(
            [*command, "--messages", str(share), "--name", f"load-{number}"], stdout=subprocess.PIPE, text=True
        )
        for number in range(options.publishers)
    ]
    found = [json.loads(load.communicate(timeout=LOAD_TIMEOUT_S)[0] or "{}") for load in loads]
    if any(load.returncode for load in loads):
        raise BenchmarkError(f"the load generator failed: {found}")
    # One publisher says for how long it sent; several begin one after the other.
    seconds = found[0]["seconds"] if len(found) == 1 else time.perf_counter() - began
    router_s, edge_s = (now - then for now, then in zip(running.cpu(), before, strict=True))
    return figures(share * len(found), seconds, router_s, edge_s, sum(each["load_cpu_s"] for each in found))


def read(running: World, kind: str, count: int) -> dict[str, float]:
    """Read all messages in a process of its own, this program with --reader."""
    command = [sys.executable, __file__, "--reader", kind, "--url", running.url, "--messages", str(count)]
    command += ["--pids", str(running.router), str(running.edge)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=DEADLINE_S)
    if done.returncode:
        raise BenchmarkError(f"the reader failed: {done.stdout}")
    return figures(count, *json.loads(done.stdout))


async def receive(url: str, kind: str, count: int, pids: Sequence[int]) -> list[float]:
    """What a reader does; the clock runs from its attach until it is detached behind the last outcome."""
    async with connect(url, container_id=f"reader-{kind}") as client:
        began, before, own = time.perf_counter(), [cpu_s(pid) for pid in pids], time.process_time()
        position = 0
        async with client.journal(NAME, name=kind, settled=kind == "settled", prefetch=PREFETCH) as reader:
            while position < count:
                for delivery in (deliveries := await reader.receive_many(PREFETCH, timeout=DEADLINE_S)):
                    if delivery.position != position + 1:
                        raise BenchmarkError(f"position {delivery.position} follows {position}")
                    position += 1
                await reader.finish(deliveries)
        cpu = [cpu_s(pid) - then for pid, then in zip(pids, before, strict=True)]
        return [time.perf_counter() - began, *cpu, time.process_time() - own]


def read_with_spark(running: World, session: Any, count: int) -> dict[str, float]:
    """One batch of all messages into nothing; a short one before it has started the Python worker."""
    from bench_spark import cpu_seconds

    def batch(stop: int) -> None:
        reader = session.read.format("oncewire").option("journal", NAME).option("edge", running.http)
        ends = json.dumps({NAME: stop})
        reader.option("endingOffsets", ends).load().write.format("noop").mode("append").save()

    batch(1000)
    before, began, all_s = running.cpu(), time.perf_counter(), cpu_seconds()
    batch(count)
    seconds, router_s, edge_s = (
        time.perf_counter() - began,
        *(now - then for now, then in zip(running.cpu(), before, strict=True)),
    )
    return figures(count, seconds, router_s, edge_s, cpu_seconds() - all_s - router_s - edge_s)


def one_round(options: argparse.Namespace, session: Any) -> dict[str, dict[str, float]]:
    """One journal, filled and read in each way."""
    with world() as running:
        found = {"append": append(running, options)}
        count = options.messages // options.publishers * options.publishers
        for kind in options.only:
            if kind == "spark" and session is not None:
                found[kind] = read_with_spark(running, session, count)
            elif kind not in ("append", "spark"):
                found[kind] = read(running, kind, count)
            print(f"{kind}: {found.get(kind)}", file=sys.stderr)
    return found


def spark_session(options: argparse.Namespace) -> Any:
    """A session of one slot; None = it is not asked for, or not there."""
    if "spark" not in options.only or is_missing("pyspark", "pyarrow"):
        return None
    from bridges.spark import register
    from bridges.spark.java import session_builder

    session = session_builder("bench", "local[1]").config("spark.ui.enabled", "false").getOrCreate()
    register(session)
    return session


def disk(seconds: float) -> float:
    """Syncs of a page a second."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        return round(syncs(Path(name), seconds))


def row_of(kind: str, runs: Sequence[dict[str, float]]) -> Row:
    """One line of the table."""
    return {
        "what": TITLES[kind],
        "messages/s (min-max)": spread(runs, "messages_s", ",.0f"),
        **{f"{process} us": spread(runs, f"{process}_us", ".1f") for process in ("router", "edge", "client")},
    }


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    if options.reader:
        print(json.dumps(asyncio.run(receive(options.url, options.reader, options.messages, options.pids))))
        return
    session = spark_session(options)
    sync_rates = [disk(2.0)]
    runs = [one_round(options, session) for _ in range(options.rounds)]
    sync_rates.append(disk(2.0))
    rows = [row_of(kind, of_kind) for kind in KINDS if (of_kind := [run[kind] for run in runs if kind in run])]
    beside = {"bytes": BYTES, "messages": options.messages, "publishers": options.publishers, "syncs_s": sync_rates}
    show("edge", rows, options.json, **beside, runs=runs)
    if not options.json:
        print(f"\nThe disk syncs a page {sync_rates[0]:,.0f} times a second before, {sync_rates[1]:,.0f} after.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--publishers", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--reader", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--pids", type=int, nargs=2, help=argparse.SUPPRESS)
    carry_out(parser, main)
