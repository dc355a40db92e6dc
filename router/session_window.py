"""The AMQP incoming-window of a client's sessions: what bounds the bytes a router is sent (C-6, AMQP 2.5.6).

A window counts frames, so it is strict when each frame offered may have the largest size: what is held and what is
offered together fit the limit. Flows and dispositions need no window, so they pass where bodies wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from delivery_records.budget import Budget
from oncewire.wire import DEFAULT_INCOMING_WINDOW, AmqpSession

ROUTER_PART = 4
"""One session is offered at most one part in so many of what the router has left: several open theirs at one time."""


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """The settings that bound a session's window."""

    window_bytes: int
    max_frame_size: int
    max_message_size: int

    @property
    def frames(self) -> int:
        """The whole window: what a session begins with."""
        return max(1, min(DEFAULT_INCOMING_WINDOW, self.window_bytes // self.max_frame_size))


def frames_to_offer(limits: WindowLimits, held: int, must_be_heard: int, budget: Budget) -> int:
    """Transfer frames a session may have in flight.

    Args:
        limits: the settings.
        held: bytes of bodies of the session's publishers, with those that are not complete.
        must_be_heard: publishers of the session with a resend that no limit may withhold (C-6, F1).
        budget: of the router.
    """
    room = min(limits.window_bytes - held, budget.body_room // ROUTER_PART)
    frames = min(limits.frames, max(0, room) // limits.max_frame_size)
    if frames:
        return frames
    if not held and budget.body_room:
        return 1  # C-1: one message is always taken where nothing is held
    # C-6: one message of each of them, and a frame at a time.
    allowed = limits.window_bytes + must_be_heard * limits.max_message_size
    return 1 if must_be_heard and held < allowed else 0


class SessionWindows:
    """Keeps the windows of one connection's sessions, and its part of the router's budget."""

    __slots__ = ("_limits", "_partial")

    def __init__(self, limits: WindowLimits) -> None:
        """Nothing has come yet."""
        self._limits = limits
        self._partial = 0

    def update(self, sessions: Iterable[tuple[AmqpSession, int, int]], budget: Budget) -> None:
        """At the end of a turn: offer what there is room for.

        Args:
            sessions: each with the bytes that its publishers' windows hold, and how many of them must be heard.
            budget: of the router.
        """
        sessions = list(sessions)
        partial = sum(session.partial_bytes for session, _, _ in sessions)
        budget.add(partial - self._partial)
        self._partial = partial
        for session, stored, must_be_heard in sessions:
            frames = frames_to_offer(self._limits, stored + session.partial_bytes, must_be_heard, budget)
            if frames != session.incoming_window:
                session.set_incoming_window(frames)

    def close(self, budget: Budget) -> None:
        """The connection is gone, and with it what was not complete."""
        budget.add(-self._partial)
        self._partial = 0
