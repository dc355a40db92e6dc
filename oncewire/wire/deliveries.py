"""Deliveries on the wire: serial numbers, ranges of delivery-ids, and deliveries of several frames.

Delivery-ids count per AMQP session and direction (2.6.12), so one id may belong to any link of the session; each
session keeps one table id -> (link, tag) per direction for what is unsettled, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from oncewire.wire.frames import FRAME_HEADER_SIZE
from oncewire.wire.performative_codec import encode_transfer
from oncewire.wire.performatives import DeliveryState

if TYPE_CHECKING:
    from oncewire.wire.link import Link

# 2.8.10: sequence numbers are 32-bit serial numbers (RFC 1982).
SERIAL_MASK = 0xFFFFFFFF
_SERIAL_HALF = 0x80000000

# 2.8.7: "up to 32 octets of binary data", without a minimum: an empty tag is legal.
MAX_TAG_SIZE = 32

# On the safe side for a transfer performative without state: descriptor and list header 6 bytes, handle, delivery-id
# and message-format 5 each, tag 34, two booleans.
TRANSFER_HEAD_BOUND = 64

# Unsettled deliveries of one direction of a session: delivery-id -> (link, tag), oldest first.
Unsettled: TypeAlias = "dict[int, tuple[Link, bytes]]"
# Deliveries of one link as events report them: (delivery-id, tag).
Named: TypeAlias = list[tuple[int, bytes]]


def serial_difference(later: int, earlier: int) -> int:
    """Return how far ``later`` is ahead of ``earlier`` as serial numbers; negative if it is behind."""
    distance = (later - earlier) & SERIAL_MASK
    return distance if distance < _SERIAL_HALF else distance - SERIAL_MASK - 1


def known_ids(unsettled: Unsettled, first: int, last: int) -> Iterable[int]:
    """Return the ids a range may mean, clipped before anybody walks through it (I-3).

    The work is bounded by what is unsettled here, whatever the peer writes: a range longer than the table is looked up
    the other way round. The result may hold ids that are not in the table.
    """
    span = (last - first) & SERIAL_MASK
    if span >= len(unsettled):
        return [number for number in unsettled if (number - first) & SERIAL_MASK <= span]
    if first <= last:
        return range(first, last + 1)
    return [(first + step) & SERIAL_MASK for step in range(span + 1)]


def select(unsettled: Unsettled, first: int, last: int, settled: bool) -> list[tuple[Link, Named]]:
    """Find the deliveries a disposition names, split by link (F18); settled ones leave the table.

    Ids that are not in the table were settled before, or never were, and are skipped.
    """
    found: list[tuple[Link, Named]] = []
    by_link: dict[Link, Named] = {}
    current: Link | None = None
    named: Named = []
    for number in known_ids(unsettled, first, last):
        entry = unsettled.pop(number, None) if settled else unsettled.get(number)
        if entry is None:
            continue
        link, tag = entry
        if link is not current:
            current = link
            known = by_link.get(link)
            if known is None:
                known = by_link[link] = []
                found.append((link, known))
            named = known
        named.append((number, tag))
    return found


def merge(unsettled: Unsettled, link: Link, numbers: Sequence[int], settled: bool) -> list[tuple[int, int]]:
    """Return the ranges (first, last) for a disposition on ``numbers``; settled ones leave the table.

    Every id inside a range was named by the caller, is unsettled and belongs to ``link`` (1.7): a hole ends a range.
    """
    ranges: list[tuple[int, int]] = []
    first = last = -1
    for number in numbers:
        entry = unsettled.get(number)
        if entry is None or entry[0] is not link:
            continue
        if settled:
            del unsettled[number]
        if number == last + 1 and first >= 0:
            last = number
            continue
        if first >= 0:
            ranges.append((first, last))
        first = last = number
    if first >= 0:
        ranges.append((first, last))
    return ranges


class IncomingDelivery:
    """A delivery of which not all frames have come (2.6.14). The body grows in one buffer, however small the frames."""

    __slots__ = (
        "body",
        "delivery_id",
        "message_format",
        "receiver_settles",
        "resume",
        "settled",
        "state",
        "tag",
    )

    def __init__(self, delivery_id: int, tag: bytes, message_format: int, resume: bool) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.resume = resume
        self.settled = False
        self.receiver_settles = False
        self.state: DeliveryState | None = None
        self.body = bytearray()


class OutgoingDelivery:
    """A delivery on its way out frame by frame; the payload is kept once and cut when the session window lets it go."""

    __slots__ = (
        "_aborted",
        "_continuation",
        "_head_size",
        "_message_format",
        "_offset",
        "_payload",
        "_resume",
        "_settled",
        "_started",
        "_state",
        "_tag",
        "delivery_id",
        "handle",
    )

    def __init__(
        self,
        handle: int,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
        state: DeliveryState | None,
        resume: bool,
        aborted: bool,
        message_format: int,
    ) -> None:
        self.handle = handle
        self.delivery_id = delivery_id
        self._tag = tag
        self._payload = payload
        self._settled = settled
        self._state = state
        self._resume = resume
        self._aborted = aborted
        self._message_format = message_format
        self._offset = 0
        self._started = False
        self._head_size = len(self._head(more=True))
        self._continuation = encode_transfer(handle, more=True)

    def _head(self, more: bool) -> bytes:
        return encode_transfer(
            self.handle,
            self.delivery_id,
            self._tag,
            self._message_format,
            self._settled,
            more=more,
            state=self._state,
            resume=self._resume,
            aborted=self._aborted,
        )

    def smallest_frame(self) -> int:
        """Return the size in bytes of the smallest first frame, the one that carries one byte of payload."""
        return FRAME_HEADER_SIZE + self._head_size + 1

    def next_frame(self, max_frame_size: int) -> tuple[bytes, bytes, bool]:
        """Return the performative and the payload of the next frame, and whether it is the last one."""
        started = self._started
        self._started = True
        left = len(self._payload) - self._offset
        head_size = len(self._continuation) if started else self._head_size
        room = max_frame_size - FRAME_HEADER_SIZE - head_size
        assert room > 0
        if left > room:
            part = self._payload[self._offset : self._offset + room]
            self._offset += room
            return self._continuation if started else self._head(more=True), part, False
        part = self._payload[self._offset :] if self._offset else self._payload
        return encode_transfer(self.handle) if started else self._head(more=False), part, True
