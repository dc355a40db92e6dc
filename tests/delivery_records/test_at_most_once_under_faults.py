"""At-most-once under faults: whatever happens, nothing comes twice, nothing out of order, and nobody waits (c.3)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from delivery_records.model.limits import STEAL_WINDOW_S
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node
from tests.support.effort import partly

SEEDS = 12
ROUNDS = 6


class Streams:
    """A publisher that sends pre-settled and other messages, an at-most-once subscriber, and one that owes."""

    def __init__(self, seed: int) -> None:
        """Both subscribers are at another router than the publisher."""
        self.chance = random.Random(seed)
        self.net = Net(3)
        self.sent = 0
        self.presettled: set[bytes] = set()
        self.open: list[bytes] = []
        self.lives: dict[str, list[SubscriberLink]] = {"once": [], "owing": []}
        self.come("once", self.net.nodes[1])
        self.come("owing", self.net.nodes[1])
        self.publisher: PublisherLink
        self.move(self.net.nodes[0])

    def live(self) -> list[Node]:
        """Routers that are there."""
        return [node for node in self.net.nodes if not node.is_gone]

    def elsewhere(self, node: Node) -> Node:
        """Another live router, or the same when it is the only one."""
        return self.chance.choice([n for n in self.live() if n is not node] or self.live())

    def come(self, name: str, node: Node) -> None:
        """A subscriber attaches; the one that owes presents what it has accepted as accepted."""
        mode = SubscriptionMode.AT_MOST_ONCE if name == "once" else SubscriptionMode.EXACTLY_ONCE
        self.lives[name].append(self.net.subscriber(node, name, mode=mode))

    def move(self, node: Node) -> None:
        """The publisher attaches with its map and repeats it."""
        self.publisher = self.net.publisher(node, unsettled=dict.fromkeys(self.open))
        for tag in self.open:
            self.publisher.send(tag)

    def send(self, count: int) -> None:
        """Some messages, half of them pre-settled."""
        for _ in range(count):
            if not self.publisher.credit:
                return
            tag = self.sent.to_bytes(4, "big")
            self.sent += 1
            is_presettled = self.chance.random() < 0.5
            self.publisher.send(tag, settled=is_presettled)
            (self.presettled.add if is_presettled else self.open.append)(tag)

    def pairs(self) -> list[tuple[int, int]]:
        """Pairs (sender, receiver) of live routers."""
        live = [self.net.nodes.index(node) for node in self.live()]
        return [(one, other) for one in live for other in live if one != other]

    def check(self) -> None:
        """No message twice and none behind a later one, over all lives of a subscriber."""
        once = [tag for link in self.lives["once"] for tag in link.deliveries]
        assert once == sorted(set(once))
        owing = [tag for link in self.lives["owing"] for tag in link.deliveries if tag in self.presettled]
        assert owing == sorted(set(owing))


def strike_frames(change: Callable[[Streams, tuple[int, int]], None]) -> Callable[[Streams], None]:
    """A fault of what is under way between two routers."""

    def strike(streams: Streams) -> None:
        pairs = streams.pairs()
        streams.net.held.update(pairs)
        streams.send(5)
        for one, other in pairs:
            change(streams, (streams.net.nodes[one].rid, streams.net.nodes[other].rid))
        streams.chance.shuffle(pairs)
        for pair in pairs:
            streams.net.held.discard(pair)
            streams.net.run()
        streams.net.advance(10.0)

    return strike


def lose(streams: Streams, pair: tuple[int, int]) -> None:
    """Everything under way one way."""
    if streams.chance.random() < 0.5:
        streams.net.frames.pop(pair, None)


def twist(streams: Streams, pair: tuple[int, int]) -> None:
    """The second half first."""
    frames = streams.net.frames.get(pair)
    if frames:
        frames.rotate(len(frames) // 2)


def double(streams: Streams, pair: tuple[int, int]) -> None:
    """Everything twice."""
    frames = streams.net.frames.get(pair)
    if frames:
        frames.extend(list(frames))


def clog(streams: Streams, pair: tuple[int, int]) -> None:
    """Nothing is lost; each direction goes on at its own time."""


def publishers_router(streams: Streams, *, leaving: bool = False) -> None:
    """Killed, or ended in order; a new one starts."""
    node = streams.publisher.node
    streams.send(5)
    streams.net.kill(node, leaving=leaving)
    streams.net.start_router()
    for name in ("once", "owing"):
        if streams.lives[name][-1].node is node:
            streams.come(name, streams.elsewhere(node))
    streams.move(streams.elsewhere(node))


def subscribers_router(streams: Streams) -> None:
    """Killed; a new one starts."""
    node = streams.lives["once"][-1].node
    streams.send(5)
    streams.net.kill(node)
    streams.net.start_router()
    if streams.publisher.node is node:
        streams.move(streams.elsewhere(node))
    for name in ("once", "owing"):
        if streams.lives[name][-1].node is node:
            streams.come(name, streams.elsewhere(node))


def all_routers(streams: Streams) -> None:
    """All at once; new ones start."""
    streams.send(5)
    for node in streams.live():
        streams.net.kill(node)
    for _ in range(3):
        streams.net.start_router()
    streams.come("once", streams.chance.choice(streams.live()))
    streams.come("owing", streams.chance.choice(streams.live()))
    streams.move(streams.chance.choice(streams.live()))


def publisher_moves(streams: Streams) -> None:
    """Its connection is lost, or it is only given up: then the old router still has it."""
    old = streams.publisher
    streams.send(5)
    if streams.chance.random() < 0.5:
        old.drop()
    streams.move(streams.elsewhere(old.node))


def subscriber_moves(streams: Streams) -> None:
    """Its connection is lost, or it is only given up."""
    old = streams.lives["once"][-1]
    if streams.chance.random() < 0.5:
        old.drop()
    streams.send(5)
    streams.come("once", streams.elsewhere(old.node))


def late_watch(streams: Streams) -> None:
    """One router hears of nothing for a while, and then of everything in a snapshot."""
    node = streams.chance.choice(streams.live())
    node.is_watch_held = True
    streams.send(5)
    if streams.publisher.node is not node:
        others = [n for n in streams.live() if n is not node and n is not streams.publisher.node]
        streams.move(streams.chance.choice(others or [streams.publisher.node]))
    streams.send(5)
    node.is_watch_held = False
    streams.net.load_snapshot(node)


FAULTS: dict[str, Callable[[Streams], None]] = {
    "publishers-router-killed": publishers_router,
    "publishers-router-ended": lambda streams: publishers_router(streams, leaving=True),
    "subscribers-router-killed": subscribers_router,
    "all-routers-killed": all_routers,
    "frames-lost": strike_frames(lose),
    "frames-reordered": strike_frames(twist),
    "frames-doubled": strike_frames(double),
    "directions-clogged": strike_frames(clog),
    "publisher-moves": publisher_moves,
    "subscriber-moves": subscriber_moves,
    "late-watch": late_watch,
}


@pytest.mark.parametrize("fault", partly([*FAULTS, "all-mixed"]))
def test_an_at_most_once_stream_never_repeats_and_keeps_its_order(fault: str) -> None:
    for seed in range(SEEDS):
        streams = Streams(seed)
        for _ in range(ROUNDS):
            streams.send(streams.chance.randrange(6))
            name = streams.chance.choice(list(FAULTS)) if fault == "all-mixed" else fault
            FAULTS[name](streams)
            streams.check()
            # No more thefts in one window than an honest client commits.
            streams.net.advance(STEAL_WINDOW_S + streams.chance.choice([0.0, 0.05, 2.0]))
            streams.check()
        streams.net.advance(10.0)
        heard = len(streams.lives["once"][-1].deliveries)
        streams.send(4)
        streams.check()
        if streams.publisher.credit:
            assert len(streams.lives["once"][-1].deliveries) > heard, f"seed {seed}: the stream does not go on"
