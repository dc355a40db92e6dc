"""How publishers' sessions may end: by T_pub, by a close, by an operator, or by I-9 (A-5, K-5)."""

from __future__ import annotations

from chaos.simulator.promises import FASTEST_CLOCK
from chaos.simulator.state import TIMEOUT_S, WorldState
from chaos.simulator.violation import Violation


class SessionJudge:
    """Knows since when each publisher is away, and what has happened to its key."""

    def __init__(self, world: WorldState) -> None:
        """Nobody is attached."""
        self._world = world
        self._left: dict[int, float] = {}
        """When each publisher last lost a link that was attached."""
        self._promised: dict[int, float] = {}
        """What each was granted last (K-5d)."""
        self._held_up: set[int] = set()
        self._condemned: set[int] = set()
        """Publishers whose key a fault deletes."""
        self._ended: set[int] = set()
        """Publishers whose key has been deleted."""

    def on_stated(self, publisher: int, seconds: float, asked_s: float) -> None:
        """A reply says how long its session is kept; no less than it asked for, if that is granted (K-5d)."""
        self._promised[publisher] = min(seconds, asked_s)

    def on_asked(self, publisher: int, asked_s: float) -> None:
        """It attaches, and may lose the link before it reads the reply: the key may have what it asks for now."""
        self._promised[publisher] = min(self._promised.get(publisher, 0.0), asked_s)

    def on_restore(self) -> None:
        """K-9: keys are what they were before, with the times that were granted then."""
        self._promised.clear()

    def on_left(self, publisher: int) -> None:
        """A publisher's link is gone: T_pub begins, or began before (K-5)."""
        self._left.setdefault(publisher, self._world.now)

    def on_joined(self, publisher: int) -> None:
        """A router has attached it."""
        self._left.pop(publisher, None)

    def on_held_up(self, publisher: int) -> None:
        """A router detached it by force while the world paused: it could not answer, and I-9 counts that against it."""
        self._held_up.add(publisher)

    def condemn(self, publisher: int) -> None:
        """A fault will delete its key."""
        self._condemned.add(publisher)

    def on_key_deleted(self, publisher: int, *, is_stolen: bool) -> None:
        """Its key is deleted: because a fault did it, it closes, it was held up, or it was away for long enough.

        A stolen attachment ends T_pub after the thief has gone, whatever the publisher believes that it still has.
        """
        self._ended.add(publisher)
        if publisher in self._condemned:
            self._condemned.discard(publisher)
            return
        world = self._world
        is_over = world.has_no_session(publisher) or world.publishers[publisher].is_closing
        if is_over or is_stolen or publisher in self._held_up:
            return
        away_s = world.now - self._left.get(publisher, world.now)
        promised_s = min(world.traits.longest_s or TIMEOUT_S, self._promised.get(publisher, 0.0), TIMEOUT_S)
        if away_s < promised_s / FASTEST_CLOCK:
            raise Violation(f"EXPIRED: the session of p{publisher} ends without a cause, {away_s:.0f} s after it left")

    def on_session_expired(self, publisher: int) -> None:
        """It is notified that its session is over: the key must have been deleted (A-5)."""
        if publisher not in self._ended and not self._world.restores:
            raise Violation(f"EXPIRED: p{publisher} is refused although its key was never deleted")
