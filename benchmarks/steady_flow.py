"""A publisher and a subscriber under steady load: when each message was sent, delivered and accepted, on one clock."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from oncewire.client import Publisher, Sending, Subscriber, connect

PERIOD_S = 0.01
"""Between two messages: what is measured is no more exact than this."""
WINDOW = 4096
"""More than is sent in the longest gap, so that the publisher never waits for its window."""
TAKE = 1000
END_S = 5.0
"""For saying goodbye; the next flow has a topic of its own, and nothing of this one stands in its way."""


class Flow:
    """What was sent and delivered since the flow began; message n is the n-th that was sent."""

    def __init__(self) -> None:
        self.sent_at: list[float] = []
        self.delivered_at: list[float] = []
        """Exactly once and in order: the n-th delivery is message n."""
        self.accepted_at: list[float] = []
        """In order (I-3): the n-th acceptance is that of message n."""
        self._sendings: asyncio.Queue[Sending] = asyncio.Queue()
        self._turned = asyncio.Condition()
        """Notified of each message that was sent or accepted, and each batch delivered."""

    async def until_accepted_after(self, moment: float, within_s: float) -> tuple[float, float]:
        """Wait for the first message that was sent after `moment`; when it was delivered, and when accepted.

        Raises:
            TimeoutError: it was not, within so many seconds.
        """
        async with asyncio.timeout(within_s):
            async with self._turned:
                await self._turned.wait_for(lambda: bool(self.sent_at) and self.sent_at[-1] > moment)
                number = next(n for n, sent in enumerate(self.sent_at) if sent > moment)
                await self._turned.wait_for(lambda: len(self.accepted_at) > number)
        return self.delivered_at[number], self.accepted_at[number]

    async def publish(self, publisher: Publisher) -> None:
        """Send one message each period, for ever."""
        while True:
            self.sent_at.append(time.monotonic())
            self._sendings.put_nowait(await publisher.submit(str(len(self.sent_at) - 1).encode()))
            await self._notify()
            await asyncio.sleep(PERIOD_S)

    async def collect(self) -> None:
        """Wait for the outcome of each message, for ever.

        Raises:
            AssertionError: one was not accepted.
        """
        while True:
            outcome = await (await self._sendings.get())
            assert outcome.is_accepted, outcome
            self.accepted_at.append(time.monotonic())
            await self._notify()

    async def receive(self, subscriber: Subscriber) -> None:
        """Take and accept everything, for ever.

        Raises:
            AssertionError: a message is missing, came twice or in another order.
        """
        while True:
            batch = await subscriber.receive_many(TAKE)
            now = time.monotonic()
            for delivery in batch:
                body = delivery.body
                expected = len(self.delivered_at)
                assert isinstance(body, bytes)
                assert int(body) == expected, f"message {expected} was due, {body!r} came"
                self.delivered_at.append(now)
            await subscriber.finish(batch)
            await self._notify()

    async def _notify(self) -> None:
        async with self._turned:
            self._turned.notify_all()


@asynccontextmanager
async def steady_flow(topic: str, publish_at: Sequence[str], subscribe_at: Sequence[str]) -> AsyncIterator[Flow]:
    """A flow for the time of the block, by clients whose settings are the defaults.

    Args:
        topic: one that no other flow has.
        publish_at: where the publisher connects, in order of preference.
        subscribe_at: the same for the subscriber.
    """
    flow = Flow()
    async with AsyncExitStack() as stack:
        reading = connect(subscribe_at, container_id=f"{topic}-s")
        writing = connect(publish_at, container_id=f"{topic}-p")
        for client in (reading, writing):
            await client.start()
            stack.push_async_callback(client.abandon)
        subscriber = await reading.subscriber(topic, name="s")
        publisher = await writing.publisher(topic, name="p", window=WINDOW)
        async with asyncio.TaskGroup() as tasks:
            works = (flow.receive(subscriber), flow.collect(), flow.publish(publisher))
            working = [tasks.create_task(work) for work in works]
            yield flow
            for task in working:
                task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await subscriber.unsubscribe()
