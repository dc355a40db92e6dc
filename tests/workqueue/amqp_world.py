"""Bridges of work queues as processes, and clients of their queues as engines on sockets."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncewire.wire import (
    ACCEPTED,
    DeliveryReceived,
    DeliveryState,
    DispositionReceived,
    LinkDetached,
    LinkFlow,
    ReceiverLink,
    SenderLink,
    Source,
    Target,
    decode_message,
    encode_data_message,
)
from tests.edge.edge_process import running_edge, settings
from tests.router.raw_client import RawClient

DEADLINE_S = 120.0


@asynccontextmanager
async def bridge(store: str, urls: Sequence[str], name: str = "bridge") -> AsyncIterator[asyncio.subprocess.Process]:
    """An edge that serves the queues of a store for the time of the block, connected to a router at its begin."""
    with tempfile.TemporaryDirectory() as folder:
        text = settings(store, urls, '[[queue]]\nname = "of the edge"', name)
        async with running_edge(Path(folder) / "edge.toml", text) as edge:
            assert edge.process is not None
            yield edge.process


@dataclass
class Pusher:
    """A sending link to a queue."""

    client: RawClient
    link: SenderLink

    def send(self, tag: bytes, body: bytes, **options: Any) -> int:
        """Send one message as it is encoded, or its body."""
        number = self.link.send(tag, encode_data_message(body, **options))
        self.client.flush()
        return number

    async def outcome(self, tag: bytes) -> DispositionReceived:
        """The outcome of one delivery."""
        return await self.client.wait_for(
            DispositionReceived,
            lambda event: event.link is self.link and any(found == tag for _, found in event.deliveries),
        )

    def settle(self, number: int) -> None:
        """Settle a delivery."""
        self.link.settle([number])
        self.client.flush()


@dataclass
class Worker:
    """A receiving link from a queue."""

    client: RawClient
    link: ReceiverLink

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Grant credit."""
        self.link.grant(credit, drain=drain)
        self.client.flush()

    async def item(self) -> tuple[DeliveryReceived, bytes]:
        """The next item."""
        event = await self.client.wait_for(DeliveryReceived, lambda event: event.link is self.link)
        body = decode_message(event.payload).body
        assert isinstance(body, bytes)
        return event, body

    def state(self, delivery: DeliveryReceived, state: DeliveryState = ACCEPTED, *, settled: bool = False) -> None:
        """State an outcome."""
        self.link.dispose([delivery.delivery_id], state, settled)
        self.client.flush()

    async def answer(self, delivery: DeliveryReceived) -> DispositionReceived:
        """The settlement of the service: the outcome is durable."""
        return await self.client.wait_for(
            DispositionReceived,
            lambda event: event.settled and any(found == delivery.tag for _, found in event.deliveries),
        )


async def attach(client: RawClient, link: SenderLink | ReceiverLink) -> LinkDetached | None:
    """Wait for the answer; returns the refusal if it is one."""
    client.flush()
    await client.attached(link)
    remote = link.remote_attach
    assert remote is not None
    node = remote.target if isinstance(link, SenderLink) else remote.source
    return await client.detached(link) if node is None else None


async def pusher(client: RawClient, queue: str, name: str = "push", **terms: Any) -> Pusher:
    """Attach a sender; until a service can be reached it tries again."""
    ends_at = time.monotonic() + DEADLINE_S
    while True:
        link = client.session.attach_sender(name, target=Target(address=f"queue://{queue}"), **terms)
        if (refusal := await attach(client, link)) is None:
            return await _with_credit(Pusher(client, link))
        assert time.monotonic() < ends_at, refusal
        await asyncio.sleep(0.05)


async def _with_credit(found: Pusher) -> Pusher:
    await found.client.wait_for(LinkFlow, lambda flow: flow.link is found.link and bool(flow.credit_limit))
    return found


async def worker(client: RawClient, queue: str, name: str = "work", credit: int = 1, **terms: Any) -> Worker:
    """Attach a receiver with credit; until a service can be reached it tries again."""
    ends_at = time.monotonic() + DEADLINE_S
    while True:
        link = client.session.attach_receiver(name, source=Source(address=f"queue://{queue}"), **terms)
        if (refusal := await attach(client, link)) is None:
            found = Worker(client, link)
            found.grant(credit)
            return found
        assert time.monotonic() < ends_at, refusal
        await asyncio.sleep(0.05)
