"""A policy ends, or detaches, a subscription that makes no progress, and no other (K-5b)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.patience import Patience, SlowAction
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import SubscriberLink

EXPEL = Patience(8.0, SlowAction.EXPEL)
DETACH = Patience(8.0, SlowAction.DETACH)


def started(patience: Patience = EXPEL, *, limit: int = 1000) -> tuple[Net, SubscriberLink]:
    """Two routers, a slow subscriber at the second one."""
    net = Net(2)
    return net, net.subscriber(net.nodes[1], patience=patience, limit=limit)


def test_a_subscriber_without_answers_is_expelled_and_its_publisher_goes_on() -> None:
    net, subscriber = started()
    other = net.subscriber(net.nodes[1], "other")
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    other.accept(b"1")
    net.advance(7.9)
    assert publisher.accepted == []
    net.advance(2.2)  # at most a quarter more
    assert publisher.accepted == [delivery]
    assert not net.has_subscription()
    assert net.has_subscription("other")
    ended = subscriber.end()
    assert (ended.closed, ended.condition) == (True, "amqp:resource-deleted")
    assert "no progress in 8 s" in ended.description
    assert ended.info == {"x-opt-topic-resume": "expired"}


def test_the_attach_reply_states_what_is_granted() -> None:
    _, subscriber = started(DETACH)
    assert subscriber.last(effects.SubscriberReply).patience == DETACH


def test_a_detached_subscriber_keeps_its_subscription() -> None:
    net, subscriber = started(DETACH)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.advance(10.1)
    ended = subscriber.end()
    assert (ended.closed, ended.condition) == (False, "amqp:link:detach-forced")
    assert net.has_subscription()
    assert publisher.accepted == []
    net.advance(61.0)
    assert not net.has_subscription(), "T_sub counts from the detach"


@pytest.mark.parametrize("outcome", [DeliveryOutcome.ACCEPTED, DeliveryOutcome.MODIFIED_FAILED], ids=lambda o: o.value)
def test_a_subscriber_that_answers_in_order_is_not_slow_however_many_it_has(outcome: DeliveryOutcome) -> None:
    net, subscriber = started()
    publisher = net.publisher(net.nodes[0])
    tags = [b"%d" % number for number in range(10)]
    for tag in tags:
        publisher.send(tag)
    for tag in tags:
        net.advance(5.0)
        subscriber.answer(outcome, tag)
    assert net.has_subscription()
    assert subscriber.detached() is None


def test_who_answers_only_what_is_newer_is_slow() -> None:
    net, subscriber = started()
    publisher = net.publisher(net.nodes[0])
    for tag in (b"1", b"2", b"3"):
        publisher.send(tag)
    net.advance(4.0)
    subscriber.accept(b"2")
    net.advance(4.0)
    subscriber.accept(b"3")
    net.advance(2.1)
    assert not net.has_subscription()


def test_a_subscriber_that_gives_no_credit_is_slow_when_something_waits() -> None:
    net, subscriber = started(limit=0)
    net.advance(100.0)
    assert subscriber.detached() is None, "nothing waits"
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.advance(12.1)
    assert not net.has_subscription()


def test_what_a_publisher_does_not_settle_is_not_the_subscribers_fault() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[1], patience=EXPEL, map_bound=1)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    subscriber.accept(b"1")
    net.advance(25.0)
    assert subscriber.deliveries == [b"1"], "the map has no room before 1 is settled"
    assert net.has_subscription()
    publisher.settle(b"1")
    net.advance(10.1)
    assert not net.has_subscription(), "it has 2 and does not answer"


def test_credit_that_comes_in_time_is_progress() -> None:
    net, subscriber = started(limit=0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.advance(7.0)
    subscriber.flow(1)
    subscriber.accept(b"1")
    net.advance(100.0)
    assert net.has_subscription()


def test_an_order_that_etcd_refuses_is_given_again() -> None:
    net, subscriber = started()
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    net.nodes[1].is_store_held = True
    net.advance(30.0)
    assert publisher.accepted == []
    net.nodes[1].is_store_held = False
    net.run()
    assert publisher.accepted == [delivery]
    assert net.nodes[1].count(Decision.SUBSCRIBER_SLOW) > 1
    assert subscriber.end().condition == "amqp:resource-deleted"


def test_who_may_be_expelled_is_kept_no_longer_when_away() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[1], patience=EXPEL, timeout_s=600.0)
    assert subscriber.last(effects.Confirm).timeout_s == 8.0
    subscriber.drop()
    net.advance(9.0)
    assert not net.has_subscription()


def test_nothing_is_owed_by_a_subscriber_that_takes_messages_settled() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[1], patience=EXPEL, mode=SubscriptionMode.AT_MOST_ONCE)
    net.publisher(net.nodes[0]).send(b"1")
    assert subscriber.deliveries == [b"1"]
    net.advance(100.0)
    assert net.has_subscription()


def test_a_policy_without_time_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        Patience(0.0, SlowAction.EXPEL)
