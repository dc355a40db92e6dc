"""Deliveries on the wire: serial numbers, ranges of delivery-ids, and deliveries of several frames.

Delivery-ids count per AMQP session and direction (2.6.12), so one id may belong to any link of the session; each
session keeps one table per direction for what is unsettled, and each link the tags of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from oncewire.wire.frames import FRAME_HEADER_SIZE
from oncewire.wire.link_endpoint import LinkEndpoint
from oncewire.wire.performative_codec import encode_transfer
from oncewire.wire.performatives import DeliveryState

# 2.8.10: sequence numbers are 32-bit serial numbers (RFC 1982).
SERIAL_MASK = 0xFFFFFFFF
_SERIAL_HALF = 0x80000000

# 2.8.7: "up to 32 octets of binary data", without a minimum: an empty tag is legal.
MAX_TAG_SIZE = 32

# On the safe side for a transfer performative without state: descriptor and list header 6 bytes, handle, delivery-id
# and message-format 5 each, tag 34, two booleans.
TRANSFER_HEAD_BOUND = 64

# Deliveries of one link as events report them: (delivery-id, tag).
Named: TypeAlias = list[tuple[int, bytes]]

# Before every delivery-id of a session, however often ids wrap.
_BEFORE = -(1 << 62)


def serial_difference(later: int, earlier: int) -> int:
    """Return how far ``later`` is ahead of ``earlier`` as serial numbers; negative if it is behind."""
    distance = (later - earlier) & SERIAL_MASK
    return distance if distance < _SERIAL_HALF else distance - SERIAL_MASK - 1


class IdRanges:
    """A set of numbers as disjoint ranges in order, of which no two touch. It holds everything up to -1 at first.

    Finding a place takes O(log n) steps, and a walk visits only what it returns.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts = [_BEFORE]
        self._ends = [-1]

    @property
    def first_missing(self) -> int:
        """The smallest number that is not in the set."""
        return self._ends[0] + 1

    def gaps(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Return the ranges of first..last that are not in the set, in order."""
        if first < self._starts[-1]:
            return self._walk(first, last)
        at = max(first, self._ends[-1] + 1)  # nearly always: peers answer in order
        return ((at, last),) if at <= last else ()

    def _walk(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        following = bisect_right(self._starts, first)
        at = max(first, self._ends[following - 1] + 1)
        while at <= last:
            stop = self._starts[following] - 1 if following < len(self._starts) else last
            yield at, min(stop, last)
            if stop >= last:
                return
            at = self._ends[following] + 1
            following += 1

    def add(self, first: int, last: int) -> None:
        """Take first..last in, with whatever of it is in already."""
        ends = self._ends
        if self._starts[-1] <= first <= ends[-1] + 1:  # nearly always: the last range grows
            if last > ends[-1]:
                ends[-1] = last
            return
        begin = bisect_left(ends, first - 1)
        end = bisect_right(self._starts, last + 1)
        if begin < end:
            first = min(first, self._starts[begin])
            last = max(last, ends[end - 1])
        self._starts[begin:end] = [first]
        ends[begin:end] = [last]

    def discard(self, number: int) -> None:
        """Take one number out."""
        at = bisect_right(self._starts, number) - 1
        first, last = self._starts[at], self._ends[at]
        if last < number:
            return
        pieces = [(start, end) for start, end in ((first, number - 1), (number + 1, last)) if start <= end]
        self._starts[at : at + 1] = [start for start, _ in pieces]
        self._ends[at : at + 1] = [end for _, end in pieces]


class Unsettled:
    """The unsettled deliveries of one direction of a session (2.6.12).

    It also knows which of them the peer has answered with an outcome: an outcome is final (3.4), so a disposition costs
    what it changes, whatever range it names and however often it comes.

    Attributes:
        links: delivery-id -> link, of everything that is unsettled. The tags are with the links.
    """

    __slots__ = ("_answered", "_gone", "_next", "links")

    def __init__(self) -> None:
        self.links: dict[int, LinkEndpoint] = {}
        # Ids without the wrap at 2**32. Everything below _next is in `links` or in _gone.
        self._next = 0
        self._gone = IdRanges()
        self._answered = IdRanges()

    def __len__(self) -> int:
        return len(self.links)

    def __iter__(self) -> Iterator[int]:
        return iter(self.links)

    def takes(self, number: int) -> bool:
        """Whether a delivery of the peer may have this id, which can be told from all that are unsettled.

        RFC 1982 orders two numbers only where they are less than 2**31 apart.
        """
        if number == self._next & SERIAL_MASK:  # nearly always
            return self._next - self._gone.first_missing < _SERIAL_HALF
        return number not in self.links and self._position(number) - self._gone.first_missing < _SERIAL_HALF

    def add(self, number: int, link: LinkEndpoint, tag: bytes) -> None:
        """Take note of a delivery; ask `takes` about ids that the peer has chosen."""
        self.links[number] = link
        link.unsettled_tags[number] = tag
        if number == self._next & SERIAL_MASK:
            self._next += 1
        else:
            self._add_out_of_turn(number)

    def _add_out_of_turn(self, number: int) -> None:
        """Settled deliveries use ids too; and the ids of a peer may go back."""
        position = self._position(number)
        if position < self._next:
            self._gone.discard(position)
            self._answered.discard(position)
            return
        self._drop(self._next, position - 1)
        self._next = position + 1

    def _position(self, number: int) -> int:
        return self._next + serial_difference(number, self._next & SERIAL_MASK)

    def _drop(self, first: int, last: int) -> None:
        """Positions first..last are not here, or no longer."""
        if first <= last:
            self._gone.add(first, last)
            self._answered.add(first, last)

    def select(
        self, first: int, last: int, settled: bool, limit: int
    ) -> tuple[list[tuple[LinkEndpoint, Named]], int, int | None]:
        """Find what a disposition changes: the deliveries it settles, or those it answers for the first time.

        Args:
            first, last: delivery-ids, both included.
            settled: they leave the table; else the disposition states an outcome.
            limit: visit no more deliveries than this.

        Returns:
            The deliveries by link (F18), how many they are, and the id where to go on; None = all is done.
        """
        position = self._position(first)
        end = position + ((last - first) & SERIAL_MASK)
        found: dict[LinkEndpoint, Named] = {}
        taken, done = self._take(position, min(end, self._next - 1), settled, limit, found)
        # A range that goes on behind the newest id means the oldest ones there: serial numbers wrap around.
        end -= SERIAL_MASK + 1
        if end >= self._gone.first_missing and taken < limit:
            position -= SERIAL_MASK + 1
            more, done = self._take(position, min(end, self._next - 1), settled, limit - taken, found)
            taken += more
        rest = None if taken < limit or done & SERIAL_MASK == last else (done + 1) & SERIAL_MASK
        return list(found.items()), taken, rest

    def _take(
        self, first: int, last: int, settled: bool, limit: int, found: dict[LinkEndpoint, Named]
    ) -> tuple[int, int]:
        """Add to ``found`` what changes in positions first..last; return how many those are, and the last of them."""
        taken, done = 0, first - 1
        links = self.links
        current: LinkEndpoint | None = None
        for start, stop in (self._gone if settled else self._answered).gaps(first, last):
            done = min(stop, start + limit - taken - 1)
            taken += done - start + 1
            for position in range(start, done + 1):
                number = position & SERIAL_MASK
                link = links.pop(number) if settled else links[number]
                if link is not current:
                    current, tags = link, link.unsettled_tags
                    named = found.setdefault(link, [])
                named.append((number, tags.pop(number) if settled else tags[number]))
            if taken == limit:
                break
        if taken:
            self._answered.add(first, done)
            if settled:
                self._gone.add(first, done)
        return taken, done

    def merge(self, link: LinkEndpoint, numbers: Iterable[int], settled: bool) -> list[tuple[int, int]]:
        """Return the ranges (first, last) for a disposition on ``numbers``; settled ones leave the table.

        Every id inside a range was named by the caller, is unsettled and belongs to ``link``: a hole ends a range.
        """
        ranges: list[tuple[int, int]] = []
        tags = link.unsettled_tags
        first = last = -1
        for number in numbers:
            if number not in tags:
                continue
            if settled:
                del tags[number], self.links[number]
            if number == last + 1 and first >= 0:
                last = number
                continue
            if first >= 0:
                ranges.append((first, last))
            first = last = number
        if first >= 0:
            ranges.append((first, last))
        if settled:
            for first, last in ranges:
                position = self._position(first)
                self._drop(position, position + last - first)
        return ranges

    def forget(self, link: LinkEndpoint) -> None:
        """Drop the deliveries of a link: they belong to the owner's map from now on."""
        self.merge(link, list(link.unsettled_tags), True)


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
