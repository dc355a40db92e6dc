"""Two routers joined by a transport that loses, repeats, delays, reorders and truncates (rules T-1, T-4 to T-7, T-9).

Both run the shipped record core with small channel limits, each with publishers and a subscriber that follow P-a and
S-a. The model writes down every frame by generation: what was sent, what was taken, how many bytes of bodies were
allowed. Whenever the transport heals, everything must come to rest with nothing missing, repeated or left (G1 to G6).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chaos.mutants.catalogue import by_name
from chaos.mutants.edits import Edit
from delivery_records.channels.channel import Channel, ChannelState
from delivery_records.model import inputs
from delivery_records.model.limits import Limits
from delivery_records.model.messages import Credit, Msg, MsgPart, RouterMessage, Settle, Sync
from tests.delivery_records.nodes import Node
from tests.delivery_records.stateful_models import (
    Core,
    CoreNet,
    Publisher,
    Subscriber,
    assert_fault_is_seen,
    run_machine,
)
from tests.support.effort import rounds

EXAMPLES = 80
STEPS = 45
CREDIT_BYTES = 2048
CHUNK_BYTES = 256
WAITING_FRAMES = 12
WINDOW = 8
SIZES = (0, 10, CHUNK_BYTES, CHUNK_BYTES + 1, 900, CREDIT_BYTES + 1000)
SMALL = (
    Edit(
        "small-limits",
        "T-5",
        "class ChannelState(Enum):",
        f"CHANNEL_CREDIT_BYTES, MESSAGE_CHUNK_BYTES, STREAM_FRAMES = {CREDIT_BYTES}, {CHUNK_BYTES}, {WAITING_FRAMES}\n"
        "class ChannelState(Enum):",
        "credit runs out within a few messages",
    ),
    Edit(
        "reports-what-it-takes",
        "T-1",
        "        self.received = sequence\n",
        "        self.received = sequence\n"
        "        self._on_up.__self__.taken(self.rid, generation, sequence, message)\n",
        "the model sees what is handed up, and not only what becomes of it",
    ),
)
"""The shipped core but for its limits; what it takes it passes to the test."""
PLENTY = 1_000_000
"""Credit of subscribers: here only bytes between routers are short."""
QUIET_S = 6.0
"""Longer than any pause between two HELLOs (T-4)."""


def body_of(message: RouterMessage) -> int:
    """Bytes of a body in a frame (T-5)."""
    if isinstance(message, Msg):
        return len(message.message)
    return len(message.data) if isinstance(message, MsgPart) else 0


@dataclass(slots=True)
class Stream:
    """One publisher's frames in one generation: SYNC first, numbers ascend, nothing behind its SETTLE (T-6)."""

    is_synced: bool = False
    newest: int = -1
    settled: set[int] = field(default_factory=set)
    part_of: int | None = None
    part_end: int = 0

    def on_sent(self, message: Sync | Msg | MsgPart | Settle) -> None:
        if isinstance(message, Sync):
            self.is_synced, self.newest, self.part_of = True, -1, None
            return
        assert self.is_synced, f"T-6: {message} ahead of SYNC"
        if isinstance(message, Settle):
            assert self.part_of is None, "T-6: SETTLE between the parts of a body"
            self.settled.update(n for first, count in message.runs for n in range(first, first + count))
            return
        head = message.head if isinstance(message, MsgPart) else message
        assert head.number not in self.settled, f"T-6: {message} behind its SETTLE"
        if isinstance(message, MsgPart) and self.part_of == head.number:
            assert message.offset == self.part_end, "I-1a: parts follow each other"
        else:
            assert self.part_of is None, "T-6: a message between the parts of another"
            assert head.number > self.newest, f"T-6: {head.number} after {self.newest}"
        self.newest = head.number
        if isinstance(message, MsgPart):
            self.part_end = message.offset + len(message.data)
            self.part_of = None if self.part_end == message.total else head.number


@dataclass(slots=True)
class Generation:
    """One direction of a channel in one generation."""

    sent: list[RouterMessage] = field(default_factory=list)
    taken: int = 0
    body_sent: int = 0
    body_taken: int = 0
    allowed: int = CREDIT_BYTES
    streams: dict[int, Stream] = field(default_factory=dict)

    def on_sent(self, sequence: int, message: RouterMessage) -> None:
        self.sent.append(message)
        assert sequence == len(self.sent), "T-1: frames are numbered without holes"
        size = body_of(message)
        assert size <= CHUNK_BYTES, f"I-1a: a piece of {size} bytes"
        self.body_sent += size
        assert self.body_sent <= self.allowed, f"T-5: {self.body_sent} bytes sent of {self.allowed} allowed"
        assert self.body_sent - self.body_taken <= CREDIT_BYTES, "T-5: bodies under way are bounded"
        if isinstance(message, (Sync, Msg, MsgPart, Settle)):
            head = message.head if isinstance(message, MsgPart) else message
            self.streams.setdefault(head.publisher_epoch, Stream()).on_sent(message)

    def on_taken(self, sequence: int, message: RouterMessage) -> None:
        assert sequence == self.taken + 1, f"T-1: frame {sequence} was taken after {self.taken}: no FIFO prefix"
        assert self.sent[self.taken] is message, "T-1: what is taken is what was sent"
        self.taken += 1
        self.body_taken += body_of(message)


class Transport(CoreNet):
    """The net of the harness, but what is between routers moves only when the test says so."""

    def __init__(self, core: Core) -> None:
        self.is_healed = True
        self.generations: dict[tuple[int, int, int], Generation] = {}
        """By sender, receiver and generation."""
        super().__init__(core, 0, limits=Limits(window=WINDOW, settle_timeout_s=1e9, resend_timeout_s=1e9))

    def start_router(self) -> Node:
        node = super().start_router()

        def taken(origin: int, generation: int, sequence: int, message: RouterMessage) -> None:
            self.generations[(origin, node.rid, generation)].on_taken(sequence, message)
            if isinstance(message, Credit):
                back = self.generations.setdefault((node.rid, origin, generation), Generation())
                assert message.granted_bytes >= back.allowed, "T-5: credit is never taken back"
                back.allowed = message.granted_bytes

        setattr(node.core, "taken", taken)  # noqa: B010 - SMALL makes the core call it
        return node

    def _send(self, node: Node, rid: int, frame: inputs.RouterFrame | inputs.RouterDatagram) -> None:
        if isinstance(frame, inputs.RouterFrame):
            place = (node.rid, rid, frame.generation)
            self.generations.setdefault(place, Generation()).on_sent(frame.sequence, frame.message)
        super()._send(node, rid, frame)

    def _read_peer(self, node: Node) -> bool:
        return self.is_healed and super()._read_peer(node)

    def restart(self, node: Node) -> Node:
        """N-1: it forgets everything; what it had sent may still be read."""
        late = {pair: frames for pair, frames in self.frames.items() if pair[0] == node.rid}
        self.kill(node)
        self.frames.update(late)
        return self.start_router()


class ChannelMachine(RuleBasedStateMachine):
    """Two publishers and a subscriber at one router, one of each at the other; every message goes to both sides."""

    def __init__(self, core: Core) -> None:
        super().__init__()
        self.net = Transport(core)
        self.sides = [self.net.start_router(), self.net.start_router()]
        self.subscribers = [Subscriber(self.net, side, f"s{index}") for index, side in enumerate(self.sides)]
        for subscriber in self.subscribers:
            subscriber.link.flow(PLENTY)
        self.net.advance(1.0)
        assert all(subscriber.link.confirmed() for subscriber in self.subscribers)  # so that G1 counts them
        self.homes = [0, 0, 1]
        self.publishers = [Publisher(self.net, self.sides[home], f"p{index}") for index, home in enumerate(self.homes)]
        self.net.is_healed = False
        self.highest: dict[tuple[int, int], int] = {}
        self.is_sound = True

    # ------------------------------------------------------------------ clients

    @initialize(count=st.integers(0, 4), size=st.sampled_from(SIZES))
    def begin(self, count: int, size: int) -> None:
        for _ in range(count):
            self.publishers[0].send(size)

    @rule(index=st.integers(0, 2), size=st.sampled_from(SIZES), count=st.integers(1, WINDOW))
    def send(self, index: int, size: int, count: int) -> None:
        for _ in range(count):
            self.publishers[index].send(size)

    @rule(index=st.integers(0, 1), count=st.integers(1, 5))
    def process(self, index: int, count: int) -> None:
        self.subscribers[index].process(count)

    @rule(index=st.integers(0, 2), skipped=st.integers(0, 2))
    def settle(self, index: int, skipped: int) -> None:
        """I-4, in any order."""
        publisher = self.publishers[index]
        for tag in [tag for tag, outcome in publisher.map.items() if outcome is not None][skipped:]:
            publisher.settle(tag)

    @rule(index=st.integers(0, 2), luck=st.integers(0, 3), rounds=st.integers(10, 30))
    def give_up(self, index: int, luck: int, rounds: int) -> None:
        """I-4a. A SETTLE for each message: more frames than a window bounds (C-1, T-4)."""
        publisher = self.publishers[index]
        for _ in range(rounds if luck == 0 else 1):
            unfinished = [tag for tag, outcome in publisher.map.items() if outcome is None]
            if unfinished and luck < 2:
                publisher.settle(unfinished[-1])
                publisher.send(900)

    # ------------------------------------------------------------------ the transport

    def _pair(self, way: int) -> tuple[int, int]:
        return (self.sides[way].rid, self.sides[1 - way].rid)

    def _hand_over(self, way: int, at: int) -> None:
        frames = self.net.frames[self._pair(way)]
        frame = frames[at]
        del frames[at]
        self.net.feed(self.sides[1 - way], frame)

    @rule(way=st.integers(0, 1), count=st.integers(1, 40))
    def arrive_in_order(self, way: int, count: int) -> None:
        for _ in range(min(count, len(self.net.frames.get(self._pair(way), ())))):
            self._hand_over(way, 0)

    @rule(count=st.integers(1, 60))
    def both_ways_for_a_while(self, count: int) -> None:
        for number in range(count):
            if self.net.frames.get(self._pair(number % 2)):
                self._hand_over(number % 2, 0)

    @rule(way=st.integers(0, 1), at=st.integers(0, 50))
    def overtake(self, way: int, at: int) -> None:
        if frames := self.net.frames.get(self._pair(way)):
            self._hand_over(way, at % len(frames))

    @rule(way=st.integers(0, 1), at=st.integers(0, 50), count=st.integers(1, 3))
    def lose(self, way: int, at: int, count: int) -> None:
        for _ in range(count):
            if frames := self.net.frames.get(self._pair(way)):
                del frames[at % len(frames)]

    @rule(way=st.integers(0, 1), at=st.integers(0, 8))
    def lose_the_suffix(self, way: int, at: int) -> None:
        """N-1: a broken connection loses what was under way."""
        frames = self.net.frames.get(self._pair(way), ())
        for _ in range(max(0, len(frames) - at)):
            self.net.frames[self._pair(way)].pop()

    @rule(way=st.integers(0, 1), at=st.integers(0, 50))
    def repeat(self, way: int, at: int) -> None:
        """The copy comes last."""
        if frames := self.net.frames.get(self._pair(way)):
            frames.append(frames[at % len(frames)])

    @rule(side=st.integers(0, 1))
    def path_moves(self, side: int) -> None:
        rid = self.sides[1 - side].rid
        self.net.feed(self.sides[side], inputs.PathsChanged(frozenset({rid}), frozenset({rid})))

    @rule(seconds=st.sampled_from([0.01, 0.06, 0.3, 0.51, 2.0, QUIET_S]))
    def time_passes(self, seconds: float) -> None:
        self.net.advance(seconds)

    @rule(side=st.integers(0, 1), luck=st.integers(0, 4))
    def router_restarts(self, side: int, luck: int) -> None:
        """A new incarnation; its clients attach there with their maps."""
        if luck:
            return
        self.sides[side] = self.net.restart(self.sides[side])
        self.subscribers[side].attach(self.sides[side])
        self.subscribers[side].link.flow(PLENTY)
        for home, publisher in zip(self.homes, self.publishers, strict=True):
            if home == side:
                publisher.attach(self.sides[side])

    @rule(side=st.integers(0, 1))
    @precondition(lambda self: not any(side.is_watch_held for side in self.sides))
    def watch_falls_behind(self, side: int) -> None:
        """T-3: frames that name what is not applied yet wait."""
        self.sides[side].is_watch_held = True

    @rule()
    @precondition(lambda self: any(side.is_watch_held for side in self.sides))
    def watch_catches_up(self) -> None:
        for side in self.sides:
            side.is_watch_held = False
        self.net.run()

    # ------------------------------------------------------------------ what must hold after every step

    @invariant()
    def clients_get_what_they_are_promised(self) -> None:
        self.is_sound = False
        for subscriber in self.subscribers:
            subscriber.read()
            self._check_order(subscriber)
        for publisher in self.publishers:
            for tag in publisher.read():
                assert all(tag in s.processed for s in self.subscribers), f"G1: {tag!r} was accepted too early"
        self.is_sound = True

    def _check_order(self, subscriber: Subscriber) -> None:
        """G3, G4: each publisher's messages in order, with no hole but what it gave up."""
        for publisher in self.publishers:
            own = [tag for tag in subscriber.processed if tag in publisher.sent]
            last = publisher.sent.index(own[-1]) if own else -1
            expected = [tag for tag in publisher.sent[: last + 1] if tag in own or tag not in publisher.given_up]
            assert own == expected, f"G3, G4: {own} instead of {expected}"

    @invariant()
    def channels_keep_their_bounds(self) -> None:
        self.is_sound = False
        for side in self.sides:
            for channel in side.core.channels.existing():
                place = (side.rid, channel.rid)
                assert channel.generation >= self.highest.get(place, 1), "T-4: a generation never comes again"
                self.highest[place] = channel.generation
                self._check_waiting(channel, self.net.generations.get((*place, channel.generation), Generation()))
        self.is_sound = True

    def _check_waiting(self, channel: Channel, generation: Generation) -> None:
        """T-4, T-5: what waits is bounded, and really lacks credit once the channel is up."""
        for line in channel.lines.values():
            waiting = line.frames
            assert 0 < len(waiting) <= WAITING_FRAMES, f"T-4: {len(waiting)} frames wait"
            bodies = [f if isinstance(f, Msg) else f.head for f in waiting if isinstance(f, (Msg, MsgPart))]
            assert line.bodies == len(bodies), "C-1: what waits is counted"
            if channel.state.value == ChannelState.OPENING.value:
                assert channel.generation == 1, "T-4: what is not sent in a restart is repeated"
                continue
            head = waiting[0]
            assert isinstance(head, (Msg, MsgPart)), "T-5: control waits only behind bodies"
            left = len(head.message) if isinstance(head, Msg) else head.total - head.offset
            free = generation.allowed - generation.body_sent
            assert min(left, CHUNK_BYTES) > free, f"T-5: {left} bytes wait although {free} are allowed"

    # ------------------------------------------------------------------ the transport heals

    @rule(luck=st.integers(0, 2))
    def heal(self, luck: int) -> None:
        if luck == 0:
            self._heal()
            self.net.is_healed = False

    def _heal(self) -> None:
        """T-4, T-9: whatever was lost is found to be missing, without anybody sending anything new."""
        self.net.is_healed = True
        self.watch_catches_up()
        self.net.advance(2 * QUIET_S)
        self._check_tail()
        for _ in range(3):
            self.net.advance(2 * QUIET_S)
            for subscriber in self.subscribers:
                subscriber.read()
                subscriber.process(1000)
        self.clients_get_what_they_are_promised()
        for subscriber in self.subscribers:
            for publisher in self.publishers:
                missing = [t for t in publisher.sent if t not in subscriber.processed and t not in publisher.given_up]
                assert not missing, f"G5: {missing} never came"
        for publisher in self.publishers:
            waiting = [tag for tag, outcome in publisher.map.items() if outcome is None]
            assert not waiting, f"G5: {waiting} are never accepted"
            for tag in list(publisher.map):
                publisher.settle(tag)
        self.net.advance(2 * QUIET_S)
        self._check_rest()

    def _check_tail(self) -> None:
        """T-4, T-9: both ends are up in one generation, and all that was sent in it has come."""
        one, other = [channel for side in self.sides for channel in side.core.channels.existing()]
        assert one.generation == other.generation, "T-4: both sides agree on a generation"
        assert one.state.value == other.state.value == ChannelState.UP.value, "T-4: both sides are up"
        assert (one.sent, one.received) == (other.received, other.sent), "T-9: the lost tail is found"

    def _check_rest(self) -> None:
        """G6, and T-9: a channel with nothing to report is quiet."""
        for subscriber in self.subscribers:
            subscriber.read()
            assert not subscriber.map, f"G6: the subscriber keeps {subscriber.map}"
        for side in self.sides:
            assert all(len(ingress.window) == 0 for ingress in side.core.ingresses.values())
            assert not any(any(egress.sessions.values()) for egress in side.core.egresses.values()), "G6: entries"
        self._check_tail()
        assert [c.waiting for side in self.sides for c in side.core.channels.existing()] == [0, 0]
        before = [len(side.done) for side in self.sides]
        self.net.advance(20 * QUIET_S)
        assert [len(side.done) for side in self.sides] == before, "T-9: a quiet channel is not probed"

    def teardown(self) -> None:
        if self.is_sound:
            self._heal()


def test_a_channel_is_a_fifo_prefix_or_starts_over_and_nothing_is_missing_when_it_heals() -> None:
    run_machine(ChannelMachine, rounds(EXAMPLES), STEPS, *SMALL)


FAULTS = {
    "a gap is not noticed": ("T-1", by_name("C12-next-number-only")),
    "a restart repeats nothing": ("G5|G6", by_name("reset-repeats")),
    "the tail is not probed": ("T-9", by_name("probe")),
    "a frame counts twice": (
        "T-1",
        Edit(
            "twice",
            "T-1",
            "        if sequence <= self.received:\n            self._turn.counts[Decision.FRAME_STALE] += 1\n"
            "            return None\n        if sequence != self.received + 1:\n",
            "        if sequence > self.received + 1:\n",
            "the copy of a frame is handed up",
        ),
    ),
    "no more than the first credit": (
        "G5|T-5",
        Edit(
            "no-more-credit",
            "T-5",
            "            self.send_control(Credit(self._credit_given))\n",
            "            pass\n",
            "bodies wait for ever once the first credit is used up",
        ),
    ),
    "bodies beyond the credit": (
        "T-5",
        Edit(
            "beyond-credit",
            "T-5",
            "        if size > MESSAGE_CHUNK_BYTES or self._body_sent + size > self._credit_taken:\n",
            "        if size > MESSAGE_CHUNK_BYTES:\n",
            "an egress gets more than it allowed",
        ),
    ),
    "a publisher overtakes itself": (
        "T-6|G6|G3",
        Edit(
            "overtakes",
            "T-6",
            "        if publisher_epoch in self.lines:\n            return False\n",
            "",
            "a SETTLE arrives ahead of its MSG",
        ),
    ),
    "frames wait without bound": (
        "T-4",
        Edit(
            "unbounded",
            "T-4",
            "        if len(line.frames) > STREAM_FRAMES:\n",
            "        if False:\n",
            "what waits for a silent peer fills the memory",
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_machine_sees_the_fault(fault: str) -> None:
    claim, edit = FAULTS[fault]
    assert_fault_is_seen(ChannelMachine, STEPS, claim, *SMALL, edit)
