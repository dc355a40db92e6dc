"""Hostile clients for bench_abuse.py: one abuse of one router, for as long as this process lives.

They speak AMQP by bytes, without an engine, so that what they send costs them little.

    python benchmarks/abusers.py NAME AMQP_PORT HTTP_PORT OTHER_ROUTERS_AMQP_PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import sys
from collections.abc import Awaitable, Callable

from oncewire.client import connect
from oncewire.wire import (
    ACCEPTED,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    Source,
    Symbol,
    Target,
    Transfer,
    encode_performative,
    vocabulary,
)
from oncewire.wire.frames import AMQP_HEADER, encode_frame

NICENESS = 10
"""Hostile clients are on other machines: here they must not take the processor from those that measure."""
MIB = 1 << 20
HOST = "127.0.0.1"
MANY = 1 << 30
PART = 65_536
RETRY_S = 0.05
FAN_OUT = "fan"
FAN_OUT_LINKS, LINKS = 3_600, 200
"""Subscriptions of the topic, and those of one connection; a session has at most 256."""
FAN_OUT_WINDOW = 64
ATTACHED = b"\x00\x53\x12"
"""How the body of an attach begins."""
BEGUN = "begun"
"""What is printed when it took a while to prepare."""
FAN_OUT_HERE = "3,600 subscriptions of one topic"
FAN_OUT_FROM_ELSEWHERE = "3,600 subscriptions, published elsewhere"
EXACTLY_ONCE = (vocabulary.EXACTLY_ONCE,)
_names = itertools.count()


def frame(performative: Performative, payload: bytes = b"", channel: int = 0) -> bytes:
    """One AMQP frame."""
    return encode_frame(channel, encode_performative(performative), payload)


def opened(name: str = "", max_frame_size: int = MIB) -> bytes:
    """What a client begins with that has no login."""
    container_id = name or f"abuser-{os.getpid()}-{next(_names)}"
    return AMQP_HEADER + frame(Open(container_id, HOST, max_frame_size, 65_535)) + frame(Begin(None, 0, MANY, MANY))


def publisher(handle: int, name: str, topic: str = "abuse", tags: int = 0) -> bytes:
    """The attach of a publisher, with a map of so many tags."""
    attach = Attach(name, handle, False)
    attach.source, attach.target = Source(address="me"), Target(address=topic)
    attach.initial_delivery_count = 0
    attach.unsettled = {b"%016d" % number: None for number in range(tags)} if tags else {}
    attach.rcv_settle_mode, attach.desired_capabilities = 1, EXACTLY_ONCE
    return frame(attach)


def subscriber(handle: int, name: str, topic: str = "abuse", tags: int = 0) -> bytes:
    """The attach of a subscriber, with a map of so many tags, and credit."""
    attach = Attach(name, handle, True)
    attach.source, attach.target = Source(address=topic), Target(address="me")
    attach.unsettled = {b"%016d" % number: None for number in range(tags)}
    attach.rcv_settle_mode, attach.desired_capabilities = 1, EXACTLY_ONCE
    return frame(attach) + frame(Flow(0, 1 << 30, 0, 1 << 30, handle, 0, 1_000_000))


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


async def passing(raw: Raw) -> None:
    """Open and leave."""
    await raw.say(opened())
    await raw.reader.read(PART)


def _attaches() -> bytes:
    name = f"a{next(_names)}"
    return publisher(1, name) + frame(Detach(1, True))


async def _attach_by_answers(raw: Raw) -> None:
    """A new link whenever the one before is answered: as many keys in etcd as the router writes."""
    await raw.say(opened())
    await raw.reader.read(PART)
    while True:
        await raw.say(publisher(1, f"a{next(_names)}"))
        if not await raw.reader.read(PART):
            return
        await raw.say(frame(Detach(1, True)))


async def _endless(raw: Raw) -> None:
    """A delivery that never ends, as far as the router's window lets it, and then a byte a second."""
    begin = Transfer(1, 0, b"endless", 0, False)
    begin.more = True
    more = Transfer(1)
    more.more = True
    await raw.say(opened() + publisher(1, "endless", f"endless/{next(_names)}"))
    await asyncio.sleep(1)  # for credit and a window
    await raw.say(frame(begin, b"x"))
    for _ in range(62):
        await asyncio.sleep(0.05)
        await raw.say(frame(more, b"x" * (MIB - 4096)))
    while True:
        await asyncio.sleep(1)
        await raw.say(frame(more, b"x"))


async def _maps(raw: Raw) -> None:
    """Fifteen maps of 20,000 tags, left behind."""
    await raw.say(opened() + b"".join(subscriber(n, f"m{next(_names)}", f"maps/{n}", 20_000) for n in range(15)))
    await asyncio.sleep(2)


async def _junk(raw: Raw) -> None:
    """Attaches with all that fits a frame, and detaches that are never answered."""
    attach = Attach(f"j{next(_names)}", 0, False)
    attach.source, attach.target = Source(address="me"), Target(address="queue", capabilities=(Symbol("queue"),))
    attach.initial_delivery_count = 0
    attach.properties = {Symbol(f"x-{number}"): "x" * 1000 for number in range(900)}
    await raw.say(opened())
    for handle in range(1000):
        attach.handle, attach.name = handle, f"j{next(_names)}"
        await raw.say(frame(attach))
    await asyncio.sleep(3600)


async def _taking(port: int, first: int, ready: asyncio.Queue[int]) -> None:
    """Subscriptions of one topic on one connection, which accept all that comes, without looking at it."""
    accepting = frame(Disposition(True, 0, (1 << 31) - 1, True, ACCEPTED))
    async with Raw(port) as raw:
        await raw.say(opened() + b"".join(subscriber(n, f"fan{first + n}", FAN_OUT) for n in range(LINKS)))
        attached = 0
        while data := await raw.reader.read(PART):
            if attached < LINKS:
                attached += data.count(ATTACHED)
                if attached >= LINKS:
                    ready.put_nowait(first)
            await raw.say(accepting)


async def _fan_out(subscribe_at: int, publish_at: int) -> None:
    """Thousands of subscriptions of one topic, and a publisher to it that sends as fast as they accept."""
    ready: asyncio.Queue[int] = asyncio.Queue()
    taking = [asyncio.create_task(_taking(subscribe_at, n, ready)) for n in range(0, FAN_OUT_LINKS, LINKS)]
    for _ in taking:
        await ready.get()
    async with connect(f"amqp://{HOST}:{publish_at}", container_id="fan") as client:
        publisher = await client.publisher(FAN_OUT, name="fan", window=FAN_OUT_WINDOW)
        print(BEGUN, flush=True)
        while True:
            await publisher.submit(b"x" * 100)


def abuses(amqp: int, http: int, other: int) -> dict[str, Callable[[], Awaitable[None]]]:
    """What there is, by name."""
    echo = Flow(0, 1 << 30, 0, 1 << 30)
    echo.echo = True
    echoes = frame(echo) * 500
    settling = Disposition(True, 0, (1 << 31) - 1, True, ACCEPTED)
    dispositions = frame(settling) * 500
    sessions = (frame(Begin(None, 0, 1, 1), channel=1) + frame(End(), channel=1)) * 100
    endless_frame = opened() + (MIB).to_bytes(4, "big") + b"\x02\x00\x00\x00" + b"x" * (MIB - 100)
    slow = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
    requests = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 4
    return {
        "2,000 silent connections": lambda: many(2000, amqp, saying(b"")),
        "500 connections, a byte each second": lambda: many(500, amqp, saying(AMQP_HEADER[:1], b"M", 1.0)),
        "500 slow HTTP requests": lambda: many(500, http, saying(slow, b"x", 1.0)),
        "20 clients connect without end": lambda: many(20, amqp, passing),
        "2,000 clients connect and stay": lambda: many(2000, amqp, saying(opened())),
        "a client attaches without end": lambda: many(1, amqp, flooding(opened(), _attaches)),
        "20 clients attach without end": lambda: many(20, amqp, _attach_by_answers),
        "20 clients ask for echoes and read nothing": lambda: many(
            20, amqp, flooding(opened(), lambda: echoes), reads=False
        ),
        "20 clients send dispositions": lambda: many(20, amqp, flooding(opened(), lambda: dispositions)),
        "20 clients begin and end sessions": lambda: many(20, amqp, flooding(opened(), lambda: sessions)),
        "300 frames that never end": lambda: many(300, amqp, saying(endless_frame, b"x", 1.0)),
        "16 messages that never end": lambda: many(16, amqp, _endless),
        "15 maps of 20,000 tags, left behind": lambda: many(1, amqp, _maps),
        "attaches of 1 MiB, never detached": lambda: many(2, amqp, _junk),
        "20 clients read metrics without end": lambda: many(20, http, flooding(b"", lambda: requests)),
        FAN_OUT_HERE: lambda: _fan_out(amqp, amqp),
        FAN_OUT_FROM_ELSEWHERE: lambda: _fan_out(amqp, other),
        "20 clients send what is no AMQP": lambda: many(20, amqp, flooding(opened(), lambda: random.randbytes(PART))),
    }


def main() -> None:
    """Abuse, until this process is ended."""
    name, amqp, http, other = sys.argv[1], *map(int, sys.argv[2:5])
    os.nice(NICENESS)
    asyncio.run(abuses(amqp, http, other)[name]())  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
