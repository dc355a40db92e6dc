"""The unsettled deliveries of one direction of an AMQP session (AMQP 1.0 part 2, section 2.6.12).

Delivery-ids count per session and direction, so one id may belong to any link of the session. Peers send, answer and
settle in order as a rule; so deliveries stand in a row by their ids, and a range of them is cut out as a whole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from oncewire.wire.link_endpoint import LinkEndpoint

# 2.8.10: sequence numbers are 32-bit serial numbers (RFC 1982).
SERIAL_MASK: Final = 0xFFFFFFFF
_SERIAL_HALF: Final = 0x80000000

# Before every delivery-id of a session, however often ids wrap.
_BEFORE: Final = -(1 << 62)
# What every set has in front of its last range at first; it is never changed.
_NO_RANGES: Final[list[int]] = []
# What a table has passed over at first, likewise.
_NOTHING: Final[dict[int, Any]] = {}

# Ids that a peer leaves out are places in the row; behind a longer gap a new row begins.
_LONGEST_GAP: Final = 64
# A row of so many places of which most are empty is given up: what is left in it was passed over.
_LONG_ROW: Final = 1024
_SPARSE: Final = 4
# Ranges of a link beyond twice its deliveries are old ones: the list is made anew.
_SPARE_RANGES: Final = 32


def serial_difference(later: int, earlier: int) -> int:
    """Return how far ``later`` is ahead of ``earlier`` as serial numbers; negative if it is behind."""
    distance = (later - earlier) & SERIAL_MASK
    return distance if distance < _SERIAL_HALF else distance - SERIAL_MASK - 1


class IdRanges:
    """A set of numbers as disjoint ranges in order, of which no two touch. It holds everything up to -1 at first.

    Finding a place takes O(log n) steps, and a walk visits only what it returns.
    """

    __slots__ = ("_end", "_ends", "_start", "_starts")

    def __init__(self) -> None:
        # The last range, which is the only one as a rule and grows, and those before it.
        self._start = _BEFORE
        self._end = -1
        self._starts = self._ends = _NO_RANGES

    @property
    def first_missing(self) -> int:
        """The smallest number that is not in the set."""
        return (self._ends[0] if self._ends else self._end) + 1

    def missing_from(self, number: int) -> int:
        """The smallest number that is not in the set, from this one on."""
        if number >= self._start:
            return max(number, self._end + 1)
        return max(number, self._ends[bisect_right(self._starts, number) - 1] + 1)

    def gaps(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Return the ranges of first..last that are not in the set, in order."""
        if first < self._start:
            return self._walk(first, last)
        at = max(first, self._end + 1)  # nearly always: peers answer in order
        return ((at, last),) if at <= last else ()

    def _walk(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        following = bisect_right(self._starts, first)
        before = len(self._starts)
        at = max(first, self._ends[following - 1] + 1)
        while at <= last:
            stop = last
            if following <= before:
                stop = (self._starts[following] if following < before else self._start) - 1
            yield at, min(stop, last)
            if stop >= last:
                return
            at = (self._ends[following] if following < before else self._end) + 1
            following += 1

    def add(self, first: int, last: int) -> None:
        """Take first..last in, with whatever of it is in already."""
        if self._start <= first <= self._end + 1:  # nearly always: the last range grows
            if last > self._end:
                self._end = last
            return
        starts, ends = self._all()
        begin = bisect_left(ends, first - 1)
        end = bisect_right(starts, last + 1)
        if begin < end:
            first = min(first, starts[begin])
            last = max(last, ends[end - 1])
        starts[begin:end] = [first]
        ends[begin:end] = [last]
        self._start, self._end = starts.pop(), ends.pop()

    def discard(self, number: int) -> None:
        """Take one number out."""
        starts, ends = self._all()
        at = bisect_right(starts, number) - 1
        first, last = starts[at], ends[at]
        if last >= number:
            pieces = [(start, end) for start, end in ((first, number - 1), (number + 1, last)) if start <= end]
            starts[at : at + 1] = [start for start, _ in pieces]
            ends[at : at + 1] = [end for _, end in pieces]
        self._start, self._end = starts.pop(), ends.pop()

    def _all(self) -> tuple[list[int], list[int]]:
        """All ranges, for a change; the last of them is taken off again behind it."""
        if self._starts is _NO_RANGES:
            self._starts, self._ends = [], []
        self._starts.append(self._start)
        self._ends.append(self._end)
        return self._starts, self._ends


class Named:
    """Deliveries of one link, in the order of their ids.

    Attributes:
        ids, tags: of the same length.
    """

    __slots__ = ("ids", "tags")

    def __init__(self, ids: list[int], tags: list[bytes]) -> None:
        self.ids = ids
        self.tags = tags


class Unsettled:
    """The table of one direction of a session.

    It also knows which deliveries the peer has answered with an outcome: an outcome is final (3.4), so a disposition
    costs what it changes, whatever range it names and however often it comes.

    A delivery has a *position*: its id without the wrap at 2**32. The row holds positions from ``_base`` on; a few that
    were passed over by all that came later, or are out of turn, are kept by themselves.
    """

    __slots__ = ("_answered", "_base", "_count", "_gone", "_links", "_next", "_passed_over", "_tags")

    def __init__(self) -> None:
        # Everything below _next is in the table or in _gone.
        self._next = 0
        self._gone = IdRanges()
        self._answered = IdRanges()
        self._base = 0
        self._links: list[LinkEndpoint | None] = []
        self._tags: list[bytes] = []
        self._passed_over: dict[int, tuple[LinkEndpoint, bytes]] = _NOTHING
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for start, stop in self._gone.gaps(self._gone.first_missing, self._next - 1):
            for position in range(start, stop + 1):
                yield position & SERIAL_MASK

    @property
    def oldest(self) -> int:
        """No delivery-id before this one is unsettled."""
        return self._gone.first_missing & SERIAL_MASK

    def takes(self, number: int) -> bool:
        """Whether a delivery of the peer may have this id: it differs clearly from all that are unsettled.

        RFC 1982 orders two numbers only where they are less than 2**31 apart.
        """
        if number == self._next & SERIAL_MASK:  # nearly always
            return self._next - self._gone.first_missing < _SERIAL_HALF
        position = self._position(number)
        return self._owner(position) is None and position - self._gone.first_missing < _SERIAL_HALF

    def add(self, number: int, link: LinkEndpoint, tag: bytes) -> None:
        """Take note of a delivery; ask `takes` about ids that the peer has chosen."""
        position = self._next
        if number == position & SERIAL_MASK:
            self._links.append(link)
            self._tags.append(tag)
            self._next = position + 1
        else:
            position = self._add_out_of_turn(number, link, tag)
        self._count += 1
        link.unsettled_count += 1
        if link.unsettled_last != position - 1:
            self._begin_range(link, position)
        link.unsettled_last = position

    def _begin_range(self, link: LinkEndpoint, position: int) -> None:
        """The positions of a link go on elsewhere; what its ranges before that hold matters when it ends."""
        ranges = link.unsettled_ranges
        if link.unsettled_count == 1:
            ranges.clear()
        else:
            ranges.append((link.unsettled_first, link.unsettled_last))
            if len(ranges) > 2 * link.unsettled_count + _SPARE_RANGES:
                own = [(at, at) for first, last in ranges for at in self._own(link, first, last)]
                ranges[:] = dict.fromkeys(own)
        link.unsettled_first = position

    def _add_out_of_turn(self, number: int, link: LinkEndpoint, tag: bytes) -> int:
        """Settled deliveries use ids too; and the ids of a peer may go back."""
        position = self._position(number)
        if position < self._next:
            self._gone.discard(position)
            self._answered.discard(position)
            if position >= self._base:
                self._links[position - self._base] = link
                self._tags[position - self._base] = tag
            else:
                self._pass_over(position, link, tag)
            return position
        gap = position - self._next
        self._drop(self._next, position - 1)
        if gap <= _LONGEST_GAP:
            self._links += [None] * gap
            self._tags += [b""] * gap
        else:
            self._leave_row()
            self._base = position
        self._links.append(link)
        self._tags.append(tag)
        self._next = position + 1
        return position

    def _pass_over(self, position: int, link: LinkEndpoint, tag: bytes) -> None:
        if not self._passed_over:
            self._passed_over = {}
        self._passed_over[position] = (link, tag)

    def _position(self, number: int) -> int:
        return self._next + serial_difference(number, self._next & SERIAL_MASK)

    def _owner(self, position: int) -> LinkEndpoint | None:
        """The link of the unsettled delivery at a position; None if there is none."""
        at = position - self._base
        if at < 0:
            found = self._passed_over.get(position)
            return None if found is None else found[0]
        return self._links[at] if at < len(self._links) else None

    def _own(self, link: LinkEndpoint, first: int, last: int) -> list[int]:
        """The positions of first..last that are unsettled, and this link's: an id may be another's by now."""
        here = self._gone.gaps(first, last)
        return [at for start, stop in here for at in range(start, stop + 1) if self._owner(at) is link]

    def _drop(self, first: int, last: int) -> None:
        """Positions first..last are not here, or no longer."""
        if first <= last:
            self._gone.add(first, last)
            self._answered.add(first, last)

    # --- what the peer states -----------------------------------------------------------------------------------------

    def select(
        self, first: int, last: int, settled: bool, limit: int
    ) -> tuple[dict[LinkEndpoint, Named], int, int | None]:
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
        if settled and taken:
            self._shorten()
        rest = None if taken < limit or done & SERIAL_MASK == last else (done + 1) & SERIAL_MASK
        return found, taken, rest

    def _take(
        self, first: int, last: int, settled: bool, limit: int, found: dict[LinkEndpoint, Named]
    ) -> tuple[int, int]:
        """Add to ``found`` what changes in positions first..last; return how many those are, and the last of them."""
        taken, done = 0, first - 1
        for start, stop in (self._gone if settled else self._answered).gaps(first, last):
            done = min(stop, start + limit - taken - 1)
            taken += done - start + 1
            self._collect(start, done, settled, found)
            if taken == limit:
                break
        if taken:
            self._answered.add(first, done)
            if settled:
                self._gone.add(first, done)
        return taken, done

    def _collect(self, first: int, last: int, settled: bool, found: dict[LinkEndpoint, Named]) -> None:
        """Add the deliveries at positions first..last, all of which are here, to ``found``."""
        while first < self._base and first <= last:
            link, tag = self._passed_over.pop(first) if settled else self._passed_over[first]
            self._name(found, link, first, [tag], settled)
            first += 1
        while first <= last:
            begin, end = first - self._base, last - self._base + 1
            links = self._links[begin:end]
            owner = links[0]
            assert owner is not None, "what is not settled is in the row"
            count = end - begin
            if links.count(owner) != count:  # of several links: as far as it is this one
                count = next(at for at, other in enumerate(links) if other is not owner)
            self._name(found, owner, first, self._tags[begin : begin + count], settled)
            if settled:
                self._clear(begin, count)
            first += count

    def _name(
        self, found: dict[LinkEndpoint, Named], link: LinkEndpoint, first: int, tags: list[bytes], settled: bool
    ) -> None:
        start = first & SERIAL_MASK
        ids = list(range(start, start + len(tags)))
        if start + len(tags) > SERIAL_MASK:
            ids = [number & SERIAL_MASK for number in ids]
        named = found.get(link)
        if named is None:
            found[link] = Named(ids, tags)
        else:
            named.ids += ids
            named.tags += tags
        if settled:
            self._count -= len(tags)
            link.unsettled_count -= len(tags)

    def _clear(self, begin: int, count: int) -> None:
        """Empty places of the row."""
        self._links[begin : begin + count] = [None] * count
        self._tags[begin : begin + count] = [b""] * count

    # --- what we state ------------------------------------------------------------------------------------------------

    def merge(self, link: LinkEndpoint, numbers: Sequence[int], settled: bool) -> list[tuple[int, int]]:
        """Return the ranges (first, last) for a disposition on ``numbers``; settled ones leave the table.

        Every id inside a range was named by the caller, is unsettled and belongs to ``link``: a hole ends a range.
        """
        ranges = self._whole_range(link, numbers)
        if ranges is None:
            ranges = self._ranges_of(link, numbers, settled)
        for first, last in ranges if settled else ():
            position = self._position(first)
            self._remove(link, position, position + last - first)
        if settled and ranges:
            self._shorten()
        return ranges

    def _whole_range(self, link: LinkEndpoint, numbers: Sequence[int]) -> list[tuple[int, int]] | None:
        """The one range that ``numbers`` are, as nearly always; None if they must be looked at one by one."""
        count = len(numbers)
        if not count:
            return []
        first, last = numbers[0], numbers[-1]
        begin = self._position(first) - self._base
        if (
            last - first != count - 1
            or begin < 0
            or self._links[begin : begin + count].count(link) != count
            or (count > 1 and list(range(first, last + 1)) != numbers)
        ):
            return None
        return [(first, last)]

    def _ranges_of(self, link: LinkEndpoint, numbers: Sequence[int], settled: bool) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        first = last = -1
        seen: set[int] = set()
        for number in numbers:
            if (settled and number in seen) or self._owner(self._position(number)) is not link:
                continue
            if settled:
                seen.add(number)
            if number == last + 1 and first >= 0:
                last = number
                continue
            if first >= 0:
                ranges.append((first, last))
            first = last = number
        if first >= 0:
            ranges.append((first, last))
        return ranges

    def _remove(self, link: LinkEndpoint, first: int, last: int) -> None:
        """Take out positions first..last, which are all ``link``'s."""
        self._count -= last - first + 1
        link.unsettled_count -= last - first + 1
        self._drop(first, last)
        while first < self._base and first <= last:
            del self._passed_over[first]
            first += 1
        if first <= last:
            self._clear(first - self._base, last - first + 1)

    def forget(self, link: LinkEndpoint) -> None:
        """Drop the deliveries of a link: they belong to the owner's map from now on."""
        if not link.unsettled_count:
            return
        for first, last in [*link.unsettled_ranges, (link.unsettled_first, link.unsettled_last)]:
            for at in self._own(link, first, last):
                self._remove(link, at, at)
        assert not link.unsettled_count
        self._shorten()

    # --- the row ------------------------------------------------------------------------------------------------------

    def _shorten(self) -> None:
        """Give up places at the front of the row, at a cost of what was settled since the last time."""
        left = self._count - len(self._passed_over)
        if not left:
            self._links.clear()
            self._tags.clear()
            self._base = self._next
            return
        size = len(self._links)
        empty = self._gone.missing_from(self._base) - self._base
        if empty * 2 > size:
            del self._links[:empty]
            del self._tags[:empty]
            self._base += empty
        elif size > _LONG_ROW and left * _SPARSE < size:
            self._leave_row()

    def _leave_row(self) -> None:
        """Keep what is left of the row by itself, and begin another row."""
        for at, link in enumerate(self._links):
            if link is not None:
                self._pass_over(self._base + at, link, self._tags[at])
        self._links.clear()
        self._tags.clear()
        self._base = self._next
