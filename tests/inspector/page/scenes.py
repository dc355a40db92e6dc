"""Real networks for the inspector's page to show: an empty one, a busy one, a broken one."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from oncewire.client import Client, Publisher, Subscriber, connect
from router.commands.local_network import Edge, LocalNetwork, chain

HOSTILE = "<img src=x onerror=document.title='owned'>"
"""A name as a hostile client would choose it; it must be shown as it is, and run nothing."""
DEADLINE_S = 60.0
"""Far more than anything here takes on a busy machine."""
POLL_S = 0.1
WAVE_S = 8.0
"""By this the publishers' waves are timed: one takes some fifty seconds."""


@dataclass
class Scene:
    """A network with clients."""

    network: LocalNetwork
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    clients: dict[str, Client] = field(default_factory=dict)
    """By container-id."""

    def http(self, router: str = "r1") -> str:
        """The address of a router's page."""
        return self.network.routers[router].http

    async def get(self, path: str, router: str = "r1") -> Any:
        """A JSON document of a router's API."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.http(router)}/api/v1/{path}") as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def post(self, path: str, given: object, router: str = "r1") -> None:
        """Carry out a management operation."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.http(router)}/api/v1/management/{path}", json=given) as answer,
        ):
            assert answer.status == 200, await answer.text()

    async def until_waits(self, publishers: int, min_s: float) -> list[Any]:
        """Wait until this many publishers have waited for this long; the rows of who waits."""
        async with asyncio.timeout(DEADLINE_S + min_s):
            while True:
                rows = (await self.get(f"waits?network=true&min_s={min_s:g}"))["items"]
                if len(rows) >= publishers:
                    return list(rows)
                await asyncio.sleep(POLL_S)

    async def until_forgotten(self, tag: str) -> None:
        """Wait until a delivery is settled at all routers, and only its rules are left."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = (await self.get(f"deliveries/{tag}?network=true"))["found"]
                if {row["role"] for row in found} == {"past"}:
                    return
                await asyncio.sleep(POLL_S)

    @asynccontextmanager
    async def client(self, name: str, at: str) -> AsyncIterator[Client]:
        """A client that is cut off at the end: nothing waits for what it has not finished."""
        client = await connect(self.network.routers[at].url, container_id=name)
        self.clients[name] = client
        try:
            yield client
        finally:
            with contextlib.suppress(Exception):
                await client.abandon()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Let a client work until the scene ends."""
        self.tasks.append(asyncio.create_task(work))


@asynccontextmanager
async def empty_network() -> AsyncIterator[Scene]:
    """One router, no client."""
    async with _network(LocalNetwork(1)) as scene:
        yield scene


@asynccontextmanager
async def busy_network(folder: Path) -> AsyncIterator[Scene]:
    """Three routers, traffic on three topics, and a subscriber of `orders` that never answers.

    Deliveries are traced at all routers.
    """
    names = ["r1", "r2", "r3"]
    edges = [Edge("r1", "r2", 1), Edge("r2", "r3", 2), Edge("r1", "r3", 10)]
    network = LocalNetwork(3, edges=edges, log_folder=folder, log_level="info")
    async with _network(network) as scene, AsyncExitStack() as stack:
        for name in names:
            await scene.post(f"router/{name}/trace", {"on": True}, name)
        clients = [
            await stack.enter_async_context(scene.client(name, at))
            for name, at in (
                ("store", "r2"),
                ("billing", "r3"),
                ("audit", "r1"),
                ("slow-printer", "r1"),
                ("till-1", "r1"),
                ("till-2", "r2"),
                ("feed", "r3"),
            )
        ]
        store, billing, audit, printer, till_1, till_2, feed = clients
        for client, topic, name in (
            (store, "orders", "all"),
            (billing, "orders", "eu-west-1"),
            (audit, "prices.#", "log"),
            (billing, "prices.eur", HOSTILE),
            (store, "stock", "shelf"),
        ):
            scene.start(accept(await client.subscriber(topic, name=name)))
        # It has deliveries, and says nothing.
        _ = await printer.subscriber("orders", name="labels", prefetch=4)
        publishers = [
            await till_1.publisher("orders", name="sales", window=64),
            await till_2.publisher("orders", name="sales", window=64),
            await feed.publisher("prices.eur", name="quotes", window=32),
            await feed.publisher("stock", name="counts"),
        ]
        for publisher, pause_s in zip(publishers, (0.02, 0.05, 0.05, 0.2), strict=True):
            scene.start(_publish(publisher, pause_s))
        yield scene


@asynccontextmanager
async def broken_network(folder: Path) -> AsyncIterator[Scene]:
    """Four routers in a row, a publisher at one end, subscribers at both. Nothing is broken yet."""
    edges = chain(["r1", "r2", "r3", "r4"])
    async with _network(LocalNetwork(4, edges=edges, log_folder=folder)) as scene, AsyncExitStack() as stack:
        near, far, till = [
            await stack.enter_async_context(scene.client(name, at))
            for name, at in (("store", "r1"), ("branch", "r4"), ("till-1", "r1"))
        ]
        scene.start(accept(await near.subscriber("orders", name="all")))
        scene.start(accept(await far.subscriber("orders", name="all")))
        scene.start(_publish(await till.publisher("orders", name="sales", window=64), 0.1))
        yield scene


@asynccontextmanager
async def _network(network: LocalNetwork) -> AsyncIterator[Scene]:
    async with network:
        scene = Scene(network)
        try:
            yield scene
        finally:
            for task in scene.tasks:
                task.cancel()
            await asyncio.gather(*scene.tasks, return_exceptions=True)


async def accept(subscriber: Subscriber) -> None:
    """Accept all that comes."""
    async for delivery in subscriber:
        await delivery.accept()


async def _publish(publisher: Publisher, pause_s: float) -> None:
    number = 0
    while True:
        number += 1
        _ = await publisher.submit(b'{"number": %d, "what": "an order of some length", "euros": 12.50}' % number)
        # Faster and slower by turns: a flat line in the pictures of rates would say nothing.
        await asyncio.sleep(pause_s * (1.5 + math.sin(number * pause_s / WAVE_S)))
