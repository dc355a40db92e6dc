"""What one router holds in all, against its limit (C-6): whoever holds something adds it, and takes it off again."""

from __future__ import annotations

from collections.abc import Sized

from delivery_records.limits import ENTRY_BYTES, MAP_SHARE

ENOUGH_AGAIN = 16
"""One part of the limit in so many is worth a look at everybody who waits for room."""


class Budget:
    """Bytes of bodies and of entries of unsettled maps."""

    __slots__ = ("held", "limit", "was_full")

    def __init__(self, limit: int) -> None:
        """Nothing is held. `limit` in bytes."""
        self.limit = limit
        self.held = 0
        self.was_full = False
        """Somebody was turned down for it since there was room last."""

    @property
    def body_room(self) -> int:
        """Bytes that bodies may still take; maps may use what is kept back for them."""
        room = self.limit - self.limit // MAP_SHARE - self.held
        if room <= 0:
            self.was_full = True
            return 0
        return room

    @property
    def is_short(self) -> bool:
        """There is less room for bodies than is worth a look at everybody."""
        return self.body_room < max(1, self.limit // ENOUGH_AGAIN)

    def has_room_again(self, *, however_little: bool = False) -> bool:
        """Whether somebody was turned down and there is enough room now, or any; asked once."""
        if not self.was_full or (not self.body_room if however_little else self.is_short):
            return False
        self.was_full = False
        return True

    def has_room_for_map(self, entries: int) -> bool:
        """Whether a presented map of so many entries fits."""
        return self.held + entries * ENTRY_BYTES <= self.limit

    def hold_map(self, presented: Sized | None) -> None:
        """A presented map is kept: of an attach under way, and of a subscriber for as long as its link lives."""
        self.held += ENTRY_BYTES * len(presented or ())

    def release_map(self, presented: Sized | None) -> None:
        """That attach is over, or that link is gone."""
        self.held -= ENTRY_BYTES * len(presented or ())

    def add(self, size: int) -> None:
        """Something of `size` bytes is held; negative: no longer."""
        self.held += size
