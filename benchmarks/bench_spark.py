"""Rows per second of one Spark task slot (`local[1]`) that reads topics and publishes to them, through a real router.

Values of 256 bytes. A bridge node receives them from four publishers; Spark reads its journal and stages into its
outbox. The first batch of each query, which starts Python workers, does not count. All processes (router, node, JVM,
Python workers) share the machine, and the node publishes while the sink stages. CPU time is that of all of them, and
says more than rows per second where the machine is busy with other work.

    python benchmarks/bench_spark.py [--rows 800000] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_node import VALUE, fdatasync, node_process, publish_rate
from harness import BenchmarkError, carry_out, is_missing, machine, standalone_router

from bridges.node.client import RemoteNode
from bridges.spark import register
from bridges.spark.java import session_builder
from oncewire.client import connect

BATCHES = 4
"""Of each query whose rate is measured; the first one does not count."""
SMALL_BATCHES = 24
SMALL_ROWS = 10
"""For the cost of a batch itself."""
PUBLISHERS = 4
SUBSCRIPTION = "bench"
QUERY_S = 600.0
"""No query needs longer."""
POLL_S = 0.1
"""How often a query is looked at: asking costs the JVM CPU time, which would count."""
TARGETS = {"source -> noop": 60_000, "sink, staged": 30_000}
"""Rows per second of one slot, as the project's plan has them."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What the measurements share.

    Attributes:
        spark: the session, of one slot.
        node: a client of the bridge node.
        options: with which Spark reaches it.
        folder: for checkpoints.
        rows: in the journal.
    """

    spark: Any
    node: RemoteNode
    options: dict[str, str]
    folder: Path
    rows: int

    def source(self, start: int, batch_rows: int) -> Any:
        """A stream of the journal behind a position. The query before is done with it."""
        self.node.release(SUBSCRIPTION)
        reader = self.spark.readStream.format("amqp").options(**self.options)
        reader = reader.option("subscribe", "in").option("subscription", SUBSCRIPTION)
        reader = reader.option("startingOffsets", json.dumps({SUBSCRIPTION: start}))
        return reader.option("maxOffsetsPerTrigger", str(batch_rows)).load()

    def sink(self, frame: Any, name: str, mode: str) -> Any:
        """A writer of values to a topic that nobody subscribes to."""
        writer = frame.writeStream.format("amqp").options(**self.options).option("topic", f"out.{name}")
        return self._named(writer.option("commitMode", mode).option("sinkId", name), name)

    def noop(self, frame: Any, name: str) -> Any:
        """A writer that throws rows away."""
        return self._named(frame.writeStream.format("noop"), name)

    def _named(self, writer: Any, name: str) -> Any:
        return writer.option("checkpointLocation", str(self.folder / name)).queryName(name)

    def published(self) -> None:
        """Wait until nothing waits to be published: it would take CPU from what is measured next."""
        ends_at = time.monotonic() + QUERY_S
        while any(sink["waiting_manifests"] for sink in self.node.status()["sinks"].values()):
            if time.monotonic() > ends_at:
                raise BenchmarkError("the outbox does not become empty")
            time.sleep(0.2)


@dataclass(frozen=True, slots=True)
class Run:
    """The batches of a query but the first.

    Attributes:
        progress: Spark's, of each.
        cpu_s: of all processes meanwhile.
    """

    progress: list[dict[str, Any]]
    cpu_s: float

    @property
    def rows(self) -> int:
        """In all batches."""
        return sum(int(batch["numInputRows"]) for batch in self.progress)

    @property
    def milliseconds(self) -> list[int]:
        """From trigger to commit, of each batch."""
        return [int(batch["durationMs"]["triggerExecution"]) for batch in self.progress]

    @property
    def rows_per_s(self) -> float:
        """Rows by the time from trigger to commit."""
        return self.rows / sum(self.milliseconds) * 1000

    @property
    def cpu_us(self) -> float:
        """CPU time for each row."""
        return self.cpu_s / self.rows * 1e6


def run(writer: Any, batches: int) -> Run:
    """Run a query for so many batches with rows."""
    query = writer.start()
    wait_for(query, 1)
    began = cpu_seconds()
    wait_for(query, batches)
    cpu_s = cpu_seconds() - began
    query.stop()
    return Run(with_rows(query)[1:batches], cpu_s)


def wait_for(query: Any, batches: int) -> None:
    """Wait until so many batches with rows are committed."""
    ends_at = time.monotonic() + QUERY_S
    while len(with_rows(query)) < batches:
        if time.monotonic() > ends_at or not query.isActive:
            query.stop()
            raise BenchmarkError(f"query {query.name} does not get to {batches} batches: {query.exception()}")
        time.sleep(POLL_S)


def with_rows(query: Any) -> list[dict[str, Any]]:
    """The progress of batches that had rows."""
    found = (json.loads(progress.json) for progress in query.recentProgress)
    return [progress for progress in found if progress["numInputRows"]]


def cpu_seconds() -> float:
    """CPU time of this process and all below it, and of those of them that have ended and were waited for."""
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                spent[int(entry.name)] = sum(map(int, fields[11:15]))

    def is_ours(process: int) -> bool:
        while process > 1 and process != os.getpid():
            process = parents.get(process, 0)
        return process == os.getpid()

    return sum(ticks for process, ticks in spent.items() if is_ours(process)) / os.sysconf("SC_CLK_TCK")


# --- measurements -----------------------------------------------------------------------------------------------------


async def load(url: str, rows: int) -> None:
    """Publish rows from some publishers, each with a connection of its own."""

    async def one(index: int, count: int) -> None:
        async with connect(url, container_id=f"load-{index}") as client:
            publisher = await client.publisher("in", name="p")
            while count:
                size = min(count, 100)
                for sending in await publisher.submit_many([VALUE] * size):
                    sending.was_awaited = True
                count -= size
            await publisher.flush()

    await asyncio.gather(
        *(one(index, rows * (index + 1) // PUBLISHERS - rows * index // PUBLISHERS) for index in range(PUBLISHERS))
    )


def fill(node: RemoteNode, url: str, rows: int) -> float:
    """Messages published, stored in the journal and accepted per second."""
    node.subscribe(SUBSCRIPTION, ["in"])
    started = time.perf_counter()
    command = [sys.executable, __file__, "--load", url, "--rows", str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"publishing failed: {done.stderr}")
    if node.offsets(SUBSCRIPTION).last != rows:
        raise BenchmarkError(f"{node.offsets(SUBSCRIPTION).last} messages are in the journal, {rows} were accepted")
    return rows / (time.perf_counter() - started)


def generated(bench: Bench, batch_rows: int) -> Any:
    """A stream of values that Spark makes for itself."""
    reader = bench.spark.readStream.format("rate-micro-batch").option("numPartitions", "1")
    rows = reader.option("rowsPerBatch", str(batch_rows)).load()
    return rows.selectExpr("cast(rpad(cast(value AS string), 256, 'x') AS binary) AS value")


def rates(bench: Bench) -> Iterator[tuple[str, Run]]:
    """Queries with large batches."""
    batch_rows = bench.rows // BATCHES
    yield "source -> noop", run(bench.noop(bench.source(0, batch_rows), "source"), BATCHES)
    yield "sink, staged", run(bench.sink(generated(bench, batch_rows), "sink", "staged"), BATCHES)
    bench.published()
    both = bench.source(0, batch_rows).select("value")
    yield "source -> sink, staged", run(bench.sink(both, "both", "staged"), BATCHES)
    bench.published()
    both = bench.source(0, batch_rows // 4).select("value")
    yield "source -> sink, published", run(bench.sink(both, "published", "published"), BATCHES)


def small_batches(bench: Bench) -> Iterator[tuple[str, Run]]:
    """Queries with small batches: what a batch itself costs."""
    start = bench.rows - SMALL_BATCHES * SMALL_ROWS

    def small(writer: Callable[[Any], Any]) -> Run:
        return run(writer(bench.source(start, SMALL_ROWS).select("value")), SMALL_BATCHES)

    yield "source -> noop", small(lambda rows: bench.noop(rows, "small-noop"))
    yield "source -> sink, staged", small(lambda rows: bench.sink(rows, "small-staged", "staged"))
    yield "source -> sink, published", small(lambda rows: bench.sink(rows, "small-published", "published"))


@contextmanager
def one_slot(folder: Path) -> Iterator[Any]:
    """A session with one task slot."""
    spark = (
        session_builder("bench", "local[1]")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    yield spark
    spark.stop()


@dataclass(frozen=True, slots=True)
class Figures:
    """All that is measured.

    Attributes:
        beside: things per second that Spark has no part in.
        large, small: queries.
    """

    beside: dict[str, float]
    large: dict[str, Run]
    small: dict[str, Run]

    def as_json(self) -> dict[str, object]:
        """Rounded, for programs."""
        return {
            "per_s": {what: round(figure) for what, figure in self.beside.items()},
            "rows_per_s": {what: round(found.rows_per_s) for what, found in self.large.items()},
            "cpu_us_per_row": {what: round(found.cpu_us, 1) for what, found in self.large.items()},
            "ms_per_small_batch": {what: statistics.median(found.milliseconds) for what, found in self.small.items()},
        }

    def as_text(self) -> str:
        """Tables, for people."""
        lines = [f"{'per second':40} {'figure':>10}"]
        lines += [f"{what:40} {figure:10,.0f}" for what, figure in self.beside.items()]
        lines += ["", f"{'rows per second, local[1]':40} {'figure':>10} {'target':>10} {'ratio':>6} {'CPU us/row':>11}"]
        for what, found in self.large.items():
            target = TARGETS.get(what)
            reported = f"{'':10} {'':6}" if target is None else f"{target:10,} {found.rows_per_s / target:6.2f}"
            lines.append(f"{what:40} {found.rows_per_s:10,.0f} {reported} {found.cpu_us:11.1f}")
        lines += ["", f"{f'batch of {SMALL_ROWS} rows':40} {'median ms':>10}"]
        lines += [f"{what:40} {statistics.median(found.milliseconds):10,.0f}" for what, found in self.small.items()]
        return "\n".join(lines)


def measure(rows: int, seconds: float) -> Figures:
    """All figures, in one run of some minutes."""
    settings = 'defaults.retention_s = 86400\noutbox.max_bytes = "8 GiB"\n'
    with (
        tempfile.TemporaryDirectory() as name,
        standalone_router() as router,
        node_process(Path(name), router.address, settings) as (_, node),
    ):
        folder = Path(name)
        beside = {
            "raw fdatasync of 4 KiB": fdatasync(folder, seconds),
            f"receiver -> journal, {PUBLISHERS} publishers": fill(node, f"amqp://{router.address}", rows),
            "raw fdatasync of 4 KiB, again": fdatasync(folder, seconds),
            "outbox -> router, settled": publish_rate(node, min(rows, 20_000)),
        }
        options = {"bridge": f"unix://{folder / 'sock'}", "bridge.secretFile": str(folder / "node" / "secret")}
        with one_slot(folder) as spark:
            bench = Bench(spark, node, options, folder / "checkpoints", rows)
            return Figures(beside, dict(rates(bench)), dict(small_batches(bench)))


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    if is_missing("pyspark", "pyarrow"):
        return
    if options.load:
        asyncio.run(load(options.load, options.rows))
        return
    rows = min(options.rows, 20_000) if options.quick else options.rows
    if rows < 1000:
        raise BenchmarkError("--rows must be 1000 or more")
    head = machine()
    found = measure(rows, 0.2 if options.quick else 1.5)
    if options.json:
        print(json.dumps({"machine": head, "rows": rows, "targets": TARGETS, **found.as_json()}))
        return
    print(f"{head}\n{rows} messages of {len(VALUE)} bytes, batches of {rows // BATCHES}\n")
    print(found.as_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=800_000, help="messages in the journal")
    parser.add_argument("--quick", action="store_true", help="few rows: to see that it runs, not how fast")
    parser.add_argument("--load", metavar="URL", help=argparse.SUPPRESS)
    carry_out(parser, main)
