"""Rows per second of one Spark task slot (`local[1]`) that reads topics and publishes to them, through a real router.

Values of 256 bytes. A bridge node receives them from four publishers; Spark reads its journal and stages into its
outbox. The first batch of each query, which starts Python workers, does not count. All processes (router, node, JVM,
Python workers) share the machine, and the node publishes while the sink stages.

    python benchmarks/bench_spark.py [--rows 800000] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_node import VALUE, fdatasync, node_process, publish_rate
from harness import BenchmarkError, machine, standalone_router

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


def run_to_end(writer: Any) -> list[dict[str, Any]]:
    """Run a query over what is there; returns the progress of its batches but the first."""
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(QUERY_S):
        query.stop()
        raise BenchmarkError(f"query {query.name} does not end")
    return steady(query)


def run_batches(writer: Any, batches: int) -> list[dict[str, Any]]:
    """Run a query whose source has no end for so many batches; returns the progress of all but the first."""
    query = writer.start()
    ends_at = time.monotonic() + QUERY_S
    while len(with_rows(query)) < batches:
        if time.monotonic() > ends_at or query.exception() is not None:
            raise BenchmarkError(f"query {query.name} does not end: {query.exception()}")
        time.sleep(0.05)
    query.stop()
    return steady(query)


def with_rows(query: Any) -> list[dict[str, Any]]:
    """The progress of batches that had rows."""
    found = (json.loads(progress.json) for progress in query.recentProgress)
    return [progress for progress in found if progress["numInputRows"]]


def steady(query: Any) -> list[dict[str, Any]]:
    """The progress of all batches but the first."""
    found = with_rows(query)[1:]
    if not found:
        raise BenchmarkError(f"query {query.name} had one batch only")
    return found


def rows_per_s(batches: list[dict[str, Any]]) -> float:
    """Rows by the time from trigger to commit, of all batches together."""
    rows = sum(batch["numInputRows"] for batch in batches)
    return rows / sum(batch["durationMs"]["triggerExecution"] for batch in batches) * 1000


def median_ms(batches: list[dict[str, Any]]) -> float:
    """What a batch takes from trigger to commit."""
    return statistics.median(batch["durationMs"]["triggerExecution"] for batch in batches)


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


def rates(bench: Bench) -> Iterator[tuple[str, float]]:
    """Rows per second of queries."""
    batch_rows = bench.rows // BATCHES
    yield "source -> noop", rows_per_s(run_to_end(bench.noop(bench.source(0, batch_rows), "source")))
    values = generated(bench, batch_rows)
    yield "sink, staged", rows_per_s(run_batches(bench.sink(values, "sink", "staged"), BATCHES))
    bench.published()
    both = bench.source(0, batch_rows).select("value")
    yield "source -> sink, staged", rows_per_s(run_to_end(bench.sink(both, "both", "staged")))
    bench.published()
    both = bench.source(0, batch_rows // 4).select("value")
    yield "source -> sink, published", rows_per_s(run_to_end(bench.sink(both, "published", "published")))


def overheads(bench: Bench) -> Iterator[tuple[str, float]]:
    """What a batch of some rows takes, in milliseconds."""
    start = bench.rows - SMALL_BATCHES * SMALL_ROWS

    def small(writer: Callable[[Any], Any]) -> float:
        return median_ms(run_to_end(writer(bench.source(start, SMALL_ROWS).select("value"))))

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


def measure(rows: int, seconds: float) -> dict[str, dict[str, float]]:
    """All figures: rows per second, and milliseconds for each small batch."""
    per_s: dict[str, float] = {}
    settings = 'defaults.retention_s = 86400\noutbox.max_bytes = "8 GiB"\n'
    with (
        tempfile.TemporaryDirectory() as name,
        standalone_router() as router,
        node_process(Path(name), router.address, settings) as (_, unix),
    ):
        folder = Path(name)
        options = {"bridge": f"unix://{folder / 'sock'}", "bridge.secretFile": str(folder / "node" / "secret")}
        per_s["raw fdatasync of 4 KiB"] = fdatasync(folder, seconds)
        per_s[f"receiver -> journal, {PUBLISHERS} publishers"] = fill(unix, f"amqp://{router.address}", rows)
        per_s["raw fdatasync of 4 KiB, again"] = fdatasync(folder, seconds)
        with one_slot(folder) as spark:
            bench = Bench(spark, unix, options, folder / "checkpoints", rows)
            per_s.update(rates(bench))
            per_s["outbox -> router, settled"] = publish_rate(unix, min(rows, 20_000))
            small = dict(overheads(bench))
    return {"rows_per_s": per_s, "ms_per_small_batch": small}


def table(found: dict[str, dict[str, float]]) -> str:
    """The figures for people."""
    lines = [f"{'rows per second, local[1]':40} {'figure':>10} {'target':>10} {'ratio':>6}"]
    for what, figure in found["rows_per_s"].items():
        target = TARGETS.get(what)
        told = "" if target is None else f" {target:10,} {figure / target:6.2f}"
        lines.append(f"{what:40} {figure:10,.0f}{told}")
    lines += ["", f"{f'batch of {SMALL_ROWS} rows, median':40} {'ms':>10}"]
    lines += [f"{what:40} {figure:10,.0f}" for what, figure in found["ms_per_small_batch"].items()]
    return "\n".join(lines)


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=800_000, help="messages in the journal")
    parser.add_argument("--quick", action="store_true", help="few rows: to see that it runs, not how fast")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--load", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        asyncio.run(load(arguments.load, arguments.rows))
        return 0
    rows = min(arguments.rows, 20_000) if arguments.quick else arguments.rows
    if rows < 1000:
        parser.error("--rows must be 1000 or more")
    head = machine()
    found = measure(rows, 0.2 if arguments.quick else 1.5)
    if arguments.json:
        rounded = {kind: {key: round(figure) for key, figure in of_kind.items()} for kind, of_kind in found.items()}
        print(json.dumps({"machine": head, "rows": rows, "targets": TARGETS, **rounded}))
        return 0
    print(f"{head}\n{rows} messages of {len(VALUE)} bytes, batches of {rows // BATCHES}\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
