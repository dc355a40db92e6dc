"""Abuses of what is costly: logins, WebSockets, filters, shared subscriptions, deliveries held, large messages.

See `abusers.py`, which runs them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable

from hostile_clients import (
    ATTACHED,
    BEGUN,
    HOST,
    MANY,
    MIB,
    PART,
    Act,
    Raw,
    again,
    flooding,
    frame,
    many,
    names,
    opened,
    saying,
    subscriber,
)

from oncewire.client import Message, connect
from oncewire.wire import (
    ACCEPTED,
    Described,
    Disposition,
    Flow,
    Received,
    Source,
    Symbol,
    encode_performative,
    vocabulary,
)
from oncewire.wire.frames import HEARTBEAT_FRAME, SASL_FRAME, SASL_HEADER, encode_frame
from oncewire.wire.performatives import SaslInit

MEMBERS_LEAVE = "1,800 members of a subscription leave together"
FILTERS = "64 selectors read long strings"
HELD = "4 subscribers send dispositions of 500 deliveries they hold"
LARGE = "4 clients send large messages without end"
NEED_A_START = frozenset({MEMBERS_LEAVE, FILTERS, HELD, LARGE})
MEMBERS, LINKS = 1_800, 200
STAY_S = 1.5
"""From the start that the benchmark waits for until the members leave: while it measures."""
SELECTORS, LONG = 64, 20_000
"""Each selector is another one, so that none is evaluated for two subscriptions; characters of the string they read."""
HELD_DELIVERIES = 500
LARGE_BYTES = 32 * MIB
Acts = dict[str, Callable[[], Awaitable[None]]]


async def taking(port: int, attaches: list[bytes], ready: asyncio.Queue[None], answer: bytes = b"") -> None:
    """Subscriptions on one connection, which answer what comes with these bytes, without looking at it."""
    async with Raw(port) as raw:
        await raw.say(opened() + b"".join(attaches))
        attached = 0
        while data := await raw.reader.read(PART):
            if attached < len(attaches):
                attached += data.count(ATTACHED)
                if attached >= len(attaches):
                    ready.put_nowait(None)
            if answer:
                await raw.say(answer)


def _member(handle: int) -> bytes:
    source = Source(address="shared", capabilities=(vocabulary.TOPIC, vocabulary.SHARED, vocabulary.GLOBAL))
    return subscriber(handle, f"share|{next(names)}", source=source)


async def _members_that_leave(amqp: int) -> None:
    """Members of one shared subscription, which hold all that they get; all of them leave at once, again and again."""
    ready: asyncio.Queue[None] = asyncio.Queue()
    async with connect(f"amqp://{HOST}:{amqp}", container_id="to-members") as client:
        publisher = await client.publisher("shared", name="p", window=256)
        publishing = None
        while True:
            attaches = [[_member(n) for n in range(LINKS)] for _ in range(MEMBERS // LINKS)]
            connections = [asyncio.create_task(taking(amqp, each, ready)) for each in attaches]
            for _ in connections:
                await ready.get()
            publishing = publishing or asyncio.create_task(_publish(publisher.submit, b"x" * 100))
            print(BEGUN, flush=True)
            await asyncio.sleep(STAY_S)
            for connection in connections:
                connection.cancel()
            await asyncio.gather(*connections, return_exceptions=True)


async def _publish(submit: Callable[[Message | bytes], Awaitable[object]], message: Message | bytes) -> None:
    while True:
        await submit(message)


def _selecting(handle: int) -> bytes:
    text = f"long LIKE '%a_{handle:03}%b' OR long LIKE '%{handle:03}_c%'"
    chosen = {Symbol("selector"): Described(vocabulary.SELECTOR_FILTER, text)}
    return subscriber(handle, f"f{next(names)}", source=Source(address="filtered", filter=chosen))


async def _filters(amqp: int) -> None:
    """Selectors that read each message character by character, and a publisher of long strings."""
    ready: asyncio.Queue[None] = asyncio.Queue()
    accepting = frame(Disposition(True, 0, MANY, True, ACCEPTED))
    taken = asyncio.create_task(taking(amqp, [_selecting(n) for n in range(SELECTORS)], ready, accepting))
    await ready.get()
    async with connect(f"amqp://{HOST}:{amqp}", container_id="to-filters") as client:
        publisher = await client.publisher("filtered", name="p", window=64)
        print(BEGUN, flush=True)
        await _publish(publisher.submit, Message(b"x", application_properties={"long": "a" * LONG}))
    await taken


async def _hold(amqp: int) -> None:
    """Deliveries that are never settled, and dispositions of all of them that say only how far they have come."""
    ready: asyncio.Queue[None] = asyncio.Queue()
    partly = frame(Disposition(True, 0, HELD_DELIVERIES - 1, False, Received(0, 0))) * 200

    async def holding(raw: Raw) -> None:
        await raw.say(opened() + subscriber(0, f"h{next(names)}", "held"))
        await asyncio.sleep(1)
        ready.put_nowait(None)
        await asyncio.sleep(1)
        while True:
            await raw.say(partly)

    held = [asyncio.create_task(again(amqp, holding)) for _ in range(4)]
    for _ in held:
        await ready.get()
    async with connect(f"amqp://{HOST}:{amqp}", container_id="to-holders") as client:
        publisher = await client.publisher("held", name="p", window=HELD_DELIVERIES)
        for _ in range(HELD_DELIVERIES):
            await publisher.submit(b"x")
        await asyncio.sleep(1)
        print(BEGUN, flush=True)
        await asyncio.gather(*held)


async def _large(amqp: int) -> None:
    """Large messages to two subscribers, one after the other on each of four links."""
    url, ready = f"amqp://{HOST}:{amqp}", asyncio.Event()

    async def receive(number: int) -> None:
        async with connect(url, container_id=f"large-to-{number}") as client:
            subscriber = await client.subscriber("large", name="s")
            ready.set()
            async for delivery in subscriber:
                await delivery.accept()

    async def send(number: int) -> None:
        async with connect(url, container_id=f"large-from-{number}") as client:
            publisher = await client.publisher("large", name="p", window=2)
            await _publish(publisher.submit, b"x" * LARGE_BYTES)

    receiving = [asyncio.create_task(receive(n)) for n in range(2)]
    await ready.wait()
    print(BEGUN, flush=True)
    await asyncio.gather(*receiving, *(send(n) for n in range(4)))


async def _guess(raw: Raw) -> None:
    """PLAIN with a user that is not there, whose password is hashed as if it were."""
    login = SaslInit(Symbol("PLAIN"), b"\0nobody-%d\0a guess" % next(names), HOST)
    await raw.say(SASL_HEADER + encode_frame(0, encode_performative(login), b"", SASL_FRAME))
    while await raw.reader.read(PART):
        pass


def _guess_over_http() -> bytes:
    basic = base64.b64encode(b"nobody-%d:a guess" % next(names))
    return b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic %s\r\n\r\n" % basic


def _fragment(payload: bytes, *, is_first: bool = False) -> bytes:
    """A frame of a WebSocket (RFC 6455), whose message goes on; its mask is of zeros."""
    size = len(payload)
    if size < 126:
        length = bytes((0x80 | size,))
    else:
        length = b"\xfe" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xff" + size.to_bytes(8, "big")
    return bytes((0x02 if is_first else 0x00,)) + length + bytes(4) + payload


def _upgraded(act: Act) -> Act:
    """The same on a WebSocket; what comes before the reply to its handshake is cut at a few bytes."""
    key = base64.b64encode(b"0123456789abcdef")
    upgrade = (
        b"GET /amqp HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: amqp\r\n\r\n" % key
    )

    async def upgraded(raw: Raw) -> None:
        await raw.say(upgrade)
        with contextlib.suppress(asyncio.IncompleteReadError):
            await raw.reader.readuntil(b"\r\n\r\n")
            reading = asyncio.create_task(raw.swallow())
            try:
                await act(raw)
            finally:
                reading.cancel()

    return upgraded


def further_abuses(amqp: int, http: int) -> Acts:
    """What there is, by name."""
    begun = _fragment(opened(), is_first=True)
    by_bytes = b"".join(_fragment(bytes((each,))) for each in HEARTBEAT_FRAME) * 200
    endless_frame = _fragment(MIB.to_bytes(4, "big") + b"\x02\x00\x00\x00") + _fragment(b"x" * PART) * 15
    links = b"".join(subscriber(n, f"flow{n}", f"flow/{n}") for n in range(LINKS))
    flows = b"".join(frame(Flow(0, MANY, 0, MANY, n, 0, credit)) for credit in (0, 1_000) for n in range(LINKS))
    return {
        "20 WebSockets send fragments of a byte": lambda: many(
            20, http, _upgraded(flooding(begun, lambda: by_bytes)), reads=False
        ),
        "300 messages of WebSockets that never end": lambda: many(
            300, http, _upgraded(saying(begun + endless_frame, _fragment(b"x"), 1.0)), reads=False
        ),
        "20 clients guess passwords": lambda: many(20, amqp, _guess, reads=False),
        "20 clients guess passwords over HTTP": lambda: many(20, http, flooding(b"", _guess_over_http)),
        "20 clients send flows for 200 links each": lambda: many(20, amqp, flooding(opened() + links, lambda: flows)),
        MEMBERS_LEAVE: lambda: _members_that_leave(amqp),
        FILTERS: lambda: _filters(amqp),
        HELD: lambda: _hold(amqp),
        LARGE: lambda: _large(amqp),
    }
