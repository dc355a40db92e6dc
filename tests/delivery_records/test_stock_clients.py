"""Clients of today: no capability, mostly no unsettled map over a reconnect (section c.5, rules A-4, A-6b, I-3)."""

from __future__ import annotations

from delivery_records.model import effects
from delivery_records.model.limits import STOCK_REPLY_WAIT_S, Limits, OnEmpty, TopicPolicy
from delivery_records.model.outcomes import DeliveryOutcome
from tests.delivery_records.harness import Net
from tests.delivery_records.links import SubscriberLink


def test_a_publisher_without_a_map_gets_its_session_with_the_attach_and_credit_at_once() -> None:
    net = Net()
    publisher = net.stock_publisher(net.nodes[0])
    reply, grant = publisher.last(effects.PublisherReply), publisher.last(effects.GrantPublisherCredit)
    assert (reply.unsettled, reply.resumed, reply.exactly_once) == (None, False, False)
    assert publisher.all(effects.AskEcho) == []
    assert grant.session == net.etcd.revision


def test_a_publisher_that_presents_an_empty_map_is_answered_with_one() -> None:
    net = Net()
    publisher = net.stock_publisher(net.nodes[0], unsettled={})
    assert publisher.last(effects.PublisherReply).unsettled == {}
    assert publisher.credit > 0


def test_a_delivery_nobody_subscribed_to_is_released() -> None:
    net = Net()
    publisher = net.stock_publisher(net.nodes[0])
    first = publisher.send(b"1")
    assert publisher.outcomes == [(first, DeliveryOutcome.RELEASED)]
    subscriber = net.subscriber(net.nodes[0])
    second = publisher.send(b"2")
    subscriber.accept(b"2")
    assert publisher.outcomes == [(first, DeliveryOutcome.RELEASED), (second, DeliveryOutcome.ACCEPTED)]


def test_a_publisher_with_the_capability_is_accepted_when_nobody_subscribed() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    assert publisher.outcomes == [(delivery, DeliveryOutcome.ACCEPTED)]


def test_releasing_can_be_switched_off() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(on_empty=OnEmpty.ACCEPT)))
    publisher = net.stock_publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    assert publisher.outcomes == [(delivery, DeliveryOutcome.ACCEPTED)]


def test_a_session_without_a_map_ends_with_its_link_and_its_deliveries_are_settled_when_they_are_done() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.stock_publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.drop()
    assert subscriber.settled == []
    subscriber.accept(b"1")
    assert subscriber.settled == [b"1"]
    assert not net.has_publisher()


def test_a_publisher_without_a_map_that_comes_back_starts_a_new_session() -> None:
    net = Net(2)
    subscriber, first = net.subscriber(net.nodes[1]), net.stock_publisher(net.nodes[0])
    first.send(b"1")
    second = net.stock_publisher(net.nodes[1])
    assert first.end().condition == "amqp:link:stolen"
    assert subscriber.settled == [b"1"]
    second.send(b"1")
    one, other = (delivery.tag for delivery in subscriber.all(effects.Deliver))
    assert one != other
    assert one[11:] == other[11:]


def test_a_stock_subscriber_is_answered_after_the_barrier() -> None:
    net = Net(2)
    net.held = {(1, 0)}
    subscriber = SubscriberLink(net, net.nodes[0])
    subscriber.attach()
    net.advance(1.0)
    assert subscriber.got == []
    net.held = set()
    net.advance(0.5)
    assert len(subscriber.all(effects.SubscriberReply)) == 1
    assert subscriber.all(effects.Confirm) == []


def test_a_stock_subscriber_is_answered_after_three_seconds_at_the_latest_and_only_once() -> None:
    net = Net(2)
    net.held = {(1, 0)}
    subscriber = SubscriberLink(net, net.nodes[0])
    subscriber.attach()
    net.advance(STOCK_REPLY_WAIT_S - 0.01)
    assert subscriber.got == []
    net.advance(0.02)
    assert len(subscriber.all(effects.SubscriberReply)) == 1
    net.held = set()
    net.advance(1.0)
    assert len(subscriber.all(effects.SubscriberReply)) == 1


def test_nothing_is_transferred_before_the_attach_is_answered() -> None:
    net = Net(2)
    net.held = {(1, 0)}
    subscriber = SubscriberLink(net, net.nodes[0])
    subscriber.attach()
    subscriber.flow(10)
    net.publisher(net.nodes[0]).send(b"1")
    assert subscriber.got == []
    net.held = set()
    net.advance(0.5)
    assert [type(effect) for effect in subscriber.got] == [effects.SubscriberReply, effects.Deliver]


def test_what_is_settled_before_the_reply_is_left_out_of_it_and_gets_no_frame() -> None:
    net = Net(2)
    first, publisher = net.stock_subscriber(net.nodes[0], unsettled={}), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    first.accept(b"1", b"2")
    tags = {first.network_tag(tag): DeliveryOutcome.ACCEPTED for tag in (b"1", b"2")}
    first.drop()
    net.delete_subscription()
    net.held = {(1, 0)}  # the barrier of the new subscription waits
    second = SubscriberLink(net, net.nodes[0])
    second.attach(unsettled=tags)
    publisher.settle(b"1")
    assert second.got == []
    net.advance(STOCK_REPLY_WAIT_S)
    assert second.last(effects.SubscriberReply).kept == [first.network_tag(b"2")]
    second.flow(10)
    assert second.settled == []
    publisher.settle(b"2")
    assert second.settled == [b"2"]
