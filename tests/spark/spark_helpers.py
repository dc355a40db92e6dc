"""What the tests of the Spark bridge have in common."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bridges.node.interface import Node
from oncewire.client import connect
from tests.client.shell_helpers import LONG
from tests.node.node_process import NodeProcess
from tests.router.processes import START_TIMEOUT_S, router_command

QUERY_S = 300.0
"""Seconds that no query of a test needs, on a machine that is busy with others, too."""
_COUNTER = itertools.count()


class RouterChild:
    """A router process for tests that are not coroutines."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            router_command("--announce", "--listen-port=0", "--http-port=0", "--log-format=json", "--standalone"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the router did not start: {self._process.wait(START_TIMEOUT_S)}"
        self.url: str = json.loads(line)["url"]

    def stop(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(START_TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Names:
    """Names of one test; the same attribute gives the same name."""

    def __init__(self, test: str) -> None:
        short = re.sub(r"[^A-Za-z0-9]+", "-", test)[:40].strip("-")
        self._mark = f"{short}-{zlib.crc32(test.encode()):08x}-{next(_COUNTER)}"

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return f"{name}-{self._mark}"


def node_options(node: NodeProcess, kind: str = "tcp") -> dict[str, str]:
    """Options with which Spark reaches a node."""
    return {"bridge": node.announced[kind], "bridge.secretFile": node.announced["secret"]}


async def _publish(url: str, topic: str, values: Sequence[bytes]) -> None:
    async with connect(url, container_id=f"test-publisher-{next(_COUNTER)}") as client:
        publisher = await client.publisher(topic)
        for value in values:
            _ = await publisher.submit(value)
        await publisher.flush(LONG)
        await publisher.close()


def publish(url: str, topic: str, values: Sequence[str | bytes]) -> None:
    """Publish values and wait until every subscription has accepted them: subscribe before."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    asyncio.run(_publish(url, topic, encoded))


def publish_numbers(url: str, topic: str, start: int, stop: int) -> None:
    """Publish the numbers from start to stop - 1 as texts."""
    publish(url, topic, [str(number) for number in range(start, stop)])


def checkpoint_batches(checkpoint: Path) -> list[int]:
    """Numbers of the batches that Spark has committed."""
    return sorted(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())


def forget_last_commit(checkpoint: Path) -> int:
    """As if the driver had been killed between the sink's commit and Spark's own note of it; returns the batch."""
    last = checkpoint_batches(checkpoint)[-1]
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    return last


def run_available(frame: Any, checkpoint: Path, **sink: str) -> Any:
    """Run a query over everything that is there now; returns it after its end.

    Args:
        frame: a streaming data frame.
        checkpoint: a folder.
        sink: options of the sink; `format` is its format, `noop` if nothing else is said.

    Raises:
        pyspark.errors.StreamingQueryException: the query failed.
    """
    writer = frame.writeStream.format(sink.pop("format", "noop")).options(**sink)
    return run_query(writer, checkpoint)


def run_query(writer: Any, checkpoint: Path) -> Any:
    """As `run_available`, for whoever writes in another way."""
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
    try:
        assert query.awaitTermination(QUERY_S), "the query did not end"
    finally:
        query.stop()
    return query


def wait_until(query: Any, condition: Callable[[], bool]) -> None:
    """Wait for what a running query brings about."""
    ends_at = time.monotonic() + QUERY_S
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < ends_at, "it did not happen"
        time.sleep(0.05)


def journal_position(node: Node, subscription: str) -> int:
    """The newest position of a subscription."""
    return node.offsets(subscription).last
