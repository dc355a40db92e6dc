"""What a presented map says of failed attempts, and what takes the place of a scheduled one (E-4a)."""

from __future__ import annotations

import pytest

from delivery_records.channels import codec, frame_header
from delivery_records.model import effects, inputs
from delivery_records.model.limits import Limits, TopicPolicy
from delivery_records.model.messages import Nack
from delivery_records.model.outcomes import DeliveryOutcome
from tests.delivery_records.harness import Net
from tests.delivery_records.links import SubscriberLink

FAILED = DeliveryOutcome.MODIFIED_FAILED
TWO = Limits(policy=TopicPolicy(max_attempts=2, report_rejections=True))


def attempts(subscriber: SubscriberLink) -> list[int]:
    return [delivery.attempt for delivery in subscriber.all(effects.Deliver)]


@pytest.mark.parametrize("routers", [1, 2])
def test_a_failure_that_only_the_presented_map_shows_counts_as_one(routers: int) -> None:
    net = Net(routers, limits=TWO)
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[-1])
    number = publisher.send(b"1")
    first.drop()  # it has failed, and its answer is lost with its connection
    tag = first.all(effects.Deliver)[0].tag
    second = net.subscriber(net.nodes[0], unsettled={tag: FAILED})
    assert attempts(second) == []  # it waits, as for an answer that was heard
    net.advance(1.0)
    assert attempts(second) == [1]
    second.drop()
    net.subscriber(net.nodes[0], unsettled={tag: FAILED})
    assert publisher.outcomes == [(number, DeliveryOutcome.REJECTED)]


def test_a_failure_that_was_heard_and_is_presented_once_more_counts_once() -> None:
    net = Net(limits=TWO)
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    first.answer(FAILED, b"1")
    first.drop()  # before it has read the settlement
    tag = first.all(effects.Deliver)[0].tag
    second = net.subscriber(net.nodes[0], unsettled={tag: FAILED})
    net.advance(1.0)
    assert attempts(second) == [1]
    assert publisher.outcomes == []


def test_a_failure_that_was_presented_counts_though_it_is_stated_after_the_publisher_moved() -> None:
    net = Net(3, limits=TWO)
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    publisher.send(b"1")
    first.drop()
    tag = first.all(effects.Deliver)[0].tag
    second = net.subscriber(net.nodes[0], unsettled={tag: FAILED})
    net.kill(net.nodes[1])
    moved = net.publisher(net.nodes[2], unsettled={b"1": None})
    number = moved.send(b"1")
    assert attempts(second) == [1]
    second.answer(FAILED, b"1")
    assert moved.outcomes == [(number, DeliveryOutcome.REJECTED)]


def test_a_failure_in_the_map_of_a_member_counts_for_the_shared_subscription() -> None:
    net = Net(2, limits=TWO)
    share = inputs.Share("work", is_global=True)
    first, publisher = net.subscriber(net.nodes[0], "m", share=share), net.publisher(net.nodes[1])
    number = publisher.send(b"1")
    tag = first.network_tag(b"1")
    first.drop()
    second = net.subscriber(net.nodes[0], "m", share=share, unsettled={tag: FAILED})
    net.advance(1.0)
    assert attempts(second) == [1]
    second.drop()
    net.subscriber(net.nodes[0], "m", share=share, unsettled={tag: FAILED})
    assert publisher.outcomes == [(number, DeliveryOutcome.REJECTED)]


def test_what_a_sync_repeats_takes_the_place_of_the_scheduled_attempt() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(FAILED, b"1", delay_ms=4_000)
    net.lost = lambda frame: isinstance(frame, inputs.RouterFrame)
    publisher.send(b"2")
    net.lost = lambda frame: False
    net.advance(3.0)  # the channel has restarted (T-4)
    assert subscriber.deliveries == [b"1", b"1", b"2"]
    net.held.add((1, 0))
    subscriber.answer(FAILED, b"1", delay_ms=4_000)
    net.advance(2.0)  # the first of the two attempts would be due, and the second failure is not known yet
    assert subscriber.deliveries == [b"1", b"1", b"2"]
    net.held.clear()
    net.advance(4.1)
    assert subscriber.deliveries == [b"1", b"1", b"2", b"1"]


def test_a_request_of_a_former_epoch_schedules_nothing_behind_the_repeat_of_the_new_one() -> None:
    net = Net(2)
    subscriber, publisher = net.stock_subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.held.add((1, 0))
    subscriber.answer(DeliveryOutcome.RELEASED, b"1", settled=True)  # shows life: a new epoch, which is synced
    net.held.clear()
    net.run()
    assert subscriber.deliveries == [b"1", b"1"]
    net.advance(10.0)
    assert subscriber.deliveries == [b"1", b"1"]


def test_a_late_request_of_a_former_epoch_leaves_the_attempt_of_the_new_one_as_scheduled() -> None:
    net = Net(2)
    former, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    publisher.send(b"1")
    net.held.add((0, 1))
    former.answer(DeliveryOutcome.RELEASED, b"1")  # its NACK is slow
    moved = net.subscriber(net.nodes[1], unsettled={})
    moved.answer(FAILED, b"1")  # its router is the publisher's, which schedules an attempt at once
    net.held.clear()
    net.run()
    assert attempts(moved) == [0]
    net.advance(1.0)
    assert attempts(moved) == [0, 1]


def test_a_failure_of_the_map_comes_out_of_its_frame_as_it_went_in() -> None:
    nack = Nack(5, 7, 0, True, is_presented=True)
    frame = codec.encode_frame(1, ((2, 1, 1),), nack)
    assert codec.decode_message(frame, frame_header.read_header(frame)) == nack


def test_a_resumed_entry_is_accepted_where_nobody_is_left_also_without_the_capability() -> None:
    """S may have processed it: released, its publisher would send it again as a new message."""
    net = Net()
    net.subscriber(net.nodes[0])
    net.stock_publisher(net.nodes[0], unsettled={}).send(b"1")
    back = net.stock_publisher(net.nodes[0], unsettled={b"1": None})
    number = back.send(b"1", resume=True)
    net.delete_subscription()
    assert back.outcomes == [(number, DeliveryOutcome.ACCEPTED)]
