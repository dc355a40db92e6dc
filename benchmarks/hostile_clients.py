"""What hostile clients are made of: AMQP by bytes, without an engine, so that what they send costs them little."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Awaitable, Callable

from oncewire.wire import Attach, Begin, Flow, Open, Performative, Source, Target, encode_performative, vocabulary
from oncewire.wire.frames import AMQP_HEADER, encode_frame

MIB = 1 << 20
HOST = "127.0.0.1"
MANY = 1 << 30
PART = 65_536
RETRY_S = 0.05
ATTACHED = b"\x00\x53\x12"
"""How the body of an attach begins."""
BEGUN = "begun"
"""What is printed when it took a while to prepare."""
EXACTLY_ONCE = (vocabulary.EXACTLY_ONCE,)
names = itertools.count()


def frame(performative: Performative, payload: bytes = b"", channel: int = 0) -> bytes:
    """One AMQP frame."""
    return encode_frame(channel, encode_performative(performative), payload)


def opened(name: str = "", max_frame_size: int = MIB) -> bytes:
    """What a client begins with that has no login."""
    container_id = name or f"abuser-{os.getpid()}-{next(names)}"
    return AMQP_HEADER + frame(Open(container_id, HOST, max_frame_size, 65_535)) + frame(Begin(None, 0, MANY, MANY))


def publisher(handle: int, name: str, topic: str = "abuse", tags: int = 0) -> bytes:
    """The attach of a publisher, with a map of so many tags."""
    attach = Attach(name, handle, False)
    attach.source, attach.target = Source(address="me"), Target(address=topic)
    attach.initial_delivery_count = 0
    attach.unsettled = {b"%016d" % number: None for number in range(tags)} if tags else {}
    attach.rcv_settle_mode, attach.desired_capabilities = 1, EXACTLY_ONCE
    return frame(attach)


def subscriber(handle: int, name: str, topic: str = "abuse", tags: int = 0, source: Source | None = None) -> bytes:
    """The attach of a subscriber, with a map of so many tags, and credit; `source` in the place of the topic's."""
    attach = Attach(name, handle, True)
    attach.source, attach.target = source or Source(address=topic), Target(address="me")
    attach.unsettled = {b"%016d" % number: None for number in range(tags)}
    attach.rcv_settle_mode, attach.desired_capabilities = 1, EXACTLY_ONCE
    return frame(attach) + frame(Flow(0, MANY, 0, MANY, handle, 0, 1_000_000))


class Raw:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Raw:
        self.reader, self.writer = await asyncio.open_connection(HOST, self.port, limit=PART)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def say(self, data: bytes) -> None:
        """Write, and wait where the router does not read."""
        self.writer.write(data)
        await self.writer.drain()

    async def swallow(self) -> None:
        """Read for ever, and look at nothing."""
        while await self.reader.read(PART):
            pass


Act = Callable[[Raw], Awaitable[None]]


async def again(port: int, act: Act, *, reads: bool = True) -> None:
    """Connect and act; again when that has ended, for ever."""
    while True:
        with contextlib.suppress(OSError):
            async with Raw(port) as raw:
                reading = asyncio.create_task(raw.swallow()) if reads else None
                try:
                    await act(raw)
                finally:
                    if reading is not None:
                        reading.cancel()
        await asyncio.sleep(RETRY_S)


async def many(count: int, port: int, act: Act, *, reads: bool = True) -> None:
    """So many of them at once."""
    await asyncio.gather(*(again(port, act, reads=reads) for _ in range(count)))


def saying(first: bytes, more: bytes = b"", every_s: float = 3600.0) -> Act:
    """Say something, and then the same every so often, for ever."""

    async def act(raw: Raw) -> None:
        await raw.say(first)
        while True:
            await asyncio.sleep(every_s)
            await raw.say(more)

    return act


def flooding(first: bytes, more: Callable[[], bytes]) -> Act:
    """Say something, and then more and more, as fast as the router reads."""

    async def act(raw: Raw) -> None:
        await raw.say(first)
        while True:
            await raw.say(more())

    return act
