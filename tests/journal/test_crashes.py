"""A journal whose process is killed at every place, between a publisher and a reader that stay (J-16, J-21, J-22)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bridges.journal import log
from bridges.journal.contents import JOURNALS
from bridges.store.crash_points import CrashPoint
from oncewire.client import Client, LinkRefused, NotAccepted, Subscriber, connect
from oncewire.store.contents import Contents
from oncewire.wire import decode_message
from router.commands.local_network import LocalNetwork
from tests.store.databases import SqlDatabase
from tests.store.killing import KILLED, command
from tests.support.waiting import eventually

pytestmark = [pytest.mark.routers(1), pytest.mark.timeout(400), pytest.mark.slow]
LONG_S = 120.0
POINTS = [CrashPoint.FEED_RECEIVED, CrashPoint.FEED_PUSHED, CrashPoint.FEED_COMMITTED, CrashPoint.CURSOR_MOVED]


class Ends:
    """A publisher and a reader, which stay while the journal's process dies."""

    def __init__(self) -> None:
        self.sent = 0
        self.read: list[object] = []

    def more_than(self, count: int, publishing: asyncio.Task[None]) -> Callable[[], bool]:
        """Whether so many were sent, or the publisher has failed."""
        return lambda: self.sent > count or publishing.done()

    async def publish(self, client: Client) -> None:
        async with client.publisher("in", name="in", require=1) as publisher:
            while True:
                try:
                    await publisher.send(f"{self.sent}")
                    self.sent += 1
                except NotAccepted:  # no subscription yet: it was sent to nobody
                    await asyncio.sleep(0.05)

    async def follow(self, client: Client) -> None:
        reader = await self._open(client)
        async for delivery in reader:
            self.read.append(delivery.body)
            await delivery.accept()

    @staticmethod
    async def _open(client: Client) -> Subscriber:
        """The reader's first attach, which needs a process that serves; later ones are the client's."""
        while True:
            with suppress(LinkRefused):
                return await client.journal("log", start="first", name="reader")
            await asyncio.sleep(0.05)


async def test_each_message_is_stored_and_read_once_and_in_order_wherever_the_process_dies(
    network: LocalNetwork, sql_database: SqlDatabase, tmp_path: Path
) -> None:
    url, ends = network.routers["r1"].url, Ends()
    async with (
        connect(url, container_id="shop", journal=tmp_path / "shop.db", timeout=LONG_S) as shop,
        connect(url, container_id="audit", journal=tmp_path / "audit.db", timeout=LONG_S) as audit,
    ):
        following = asyncio.create_task(ends.follow(audit))
        publishing = asyncio.create_task(ends.publish(shop))
        for point in [*POINTS, *POINTS, ""]:
            process = await asyncio.create_subprocess_exec(
                *command("tests.journal.journal_worker", sql_database.url, url, point, "3")
            )
            try:
                if point:
                    assert await asyncio.wait_for(process.wait(), LONG_S) == KILLED, point
                    continue
                await eventually(ends.more_than(ends.sent + 20, publishing))
                publishing.cancel()
                await asyncio.wait([publishing])
                await eventually(lambda: len(ends.read) >= ends.sent or following.done())
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        following.cancel()
        await asyncio.wait([following])
    store = sql_database.open_with(Contents([JOURNALS]))
    (found,), _ = store.transact([lambda do: log.read(do, "log", 0, 1 << 20, 1 << 30)])
    store.close()
    stored = [decode_message(each.payload).body for each in found[1]]
    assert stored == [str(number) for number in range(len(stored))]
    assert len(stored) - ends.sent in (0, 1), "one may be without an outcome"
    assert ends.read == stored[: len(ends.read)]
    assert len(ends.read) >= ends.sent
