"""What AMQP sessions of all clients were offered and has not come: with what is held, it stays in the budget (C-6)."""

from __future__ import annotations

from dataclasses import dataclass

IDLE_BYTES = 64 * 1024
"""Every session is offered so much, or one frame, whatever others were offered: the slack of the router's budget. An
offer cannot be withdrawn, so one that is not used must be small; 64 small messages hide a round trip."""
OPEN_BYTES = 256 * 1024
"""The same for a client that does not resume: the credit for its first messages, while they are small (C-1)."""
IDLE_FRAMES = 8
"""Where there is room a session that does not send is offered so many frames: its first message need not wait."""
IDLE_PART = 16
"""For them it may use one part in so many of what others may: who sends is left more than who does not."""
QUICK_S = 1.0
"""Who sends half of its window within this time is offered twice as much next time, and others half as much."""


@dataclass(slots=True)
class Offer:
    """What one session was offered."""

    frames: int = 1
    """Its window, when it was topped up last."""
    size: int = 0
    """Bytes that frames of it may still bring, as counted in `Offers`."""
    of_user: int = 0
    """The same, as counted for a user who has a quota."""
    since: float = 0.0
    """When it was topped up last."""
    is_publishing: bool = False
    """It counts in `Offers.publishing`."""
    is_narrow: bool = False
    """There is no room for more than a frame."""

    def wanted(self, left: int, now: float) -> int:
        """Frames to offer next: a window that is used quickly is doubled, one that is used slowly is halved.

        Args:
            left: frames that were offered and have not come.
            now: seconds, monotonic.
        """
        if 2 * left > self.frames:
            return self.frames
        return 2 * self.frames if now - self.since <= QUICK_S else self.frames // 2


class Offers:
    """The offers of all sessions of a router."""

    __slots__ = ("publishing", "size")

    def __init__(self) -> None:
        """Nothing is offered."""
        self.size = 0
        """In bytes."""
        self.publishing = 0
        """Sessions with a publisher, of clients that do not resume."""

    def join(self, offer: Offer, is_publishing: bool) -> None:
        """The session of an offer has a publisher, or has none."""
        self.publishing += is_publishing - offer.is_publishing
        offer.is_publishing = is_publishing

    def count(self, offer: Offer, size: int) -> None:
        """An offer is `size` bytes large now."""
        self.size += size - offer.size
        offer.size = size
