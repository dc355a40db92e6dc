"""Deliveries that are handed on part by part, for the tests of both ends."""

from __future__ import annotations

from collections.abc import Sequence

from oncewire.wire import (
    DeliveryAborted,
    DeliveryBegun,
    DeliveryEnded,
    DeliveryPart,
    DeliveryReceived,
    Event,
    ReceiverLink,
)
from tests.support.engines import RawPeer

ABOVE = 10
PARTS = (DeliveryBegun, DeliveryPart, DeliveryEnded, DeliveryAborted)


def streaming(above: int | None = ABOVE, max_message_size: int | None = None) -> tuple[RawPeer, ReceiverLink]:
    """A peer, and the link on which it sends deliveries that are handed on part by part."""
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_sender(10, max_message_size=max_message_size)
    link.stream_above = above
    return peer, link


def kinds(events: list[Event]) -> list[str]:
    """The events of deliveries, by their names."""
    return [type(event).__name__ for event in events if isinstance(event, (DeliveryReceived, *PARTS))]


def body_of(events: Sequence[Event]) -> bytes:
    """The payload of a delivery that came in parts."""
    return b"".join(
        event.payload for event in events if isinstance(event, (DeliveryBegun, DeliveryPart, DeliveryEnded))
    )
