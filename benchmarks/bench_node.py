"""Rows per second of a bridge node: journal, ranges, staging, and both with a real router.

Values of 256 bytes. The rate of raw fdatasync stands beside what waits for the disk, measured in the same minute. With
a router, publishers (each with its own connection, in one process) and the node's receiver or publisher run at once, so
on two cores they share them with the router.

    python benchmarks/bench_node.py [--seconds 3] [--publishers 4] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import BenchmarkError, carry_out, is_missing, show_figures, standalone_router

from bridges.node.arrow_bodies import count_topics, encode_rows
from bridges.node.client import RemoteNode, read_secret
from bridges.node.interface import Node
from bridges.node.journal import Arrival, ReceiverJournal
from bridges.node.model import StagedPart, Writer
from bridges.node.outbox import Outbox
from bridges.node.producers_core import Identity
from oncewire.client import SqliteJournal, connect
from oncewire.wire import encode_data_message

VALUE = bytes(256)
MESSAGE = encode_data_message(VALUE)
WRITER = Writer("bench", "run")
BATCH_ROWS = 20_000


def rate(seconds: float, step: Callable[[], int]) -> float:
    """How much of what `step` counts is done per second."""
    count = 0
    started = time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        count += step()
    return count / spent


def fdatasync(folder: Path, seconds: float) -> float:
    """Durable writes of one page per second."""
    with (folder / "raw").open("wb", buffering=0) as file:

        def step() -> int:
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            return 1

        return rate(seconds, step)


def journal_appends(folder: Path, seconds: float, group: int, *, identified: bool) -> float:
    """Messages appended per second, in groups that are each durable."""
    path = folder / f"append-{group}-{identified}.db"
    client = SqliteJournal(path)
    journal = ReceiverJournal(client.connection, path, "bench")
    source = journal.source_id("t")
    number = 0

    def step() -> int:
        nonlocal number
        floor = max(0, number - 1024)
        arrivals = [
            Arrival(source, MESSAGE, Identity("p", n, floor) if identified else None)
            for n in range(number, number + group)
        ]
        number += group
        client.begin()
        journal.append(arrivals, 0)
        client.commit()
        return group

    found = rate(seconds, step)
    client.close()
    return found


def fill_journal(path: Path, rows: int) -> None:
    """Make a journal to read from."""
    client = SqliteJournal(path)
    journal = ReceiverJournal(client.connection, path, "bench")
    source = journal.source_id("t")
    for _ in range(0, rows, 5000):
        client.begin()
        journal.append([Arrival(source, MESSAGE)] * 5000, 0)
        client.commit()
    client.close()


@contextmanager
def node_process(folder: Path, router: str, settings: str = "") -> Iterator[tuple[RemoteNode, RemoteNode]]:
    """A node, with further settings as TOML; clients over TCP and over its unix socket."""
    config = folder / "node.toml"
    config.write_text(
        f'name = "bench"\nfolder = "{folder / "node"}"\nrouters = ["amqp://{router}"]\nlisten.port = 0\n'
        f'listen.unix = "{folder / "sock"}"\nhttp.host = ""\nlog.level = "warning"\n' + settings
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "bridges.node", "--announce", "--config", config],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise BenchmarkError(f"the node ended with code {process.wait()} before it was ready")
        announced = json.loads(line)
        secret = read_secret(Path(announced["secret"]))
        with RemoteNode(announced["tcp"], secret) as tcp, RemoteNode(announced["unix"], secret) as unix:
            yield tcp, unix
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def read_rate(node: Node, rows: int) -> float:
    """Rows read as Arrow per second."""
    started = time.perf_counter()
    count = sum(batch.num_rows for batch in node.read_range("bench", 0, rows))
    assert count == rows
    return count / (time.perf_counter() - started)


def stage_rate(stage: Callable[[int, bytes], None], seconds: float) -> float:
    """Rows staged and decided per second, in batches of one part."""
    body = encode_rows(["out"] * BATCH_ROWS, [MESSAGE] * BATCH_ROWS)
    batch = 0

    def step() -> int:
        nonlocal batch
        stage(batch, body)
        batch += 1
        return BATCH_ROWS

    return rate(seconds, step)


def local_stage(folder: Path, seconds: float) -> float:
    """As `stage_rate`, with the outbox in this process."""
    outbox = Outbox(folder / "stage.db", "bench", max_bytes=1 << 40)

    def stage(batch: int, body: bytes) -> None:
        part = StagedPart(0, "a", 1, BATCH_ROWS)
        outbox.stage(WRITER, batch, part, 0, count_topics(body), body)
        outbox.commit(WRITER, batch, [part])

    found = stage_rate(stage, seconds)
    outbox.close()
    return found


def remote_stage(node: Node, seconds: float) -> float:
    """As `stage_rate`, through a socket. Nobody subscribes, so the node publishes at the same time."""

    def stage(batch: int, body: bytes) -> None:
        node.stage("bench", WRITER, batch, 0, "a", 0, body)
        node.commit("bench", WRITER, batch, [StagedPart(0, "a", 1, BATCH_ROWS)])

    return stage_rate(stage, seconds)


def publish_rate(node: Node, rows: int) -> float:
    """Rows decided, published to the router and settled per second."""
    body = encode_rows(["published"] * rows, [MESSAGE] * rows)
    node.stage("pub", WRITER, 0, 0, "a", 0, body)
    started = time.perf_counter()
    commit = node.commit("pub", WRITER, 0, [StagedPart(0, "a", 1, rows)], 120.0)
    assert commit.is_done
    return rows / (time.perf_counter() - started)


async def load(url: str, publishers: int, seconds: float) -> int:
    """Publish for some seconds; returns how many messages were accepted."""

    async def one(index: int) -> int:
        async with connect(url, container_id=f"load-{index}") as client:
            publisher = await client.publisher("in", name="p")
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                for sending in await publisher.submit_many([VALUE] * 100):
                    sending.was_awaited = True
            await publisher.flush()
            return publisher.next_number

    return sum(await asyncio.gather(*(one(index) for index in range(publishers))))


def receive_rate(node: Node, url: str, publishers: int, seconds: float) -> float:
    """Messages published, stored in the journal and accepted per second."""
    node.subscribe("recv", ["in"])
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--load", url, "--publishers", str(publishers), "--seconds", str(seconds)],
        capture_output=True,
        text=True,
        check=True,
    )
    count = int(done.stdout)
    assert node.offsets("recv").last == count
    return count / (time.perf_counter() - started)


def measure(seconds: float, publishers: int) -> dict[str, float]:
    """All figures, by what they are."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, standalone_router() as router:
        folder = Path(name)
        found["raw fdatasync of 4 KiB"] = fdatasync(folder, seconds / 2)
        for group in (1, 16, 512):
            found[f"journal append, groups of {group}"] = journal_appends(folder, seconds, group, identified=False)
        found["journal append with identities, groups of 512"] = journal_appends(folder, seconds, 512, identified=True)
        found["stage + commit, in process"] = local_stage(folder, seconds)
        (folder / "node" / "journals").mkdir(parents=True)
        fill_journal(folder / "node" / "journals" / "bench.db", 200_000)
        with node_process(folder, router.address) as (tcp, unix):
            found["range to Arrow, TCP"] = read_rate(tcp, 200_000)
            found["range to Arrow, unix"] = read_rate(unix, 200_000)
            found[f"receiver -> journal, {publishers} publishers, real router"] = receive_rate(
                unix, f"amqp://{router.address}", publishers, seconds
            )
            found["outbox -> real router, settled"] = publish_rate(unix, 20_000)
            found["stage + commit, unix, publishing at once"] = remote_stage(unix, seconds)
        found["raw fdatasync of 4 KiB, again"] = fdatasync(folder, seconds / 2)
    return found


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    if is_missing("pyarrow"):
        return
    if options.load:
        print(asyncio.run(load(options.load, options.publishers, options.seconds)))
        return
    found = measure(options.seconds, options.publishers)
    show_figures(found, "12,.0f", "/s", options.json)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--load", metavar="URL", help=argparse.SUPPRESS)
    carry_out(parser, main)
