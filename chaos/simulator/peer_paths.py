"""What may happen to frames between two routers beyond delay: a direction clogged, cut, its frames shed or twisted."""

from __future__ import annotations

from collections import deque

from chaos.simulator.state import Feed, WorldState
from chaos.simulator.steps import Choice
from delivery_records.model import inputs
from delivery_records.model.messages import Msg, MsgPart


class PeerPaths:
    """The directed paths between routers, by index, and what is wrong with each."""

    def __init__(self, world: WorldState, feed: Feed) -> None:
        """All is well."""
        self._world = world
        self._feed = feed
        self.clogged: set[tuple[int, int]] = set()
        """Nothing arrives; what is under way waits."""
        self.cut: set[tuple[int, int]] = set()
        """What is sent is lost."""

    def choices(self) -> list[Choice]:
        """Paths get well again."""
        flows: list[Choice] = [("n.flow", one, other) for one, other in sorted(self.clogged)]
        return flows + [("n.heal", one, other) for one, other in sorted(self.cut)]

    def reset(self, one: int, other: int) -> None:
        """Everything under way between two routers is lost."""
        world = self._world
        rids = world.routers[one].rid, world.routers[other].rid
        world.frames.pop(rids, None)
        world.frames.pop((rids[1], rids[0]), None)

    def clog(self, one: int, other: int) -> None:
        """One direction is stalled."""
        self.clogged.add((one, other))

    def flow(self, one: int, other: int) -> None:
        """It goes on, in another order than others that stood still."""
        self.clogged.discard((one, other))

    def cut_off(self, one: int, other: int) -> None:
        """One direction loses what is sent from now on."""
        self.cut.add((one, other))

    def repair(self, one: int, other: int) -> None:
        """It works again, and both ends hear that the path is a new one (T-4)."""
        self.cut.discard((one, other))
        rids = [router.rid for router in self._world.routers]
        for here, there in ((one, other), (other, one)):
            router = self._world.routers[here]
            if router.records is not None:
                moved = frozenset({self._world.routers[there].rid})
                self._feed(router, [inputs.PathsChanged(frozenset(rids), moved)])

    def _under_way(self, one: int, other: int) -> deque[inputs.Input]:
        rids = self._world.routers[one].rid, self._world.routers[other].rid
        return self._world.frames.setdefault(rids, deque())

    def shed(self, one: int, other: int) -> None:
        """A hop between them has no room and drops frames with bodies, never control (T-2)."""
        frames = self._under_way(one, other)
        kept = [f for f in frames if not (isinstance(f, inputs.RouterFrame) and isinstance(f.message, (Msg, MsgPart)))]
        frames.clear()
        frames.extend(kept)

    def twist(self, one: int, other: int) -> None:
        """Paths changed: the second half of what is under way arrives first (T-1)."""
        frames = self._under_way(one, other)
        frames.rotate(len(frames) // 2)

    def double(self, one: int, other: int) -> None:
        """Paths changed: what is under way arrives twice (T-1)."""
        frames = self._under_way(one, other)
        frames.extend(list(frames))
