"""The judge of large messages: no router keeps one, and nobody stands in the middle of one for long (L-2 to L-6)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from chaos.simulator.routers import Router
from chaos.simulator.state import FIRST_BYTES, WorldState
from chaos.simulator.violation import Violation
from delivery_records.model import inputs
from delivery_records.publisher.ingress import Ingress
from delivery_records.subscriber.egress import Egress
from delivery_records.subscriber.entries import Entry

STALL_S = 25.0
"""T_large and a quarter on a clock that is a third slow, and some seconds."""
REPORTED_S = 1.0
"""Where nothing has failed and no frame is under way, nothing is waited for but a timer."""
SILENCE_S = 60.0
"""Likewise for three times T_large: an egress looks when twice T_large is over, and once more."""


class StreamsJudge:
    """Looks into routers after each of their turns; only in worlds with large messages."""

    def __init__(self, world: WorldState) -> None:
        """Nothing was sent."""
        self._world = world
        self._since: dict[Hashable, float] = {}
        """Since when something does not go on, or when it went on last."""
        self._awake_since = 0.0
        """When the last stall of the router that is looked at was over: nothing goes on in one."""

    def on_turn(self, batch: Sequence[inputs.Input]) -> None:
        """A router reads this."""
        for item in batch:
            if isinstance(item, inputs.LargeTransfer):
                self._since[item.link] = self._world.now

    def look(self, router: Router) -> None:
        """A turn of a router is over, or time has passed.

        Raises:
            Violation: it keeps what it must not keep, or lets somebody stand in the middle of a delivery.
        """
        if router.records is None:
            return
        self._awake_since = router.stalled_until
        for ingress in router.records.ingresses.values():
            self._check_memory(router, ingress)
            self._check_arriving(ingress)
            self._check_starving(ingress)
        for egress in router.records.egresses.values():
            self._check_sending(router, egress)

    def _check_memory(self, router: Router, ingress: Ingress) -> None:
        limits, streams = self._world.limits, ingress.fanout.streams
        slots = list(ingress.window.slots())
        if any(slot.is_large and len(slot.message) > limits.large_piece_bytes for slot in slots):
            raise Violation(f"KEPT: router {router.index} keeps a large body of {ingress.name}")
        held, former = streams.held_bytes, ingress.resumption.held_bytes
        if ingress.window.body_bytes != sum(len(slot.message) for slot in slots) + held + former:
            raise Violation(f"KEPT: router {router.index} counts {ingress.window.body_bytes} bytes of {ingress.name}")
        if held > limits.window_bytes + FIRST_BYTES + limits.large_piece_bytes:
            raise Violation(f"KEPT: router {router.index} holds {held} bytes of {ingress.name}")

    def _has_room(self, ingress: Ingress) -> bool:
        return ingress.window.body_bytes * 2 < self._world.limits.window_bytes

    def _lasts(self, what: Hashable, is_so: bool, limit_s: float) -> bool:
        """Whether something that must end has been so for too long."""
        if not is_so:
            self._since.pop(what, None)
            return False
        since = self._since.setdefault(what, self._world.now)
        return self._world.now - max(since, self._awake_since) > limit_s

    def _check_arriving(self, ingress: Ingress) -> None:
        """L-5: its publisher could go on, and does not."""
        stands = ingress.large.is_arriving and self._has_room(ingress)
        if ingress.link is not None and not stands:
            self._since[ingress.link] = self._world.now
        elif ingress.link is not None and self._lasts(ingress.link, stands, STALL_S):
            raise Violation(f"STALLED: {ingress.name} stands in the middle of a delivery")

    def _check_starving(self, ingress: Ingress) -> None:
        """L-6: one that takes nothing keeps others in the middle of a delivery."""
        streams = ingress.fanout.streams.all()
        starves = ingress.large.is_arriving and not self._has_room(ingress)
        arriving = [stream for stream in streams if not stream.is_whole]
        starves = starves and any(s.is_taken_by(t) for s in arriving for t in s.targets.values())
        for stream in streams:
            for target in stream.targets.values():
                what = (ingress.epoch, stream.slot.number, target.key, target.since)
                if self._lasts(what, starves and not stream.is_taken_by(target), STALL_S):
                    raise Violation(f"STARVED: others wait for {target.key[:6]}, which takes nothing of {ingress.name}")

    def _check_sending(self, router: Router, egress: Egress) -> None:
        """L-4, L-5: what waits is little, and a subscriber that has read all there is does not wait for ever."""
        limits, large = self._world.limits, egress.outgoing.large
        for held in large.held_bytes():
            if held > limits.large_ahead_bytes + 2 * limits.large_piece_bytes:
                raise Violation(f"KEPT: router {router.index} holds {held} bytes of one delivery of {egress.name}")
        body = None if large.current is None else large.current.large
        if body is not None and large.current is not None:
            what = (egress.link, large.current.tag, body.handed)
            stands = not body.is_whole and body.taken >= body.handed
            if self._lasts(what, stands, SILENCE_S):
                raise Violation(f"SILENT: {egress.name} stands in the middle of a delivery")
            if self._lasts(
                ("reported", *what), stands and self._is_unreported(router, egress, large.current), REPORTED_S
            ):
                raise Violation(
                    f"UNREPORTED: {egress.name} has taken all that has come, and its publisher's router waits"
                )

    def _is_unreported(self, router: Router, egress: Egress, entry: Entry) -> bool:
        """L-4: the ingress of what its subscriber has taken does not know of it, and is not about to hear it."""
        world, sync, body = self._world, entry.sync, entry.large
        if world.faults or sync is None or body is None:
            return False
        ways = (router.rid, sync.ingress_rid), (sync.ingress_rid, router.rid)  # its SYNC for a new epoch asks anew
        views = [each.records.view.applied for each in world.routers if each.records is not None]
        if any(map(world.frames.get, ways)) or min(views) < world.etcd.applied:
            return False
        for other in world.routers:
            ingresses = [] if other.records is None else other.records.ingresses.values()
            for ingress in ingresses if other.rid == sync.ingress_rid else ():
                streams = ingress.fanout.streams.all() if ingress.epoch == sync.epoch else ()
                targets = [stream.targets.get(egress.key) for stream in streams if stream.slot.number == entry.number]
                return any(target is not None and target.taken < body.taken for target in targets)
        return False
