"""A publisher and a subscriber that do as they should, while others do not: what they see is the verdict."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from oncewire.wire import LinkFlow, decode_message
from tests.router.raw_client import RawClient, RawPublisher, RawSubscriber

LAST = b"last"
"""Tag and body of the message after which nothing comes."""


@contextlib.asynccontextmanager
async def others_lose_nothing(port: int, subscriber_port: int | None = None) -> AsyncIterator[None]:
    """A publisher and a subscriber are busy all through the block; at its end nothing is lost, doubled or reordered.

    Args:
        port: of the publisher's router.
        subscriber_port: of the subscriber's, if it is another one.
    """
    subscriber = await (await RawClient.connect(subscriber_port or port, "honest-s")).subscriber("orders")
    publisher = await (await RawClient.connect(port, "honest-p")).publisher("orders")
    stop = asyncio.Event()
    sending = asyncio.create_task(_send(publisher, stop))
    taking = asyncio.create_task(_take(subscriber))
    try:
        yield
    finally:
        stop.set()
        sent = await sending
        received = await taking
    assert received == [b"%d" % number for number in range(sent)] + [LAST]
    while len(publisher.accepted_tags()) < len(received):
        await publisher.next_outcome()
    assert sorted(publisher.accepted_tags()) == sorted(received)


async def _send(publisher: RawPublisher, stop: asyncio.Event) -> int:
    number = 0
    while not stop.is_set():
        await _send_one(publisher, b"%d" % number)
        publisher.settle_accepted()
        number += 1
        await asyncio.sleep(0.005)
    await _send_one(publisher, LAST)
    return number


async def _send_one(publisher: RawPublisher, name: bytes) -> None:
    while not publisher.link.credit:
        await publisher.client.wait_for(LinkFlow, lambda flow: flow.link is publisher.link)
    publisher.send(name, name)


async def _take(subscriber: RawSubscriber) -> list[bytes]:
    received: list[bytes] = []
    while received[-1:] != [LAST]:
        delivery = await subscriber.delivery()
        body = decode_message(delivery.payload).body
        assert isinstance(body, bytes)
        received.append(body)
        subscriber.accept(delivery)
        subscriber.link.grant(100)
        subscriber.client.flush()
    return received
