"""Hostile clients for bench_abuse.py: one abuse of one router, for as long as this process lives.

They speak AMQP by bytes, without an engine, so that what they send costs them little.

    python benchmarks/abusers.py NAME AMQP_PORT HTTP_PORT OTHER_ROUTERS_AMQP_PORT
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Awaitable, Callable

from further_abuses import NEED_A_START, further_abuses
from hostile_clients import (
    ATTACHED,
    BEGUN,
    HOST,
    MANY,
    MIB,
    PART,
    Raw,
    flooding,
    frame,
    many,
    names,
    opened,
    publisher,
    saying,
    subscriber,
)

from oncewire.client import connect
from oncewire.wire import ACCEPTED, Attach, Begin, Detach, Disposition, End, Flow, Source, Symbol, Target, Transfer
from oncewire.wire.frames import AMQP_HEADER

NICENESS = 10
"""Hostile clients are on other machines: here they must not take the processor from those that measure."""
FAN_OUT = "fan"
FAN_OUT_LINKS, LINKS = 3_600, 200
"""Subscriptions of the topic, and those of one connection; a session has at most 256."""
FAN_OUT_WINDOW = 64
FAN_OUT_HERE = "3,600 subscriptions of one topic"
FAN_OUT_FROM_ELSEWHERE = "3,600 subscriptions, published elsewhere"
PREPARED = NEED_A_START | {FAN_OUT_HERE, FAN_OUT_FROM_ELSEWHERE}
"""Abuses that print `BEGUN` when they have begun."""


async def passing(raw: Raw) -> None:
    """Open and leave."""
    await raw.say(opened())
    await raw.reader.read(PART)


def _attaches() -> bytes:
    name = f"a{next(names)}"
    return publisher(1, name) + frame(Detach(1, True))


async def _attach_by_answers(raw: Raw) -> None:
    """A new link whenever the one before is answered: as many keys in etcd as the router writes."""
    await raw.say(opened())
    await raw.reader.read(PART)
    while True:
        await raw.say(publisher(1, f"a{next(names)}"))
        if not await raw.reader.read(PART):
            return
        await raw.say(frame(Detach(1, True)))


async def _endless(raw: Raw) -> None:
    """A delivery that never ends, as far as the router's window lets it, and then a byte a second."""
    begin = Transfer(1, 0, b"endless", 0, False)
    begin.more = True
    more = Transfer(1)
    more.more = True
    await raw.say(opened() + publisher(1, "endless", f"endless/{next(names)}"))
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
    await raw.say(opened() + b"".join(subscriber(n, f"m{next(names)}", f"maps/{n}", 20_000) for n in range(15)))
    await asyncio.sleep(2)


async def _junk(raw: Raw) -> None:
    """Attaches with all that fits a frame, and detaches that are never answered."""
    attach = Attach(f"j{next(names)}", 0, False)
    attach.source, attach.target = Source(address="me"), Target(address="queue", capabilities=(Symbol("queue"),))
    attach.initial_delivery_count = 0
    attach.properties = {Symbol(f"x-{number}"): "x" * 1000 for number in range(900)}
    await raw.say(opened())
    for handle in range(1000):
        attach.handle, attach.name = handle, f"j{next(names)}"
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
    echo = Flow(0, MANY, 0, MANY)
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
        **further_abuses(amqp, http),
    }


def main() -> None:
    """Abuse, until this process is ended."""
    name, amqp, http, other = sys.argv[1], *map(int, sys.argv[2:5])
    os.nice(NICENESS)
    asyncio.run(abuses(amqp, http, other)[name]())  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
