"""A publisher and a subscriber that hold no large message: it is made while it is sent, and counted as it comes."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlsplit

from harness import BenchmarkError

from chaos.fuzz.wire_client import OpenClient
from oncewire.wire import (
    ACCEPTED,
    ConnectionClosed,
    ConnectionLost,
    DeliveryAborted,
    DeliveryBegun,
    DeliveryEnded,
    DeliveryPart,
    DeliveryReceived,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    ReceiverLink,
    SenderLink,
    Source,
    Symbol,
    Target,
    TerminusDurability,
    ULong,
)
from oncewire.wire.vocabulary import CONFIRMED, ECHO, EXACTLY_ONCE, SESSION

CHUNK = bytes(range(256)) * 1024
"""256 KiB: what a program reads of a file at a time."""
AHEAD = 1 << 20
"""Bytes that wait in the publisher for its session window: more would only be memory."""
DEADLINE_S = 600.0
_HEAD = b"\x00\x53\x75\xb0"
"""Of a data section with a size of four bytes."""


class StreamingClient(OpenClient):
    """One connection with one link; a test or benchmark waits for what it wants to be true."""

    def __init__(self, name: str) -> None:
        super().__init__(name, desired_capabilities=[EXACTLY_ONCE])
        self.name = name
        self.link: Any = None
        self.failure = ""
        self.is_behind = False

    async def open(self, url: str) -> None:
        """Connect and attach."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.link = self.attach()
        await self.dial(parts.port, parts.hostname)
        await self.until(lambda: self.is_ready)

    def attach(self) -> ReceiverLink | SenderLink:
        """The link."""
        raise NotImplementedError

    @property
    def is_ready(self) -> bool:
        """Whether the link may be used."""
        raise NotImplementedError

    def on_event(self, event: Event) -> None:
        """What the router says."""
        raise NotImplementedError

    def on_events(self, events: list[Event]) -> None:
        self.heard.clear()
        for event in events:
            if isinstance(event, (LinkDetached, ConnectionClosed, ConnectionLost)):
                self.failure = f"{type(event).__name__}: {event.error}"
            self.on_event(event)

    def pause_writing(self) -> None:
        self.is_behind = True

    def resume_writing(self) -> None:
        self.is_behind = False
        self._news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until it is true.

        Raises:
            BenchmarkError: the link or the connection has ended.
        """
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                if self.failure:
                    raise BenchmarkError(f"{self.name}: {self.failure}")
                await self.news()


class StreamingPublisher(StreamingClient):
    """Sends messages of any size, exactly once."""

    def __init__(self, name: str, topic: str) -> None:
        super().__init__(name)
        self._topic = topic
        self._outcomes: dict[bytes, object] = {}
        self.has_session = False
        self.crc = 0

    def attach(self) -> SenderLink:
        return self.session.attach_sender(
            "pub",
            source=Source(address="pub"),
            target=Target(address=self._topic),
            unsettled={},
            desired_capabilities=[EXACTLY_ONCE],
        )

    @property
    def is_ready(self) -> bool:
        return self.has_session and bool(self.link.credit)

    def on_event(self, event: Event) -> None:
        if isinstance(event, LinkFlow):
            properties = event.properties or {}
            if ECHO in properties:
                self.link.flow({ECHO: ULong(cast("int", properties[ECHO]))})
            self.has_session |= SESSION in properties
        elif isinstance(event, DispositionReceived):
            self._outcomes.update((tag, event.state) for tag in event.tags)
            self.link.settle(event.ids)

    async def send(self, tag: bytes, size: int) -> None:
        """Send a message with a body of so many bytes, and wait for its outcome.

        Raises:
            BenchmarkError: it is not accepted.
        """
        link, left = self.link, size
        self.crc = 0
        link.begin(tag, _HEAD + size.to_bytes(4, "big"))
        while left:
            await self.until(lambda: not self.is_behind and link.unsent_bytes < AHEAD)
            piece = CHUNK[:left]
            self.crc = zlib.crc32(piece, self.crc)
            left -= len(piece)
            link.send_part(piece)
            self.flush()
        link.finish()
        self.flush()
        await self.until(lambda: tag in self._outcomes)
        if self._outcomes[tag] != ACCEPTED:
            raise BenchmarkError(f"the outcome of {tag!r} is {self._outcomes[tag]!r}")


class StreamingSubscriber(StreamingClient):
    """Counts what comes, and accepts what is complete."""

    def __init__(self, name: str, topic: str) -> None:
        super().__init__(name)
        self._topic = topic
        self._is_confirmed = False
        self.size = 0
        self.first_at = 0.0
        self.whole = self.aborted = 0
        self._tail = 0

    def attach(self) -> ReceiverLink:
        source = Source(
            address=self._topic,
            durable=TerminusDurability.UNSETTLED_STATE,
            timeout=60,
            expiry_policy=Symbol("link-detach"),
        )
        link = self.session.attach_receiver(
            "sub",
            source=source,
            target=Target(address="sub"),
            unsettled={},
            max_message_size=1 << 40,
            desired_capabilities=[EXACTLY_ONCE],
        )
        link.stream_above = 0
        return link

    @property
    def is_ready(self) -> bool:
        return self._is_confirmed

    def on_event(self, event: Event) -> None:
        link = self.link
        if isinstance(event, LinkAttached):
            link.grant(10)
        elif isinstance(event, LinkFlow):
            properties = event.properties or {}
            self._is_confirmed |= CONFIRMED in properties
            if ECHO in properties:
                link.flow({ECHO: ULong(cast("int", properties[ECHO]))})
        elif isinstance(event, DeliveryBegun):
            self.size, self.first_at = len(event.payload), time.monotonic()
        elif isinstance(event, DeliveryPart):
            self.size += len(event.payload)
        elif isinstance(event, DeliveryAborted):
            self.aborted += 1
            link.grant(10)
        elif isinstance(event, (DeliveryEnded, DeliveryReceived)):
            self.size += len(event.payload)
            self.whole += 1
            link.dispose([event.delivery_id], ACCEPTED, False)
            link.grant(10)
