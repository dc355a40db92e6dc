"""One large message through two routers: how much memory each takes, and how fast it is.

    python benchmarks/large_messages.py [--size 1073741824] [--subscribers 1] [--json]

The publisher is at the first router, the subscribers at the second one. Neither they nor the routers hold the message.
Exit code 1: a router's memory has passed limits.window_bytes and 32 MiB at any time, or the message did not arrive.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from harness import BenchmarkError, Row, carry_out, memory_of, show, whole
from streaming_clients import StreamingPublisher, StreamingSubscriber

from router.commands.local_network import LocalNetwork

MIB = 1 << 20
WINDOW_BYTES = 64 * MIB
"""The default of limits.window_bytes."""
BESIDE = 32 * MIB
"""For the program itself, and what is under way."""


async def measure(size: int, subscribers: int) -> Row:
    """Send one message of this size."""
    settings = {"limits.max_message_size": str(2 * size)}
    async with LocalNetwork(2, settings=settings) as network:
        first, second = network.routers.values()
        readers = [StreamingSubscriber(f"s{number}", "large") for number in range(subscribers)]
        for reader in readers:
            await reader.open(second.url)
        publisher = StreamingPublisher("p", "large")
        await publisher.open(first.url)
        before = {router.id: memory_of(router.pid, "VmHWM") for router in (first, second)}
        began = time.monotonic()
        await publisher.send(b"1", size)
        seconds = time.monotonic() - began
        for reader in readers:
            if reader.whole != 1 or reader.size < size:
                raise BenchmarkError(f"{reader.name} got {reader.whole} messages, the last of {reader.size} bytes")
        peaks = {router.id: memory_of(router.pid, "VmHWM") for router in (first, second)}
        for client in (publisher, *readers):
            client.cut()
    return {
        "bytes": size,
        "subscribers": subscribers,
        "seconds": round(seconds, 2),
        "MB/s": round(size / seconds / 1e6, 1),
        "first byte s": round(min(reader.first_at for reader in readers) - began, 3),
        **{f"{name} before MiB": round(found / MIB, 1) for name, found in before.items()},
        **{f"{name} peak MiB": round(found / MIB, 1) for name, found in peaks.items()},
        "limit MiB": (WINDOW_BYTES + BESIDE) // MIB,
        "within": max(peaks.values()) <= WINDOW_BYTES + BESIDE,
    }


def main(options: argparse.Namespace) -> bool:
    """Measure and print."""
    row = asyncio.run(measure(options.size, options.subscribers))
    show("large_messages", [row], options.json)
    return bool(row["within"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Memory of routers that pass a large message on.")
    parser.add_argument("--size", type=whole, default=1 << 30, help="bytes of its body")
    parser.add_argument("--subscribers", type=whole, default=1)
    carry_out(parser, main)
