"""What a message costs a bridge node of a sharded subscription: one of its own share, and one of another.

Shared out by key every node receives everything, so this says how far more nodes help: with k of them a node has one
message in k to keep and the others to pass. Values of 256 bytes with a key, a real router, processor time of the
node's process.

    python benchmarks/bench_shards.py [--seconds 3] [--publishers 2] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import zlib
from pathlib import Path

from bench_node import node_process
from harness import carry_out, is_missing, show_figures, standalone_router
from load import cpu_s

from oncewire.client import Message, connect
from oncewire.wire import Properties

KEY = "customer-1"
BODY = bytes(256)
OWN = zlib.crc32(KEY.encode()) % 2


async def load(url: str, publishers: int, seconds: float) -> int:
    """Publish for some seconds; returns how many messages were accepted."""
    message = Message(BODY, properties=Properties(group_id=KEY))

    async def one(index: int) -> int:
        async with connect(url, container_id=f"load-{index}") as client:
            publisher = await client.publisher("in", name="p")
            loop = asyncio.get_running_loop()
            ends_at = loop.time() + seconds
            while loop.time() < ends_at:
                for sending in await publisher.submit_many([message] * 100):
                    sending.was_awaited = True
            await publisher.flush()
            return publisher.next_number

    return sum(await asyncio.gather(*(one(index) for index in range(publishers))))


def microseconds(shard: str, publishers: int, seconds: float) -> float:
    """Processor time of the node for each message."""
    settings = '[[subscription]]\nname = "recv"\ntopics = ["in"]\n' + (f'shard = "{shard}"\n' if shard else "")
    with tempfile.TemporaryDirectory() as name, standalone_router() as router:
        folder, url = Path(name), f"amqp://{router.address}"
        with node_process(folder, router.address, settings) as (_, node):
            process = int((folder / "node" / "journals" / "recv.db.lock").read_text())
            asyncio.run(load(url, publishers, seconds / 4))
            before, kept = cpu_s(process), node.offsets("recv").last
            count = asyncio.run(load(url, publishers, seconds))
            spent = cpu_s(process) - before
            assert node.offsets("recv").last - kept == (0 if shard == f"{1 - OWN}/2" else count)
    return spent / count * 1_000_000


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    if is_missing("pyarrow"):
        return
    found = {
        what: microseconds(shard, options.publishers, options.seconds)
        for what, shard in (
            ("kept, not sharded", ""),
            ("kept, of its own share", f"{OWN}/2"),
            ("passed, of another share", f"{1 - OWN}/2"),
        )
    }
    show_figures(found, "8.1f", "us of the node's processor time", options.json)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--publishers", type=int, default=2)
    carry_out(parser, main)
