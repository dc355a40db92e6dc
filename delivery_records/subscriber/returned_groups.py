"""What the egress of a member returned of groups that are kept in order (rule SH-6)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from delivery_records.model.groups import ReadGroup, group_hash
from delivery_records.model.messages import Run


class _Returned:
    """Of one publisher. No more than were under way when the first was returned."""

    __slots__ = ("group_of", "numbers_of")

    def __init__(self) -> None:
        self.group_of: dict[int, bytes] = {}
        self.numbers_of: dict[bytes, list[int]] = {}
        """In order."""


class ReturnedGroups:
    """Deliveries that went back to their ingress, and come again before what follows them in their group."""

    __slots__ = ("_read_group", "_returned")

    def __init__(self, read_group: ReadGroup) -> None:
        """Nothing was returned."""
        self._read_group = read_group
        self._returned: dict[int, _Returned] = {}
        """By publisher epoch."""

    def overtakes(self, publisher_epoch: int, number: int, message: bytes, message_format: int) -> bool:
        """Whether a delivery was on its way when one that precedes it in its group was returned."""
        returned = self._returned.get(publisher_epoch)
        if returned is None:
            return False
        group = group_hash(self._read_group, message, message_format)
        numbers = None if group is None else returned.numbers_of.get(group)
        return numbers is not None and numbers[0] < number

    def add(self, publisher_epoch: int, number: int, message: bytes, message_format: int) -> None:
        """It is returned."""
        group = group_hash(self._read_group, message, message_format)
        if group is None:
            return
        returned = self._returned.setdefault(publisher_epoch, _Returned())
        if number not in returned.group_of:
            returned.group_of[number] = group
            insort(returned.numbers_of.setdefault(group, []), number)

    def remove(self, publisher_epoch: int, number: int) -> bool:
        """It has come again, and is sent; whether it was returned before."""
        returned = self._returned.get(publisher_epoch)
        group = None if returned is None else returned.group_of.pop(number, None)
        if returned is None or group is None:
            return False
        numbers = returned.numbers_of[group]
        del numbers[bisect_left(numbers, number)]
        if not numbers:
            del returned.numbers_of[group]
        if not returned.group_of:
            del self._returned[publisher_epoch]
        return True

    def on_settled(self, publisher_epoch: int, runs: Iterable[Run]) -> None:
        """It will not come again: its publisher gave it up, or somebody else was done with it."""
        for first, count in runs:
            returned = self._returned.get(publisher_epoch)
            if returned is None:
                return
            named: Sequence[int] = range(first, first + count)
            if count > len(returned.group_of):  # however long the run is, the work is bounded by what is here
                named = [number for number in returned.group_of if number in named]
            for number in named:
                self.remove(publisher_epoch, number)

    def forget(self, publisher_epoch: int) -> None:
        """A SYNC, after which the ingress assigns anew and in order; or the end of the stream."""
        self._returned.pop(publisher_epoch, None)
