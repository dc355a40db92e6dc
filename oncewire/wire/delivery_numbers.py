"""Delivery-ids of a session some of whose deliveries were never sent (AMQP 1.0 part 2, sections 2.6.12 and 2.7.5).

Ids are given out when a delivery is handed to the engine. One that is dropped while it waits for the session window has
used an id that the peer never sees, and peers such as qpid-proton end a session in which a number is left out. So from
there on the peer gets lower numbers than the owner has. Most sessions never drop a delivery, and have none of this.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncewire.wire.unsettled import SERIAL_MASK, serial_difference


class DeliveryNumbers:
    """The two numbers of a delivery: the owner's id, and what the peer gets. Both count up."""

    __slots__ = ("_behind", "_from")

    def __init__(self) -> None:
        # Ids from _from[n] on are _behind[n] ahead of the peer's numbers; before _from[1] all are _behind[0] ahead.
        self._from = [0]
        self._behind = [0]

    def drop(self, ids: Iterable[int], oldest: int) -> None:
        """These were never sent, nor was any after them.

        Args:
            ids: in the order in which they were given out.
            oldest: every id before it is settled, so nobody asks for it again.
        """
        for number in ids:
            self._drop(number)
        while len(self._from) > 1 and serial_difference(oldest, self._from[1]) >= 0:
            del self._from[0], self._behind[0]

    def _drop(self, number: int) -> None:
        following = (number + 1) & SERIAL_MASK
        at = self._place(number)
        if at and self._from[at] == number:  # it stands right behind another one
            self._from[at] = following
        else:
            at += 1
            self._from.insert(at, following)
            self._behind.insert(at, self._behind[at - 1])
        for later in range(at, len(self._behind)):
            self._behind[later] += 1

    def _place(self, number: int) -> int:
        at = len(self._from) - 1
        while at and serial_difference(number, self._from[at]) < 0:
            at -= 1
        return at

    def reported(self, number: int) -> int:
        """What the peer gets for an id; for the first of some that were dropped, the number of the next."""
        return (number - self._behind[self._place(number)]) & SERIAL_MASK

    def own(self, reported: int) -> int:
        """The id for a number of the peer's."""
        at = len(self._from) - 1
        while at and serial_difference((reported + self._behind[at]) & SERIAL_MASK, self._from[at]) < 0:
            at -= 1
        return (reported + self._behind[at]) & SERIAL_MASK
