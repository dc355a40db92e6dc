"""Routers in virtual time, each with its record core and its link states, joined by links that take time and can fail.

Frames go from hop to hop as the routers' best paths say, so what a fault costs is what the shipped cores make of it. A
link is one TCP connection: in order, and what cannot pass waits, until either end gives the connection up. Only the
dialing is modelled here again, at its longest pauses.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from delivery_records.model import effects, inputs
from router.peers.dialing import BACK_OFF_MIN_S
from router.settings.of_network import REDIAL_S
from tests.delivery_records.harness import Net
from tests.delivery_records.nodes import Node
from topology.links.linkstate import DropNeighbour, Effect, LinkStateView
from topology.links.linkstate_codec import LinkStateMessage

LATENCY_S = 0.002
"""From one router to its neighbour."""


@dataclass(frozen=True)
class Reset:
    """The other end has given the connection up."""


@dataclass(frozen=True)
class Routed:
    """A frame on its way to the router it is for."""

    target: int
    frame: inputs.RouterFrame | inputs.RouterDatagram


Item: TypeAlias = LinkStateMessage | Routed | Reset


@dataclass
class Line:
    """A link between two routers, by incarnation; `up` holds the ends that think it works."""

    ends: tuple[int, int]
    cost: int
    up: set[int] = field(default_factory=set)
    connection: int = 0
    silent: set[int] = field(default_factory=set)
    """Nothing gets through from these ends."""
    held: deque[tuple[int, int, Item]] = field(default_factory=deque)
    """(connection, from, item) that waits for the end of the silence."""
    attempts: int = 0
    is_dialing: bool = False

    def other(self, rid: int) -> int:
        return self.ends[1] if rid == self.ends[0] else self.ends[0]


class RoutedNet(Net):
    """Some routers, one etcd, and the links between them."""

    def __init__(self, routers: int, lines: Iterable[tuple[int, int, int]]) -> None:
        """Start all and wait until everybody knows the way to everybody.

        Args:
            routers: how many.
            lines: (index, index, cost) of each link.
        """
        self._happenings: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.states: dict[int, LinkStateView] = {}
        self.lines: list[Line] = []
        self.stopped: dict[int, list[tuple[Line, int, int, Item]]] = {}
        """What waits for a router that is stopped."""
        self.delivered: list[tuple[float, bytes]] = []
        """When each delivery went out to a subscriber, and its network tag."""
        self.given_up = 0
        """Neighbours that were given up for their silence."""
        super().__init__(routers)
        for node in self.nodes:
            self.states[node.rid] = LinkStateView(node.rid, node.core.node_id, self.now)
        for one, other, cost in lines:
            line = Line((self.nodes[one].rid, self.nodes[other].rid), cost)
            self.lines.append(line)
            self._dial(line)
        self.advance(0.5)

    # --- faults -------------------------------------------------------------------------------------------------------

    def line(self, one: int, other: int) -> Line:
        """The link between two routers, by index."""
        rids = {self.nodes[one].rid, self.nodes[other].rid}
        return next(line for line in self.lines if set(line.ends) == rids)

    def crash(self, index: int) -> None:
        """SIGKILL: the system ends its connections at once, and its lease goes on for a while."""
        node = self.nodes[index]
        self.kill(node, lease_ends=False)
        for line in self._lines_of(node.rid):
            self._put(line, node.rid, Reset())
            line.up.discard(node.rid)

    def stop(self, index: int) -> None:
        """SIGSTOP: the system keeps its connections and takes what is sent to it."""
        self.stopped[self.nodes[index].rid] = []

    def go_on(self, index: int) -> None:
        """SIGCONT: it reads what came meanwhile, then looks at its timers."""
        node = self.nodes[index]
        for line, connection, sender, item in self.stopped.pop(node.rid):
            self._arrive(line, connection, sender, item)
        self._act(node, self.states[node.rid].handle_timer(self.now))

    def silence(self, line: Line, *ends: int) -> None:
        """Nothing gets through from these ends any more, without a sign to anybody."""
        line.silent |= set(ends)

    def heal(self, line: Line) -> None:
        """Everything passes again: first what TCP has kept, also for a connection that was given up (N-1)."""
        line.silent.clear()
        held, line.held = line.held, deque()
        for connection, sender, item in held:
            self._after(LATENCY_S, self._arrival(line, connection, sender, item))

    # --- links --------------------------------------------------------------------------------------------------------

    def _lines_of(self, rid: int) -> list[Line]:
        return [line for line in self.lines if rid in line.ends]

    def _put(self, line: Line, sender: int, item: Item) -> None:
        if sender not in line.up:
            return
        if sender in line.silent:
            line.held.append((line.connection, sender, item))
        else:
            self._after(LATENCY_S, self._arrival(line, line.connection, sender, item))

    def _arrival(self, line: Line, connection: int, sender: int, item: Item) -> Callable[[], None]:
        return lambda: self._arrive(line, connection, sender, item)

    def _arrive(self, line: Line, connection: int, sender: int, item: Item) -> None:
        node = self._node(line.other(sender))
        if node.is_gone:
            return
        if node.rid in self.stopped:
            self.stopped[node.rid].append((line, connection, sender, item))
            return
        if connection != line.connection or node.rid not in line.up:
            return
        state = self.states[node.rid]
        if isinstance(item, Reset):
            self._end(line, node.rid)
            self._act(node, state.neighbour_down(sender, self.now))
        elif isinstance(item, Routed):
            state.heard(sender, self.now)
            if item.target == node.rid:
                self._carry_out(node, node.core.handle([item.frame], self.now))
            else:
                self._forward(node, item)
        else:
            self._act(node, state.receive(item, sender, self.now))

    def _forward(self, node: Node, item: Routed) -> None:
        """T-1, T-4: where no path leads the frame is lost."""
        hop = self.states[node.rid].paths.next_hops.get(item.target)
        line = next((found for found in self._lines_of(node.rid) if found.other(node.rid) == hop), None)
        if line is not None:
            self._put(line, node.rid, item)

    def _end(self, line: Line, rid: int) -> None:
        """One end gives the connection up; it, or the other one, will dial again."""
        line.up.discard(rid)
        if not line.is_dialing:
            line.is_dialing = True
            line.attempts = 0
            self._after(BACK_OFF_MIN_S, lambda: self._dial(line))

    def _dial(self, line: Line) -> None:
        ends = [self._node(rid) for rid in line.ends]
        if any(node.is_gone for node in ends):
            line.is_dialing = False
            return
        if line.silent or any(node.rid in self.stopped for node in ends):
            line.attempts += 1
            self._after(min(REDIAL_S, BACK_OFF_MIN_S * 2**line.attempts), lambda: self._dial(line))
            return
        line.is_dialing = False
        line.connection += 1
        for node in ends:
            if node.rid in line.up:  # it has not noticed the end of the connection before
                self._act(node, self.states[node.rid].neighbour_down(line.other(node.rid), self.now))
        line.up = set(line.ends)
        for node in ends:
            self._act(node, self.states[node.rid].neighbour_up(line.other(node.rid), line.cost, self.now))

    # --- routers ------------------------------------------------------------------------------------------------------

    def _node(self, rid: int) -> Node:
        return next(node for node in self.nodes if node.rid == rid)

    def _act(self, node: Node, wanted: list[Effect]) -> None:
        """Carry out what the link states ask for, and notify the record core which paths have changed."""
        for effect in wanted:
            lines = self._lines_of(node.rid)
            if isinstance(effect, DropNeighbour):
                self.given_up += 1
                line = next(found for found in lines if found.other(node.rid) == effect.rid)
                self._put(line, node.rid, Reset())
                self._end(line, node.rid)
                continue
            for line in lines:
                if line.other(node.rid) in effect.neighbours:
                    self._put(line, node.rid, effect.message)
        changed = self.states[node.rid].update_paths()
        if changed is not None:
            self._carry_out(node, node.core.handle([changed], self.now))

    def _carry_out(self, node: Node, done: list[effects.Effect]) -> None:
        self.delivered += [
            (self.now, effect.tag) for effect in done if isinstance(effect, effects.Deliver) and not effect.resume
        ]
        super()._carry_out(node, done)

    def _send(self, node: Node, rid: int, frame: inputs.RouterFrame | inputs.RouterDatagram) -> None:
        self._forward(node, Routed(rid, frame))

    def _step(self, node: Node) -> bool:
        return node.rid not in self.stopped and super()._step(node)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _after(self, seconds: float, work: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._happenings, (self.now + seconds, self._count, work))

    def advance(self, seconds: float) -> None:
        """Let time pass; everything happens at its own moment."""
        target = self.now + seconds
        while True:
            self.run()
            awake = [node for node in self.nodes if not node.is_gone and node.rid not in self.stopped]
            moments = [self.states[node.rid].next_deadline() for node in awake if node.rid in self.states]
            moments += [due for node in awake if (due := node.core.next_deadline()) is not None]
            moments += [at for at, _, _ in self._happenings[:1]]
            if not moments or min(moments) > target:
                break
            self.now = max(self.now, min(moments))
            while self._happenings and self._happenings[0][0] <= self.now:
                heapq.heappop(self._happenings)[2]()
            for node in awake:
                if node.rid in self.states and self.states[node.rid].next_deadline() <= self.now:
                    self._act(node, self.states[node.rid].handle_timer(self.now))
        self.now = target
        self.run()
