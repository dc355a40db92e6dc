"""Large deliveries as the record core is notified of them: sent in parts, taken as they leave for a subscriber."""

from __future__ import annotations

from delivery_records.model import effects, inputs
from delivery_records.model.limits import Limits
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.parts import Part
from tests.delivery_records.links import PublisherLink, SubscriberLink

AHEAD, PIECE = 4_000, 1_000
LIMITS = Limits(large_ahead_bytes=AHEAD, large_piece_bytes=PIECE, window_bytes=12_000)
FIRST = b"f" * 3_000
MORE = b"m" * 2_000


def part(
    publisher: PublisherLink, tag: bytes, data: bytes, which: Part, *, message_format: int = 0, **fields: bool
) -> None:
    """A part of a large delivery."""
    if which is Part.FIRST:
        publisher._deliveries += 1
    publisher.feed(
        inputs.LargeTransfer(
            publisher.number, publisher._deliveries, tag, data, which, message_format=message_format, **fields
        )
    )


def send_large(publisher: PublisherLink, tag: bytes, *, more: int = 1) -> int:
    """All of one; returns its delivery-id."""
    part(publisher, tag, FIRST, Part.FIRST)
    for _ in range(more - 1):
        part(publisher, tag, MORE, Part.MIDDLE)
    part(publisher, tag, MORE, Part.LAST)
    return publisher._deliveries


def parts(subscriber: SubscriberLink) -> list[tuple[bytes, Part]]:
    """Publisher's tag and kind of every part it was sent, in order; several MIDDLEs in a row are one."""
    found: list[tuple[bytes, Part]] = []
    for sent in subscriber.all(effects.DeliverPart):
        entry = (sent.tag[11:], sent.part)
        if sent.part is not Part.MIDDLE or not found or found[-1] != entry:
            found.append(entry)
    return found


TAKEN: dict[SubscriberLink, int] = {}


def sent_bytes(subscriber: SubscriberLink) -> int:
    """Bytes of large deliveries that it was sent in all."""
    return sum(len(sent.data) for sent in subscriber.all(effects.DeliverPart))


def unread(subscriber: SubscriberLink) -> int:
    """Of these, what it has not taken."""
    return sent_bytes(subscriber) - TAKEN.get(subscriber, 0)


def take(subscriber: SubscriberLink, size: int) -> None:
    """So much has left for the subscriber."""
    TAKEN[subscriber] = TAKEN.get(subscriber, 0) + size
    subscriber.feed(inputs.LargeTaken(subscriber.number, size))


def take_all(subscriber: SubscriberLink) -> None:
    """It reads whatever comes, until nothing more does."""
    while unread(subscriber) > 0:
        take(subscriber, unread(subscriber))


def answer(subscriber: SubscriberLink, outcome: DeliveryOutcome, tag: bytes, *, settled: bool = False) -> None:
    """An outcome of a large delivery."""
    name = next(sent.tag for sent in reversed(subscriber.all(effects.DeliverPart)) if sent.tag[11:] == tag)
    subscriber.feed(inputs.SubscriberDisposition(subscriber.number, [name], outcome, settled))
