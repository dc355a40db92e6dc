"""Clients that send and take a large message part by part, as a test directs them."""

from __future__ import annotations

import asyncio
from typing import Any

from oncewire.wire import ACCEPTED, DeliveryAborted, DeliveryBegun, DeliveryEnded, DeliveryPart, encode_data_message
from tests.router.raw_client import DEADLINE_S, RawClient, RawPublisher, RawSubscriber

MIB = 1 << 20
BODY = bytes(range(256)) * (8 * MIB // 256)
MESSAGE = encode_data_message(BODY)
HALF = len(MESSAGE) // 2
"""Each half is longer than what makes a message large."""
LATER = (DeliveryPart, DeliveryEnded, DeliveryAborted)


class PartPublisher:
    """A publisher whose messages are sent in two halves."""

    def __init__(self, raw: RawPublisher) -> None:
        self.raw = raw
        self.client = raw.client
        self.link = raw.link

    @classmethod
    async def attach(cls, port: int, name: str = "p", topic: str = "t", **options: Any) -> PartPublisher:
        """Connect and attach."""
        client = await RawClient.connect(port, name)
        return cls(await client.publisher(topic, **options))

    def begin(self, tag: bytes = b"1", message: bytes = MESSAGE[:HALF]) -> int:
        """Send the first half."""
        delivery_id = self.link.begin(tag, message)
        self.client.flush()
        return delivery_id

    def finish(self, message: bytes = MESSAGE[HALF:]) -> None:
        """Send the second half."""
        self.link.finish(message)
        self.client.flush()

    def abort(self) -> None:
        """Give up."""
        self.link.abort()
        self.client.flush()

    async def accepted(self, tag: bytes = b"1") -> None:
        """Wait for the outcome, which is accepted, and settle."""
        event = await self.raw.outcome(tag)
        assert event.state == ACCEPTED, event
        self.raw.settle(*event.ids)


class PartSubscriber:
    """A subscriber that hears of each part."""

    def __init__(self, raw: RawSubscriber) -> None:
        self.raw = raw
        self.client = raw.client
        self.link = raw.link
        self.link.stream_above = 0

    @classmethod
    async def attach(cls, port: int, name: str = "s", topic: str = "t", **options: Any) -> PartSubscriber:
        """Connect, attach, and be confirmed."""
        client = await RawClient.connect(port, name)
        return cls(await client.subscriber(topic, **options))

    async def begun(self) -> DeliveryBegun:
        """The beginning of a large message; the rest may not have been sent."""
        return await self.client.wait_for(DeliveryBegun, lambda event: event.link is self.link)

    async def rest(self, begun: DeliveryBegun) -> tuple[bytes, bool]:
        """What has begun to its end, and whether that was an abort."""
        parts = [begun.payload]
        async with asyncio.timeout(DEADLINE_S):
            while True:
                heard, self.client.heard = self.client.heard, []
                for at, event in enumerate(heard):
                    is_of_it = isinstance(event, LATER) and event.link is self.link
                    if not is_of_it:
                        self.client.heard.append(event)
                        continue
                    assert isinstance(event, LATER)
                    assert event.delivery_id == begun.delivery_id
                    if isinstance(event, DeliveryPart | DeliveryEnded):
                        parts.append(event.payload)
                    if not isinstance(event, DeliveryPart):
                        self.client.heard += heard[at + 1 :]
                        return b"".join(parts), isinstance(event, DeliveryAborted)
                await self.client.news()

    async def message(self) -> tuple[DeliveryBegun, bytes]:
        """The next large message: its beginning, and all of it."""
        begun = await self.begun()
        data, is_aborted = await self.rest(begun)
        assert not is_aborted
        return begun, data

    def accept(self, begun: DeliveryBegun) -> None:
        """Accept a message."""
        self.link.dispose([begun.delivery_id], ACCEPTED, False)
        self.client.flush()
