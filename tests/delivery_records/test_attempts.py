"""Failed attempts outlive a router, and a subscriber says when it wants the next one (E-4a)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.limits import Limits, TopicPolicy
from delivery_records.model.outcomes import DeliveryOutcome
from tests.delivery_records.harness import Net
from tests.delivery_records.links import SubscriberLink

FAILED = DeliveryOutcome.MODIFIED_FAILED
TWO = Limits(policy=TopicPolicy(max_attempts=2, report_rejections=True))


def attempts(subscriber: SubscriberLink) -> list[int]:
    return [delivery.attempt for delivery in subscriber.all(effects.Deliver)]


def test_failed_attempts_are_counted_on_after_the_publishers_router_crashed() -> None:
    net = Net(3)
    subscriber = net.subscriber(net.nodes[0])
    net.publisher(net.nodes[1]).send(b"1")
    subscriber.answer(FAILED, b"1")
    net.advance(1.0)
    subscriber.answer(FAILED, b"1")
    net.kill(net.nodes[1])
    net.publisher(net.nodes[2], unsettled={b"1": None}).send(b"1")
    assert attempts(subscriber) == [0, 1, 2]
    subscriber.answer(FAILED, b"1")
    net.advance(3.9)
    assert attempts(subscriber) == [0, 1, 2]  # the third failed attempt waits for 4 s, as if nothing had crashed
    net.advance(0.1)
    assert attempts(subscriber) == [0, 1, 2, 3]


def test_a_delivery_counts_as_rejected_after_as_many_failed_attempts_at_two_routers_as_at_one() -> None:
    net = Net(3, limits=TWO)
    subscriber = net.subscriber(net.nodes[0])
    net.publisher(net.nodes[1]).send(b"1")
    subscriber.answer(FAILED, b"1")
    net.kill(net.nodes[1])
    second = net.publisher(net.nodes[2], unsettled={b"1": None})
    sent = second.send(b"1")
    subscriber.answer(FAILED, b"1")
    assert second.outcomes == [(sent, DeliveryOutcome.REJECTED)]


def test_a_subscriber_that_has_moved_is_sent_what_it_failed_before() -> None:
    net = Net(3)
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    other = net.subscriber(net.nodes[2], "other")
    publisher.send(b"1")
    publisher.send(b"2")
    first.answer(FAILED, b"1")
    net.advance(1.0)
    net.kill(net.nodes[0])
    moved = net.subscriber(net.nodes[2], unsettled={})
    assert [(d.tag[11:], d.attempt) for d in moved.all(effects.Deliver)] == [(b"1", 1), (b"2", 0)]
    assert attempts(other) == [0, 0]


def test_a_request_that_was_lost_with_its_channel_is_counted_all_the_same() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.lost = lambda frame: isinstance(frame, inputs.RouterFrame)
    subscriber.answer(FAILED, b"1")
    net.lost = lambda frame: False
    net.advance(5.0)
    assert attempts(subscriber) == [0, 1]


def test_another_delivery_with_a_tag_that_failed_has_not_failed() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1", b"one")
    subscriber.answer(FAILED, b"1")
    publisher.settle(b"1")
    publisher.send(b"1", b"two")
    assert [(d.message, d.attempt) for d in subscriber.all(effects.Deliver)] == [(b"one", 0), (b"two", 0)]


@pytest.mark.parametrize("outcome", [FAILED, DeliveryOutcome.MODIFIED])
@pytest.mark.parametrize("routers", [1, 2])
def test_the_next_attempt_comes_when_the_subscriber_wants_it(outcome: DeliveryOutcome, routers: int) -> None:
    net = Net(routers)
    subscriber, publisher = net.subscriber(net.nodes[-1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(outcome, b"1", delay_ms=7_500)
    net.advance(7.4)
    assert subscriber.deliveries == [b"1"]
    net.advance(0.2)
    assert subscriber.deliveries == [b"1", b"1"]
    subscriber.accept(b"1")
    assert len(publisher.accepted) == 1


def test_a_wish_is_granted_up_to_the_cap_of_the_topic() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(retry_cap_s=3.0)))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(FAILED, b"1", delay_ms=1 << 40)
    net.advance(2.9)
    assert subscriber.deliveries == [b"1"]
    net.advance(0.1)
    assert subscriber.deliveries == [b"1", b"1"]


def test_a_wish_concerns_one_attempt_and_the_waits_go_on_doubling_behind_it() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(FAILED, b"1", delay_ms=0)
    net.advance(0.0)
    assert attempts(subscriber) == [0, 1]
    subscriber.answer(FAILED, b"1")
    net.advance(1.9)
    assert attempts(subscriber) == [0, 1]
    net.advance(0.1)
    assert attempts(subscriber) == [0, 1, 2]
