"""What the egress of a member returned of groups that are kept in order (rule SH-6)."""

from __future__ import annotations

from collections.abc import Iterable

from delivery_records.channels.messages import Run
from delivery_records.groups import ReadGroup, group_hash


class ReturnedGroups:
    """Deliveries that went back to their ingress, and come again before what follows them in their group."""

    __slots__ = ("_read_group", "_returned")

    def __init__(self, read_group: ReadGroup) -> None:
        """Nothing was returned."""
        self._read_group = read_group
        self._returned: dict[int, dict[int, bytes]] = {}
        """Publisher epoch -> number -> its group. No more than were under way when the first was returned."""

    def overtakes(self, publisher_epoch: int, number: int, message: bytes, message_format: int) -> bool:
        """Whether a delivery was on its way when one that precedes it in its group was returned."""
        returned = self._returned.get(publisher_epoch)
        if not returned:
            return False
        group = group_hash(self._read_group, message, message_format)
        return any(earlier < number and of == group for earlier, of in returned.items())

    def add(self, publisher_epoch: int, number: int, message: bytes, message_format: int) -> None:
        """It is returned."""
        group = group_hash(self._read_group, message, message_format)
        if group is not None:
            self._returned.setdefault(publisher_epoch, {})[number] = group

    def remove(self, publisher_epoch: int, number: int) -> bool:
        """It has come again, and is sent; whether it was returned before."""
        returned = self._returned.get(publisher_epoch)
        if returned is None or returned.pop(number, None) is None:
            return False
        if not returned:
            del self._returned[publisher_epoch]
        return True

    def on_settled(self, publisher_epoch: int, runs: Iterable[Run]) -> None:
        """It will not come again: its publisher gave it up, or somebody else was done with it."""
        for number in list(self._returned.get(publisher_epoch, ())):
            if any(first <= number < first + count for first, count in runs):
                self.remove(publisher_epoch, number)

    def forget(self, publisher_epoch: int) -> None:
        """A SYNC: the ingress assigns anew, in order."""
        self._returned.pop(publisher_epoch, None)

    def clear(self) -> None:
        """All streams end."""
        self._returned.clear()
