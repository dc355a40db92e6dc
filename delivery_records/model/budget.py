"""What one router holds in all, against its limit (C-6): whoever holds something adds it, and takes it off again."""

from __future__ import annotations

from collections.abc import Hashable

from delivery_records.model.limits import ENTRY_BYTES, FINISHER_PATIENCE_S, MAP_SHARE

ENOUGH_AGAIN = 16
"""One part of the limit in so many is worth a look at everybody who waits for room."""


class Budget:
    """Bytes of bodies and of entries of unsettled maps."""

    __slots__ = (
        "_finisher_bytes",
        "_finisher_since",
        "_finishers",
        "_maps",
        "_partial",
        "_wanted",
        "held",
        "is_passed_on",
        "limit",
        "was_full",
    )

    def __init__(self, limit: int) -> None:
        """Nothing is held. `limit` in bytes."""
        self.limit = limit
        self.held = 0
        self.was_full = False
        """Somebody was turned down for it since there was room last."""
        self.is_passed_on = False
        """Another one may finish now, and does not know it yet."""
        self._wanted = 0
        self._partial = 0
        self._maps = 0
        self._finishers: dict[Hashable, None] = {}
        """Who waits to complete messages over the limit; the first one may."""
        self._finisher_bytes = -1
        self._finisher_since: float | None = None

    @property
    def body_limit(self) -> int:
        """Bytes that bodies may take."""
        return self.limit - self.limit // MAP_SHARE

    @property
    def body_room(self) -> int:
        """Bytes that bodies may still take; maps may use what is kept back for them."""
        room = self.body_limit - self.held
        if room <= 0:
            self.was_full = True
            return 0
        return room

    @property
    def is_short(self) -> bool:
        """There is less room for bodies than is worth a look at everybody, or than somebody wants."""
        return self.body_room < max(1, self.limit // ENOUGH_AGAIN, self._wanted)

    def turn_down(self, wanted: int) -> None:
        """Somebody needs room of `wanted` bytes, and there is less."""
        self.was_full = True
        self._wanted = max(self._wanted, min(wanted, self.body_limit // 2))

    def has_room_again(self, *, however_little: bool = False) -> bool:
        """Whether another one may finish, or who was turned down has enough room now, or any; asked once."""
        if self.is_passed_on:
            self.is_passed_on = False
            return True
        if not self.was_full or (not self.body_room if however_little else self.is_short):
            return False
        self.was_full = False
        self._wanted = 0
        return True

    # ------------------------------------------------------------------ incomplete messages

    def add_partial(self, size: int) -> None:
        """So much more of incomplete messages is held; negative: less."""
        self.held += size
        self._partial += size

    def may_finish(self, who: Hashable, partial: int, now: float) -> bool:
        """Whether `who` may go on over the limit, to complete its messages: one at a time, in the order they ask.

        Args:
            who: holds `partial` bytes of incomplete messages; asks until it calls `leave`.
            partial: in bytes.
            now: seconds, monotonic.
        """
        finishers = self._finishers
        finishers.setdefault(who)
        if self.held - self._partial >= self.body_limit:
            self._finisher_since = None
            return False  # not for them: what is complete alone leaves no room
        if self._finisher_since is None:
            self._finisher_since = now
        first = next(iter(finishers))
        if first is not who and now - self._finisher_since >= FINISHER_PATIENCE_S:
            self.leave(first)
            finishers[first] = None
            self._finisher_since = now
            first = next(iter(finishers))
        if first is who and partial != self._finisher_bytes:
            self._finisher_bytes, self._finisher_since = partial, now
        return first is who

    def leave(self, who: Hashable) -> None:
        """It does not ask any more."""
        finishers = self._finishers
        if next(iter(finishers), None) is who:
            self._finisher_bytes, self._finisher_since = -1, None
            self.is_passed_on = self.is_passed_on or len(finishers) > 1
        finishers.pop(who, None)

    # ------------------------------------------------------------------ maps

    def has_room_for_map(self, entries: int) -> bool:
        """Whether a presented map of so many entries fits: in what is left, or in the part kept back for maps (F36)."""
        size = entries * ENTRY_BYTES
        return self.held + size <= self.limit or self._maps + size <= self.limit // MAP_SHARE

    def hold_map(self, entries: int) -> None:
        """Keep so many entries of a presented map: of an attach under way, of a subscriber while its link lives."""
        self.held += ENTRY_BYTES * entries
        self._maps += ENTRY_BYTES * entries

    def release_map(self, entries: int) -> None:
        """So many of them are not kept any longer."""
        self.hold_map(-entries)

    def add(self, size: int) -> None:
        """Something of `size` bytes is held; negative: no longer."""
        self.held += size
