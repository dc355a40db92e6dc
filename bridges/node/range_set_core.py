"""A set of whole numbers that are mostly consecutive, kept as ranges. Pure."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator

_PAIR = struct.Struct(">QQ")


class RangeSet:
    """Numbers from 0 to 2**64 - 1. Costs memory for each gap, not for each number."""

    __slots__ = ("_highs", "_lows")

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []  # inclusive; a gap of at least one number lies before the next low

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._lows, number) - 1
        return place >= 0 and number <= self._highs[place]

    def __iter__(self) -> Iterator[int]:
        for low, high in zip(self._lows, self._highs, strict=True):
            yield from range(low, high + 1)

    @property
    def range_count(self) -> int:
        """How many ranges the numbers make."""
        return len(self._lows)

    def add(self, number: int) -> bool:
        """Add a number; False if it was there."""
        place = bisect_right(self._lows, number) - 1
        if place >= 0 and number <= self._highs[place]:
            return False
        joins_left = place >= 0 and self._highs[place] == number - 1
        joins_right = place + 1 < len(self._lows) and self._lows[place + 1] == number + 1
        if joins_left and joins_right:
            self._highs[place] = self._highs.pop(place + 1)
            del self._lows[place + 1]
        elif joins_left:
            self._highs[place] = number
        elif joins_right:
            self._lows[place + 1] = number
        else:
            self._lows.insert(place + 1, number)
            self._highs.insert(place + 1, number)
        return True

    def discard_below(self, limit: int) -> None:
        """Remove all numbers smaller than `limit`."""
        place = bisect_right(self._lows, limit) - 1
        if place < 0:
            return
        if self._highs[place] < limit:
            place += 1
        else:
            self._lows[place] = limit
        del self._lows[:place]
        del self._highs[:place]

    def first_missing(self, start: int) -> int:
        """The smallest number from `start` on that is not in the set."""
        place = bisect_right(self._lows, start) - 1
        return self._highs[place] + 1 if place >= 0 and start <= self._highs[place] else start

    def to_bytes(self) -> bytes:
        """The ranges as pairs of 8-byte numbers, big endian."""
        return b"".join(_PAIR.pack(low, high) for low, high in zip(self._lows, self._highs, strict=True))

    @classmethod
    def from_bytes(cls, octets: bytes) -> RangeSet:
        """What `to_bytes` made.

        Raises:
            ValueError: it is no such thing.
        """
        found = cls()
        if len(octets) % _PAIR.size:
            raise ValueError("a set of ranges has a length that cannot be")
        last = -2
        for low, high in _PAIR.iter_unpack(octets):
            if low <= last + 1 or high < low:
                raise ValueError("a set of ranges is out of order")
            found._lows.append(low)
            found._highs.append(high)
            last = high
        return found
