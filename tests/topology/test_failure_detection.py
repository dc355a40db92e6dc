"""How long a fault between the routers stops a flow, in virtual time, with the constants that are shipped.

A killed router is routed around within 300 ms, one that is stopped or cut off within 3 s; a router suspected in
vain costs a change of path, and no message.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.outcomes import DeliveryOutcome
from tests.support.effort import partly
from tests.topology.routed_network import RoutedNet
from topology.links.linkstate import HEARTBEAT_S, SILENCE_S

KILLED_S = 0.3
STOPPED_S = 3.0
PERIOD_S = 0.01
"""Between two messages."""
UNDISTURBED_S = 0.05
"""A message's longest way without a fault, its place in the period included."""

SQUARE = (4, [(0, 1, 1), (1, 2, 1), (0, 3, 2), (3, 2, 2)])
"""From router 0 to router 2: through 1, or through 3."""
LONG_WAY = (9, [(0, 1, 1), (1, 2, 1)] + [(a, a + 1, 1) for a in range(2, 8)] + [(8, 0, 1)])
"""A ring of nine: the way around has seven hops, of which most routers know nothing of the fault but what they hear."""

Strike = Callable[[RoutedNet], None]


class Flow:
    """A publisher at router 0, a subscriber at router 2, a message every 10 ms, accepted and settled at once."""

    def __init__(self, shape: tuple[int, list[tuple[int, int, int]]]) -> None:
        self.net = RoutedNet(*shape)
        self.subscriber = self.net.subscriber(self.net.nodes[2], limit=1_000_000)
        self.publisher = self.net.publisher(self.net.nodes[0])
        self.sent: dict[bytes, float] = {}
        self.accepted: list[int] = []
        """Numbers of messages from 1, in order of their acceptance."""
        self.accepted_at: list[float] = []
        self._answered = 0
        self._looked_at = 0
        self.run(1.0)

    def run(self, seconds: float) -> None:
        """Let the flow go on."""
        for _ in range(round(seconds / PERIOD_S)):
            tag = b"%06d" % len(self.sent)
            self.sent[tag] = self.net.now
            self.publisher.send(tag)
            self.net.advance(PERIOD_S)
            self._answer()

    def _answer(self) -> None:
        new = [tag for _, tag in self.net.delivered[self._answered :]]
        if new:
            self._answered += len(new)
            self.subscriber.feed(
                inputs.SubscriberDisposition(self.subscriber.number, new, DeliveryOutcome.ACCEPTED, False)
            )
        done = self.publisher.node.done[self._looked_at :]
        self._looked_at += len(done)
        reported = [number for effect in done if isinstance(effect, effects.Dispose) for number in effect.delivery_ids]
        if reported:
            self.accepted += reported
            self.accepted_at += [self.net.now] * len(reported)
            self.publisher.settle(*(b"%06d" % (number - 1) for number in reported))

    def arrivals(self) -> list[tuple[float, bytes]]:
        """When each message was delivered, by the publisher's tag."""
        return [(at, tag[-6:]) for at, tag in self.net.delivered]

    def outage_from(self, fault: float) -> float:
        """From the fault to the acceptance of the first message sent after it, which follows its delivery."""
        first = next(number for number, at in enumerate(self.sent.values()) if at > fault)
        return self.accepted_at[first] - fault

    def longest_gap(self) -> float:
        """The longest time between two deliveries."""
        return max(later - earlier for (earlier, _), (later, _) in pairwise(self.arrivals()))

    def assert_exactly_once(self) -> None:
        """Everything sent has come, once, in order, and was accepted."""
        self.net.advance(5.0)
        self._answer()
        self.net.advance(1.0)
        self._answer()
        assert [tag for _, tag in self.arrivals()] == list(self.sent)
        assert self.accepted == list(range(1, len(self.sent) + 1))
        assert all(outcome is DeliveryOutcome.ACCEPTED for _, outcome in self.publisher.outcomes)


def outage(shape: tuple[int, list[tuple[int, int, int]]], phase: float, strike: Strike) -> float:
    """Strike a flow, `phase` seconds after a heartbeat, and let it come to its end; how long it stood still."""
    flow = Flow(shape)
    flow.net.advance(phase)
    fault = flow.net.now
    strike(flow.net)
    flow.run(STOPPED_S + 1.0)
    flow.assert_exactly_once()
    return flow.outage_from(fault)


def silence(*ends: int) -> Strike:
    """The link between routers 0 and 1 carries nothing any more that comes from these ends, by index."""
    return lambda net: net.silence(net.line(0, 1), *(net.nodes[end].rid for end in ends))


PHASES = [part * HEARTBEAT_S / 3 for part in range(3)]
both_shapes = pytest.mark.parametrize("shape", partly([SQUARE, LONG_WAY]), ids=["square", "long way"])
any_phase = pytest.mark.parametrize(
    "phase", [PHASES[0], *(pytest.param(phase, marks=pytest.mark.slow) for phase in PHASES[1:])]
)


def test_without_a_fault_a_message_takes_its_way_and_no_longer() -> None:
    flow = Flow(SQUARE)
    flow.run(10.0)
    assert flow.longest_gap() < UNDISTURBED_S
    assert flow.net.given_up == 0
    flow.assert_exactly_once()


@any_phase
@both_shapes
def test_a_killed_router_is_routed_around_within_300_ms(
    shape: tuple[int, list[tuple[int, int, int]]], phase: float
) -> None:
    assert outage(shape, phase, lambda net: net.crash(1)) <= KILLED_S


@any_phase
@both_shapes
def test_a_stalled_router_is_routed_around_within_three_seconds(
    shape: tuple[int, list[tuple[int, int, int]]], phase: float
) -> None:
    assert SILENCE_S - HEARTBEAT_S < outage(shape, phase, lambda net: net.stop(1)) <= STOPPED_S


@any_phase
@both_shapes
def test_a_link_cut_off_both_ways_is_routed_around_within_three_seconds(
    shape: tuple[int, list[tuple[int, int, int]]], phase: float
) -> None:
    assert outage(shape, phase, silence(0, 1)) <= STOPPED_S


@any_phase
@pytest.mark.parametrize("end", [0, 1], ids=["toward the subscriber", "toward the publisher"])
def test_a_link_cut_off_one_way_is_routed_around_within_three_seconds(end: int, phase: float) -> None:
    assert outage(SQUARE, phase, silence(end)) <= STOPPED_S


def test_a_router_stalled_for_less_than_the_silence_timeout_is_kept() -> None:
    flow = Flow(SQUARE)
    flow.net.stop(1)
    flow.run(SILENCE_S - HEARTBEAT_S - 0.1)
    flow.net.go_on(1)
    flow.run(1.0)
    assert flow.net.given_up == 0
    flow.assert_exactly_once()


def test_a_router_suspected_in_vain_costs_a_change_of_path_and_no_message() -> None:
    flow = Flow(SQUARE)
    for _ in range(5):
        flow.net.stop(1)
        flow.run(SILENCE_S + 0.5)
        flow.net.go_on(1)
        flow.run(2.0)
        # It is back on the best path.
        assert flow.net.states[flow.net.nodes[0].rid].paths.next_hops[flow.net.nodes[2].rid] == flow.net.nodes[1].rid
    assert flow.net.given_up >= 5
    assert flow.longest_gap() <= STOPPED_S
    flow.assert_exactly_once()


@pytest.mark.parametrize("off_s", partly([0.3, 1.0, SILENCE_S - 0.1, SILENCE_S + 0.1, 3.5]))
@pytest.mark.parametrize("on_s", [0.1, 0.7])
def test_a_link_that_comes_and_goes_never_stops_a_flow_for_longer_and_loses_nothing(off_s: float, on_s: float) -> None:
    flow = Flow(SQUARE)
    line = flow.net.line(0, 1)
    for _ in range(6):
        flow.net.silence(line, *line.ends)
        flow.run(off_s)
        flow.net.heal(line)
        flow.run(on_s)
    flow.run(3.0)
    assert flow.longest_gap() <= STOPPED_S
    flow.assert_exactly_once()


def test_a_healed_link_is_in_use_again_soon() -> None:
    flow = Flow(SQUARE)
    line = flow.net.line(0, 1)
    first, last = flow.net.nodes[0].rid, flow.net.nodes[2].rid
    flow.net.silence(line, *line.ends)
    flow.run(10.0)
    assert flow.net.states[first].paths.next_hops[last] == flow.net.nodes[3].rid
    flow.net.heal(line)
    flow.run(1.5)
    assert flow.net.states[first].paths.next_hops[last] == flow.net.nodes[1].rid
    assert flow.longest_gap() <= STOPPED_S
    flow.assert_exactly_once()
