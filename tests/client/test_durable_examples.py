"""The two durable examples, run as they are, killed again and again with the router: each line arrives once."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path

from tests.client.shell_helpers import LONG, until
from tests.client.wire_server import Network, WireServer

PROJECT = Path(__file__).resolve().parents[2]
LINES = 5000


async def run_example(name: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROJECT / "examples" / name),
        *arguments,
        stdout=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def rows(path: Path) -> list[bytes]:
    """What the subscriber has done so far."""
    if not path.exists():
        return []
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        found = database.execute("SELECT text FROM orders ORDER BY number").fetchall()
    except sqlite3.OperationalError:  # the table is not there yet
        found = []
    database.close()
    return [row[0] for row in found]


async def test_killed_examples_and_a_killed_router_lose_and_double_nothing(network: Network, tmp_path: Path) -> None:
    lines = [b"order %d" % number for number in range(LINES)]
    source = tmp_path / "orders.txt"
    source.write_bytes(b"\n".join(lines) + b"\n")
    table = tmp_path / "subscriber.db"
    network.window = 64
    async with WireServer(network) as server:
        subscribing = ("--url", server.url, "--journal", str(table), "--count", str(LINES))
        publishing = (str(source), "--url", server.url, "--journal", str(tmp_path / "publisher.db"))
        subscriber = await run_example("durable_subscriber.py", *subscribing)
        await until(lambda: network.topic("orders").subscriptions)
        publisher = await run_example("durable_publisher.py", *publishing)
        for victim in ("publisher", "subscriber", "router", "both"):
            before = len(rows(table))
            await until(lambda before=before: len(rows(table)) > before + 200)  # type: ignore[misc]
            if victim == "router":
                await server.kill()
                await server.start()
            if victim in {"publisher", "both"}:
                publisher.send_signal(signal.SIGKILL)
                await publisher.wait()
                publisher = await run_example("durable_publisher.py", *publishing)
            if victim in {"subscriber", "both"}:
                subscriber.send_signal(signal.SIGKILL)
                await subscriber.wait()
                subscriber = await run_example("durable_subscriber.py", *subscribing)
        async with asyncio.timeout(LONG):
            assert await publisher.wait() == 0
            assert await subscriber.wait() == 0
    assert rows(table) == lines
    assert network.topic("orders").resumed_entries > 0
