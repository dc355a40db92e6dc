"""One of each kind of reader of a topic, in the process of the test, and what each of them has got."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from bridges.workqueue import Feed, Queue
from oncewire.client import Subscriber, connect
from oncewire.client.transactions import ReceivedMessage, read_committed
from router.commands.local_network import LocalNetwork

READY_S = 120.0


class OutputReaders:
    """What four readers of one topic have got: each message once, whoever is killed.

    Attributes:
        messages: of a reader of committed messages.
        committed: their bodies.
        plain: bodies of a subscriber with an unsettled map.
        stock: bodies of one that presents no map and knows nothing of the network, as stock clients do.
        flagged: bodies that the stock subscriber got again, flagged, as it may where a router was killed (G7).
        items: bodies of the items that a feed pushed into a queue.
    """

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.plain: list[str] = []
        self.stock: list[str] = []
        self.flagged: list[str] = []
        self.items: list[str] = []

    @property
    def committed(self) -> list[str]:
        return [_text(message.body) for message in self.messages]

    @property
    def by_kind(self) -> dict[str, list[str]]:
        return {
            "read-committed reader": self.committed,
            "plain subscriber": self.plain,
            "stock subscriber": self.stock,
            "feed": self.items,
        }

    def have(self, count: int) -> bool:
        """Whether each has got so many."""
        return all(len(bodies) >= count for bodies in self.by_kind.values())

    def check(self, expected: Sequence[str]) -> None:
        """Each has got each of these once and nothing else."""
        wanted = Counter(expected)
        for kind, bodies in self.by_kind.items():
            found = Counter(bodies)
            again, lost = found - wanted, wanted - found
            assert not again, f"{kind}: {again.total()} too many of {wanted.total()}, such as {list(again)[:5]}"
            assert not lost, f"{kind}: {lost.total()} of {wanted.total()} are missing, such as {list(lost)[:5]}"

    @asynccontextmanager
    async def reading(self, routers: Sequence[str], topic: str) -> AsyncIterator[None]:
        """Read for the time of the block; all are subscribed when it begins."""
        ready = [asyncio.Event() for _ in range(4)]
        with tempfile.TemporaryDirectory() as folder:
            works = [
                self._read_committed(routers, topic, ready[0]),
                self._subscribe(routers, topic, self.plain, ready[1], exactly_once=True),
                self._subscribe(routers, topic, self.stock, ready[2], exactly_once=False),
                self._feed(routers, topic, f"sqlite:///{Path(folder) / 'items.db'}", ready[3]),
            ]
            tasks = [asyncio.create_task(work) for work in works]
            try:
                await until(lambda: all(event.is_set() for event in ready) or _some_ended(tasks), lambda: tasks)
                yield
                assert not _some_ended(tasks), tasks
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_committed(self, routers: Sequence[str], topic: str, ready: asyncio.Event) -> None:
        async with read_committed(routers, topic, ring_messages=3) as reader:
            ready.set()
            async for message in reader:
                self.messages.append(message)

    async def _subscribe(
        self, routers: Sequence[str], topic: str, found: list[str], ready: asyncio.Event, *, exactly_once: bool
    ) -> None:
        async with connect(routers) as client:
            subscriber: Subscriber = await client.subscriber(topic, exactly_once=exactly_once)
            ready.set()
            async for delivery in subscriber:
                text = _text(delivery.body)
                is_again = not exactly_once and delivery.is_redelivered and text in found
                (self.flagged if is_again else found).append(text)
                await delivery.accept()

    async def _feed(self, routers: Sequence[str], topic: str, store: str, ready: asyncio.Event) -> None:
        async with Queue.open(store, "items") as queue:
            feed = Feed(queue, topic, list(routers))
            feed.subscribed = ready
            async with asyncio.TaskGroup() as group:
                group.create_task(feed.run())
                while True:
                    async with queue.reserve(wait=None) as item:
                        self.items.append(item.payload.decode())


def _some_ended(tasks: Sequence[asyncio.Task[None]]) -> bool:
    return any(task.done() for task in tasks)


def _text(body: object) -> str:
    return body.decode() if isinstance(body, bytes) else str(body)


async def until(condition: Callable[[], bool], what: Callable[[], object], seconds: float = READY_S) -> None:
    """Wait for something that another process does."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  (what another process does)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(what()) from None


async def until_connected(network: LocalNetwork, container: str, count: int) -> None:
    """Wait until routers have so many connections of a container; they close one that is silent."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(READY_S):
        while True:
            found: list[str] = []
            for router in network.routers.values():
                async with session.get(f"{router.http}/api/v1/connections") as answer:
                    found += [item["container_id"] for item in (await answer.json())["items"]]
            if found.count(container) == count:
                return
            await asyncio.sleep(0.05)
