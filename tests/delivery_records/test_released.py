"""*Release when there is no subscription*: decided when nothing is pending any more, whatever ended (I-3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delivery_records.model.inputs import EndSubscription
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import SubscriberLink


def _unsubscribe(net: Net, subscriber: SubscriberLink) -> None:
    subscriber.detach(closed=True)


def _expire(net: Net, subscriber: SubscriberLink) -> None:
    subscriber.drop()
    net.advance(90.0)


def _end_by_an_operator(net: Net, subscriber: SubscriberLink) -> None:
    key = net.subscription_path().partition("/")[2]
    net.feed(net.nodes[0], EndSubscription(1, key, net.nodes[0].core.view.subscriptions[key].epoch))


def _take_another_topic(net: Net, subscriber: SubscriberLink) -> None:
    net.subscriber(subscriber.node, topic="another")


def _begin_a_new_life(net: Net, subscriber: SubscriberLink) -> None:
    subscriber.detach(closed=True)
    net.subscriber(subscriber.node)


ENDS = [_unsubscribe, _expire, _end_by_an_operator, _take_another_topic, _begin_a_new_life]


@pytest.mark.parametrize("routers", [1, 2])
@pytest.mark.parametrize("end", ENDS)
def test_a_message_whose_only_subscription_ended_without_it_is_released(
    end: Callable[[Net, SubscriberLink], None], routers: int
) -> None:
    net = Net(routers)
    subscriber = net.subscriber(net.nodes[-1])
    publisher = net.stock_publisher(net.nodes[0])
    first, second = publisher.send(b"1"), publisher.send(b"2")
    subscriber.accept(b"1")
    publisher.settle(b"1")
    end(net, subscriber)
    assert publisher.outcomes == [(first, DeliveryOutcome.ACCEPTED), (second, DeliveryOutcome.RELEASED)]


def test_a_message_that_one_of_its_subscriptions_was_done_with_is_accepted_when_the_other_one_ends() -> None:
    net = Net()
    done, ends = net.subscriber(net.nodes[0], "done"), net.subscriber(net.nodes[0], "ends")
    publisher = net.stock_publisher(net.nodes[0])
    sent = publisher.send(b"1")
    done.accept(b"1")
    done.detach(closed=True)
    ends.detach(closed=True)
    assert publisher.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]


def test_a_message_that_an_at_most_once_subscription_got_is_accepted_when_the_others_end() -> None:
    net = Net()
    ends = net.subscriber(net.nodes[0], "ends")
    net.subscriber(net.nodes[0], "listener", mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = net.stock_publisher(net.nodes[0])
    sent = publisher.send(b"1")
    ends.detach(closed=True)
    assert publisher.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]


def test_a_publisher_with_the_capability_is_accepted_when_its_only_subscription_ends() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    sent = publisher.send(b"1")
    subscriber.detach(closed=True)
    assert publisher.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]
