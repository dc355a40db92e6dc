"""Whether a subscriber answers what it is sent (rule K-5b).

Nothing is kept for a subscription without patience, and no deadline is set for a single delivery: a look now and then
asks whether the oldest unanswered delivery is the one it was at an earlier look.
"""

from __future__ import annotations

from delivery_records.model.patience import Patience
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.subscriber.entries import Entry

LOOKS = 4
"""Looks within the time allowed: a subscription is found slow after that time and at most a quarter more."""


class Progress:
    """What one subscriber was sent and has not answered, in the order it was sent."""

    __slots__ = ("_is_watching", "_key", "_oldest", "_sent", "_since", "_turn", "patience", "unanswered")

    def __init__(self, turn: Turn, key: str, patience: Patience) -> None:
        """The subscriber of subscription `key` has just attached."""
        self._turn = turn
        self._key = key
        self.patience = patience
        self.unanswered: dict[Entry, None] = {}
        self._oldest: Entry | None = None
        """The oldest unanswered delivery as of the last look; None: there was none."""
        self._sent = -1
        """Without one: how many deliveries had been sent when the last look found no credit; -1: it found some."""
        self._since = 0.0
        """Of the look that saw this first."""
        self._is_watching = False

    def on_sent(self, entry: Entry) -> None:
        """It goes to the subscriber, which owes an answer from now on."""
        self.unanswered[entry] = None
        if not self._is_watching:
            self.watch()

    def on_done(self, entry: Entry) -> None:
        """It is answered, or is owed no longer."""
        self.unanswered.pop(entry, None)
        if entry is self._oldest:
            self._oldest = None  # should it be sent again, that needs another answer

    def on_moved(self) -> None:
        """L-3: it takes a large delivery, which is progress as long as it goes on."""
        self._since = self._turn.now

    def watch(self) -> None:
        """Something was sent, or is held: look soon."""
        if not self._is_watching:
            self._is_watching = True
            self._see(-1)
            self._turn.timers.set(Timer.PATIENCE, self._key, self._turn.now + self.patience.seconds / LOOKS)

    def is_slow(self, *, holds: bool, sent_in_all: int) -> bool:
        """A look: the oldest delivery has been that for the whole time, or nothing could be sent for so long.

        Args:
            holds: deliveries wait here, for whatever reason.
            sent_in_all: how many were sent on this link, if only the subscriber's credit keeps those back; else -1.
        """
        self._is_watching = bool(self.unanswered) or holds
        if not self._is_watching:
            return False
        self._see(sent_in_all)
        self._turn.timers.set(Timer.PATIENCE, self._key, self._turn.now + self.patience.seconds / LOOKS)
        is_owing = self._oldest is not None or self._sent >= 0
        return is_owing and self._turn.now - self._since >= self.patience.seconds

    @property
    def reason(self) -> str:
        """The description of the detach that ends its link for that."""
        return (
            f"no progress in {self.patience.seconds:g} s: the oldest delivery was not answered, or there was no credit"
            " for those that wait; the policy of this subscription allows no more"
        )

    def _see(self, sent_in_all: int) -> None:
        oldest = next(iter(self.unanswered), None)
        sent = -1 if oldest is not None else sent_in_all
        if (oldest is None and sent < 0) or oldest is not self._oldest or sent != self._sent:
            self._oldest, self._sent = oldest, sent
            self._since = self._turn.now
