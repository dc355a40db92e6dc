"""The attach barrier: a new subscription is confirmed once every live router knows it (rules A-6, A-6a, A-6b).

Only then can no router accept a message without counting the new subscription, so G1 covers it from its confirmation.
"""

from __future__ import annotations

from collections.abc import Callable

from delivery_records.model import effects
from delivery_records.model.limits import BARRIER_PERIOD_S, BARRIER_REPEAT_CAP_S, BARRIER_REPEAT_S
from delivery_records.model.messages import Applied, Barrier, Hello
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import Router
from delivery_records.subscriber.egress import Egress


class AttachBarrier:
    """Who waits for which revision, and what the other routers have applied."""

    __slots__ = (
        "_applied",
        "_ask_at",
        "_asked",
        "_known_to_all",
        "_open_channel",
        "_repeat_s",
        "_since",
        "_turn",
        "_vanished",
        "_waiting",
    )

    def __init__(self, turn: Turn, open_channel: Callable[[int], object]) -> None:
        """Nobody waits. `open_channel` says HELLO to a router, where there is no channel to it yet."""
        self._turn = turn
        self._open_channel = open_channel
        self._waiting: dict[str, Egress] = {}
        self._since: dict[str, float] = {}
        """Since when each of them waits."""
        self._applied: dict[int, int] = {}
        """Largest applied revision each router is known to have reached."""
        self._asked: dict[int, int] = {}
        """Revisions other routers wait for us to reach."""
        self._vanished: dict[int, float] = {}
        """Routers whose lease ended, until their grace is over (N-3)."""
        self._repeat_s = BARRIER_REPEAT_S
        """How long the next BARRIER waits for answers."""
        self._ask_at = 0.0
        """When the next BARRIER is due, while its timer is set."""
        self._known_to_all = -1
        """Up to where those who wait were looked at: what was created by then is confirmed."""

    def wait(self, egress: Egress) -> None:
        """Confirm this subscription as soon as every live router has applied its creation."""
        known = self._applied_by_all()
        self._known_to_all = min(self._known_to_all, known)
        if egress.created <= known:
            self._turn.durations.barrier.observe(0.0)
            egress.confirm()
            return
        self._waiting[egress.key] = egress
        self._since[egress.key] = self._turn.now
        self._repeat_s = BARRIER_REPEAT_S
        soon = self._turn.now + BARRIER_PERIOD_S
        if not (self._turn.timers.is_set(Timer.BARRIER, 0) and self._ask_at <= soon):
            self._ask(soon)

    def _ask(self, at: float) -> None:
        self._ask_at = at
        self._turn.timers.set(Timer.BARRIER, 0, at)

    def forget(self, key: str) -> None:
        """The subscription's link is gone."""
        self._waiting.pop(key, None)
        self._since.pop(key, None)

    def on_datagram(self, rid: int, message: Barrier | Applied) -> None:
        """Answer a BARRIER when we are there; note what another router has applied."""
        if isinstance(message, Barrier):
            self._note_applied(rid, message.revision)  # A-6a: it asks for no more than it has reached itself
            if self._turn.view.applied >= message.revision:
                self._turn.out.append(effects.SendDatagram(rid, Applied(self._turn.view.applied)))
            else:
                self._asked[rid] = max(message.revision, self._asked.get(rid, 0))
        else:
            self._note_applied(rid, message.revision)

    def on_hello(self, rid: int, hello: Hello) -> None:
        """HELLO carries the applied revision, too."""
        self._note_applied(rid, hello.applied)

    def _note_applied(self, rid: int, revision: int) -> None:
        if revision > self._applied.get(rid, 0):
            self._applied[rid] = revision
            self.check()

    def on_applied(self) -> None:
        """Our own revision advanced: answer those who wait for it."""
        for rid, revision in list(self._asked.items()):
            if self._turn.view.applied >= revision:
                del self._asked[rid]
                self._turn.out.append(effects.SendDatagram(rid, Applied(self._turn.view.applied)))
        self.check()

    def on_router_gone(self, rid: int, leaving: bool) -> None:
        """A-6: a router whose key disappears is not waited for, plus a grace; none when it revoked it itself (K-8)."""
        self._asked.pop(rid, None)
        if not leaving:
            until = self._turn.now + self._turn.limits.grace_s
            self._vanished[rid] = until
            self._turn.timers.set(Timer.GRACE, rid, until)
        else:
            self._applied.pop(rid, None)
        self.check()

    def on_grace_over(self, rid: int) -> None:
        """The dead router can no longer be accepting anything."""
        self._vanished.pop(rid, None)
        self._applied.pop(rid, None)
        self.check()

    def on_timer(self) -> None:
        """A-6a: one BARRIER for all waiting joins, to every router that has not answered yet."""
        if not self._waiting:
            return
        revision = max(egress.created for egress in self._waiting.values())
        for rid, router in self._turn.view.routers.items():
            if rid != self._turn.rid and not self._has_applied(rid, router, revision):
                self._open_channel(rid)  # A-6a: what is confirmed is about to be sent to
                self._turn.out.append(effects.SendDatagram(rid, Barrier(revision)))
        self._ask(self._turn.now + self._repeat_s)
        self._repeat_s = min(2 * self._repeat_s, BARRIER_REPEAT_CAP_S)

    def check(self) -> None:
        """Confirm everybody whose barrier is complete."""
        known, before = self._applied_by_all(), self._known_to_all
        self._known_to_all = known
        if known <= before:
            return
        for egress in [egress for egress in self._waiting.values() if egress.created <= known]:
            del self._waiting[egress.key]
            self._turn.durations.barrier.observe(self._turn.now - self._since.pop(egress.key))
            egress.confirm()

    def _applied_by_all(self) -> int:
        """What was created at this revision, or before, is complete."""
        view, rid = self._turn.view, self._turn.rid
        known = view.applied
        for other, router in view.routers.items():
            if other != rid:
                # K-1: a router loads a snapshot at a revision >= its own key before it listens.
                known = min(known, max(router.create_revision - 1, self._applied.get(other, 0)))
        return min([known, *(self._applied.get(vanished, 0) for vanished in self._vanished)])

    def _has_applied(self, rid: int, router: Router, revision: int) -> bool:
        # K-1: a router loads a snapshot at a revision >= its own key before it listens.
        return router.create_revision > revision or self._applied.get(rid, 0) >= revision

    def missing(self, created: int) -> list[int]:
        """The routers a subscription created at that revision waits for; a dead one until its grace is over."""
        live = [rid for rid, router in self._turn.view.routers.items() if not self._has_applied(rid, router, created)]
        dead = [rid for rid in self._vanished if self._applied.get(rid, 0) < created]
        return [rid for rid in (*live, *dead) if rid != self._turn.rid]

    @property
    def waiting(self) -> int:
        """Subscriptions that are not confirmed yet."""
        return len(self._waiting)
