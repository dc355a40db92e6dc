"""A large delivery in a drain, and what counts as the slowness of its subscriber (K-8a, K-5b)."""

from __future__ import annotations

import pytest

from delivery_records.model.limits import LARGE_STALL_S
from delivery_records.model.parts import Part
from delivery_records.model.patience import Patience, SlowAction
from tests.delivery_records.harness import Net
from tests.delivery_records.large_parts import FIRST, LIMITS, MORE, part, parts, send_large, take, take_all
from tests.delivery_records.test_draining import drain


def test_a_large_one_that_goes_back_in_a_drain_does_not_stand_before_own_publishers() -> None:  # K-8a, L-5
    net = Net(2, limits=LIMITS)
    one = net.stock_subscriber(net.nodes[0])
    remote, local = net.publisher(net.nodes[1]), net.stock_publisher(net.nodes[0], "q")
    local.send(b"a")
    part(remote, b"1", FIRST, Part.FIRST)
    take(one, 1000)
    drain(net, net.nodes[0], [one, local])
    net.kill(net.nodes[1])
    assert parts(one)[-1] == (b"1", Part.ABORT)
    local.send(b"b")
    net.advance(1.0)
    assert one.deliveries == [b"a", b"b"]


def test_what_waited_behind_a_place_does_not_stand_before_own_publishers_in_a_drain() -> None:  # K-8a, L-7
    net = Net(2, limits=LIMITS)
    two = net.subscriber(net.nodes[1], "t")
    one = net.stock_subscriber(net.nodes[0], limit=0)
    remote, local = net.publisher(net.nodes[1]), net.stock_publisher(net.nodes[0], "q")
    local.send(b"a")
    one.drop()
    send_large(remote, b"1")
    take_all(two)
    remote.send(b"2")
    one = net.stock_subscriber(net.nodes[0], limit=0)
    net.held.add((0, 1))
    one.flow(10)
    assert one.deliveries == [b"a"]
    drain(net, net.nodes[0], [one, local])
    remote.settle(b"1")
    local.send(b"b")
    net.advance(1.0)
    assert one.deliveries == [b"a", b"b"]


@pytest.mark.parametrize("action", list(SlowAction))
def test_a_subscriber_is_not_slow_for_a_publisher_that_sends_slowly(action: SlowAction) -> None:  # K-5b, L-3
    net = Net(limits=LIMITS)
    one = net.subscriber(net.nodes[0], patience=Patience(2.0, action))
    publisher = net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    take_all(one)
    for _ in range(10):
        net.advance(4.0)
        if publisher.detached() or one.detached():
            break
        part(publisher, b"1", MORE, Part.MIDDLE)
        take_all(one)
    assert publisher.detached() is None
    assert one.detached() is None


def test_a_subscriber_is_not_slow_for_another_that_takes_nothing() -> None:  # K-5b, L-6
    net = Net(limits=LIMITS)
    one = net.subscriber(net.nodes[0], patience=Patience(4.0, SlowAction.EXPEL))
    net.subscriber(net.nodes[0], "t")
    publisher = net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(4):
        part(publisher, b"1", MORE, Part.MIDDLE)
    take_all(one)
    net.advance(LARGE_STALL_S - 1)
    assert net.has_subscription()
    assert one.detached() is None
