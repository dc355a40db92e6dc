"""A publisher sends the deliveries of its presented map again, first and in order (rule I-9)."""

from __future__ import annotations

from delivery_records.model.outcomes import Decision
from delivery_records.model.timers import Timer
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.publisher.owner import Owner
from delivery_records.publisher.window import Window


class Resends:
    """What the publisher has not sent again yet, and since when it made no progress with it."""

    __slots__ = ("_began", "_is_shut_out", "_owner", "_since", "_turn", "_window")

    def __init__(self, turn: Turn, owner: Owner, window: Window, began: float) -> None:
        """The window holds what was presented; the attach was read at `began`."""
        self._turn = turn
        self._owner = owner
        self._window = window
        self._began = began
        self._since = turn.now
        self._is_shut_out = False
        """The AMQP session it shares with others has no room, or room for a frame at a time (C-6)."""

    def begin(self) -> None:
        """The publisher may send: T_resend begins."""
        self._since = self._turn.now
        if self._window.unreceived:
            self._turn.timers.set(Timer.RESEND, self._owner.key, self._turn.now + self._turn.limits.resend_timeout_s)

    def on_repeated(self) -> None:
        """I-9: the publisher makes progress with its map; with the last of it, its failover is over."""
        self._since = self._turn.now
        if not self._window.unreceived:
            self._turn.durations.failover.observe(self._turn.now - self._began)

    def on_taken_back(self) -> None:
        """L-5: something of its map was aborted, and is to be sent again."""
        self._since = self._turn.now
        if not self._turn.timers.is_set(Timer.RESEND, self._owner.key):
            self._turn.timers.set(Timer.RESEND, self._owner.key, self._turn.now + self._turn.limits.resend_timeout_s)

    def on_part(self) -> None:
        """L-1: a large delivery of its map goes on."""
        self._since = self._turn.now

    @property
    def has_room(self) -> bool:
        """C-6, L-5: the publisher may be able to send more."""
        return not self._is_held_up and not self._is_shut_out

    def abandon(self, before: int) -> None:
        """I-9: resends come first and in order, so unreceived entries below number `before` will not come any more."""
        if not self._window.unreceived:
            return
        left = self._window.passed_over(before)
        if not left:
            return
        self._turn.note(Decision.DELIVERY_ABANDONED, publisher=self._owner.name, deliveries=len(left))
        for slot in left if self._turn.tracing is not None else ():
            self._owner.trace(slot, Rule.ABANDONED)
        for slot in left:
            self._owner.drop(slot)

    def on_session_window(self, is_narrow: bool, now: float) -> None:
        """C-6: T_resend counts from when its session had room for more than a frame."""
        if self._is_shut_out or is_narrow:
            self._since = now
        self._is_shut_out = is_narrow

    def is_overdue(self) -> bool:
        """T_resend: whether nothing was sent again for so long; else asked again when it may be."""
        if self._is_held_up or self._is_shut_out:
            self._since = self._turn.now
        deadline = self._since + self._turn.limits.resend_timeout_s
        if self._turn.now < deadline:  # it is repeating, if slowly
            self._turn.timers.set(Timer.RESEND, self._owner.key, deadline)
            return False
        return True

    @property
    def _is_held_up(self) -> bool:
        """C-6: bodies that wait for subscribers fill what is there for it, so that it may be unable to repeat more."""
        return self._window.body_bytes * 2 >= self._turn.limits.window_bytes
