"""A publisher and a subscriber that do as they should, each at one router: what they see is the verdict."""

from __future__ import annotations

import asyncio
from typing import Any

from chaos.fuzz.target import Finding
from chaos.fuzz.wire_client import OpenClient
from oncewire.wire import (
    ACCEPTED,
    ConnectionClosed,
    ConnectionLost,
    DeliveryReceived,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    SessionEnded,
    Source,
    Symbol,
    Target,
    TerminusDurability,
    decode_message,
    encode_data_message,
)
from oncewire.wire.vocabulary import CONFIRMED, ECHO, EXACTLY_ONCE, SESSION

TOPIC = "honest"
UNDER_WAY = 4
"""Deliveries whose outcome is not known yet: some are always under way beside what hostile clients do."""
PATIENCE_S = 600.0
"""In the time of the loop, in which nothing but waiting takes time."""
_ENDS = (LinkDetached, SessionEnded, ConnectionClosed, ConnectionLost)


class HonestClient(OpenClient):
    """What both share: the proof that the client lives, and that nothing may end while it works."""

    link: Any
    is_ready = False
    is_leaving = False

    def on_events(self, events: list[Event]) -> None:
        """Answer the proof of life, and hand on the rest."""
        self.heard.clear()
        for event in events:
            if isinstance(event, _ENDS) and not self.is_leaving:
                raise Finding(f"the link of an honest client has ended: {event!r}")
            link = self.link
            if isinstance(event, LinkFlow) and event.link == link:
                properties = event.properties or {}
                if ECHO in properties:
                    link.flow({ECHO: properties[ECHO]})
                self.is_ready = self.is_ready or not properties.keys().isdisjoint((CONFIRMED, SESSION))
            self.on_event(event)

    def on_event(self, event: Event) -> None:
        """One of them."""
        raise NotImplementedError

    async def until(self, holds: Any) -> None:
        """Wait for a condition on what was heard.

        Raises:
            Finding: it never comes true.
        """
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not holds():
                    await self.news()
        except TimeoutError:
            raise Finding(f"an honest client waits without end: {self.link}") from None

    async def leave(self) -> None:
        """Close the link, and be disconnected."""
        self.is_leaving = True
        self.link.detach(True)
        self.flush()
        await self.until(lambda: not self.link.is_attached)
        self.cut()


class HonestPublisher(HonestClient):
    """Sends numbers, one after the other, as often as it is asked to."""

    def __init__(self, name: str, max_frame_size: int = 1 << 20) -> None:
        super().__init__(name, max_frame_size)
        self.sent = self.accepted = 0
        self.link = self.session.attach_sender(
            "pub",
            source=Source(address="pub"),
            target=Target(address=TOPIC),
            unsettled={},
            desired_capabilities=[EXACTLY_ONCE],
        )

    def on_event(self, event: Event) -> None:
        """Settle what is accepted, send more."""
        if isinstance(event, DispositionReceived) and event.link == self.link:
            if event.state != ACCEPTED:
                raise Finding(f"an honest message is not accepted: {event!r}")
            self.accepted += len(event.ids)
            self.link.settle(event.ids)

    def send_more(self) -> None:
        """Have some under way. To be called again and again; time does not pass while all is answered at once."""
        while self.is_ready and self.link.credit and self.sent - self.accepted < UNDER_WAY:
            self.link.send(b"%d" % self.sent, encode_data_message(b"%d" % self.sent))
            self.sent += 1
        self.flush()


class HonestSubscriber(HonestClient):
    """Takes numbers, which must come one after the other."""

    def __init__(self, name: str, max_frame_size: int = 1 << 20) -> None:
        super().__init__(name, max_frame_size)
        self.received = 0
        source = Source(
            address=TOPIC, durable=TerminusDurability.UNSETTLED_STATE, expiry_policy=Symbol("link-detach"), timeout=60
        )
        self.link = self.session.attach_receiver(
            "sub", source=source, target=Target(address="sub"), unsettled={}, desired_capabilities=[EXACTLY_ONCE]
        )

    def on_event(self, event: Event) -> None:
        """Accept, and grant more."""
        if isinstance(event, LinkAttached) and event.link == self.link:
            self.link.grant(100)
        elif isinstance(event, DeliveryReceived):
            body = decode_message(event.payload).body
            if body != b"%d" % self.received:
                raise Finding(f"an honest subscriber received {body!r} in the place of {self.received}")
            self.received += 1
            self.link.dispose([event.delivery_id], ACCEPTED, False)
            if self.received % 50 == 0:
                self.link.grant(100)
