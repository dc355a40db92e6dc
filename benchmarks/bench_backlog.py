"""How fast a backlog passes a subscription whose unsettled map is full or has room (C-4), by max-frame-size and delay.

One subscription of `#`, one publisher of topic *blocked*, whose other subscription does not answer, and one of topic
*backlog*. What the `#` subscription has processed of *blocked* stays in its map, because its publisher cannot settle
it: 1,000 deliveries, or as many as a frame of the subscriber has room for. Then the second publisher sends the
backlog. Journals are SQLite files.

    python benchmarks/bench_backlog.py [--messages 1000] [--frame-sizes 8192 1048576] [--delays-ms 0 25] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop
from harness import BenchmarkError, Router, carry_out, machine, standalone_router

from chaos.network.relay import Relay
from oncewire.client import Client, Subscriber, connect

BLOCKED = 1000
"""Deliveries that nobody settles: less than the window of a publisher, 1,024."""
MAP_ENTRY_BYTES = 48
MAP_RESERVE_BYTES = 512
"""A frame holds (max-frame-size - 512) / 48 entries."""
FILL_S = 60.0
"""For the deliveries that fill the map."""


class DelayingRelay(Relay):
    """Passes on what it reads, each way, so many seconds later and in order."""

    def __init__(self, target: int, delay_s: float) -> None:
        super().__init__(target)
        self._delay_s = delay_s

    async def pass_on(self, data: bytes, writer: asyncio.StreamWriter, *, is_client: bool) -> None:
        asyncio.get_running_loop().call_later(self._delay_s, writer.write, data)
        if not data:
            await asyncio.sleep(self._delay_s)


class Taker:
    """Takes and accepts everything that the `#` subscription gets."""

    def __init__(self) -> None:
        self.counts = {b"blocked": 0, b"backlog": 0}
        self._news = asyncio.Condition()

    async def run(self, subscriber: Subscriber) -> None:
        """For ever."""
        while True:
            batch = await subscriber.receive_many(BLOCKED)
            await subscriber.finish(batch)
            async with self._news:
                for delivery in batch:
                    assert isinstance(delivery.body, bytes)
                    self.counts[delivery.body] += 1
                self._news.notify_all()

    async def until(self, body: bytes, count: int) -> None:
        """Wait until so many with this body were accepted."""
        async with self._news:
            await self._news.wait_for(lambda: self.counts[body] >= count)


async def _started(stack: AsyncExitStack, url: str, container_id: str, **options: int) -> Client:
    client = connect(url, container_id=container_id, **options)
    await client.start()
    stack.push_async_callback(client.abandon)
    return client


async def measure(router: Router, folder: Path, frame_size: int, delay_s: float, messages: int) -> float:
    """Messages of the backlog per second, from the first that is sent to the last that the subscriber processed.

    Raises:
        BenchmarkError: the map was not filled.
    """
    host, _, port = router.address.rpartition(":")
    async with AsyncExitStack() as stack:
        if delay_s:
            port = str((await stack.enter_async_context(DelayingRelay(int(port), delay_s).listening())).port)
        url = f"amqp://{host}:{port}"
        reading = await _started(stack, url, "reading", max_frame_size=frame_size)
        writing = await _started(stack, url, "writing")
        silent = await _started(stack, url, "silent")
        everything = await reading.subscriber("#", name="all", journal=folder / "all.db")
        await silent.subscriber("blocked", name="silent")
        blocked = await writing.publisher("blocked", name="blocked", journal=folder / "blocked.db")
        backlog = await writing.publisher("backlog", name="backlog", journal=folder / "backlog.db")
        taker = Taker()
        taking = asyncio.create_task(taker.run(everything))
        await blocked.submit_many([b"blocked"] * BLOCKED)
        room = min(BLOCKED, (frame_size - MAP_RESERVE_BYTES) // MAP_ENTRY_BYTES)
        try:
            async with asyncio.timeout(FILL_S):
                await taker.until(b"blocked", room)
        except TimeoutError:
            raise BenchmarkError(f"the map holds {taker.counts[b'blocked']} deliveries, not {room}") from None
        began = time.monotonic()
        sending = asyncio.create_task(backlog.submit_many([b"backlog"] * messages))
        await taker.until(b"backlog", messages)
        took = time.monotonic() - began
        await sending
        taking.cancel()
    return messages / took


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    rows: dict[int, list[float]] = {}
    for size in options.frame_sizes:
        for delay in options.delays_ms:
            with standalone_router() as router, tempfile.TemporaryDirectory() as folder:
                found = uvloop.run(measure(router, Path(folder), size, delay / 1000, options.messages))
            rows.setdefault(size, []).append(round(found, 1))
    if options.json:
        print(json.dumps({"benchmark": "backlog", "machine": machine(), "delays_ms": options.delays_ms, "rows": rows}))
        return
    print(machine())
    heads = "".join(f"{f'{delay:g} ms: msg/s':>18}" for delay in options.delays_ms)
    print(f"{'max-frame-size':>16}{'its map':>10}{heads}")
    for size, found_rates in rows.items():
        entries = (size - MAP_RESERVE_BYTES) // MAP_ENTRY_BYTES
        print(f"{size:16,}{entries:10,}" + "".join(f"{rate:18.1f}" for rate in found_rates))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A backlog behind one subscription, by frame size and delay.")
    parser.add_argument("--messages", type=int, default=1000, help="of the backlog")
    parser.add_argument("--frame-sizes", type=int, nargs="+", default=[8192, 1 << 20], help="bytes, of the subscriber")
    parser.add_argument("--delays-ms", type=float, nargs="+", default=[0.0, 25.0], help="each way")
    carry_out(parser, main)
