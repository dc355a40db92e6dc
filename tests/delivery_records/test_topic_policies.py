"""What a topic's policy decides (I-3d): outcomes of what is nobody's, reports, attempts, waits; and its changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delivery_records.model import effects
from delivery_records.model.inputs import PoliciesChanged
from delivery_records.model.limits import Limits, OnEmpty, TopicPolicy
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink

REFUSALS = {OnEmpty.RELEASE: DeliveryOutcome.RELEASED, OnEmpty.REJECT: DeliveryOutcome.REJECTED}
Attach = Callable[[Net], PublisherLink]


def _capable(net: Net) -> PublisherLink:
    return net.publisher(net.nodes[0])


def _stock(net: Net) -> PublisherLink:
    return net.stock_publisher(net.nodes[0])


def _for_all(on_empty: OnEmpty) -> Limits:
    return Limits(policy=TopicPolicy(on_empty=on_empty, on_empty_exactly_once=on_empty))


@pytest.mark.parametrize("on_empty", REFUSALS)
@pytest.mark.parametrize("attach", [_capable, _stock])
def test_a_message_that_nobody_subscribed_to_has_the_outcome_of_the_policy(attach: Attach, on_empty: OnEmpty) -> None:
    net = Net(limits=_for_all(on_empty))
    publisher = attach(net)
    sent = publisher.send(b"1")
    assert publisher.outcomes == [(sent, REFUSALS[on_empty])]
    subscriber = net.subscriber(net.nodes[0])
    assert subscriber.deliveries == []
    second = publisher.send(b"2")
    subscriber.accept(b"2")
    assert publisher.outcomes[-1] == (second, DeliveryOutcome.ACCEPTED)


def test_a_rejection_for_want_of_subscriptions_says_what_to_do() -> None:
    net = Net(limits=_for_all(OnEmpty.REJECT))
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    reported = publisher.last(effects.Dispose)
    assert (reported.condition, reported.info) == ("amqp:not-found", {})
    assert "subscribe first" in reported.description


def test_what_is_refused_keeps_its_place_behind_what_waits() -> None:
    net = Net(limits=_for_all(OnEmpty.REJECT))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    first = publisher.send(b"1")
    subscriber.detach(closed=True)
    second = publisher.send(b"2")
    # 1 was sent to a subscription, which may have processed it; 2 was not.
    assert publisher.outcomes == [(first, DeliveryOutcome.ACCEPTED), (second, DeliveryOutcome.REJECTED)]


def test_what_a_stock_publisher_sent_is_rejected_when_its_only_subscription_ends() -> None:
    net = Net(limits=_for_all(OnEmpty.REJECT))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.stock_publisher(net.nodes[0])
    sent = publisher.send(b"1")
    subscriber.detach(closed=True)
    assert publisher.outcomes == [(sent, DeliveryOutcome.REJECTED)]


@pytest.mark.parametrize("on_empty", REFUSALS)
def test_what_a_map_names_is_never_refused_for_it_may_have_been_processed(on_empty: OnEmpty) -> None:
    net = Net(2, limits=_for_all(on_empty))
    subscriber, first = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    first.send(b"1")
    first.drop()
    subscriber.accept(b"1")
    subscriber.detach(closed=True)
    second = net.publisher(net.nodes[1], unsettled={b"1": None})
    sent = second.send(b"1")
    assert second.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]


def test_what_a_listener_was_sent_is_accepted() -> None:
    net = Net(limits=_for_all(OnEmpty.REJECT))
    net.subscriber(net.nodes[0], mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = net.publisher(net.nodes[0])
    sent = publisher.send(b"1")
    assert publisher.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]


def test_the_waits_of_a_policy_double_up_to_its_cap() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(retry_first_s=0.25, retry_cap_s=3.0, max_attempts=100)))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    assert _waits(net, subscriber, 7) == pytest.approx([0.25, 0.5, 1, 2, 3, 3, 3])


def _waits(net: Net, subscriber: SubscriberLink, count: int) -> list[float]:
    found = []
    for _ in range(count):
        began, had = net.now, len(subscriber.deliveries)
        subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
        while len(subscriber.deliveries) == had:
            deadline = net.nodes[0].core.next_deadline()
            assert deadline is not None
            net.advance(deadline - net.now)
        found.append(net.now - began)
    return found


def test_a_changed_policy_holds_for_what_is_decided_from_then_on_at_links_that_are_attached() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    first = publisher.send(b"1")
    net.feed(net.nodes[0], PoliciesChanged(lambda _topic: TopicPolicy(report_rejections=True, max_attempts=1)))
    subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    assert publisher.outcomes == [(first, DeliveryOutcome.REJECTED)]
    net.feed(net.nodes[0], PoliciesChanged(lambda _topic: TopicPolicy()))
    second = publisher.send(b"2")
    subscriber.answer(DeliveryOutcome.REJECTED, b"2")
    assert publisher.outcomes[-1] == (second, DeliveryOutcome.ACCEPTED)


def test_each_topic_has_its_own_policy_and_no_message_asks_for_it() -> None:
    net, asked = Net(), list[str]()
    policies = {"t": TopicPolicy(), "u": TopicPolicy(on_empty=OnEmpty.REJECT)}

    def policy_of(topic: str) -> TopicPolicy:
        asked.append(topic)
        return policies[topic]

    net.feed(net.nodes[0], PoliciesChanged(policy_of))
    one, other = net.stock_publisher(net.nodes[0], "p", topic="t"), net.stock_publisher(net.nodes[0], "q", topic="u")
    for number in range(10):
        one.send(b"%d" % number)
        other.send(b"%d" % number)
    assert {outcome for _, outcome in one.outcomes} == {DeliveryOutcome.RELEASED}
    assert {outcome for _, outcome in other.outcomes} == {DeliveryOutcome.REJECTED}
    assert asked == ["t", "u"]
