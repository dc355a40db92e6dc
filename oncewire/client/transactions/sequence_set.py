"""A set of sequence numbers kept as ranges.

What a reader knows of one producer costs two numbers while nothing is missing, however many messages it has sent.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator

MAX_SHOWN = 40
"""Characters of a damaged text that its error shows."""


class SequenceSet:
    """Whole numbers, kept as sorted ranges that neither touch nor overlap.

    Args:
        ranges: pairs (first, last), both inclusive, in any order.
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    @classmethod
    def from_text(cls, text: str) -> SequenceSet:
        """Return what `to_text` made.

        Raises:
            ValueError: it is no such thing.
        """
        try:
            ranges = [(int(first), int(last)) for first, last in json.loads(text)]
        except TypeError as error:
            raise ValueError(f"{text[:MAX_SHOWN]!r} is no set of ranges") from error
        if any(first > last for first, last in ranges):
            raise ValueError(f"a range of {text[:MAX_SHOWN]!r} ends before it begins")
        return cls(ranges)

    def to_text(self) -> str:
        """Return the ranges as JSON, for a database."""
        return json.dumps(self.ranges(), separators=(",", ":"))

    def __contains__(self, number: int) -> bool:
        if not self._lasts or number > self._lasts[-1]:  # nearly always: messages come in order
            return False
        index = bisect_right(self._firsts, number) - 1
        return index >= 0 and number <= self._lasts[index]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SequenceSet):
            return NotImplemented
        return self._firsts == other._firsts and self._lasts == other._lasts

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"SequenceSet({self.ranges()!r})"

    @property
    def range_count(self) -> int:
        """How many ranges there are: what the set costs."""
        return len(self._firsts)

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges as (first, last), both inclusive, in order."""
        return list(zip(self._firsts, self._lasts, strict=True))

    def copy(self) -> SequenceSet:
        """Return a set of the same numbers."""
        twin = SequenceSet()
        twin._firsts = self._firsts.copy()
        twin._lasts = self._lasts.copy()
        return twin

    def add(self, first: int, last: int) -> None:
        """Add all numbers from first to last, both inclusive."""
        assert first <= last, (first, last)
        if self._lasts and first == self._lasts[-1] + 1:
            self._lasts[-1] = last
            return
        # All ranges that overlap or touch [first, last] become one with it.
        start = bisect_right(self._firsts, first)
        if start and self._lasts[start - 1] >= first - 1:
            start -= 1
        end = bisect_right(self._firsts, last + 1)
        if start < end:
            first = min(first, self._firsts[start])
            last = max(last, self._lasts[end - 1])
        self._firsts[start:end] = [first]
        self._lasts[start:end] = [last]

    def remove(self, first: int, last: int) -> None:
        """Take out all numbers from first to last, both inclusive; those that are not in it do not matter."""
        assert first <= last, (first, last)
        start = bisect_right(self._firsts, first)
        if start and self._lasts[start - 1] >= first:
            start -= 1
        end = bisect_right(self._firsts, last)
        if start >= end:
            return
        left, right = self._firsts[start], self._lasts[end - 1]
        firsts, lasts = [], []
        if left < first:
            firsts.append(left)
            lasts.append(first - 1)
        if right > last:
            firsts.append(last + 1)
            lasts.append(right)
        self._firsts[start:end] = firsts
        self._lasts[start:end] = lasts

    def remove_below(self, limit: int) -> None:
        """Take out all numbers smaller than `limit`."""
        end = bisect_right(self._firsts, limit)
        if end and self._lasts[end - 1] >= limit:
            end -= 1
            self._firsts[end] = limit
        del self._firsts[:end]
        del self._lasts[:end]

    def first_missing(self, start: int) -> int:
        """Return the smallest number from `start` on that is not in the set."""
        index = bisect_right(self._firsts, start) - 1
        return max(start, self._lasts[index] + 1) if index >= 0 else start

    def within(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of its ranges from first to last, both inclusive. The set must not change meanwhile."""
        start = bisect_right(self._firsts, first)
        if start and self._lasts[start - 1] >= first:
            start -= 1
        for index in range(start, len(self._firsts)):
            if self._firsts[index] > last:
                return
            yield max(first, self._firsts[index]), min(last, self._lasts[index])

    def count(self, first: int, last: int) -> int:
        """Return how many numbers from first to last, both inclusive, are in it."""
        return sum(end - begin + 1 for begin, end in self.within(first, last))
