"""Subscriptions that have not shown life yet (rule A-10)."""

from __future__ import annotations

import pytest

from delivery_records import effects
from delivery_records.inputs import Failure
from delivery_records.limits import PROVISIONAL_TIMEOUT_S
from delivery_records.outcomes import Outcome
from delivery_records.view import Kind, SubscriptionRecord
from tests.delivery_records.harness import Net, StoreFault

LONG = 3600.0


def _record(net: Net, name: str = "s") -> SubscriptionRecord:
    held = net.etcd.keys[(Kind.SUBSCRIPTION, net.subscription_path(name).partition("/")[2])]
    assert isinstance(held.record, SubscriptionRecord)
    return held.record


def test_a_subscription_with_a_short_timeout_is_written_once() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0], timeout_s=60.0), net.publisher(net.nodes[0])
    revision = net.etcd.revision
    assert not _record(net).provisional
    publisher.send(b"1")
    subscriber.accept(b"1")
    assert net.etcd.revision == revision


def test_a_new_subscription_with_a_long_timeout_is_provisional_until_it_shows_life() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], timeout_s=LONG)
    assert _record(net).provisional
    assert subscriber.last(effects.SubscriberReply).timeout_s == LONG
    net.publisher(net.nodes[0]).send(b"1")
    assert _record(net).provisional
    subscriber.accept(b"1")
    assert not _record(net).provisional
    assert _record(net).timeout_s == LONG


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.RELEASED, None])
def test_any_disposition_is_a_sign_of_life(outcome: Outcome | None) -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], timeout_s=LONG)
    net.publisher(net.nodes[0]).send(b"1")
    subscriber.answer(outcome, b"1")
    assert not _record(net).provisional


def test_a_flow_is_a_sign_of_life_only_once_it_counts_deliveries() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], timeout_s=LONG)
    subscriber.flow(50)
    assert _record(net).provisional
    subscriber.flow(50, delivery_count=1)
    assert not _record(net).provisional


def test_staying_attached_long_enough_is_a_sign_of_life() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], timeout_s=LONG)
    net.advance(PROVISIONAL_TIMEOUT_S - 1.0)
    assert _record(net).provisional
    net.advance(2.0)
    assert not _record(net).provisional
    assert subscriber.detached() is None


def test_the_proof_changes_the_epoch_and_not_the_stream() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[0], timeout_s=LONG), net.publisher(net.nodes[1])
    ids = [publisher.send(tag) for tag in (b"1", b"2", b"3")]
    subscriber.accept(b"1")  # shows life in the middle of the stream
    subscriber.accept(b"2", b"3")
    ids.append(publisher.send(b"4"))
    subscriber.accept(b"4")
    assert subscriber.deliveries == [b"1", b"2", b"3", b"4"]
    assert publisher.accepted == ids
    assert subscriber.detached() is None


def test_a_ghost_dies_after_a_minute_whatever_it_asked_for() -> None:
    net = Net()
    for name, policy in (("never", "never"), ("detach", "link-detach")):
        subscriber = net.subscriber(net.nodes[0], name, timeout_s=LONG, policy=policy)
        subscriber.drop()
        net.advance(PROVISIONAL_TIMEOUT_S - 1.0)
        assert net.has_subscription(name)
        net.advance(2.0)
        assert not net.has_subscription(name)


def test_a_proven_subscription_gets_its_whole_timeout() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], timeout_s=LONG)
    subscriber.flow(10, delivery_count=1)
    subscriber.drop()
    net.advance(LONG - 1.0)
    assert net.has_subscription()
    net.advance(2.0)
    assert not net.has_subscription()


def test_a_provisional_subscription_that_comes_back_is_still_provisional() -> None:
    net = Net()
    net.subscriber(net.nodes[0], timeout_s=LONG).drop()
    second = net.subscriber(net.nodes[0], timeout_s=LONG)
    assert _record(net).provisional
    second.flow(10, delivery_count=1)
    assert not _record(net).provisional
    second.drop()
    net.subscriber(net.nodes[0], timeout_s=LONG)
    assert not _record(net).provisional


def test_a_proof_that_could_not_be_written_is_tried_again_at_the_next_sign_of_life() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], timeout_s=LONG)
    net.nodes[0].faults.append(StoreFault(Failure.UNAVAILABLE))
    subscriber.flow(10, delivery_count=1)
    assert _record(net).provisional
    subscriber.flow(11, delivery_count=2)
    assert not _record(net).provisional


def test_a_proof_that_could_not_be_written_is_tried_again_after_a_while_without_a_sign() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], timeout_s=LONG)
    net.nodes[0].faults.append(StoreFault(Failure.UNAVAILABLE))
    subscriber.flow(10, delivery_count=1)
    net.advance(PROVISIONAL_TIMEOUT_S + 1.0)
    assert not _record(net).provisional


def test_a_proof_of_unknown_fate_that_was_written_does_not_steal_the_link() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0], timeout_s=LONG), net.publisher(net.nodes[0])
    node = net.nodes[0]
    node.faults.append(StoreFault(Failure.UNKNOWN, is_applied=True))
    node.is_watch_held = True
    subscriber.flow(10, delivery_count=1)
    node.is_watch_held = False
    net.run()
    assert subscriber.detached() is None
    assert not _record(net).provisional
    publisher.send(b"1")
    assert subscriber.deliveries == [b"1"]


def test_a_proof_of_unknown_fate_that_was_lost_is_tried_again() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], timeout_s=LONG)
    net.nodes[0].faults.append(StoreFault(Failure.UNKNOWN))
    subscriber.flow(10, delivery_count=1)
    assert _record(net).provisional
    subscriber.flow(11, delivery_count=2)
    assert not _record(net).provisional
    assert subscriber.detached() is None


def test_a_subscriber_stolen_while_it_proves_itself_is_not_proven() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[0], timeout_s=LONG)
    net.nodes[0].is_watch_held = True
    net.subscriber(net.nodes[1], timeout_s=LONG)
    subscriber.flow(10, delivery_count=1)  # its compare fails
    net.nodes[0].is_watch_held = False
    net.run()
    assert subscriber.end().condition == "amqp:link:stolen"
    assert _record(net).provisional
