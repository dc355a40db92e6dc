"""Empty tags, and tags that a publisher uses again once it has settled their delivery (2.6.12, 2.8.7; E-3)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.view import SubscriptionMode
from delivery_records.subscriber.entries import is_live
from tests.delivery_records.harness import Net
from tests.delivery_records.links import TOPIC, PublisherLink, SubscriberLink

EMPTY = b""


def pair(routers: int, *, stock: bool = False) -> tuple[Net, SubscriberLink, PublisherLink]:
    """A publisher at the first router and a subscriber at the last."""
    net = Net(routers)
    subscriber = net.subscriber(net.nodes[-1])
    return net, subscriber, (net.stock_publisher if stock else net.publisher)(net.nodes[0])


def bodies_and_settlements(subscriber: SubscriberLink) -> list[bytes | str]:
    """In order: the body of each transfer, and `settle` for each settlement of a delivery."""
    reported: list[bytes | str] = []
    for effect in subscriber.got:
        if isinstance(effect, effects.SettleAtSubscriber):
            reported += ["settle"] * len(effect.tags)
        elif isinstance(effect, effects.Deliver):
            reported.append("settle" if effect.resume and effect.settled else effect.message)
    return reported


@pytest.mark.parametrize("routers", [1, 2])
def test_a_delivery_with_an_empty_tag_is_carried_like_any_other(routers: int) -> None:
    net, subscriber, publisher = pair(routers)
    delivery = publisher.send(EMPTY, b"one")
    (sent,) = subscriber.all(effects.Deliver)
    assert len(sent.tag) == 11
    assert is_live(net.nodes[-1].core.turn, sent.tag, TOPIC)
    subscriber.accept(EMPTY)
    assert publisher.accepted == [delivery]
    publisher.settle(EMPTY)
    assert subscriber.settled == [EMPTY]


@pytest.mark.parametrize("routers", [1, 2])
def test_an_empty_tag_is_resumed_from_both_maps(routers: int) -> None:
    net, subscriber, publisher = pair(routers)
    publisher.send(EMPTY, b"one")
    subscriber.accept(EMPTY)
    tag = subscriber.network_tag(EMPTY)
    publisher.drop()
    subscriber.drop()
    again = net.subscriber(net.nodes[-1], unsettled={tag: None})
    repeated = net.publisher(net.nodes[0], unsettled={EMPTY: None})
    repeated.send(EMPTY, b"one")
    (resumed,) = again.all(effects.Deliver)
    assert (resumed.tag, resumed.resume, resumed.message) == (tag, True, b"one")


def test_a_second_empty_tag_is_refused_while_the_first_is_unsettled() -> None:
    _, subscriber, publisher = pair(1)
    publisher.send(EMPTY, b"one")
    publisher.send(EMPTY, b"two")
    detached = publisher.detached()
    assert detached is not None
    assert detached.condition == "amqp:not-allowed"
    assert subscriber.deliveries == [EMPTY]


@pytest.mark.parametrize("routers", [1, 2])
@pytest.mark.parametrize("mode", [SubscriptionMode.EXACTLY_ONCE, SubscriptionMode.AT_MOST_ONCE])
def test_pre_settled_messages_may_all_have_an_empty_tag(routers: int, mode: SubscriptionMode) -> None:
    net = Net(routers)
    subscriber = net.subscriber(net.nodes[-1], mode=mode)
    publisher = net.stock_publisher(net.nodes[0])
    for body in (b"one", b"two", b"three"):
        publisher.send(EMPTY, body, settled=True)
    assert [(d.message, d.settled, d.resume) for d in subscriber.all(effects.Deliver)] == [
        (b"one", True, False),
        (b"two", True, False),
        (b"three", True, False),
    ]
    assert publisher.detached() is None


@pytest.mark.parametrize("stock", [False, True])
@pytest.mark.parametrize("routers", [1, 2])
@pytest.mark.parametrize("tag", [EMPTY, b"t", b"t" * 32])
def test_a_tag_settled_and_used_again_in_one_read_names_two_deliveries(tag: bytes, routers: int, stock: bool) -> None:
    net, subscriber, publisher = pair(routers, stock=stock)
    publisher.send(tag, b"one")
    net.feed(subscriber.node, accepted(subscriber))
    publisher.feed(
        inputs.PublisherSettle(publisher.number, (tag,)), inputs.PublisherTransfer(publisher.number, 2, tag, b"two")
    )
    assert bodies_and_settlements(subscriber) == [b"one", "settle", b"two"]
    net.feed(subscriber.node, accepted(subscriber))
    publisher.settle(tag)
    assert publisher.accepted == [1, 2]
    assert bodies_and_settlements(subscriber) == [b"one", "settle", b"two", "settle"]


def accepted(subscriber: SubscriberLink) -> inputs.SubscriberDisposition:
    """The subscriber accepts what came last."""
    last = subscriber.all(effects.Deliver)[-1]
    return inputs.SubscriberDisposition(subscriber.number, [last.tag], DeliveryOutcome.ACCEPTED, False, None)


def test_a_settlement_and_a_message_with_its_tag_that_arrive_together_keep_their_order() -> None:
    net, subscriber, publisher = pair(2, stock=True)
    publisher.send(EMPTY, b"one")
    net.feed(subscriber.node, accepted(subscriber))
    net.held = {(0, 1)}
    publisher.settle(EMPTY)
    publisher.send(EMPTY, b"two")
    under_way = net.frames[net.nodes[0].rid, net.nodes[1].rid]
    frames = list(under_way)
    under_way.clear()
    net.held = set()
    net.feed(subscriber.node, *frames)  # one read of the connection between them
    assert bodies_and_settlements(subscriber) == [b"one", "settle", b"two"]


def test_a_pre_settled_message_with_a_tag_just_settled_does_not_overtake_the_settlement() -> None:
    net, subscriber, publisher = pair(1)
    publisher.send(EMPTY, b"one")
    net.feed(subscriber.node, accepted(subscriber))
    publisher.feed(
        inputs.PublisherSettle(publisher.number, (EMPTY,)),
        inputs.PublisherTransfer(publisher.number, 2, EMPTY, b"two", settled=True),
    )
    assert bodies_and_settlements(subscriber) == [b"one", "settle", b"two"]


def test_after_a_restart_of_the_channel_a_tag_used_again_is_not_taken_for_the_one_before() -> None:
    net, subscriber, publisher = pair(2, stock=True)
    publisher.send(EMPTY, b"one")
    net.feed(subscriber.node, accepted(subscriber))
    net.lost = lambda frame: isinstance(frame, inputs.RouterFrame) and frame.origin == net.nodes[0].rid
    publisher.settle(EMPTY)
    publisher.send(EMPTY, b"two")
    net.lost = lambda frame: False
    net.advance(5.0)  # T-9: the probe finds the gap, and the channel starts again
    assert bodies_and_settlements(subscriber) == [b"one", "settle", b"two"]
    net.feed(subscriber.node, accepted(subscriber))
    assert publisher.accepted == [1, 2]


def test_a_held_delivery_that_was_given_up_leaves_its_tag_to_the_next() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], limit=0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(EMPTY, b"one")
    publisher.feed(
        inputs.PublisherSettle(publisher.number, (EMPTY,)), inputs.PublisherTransfer(publisher.number, 2, EMPTY, b"two")
    )
    subscriber.flow(10)
    assert bodies_and_settlements(subscriber) == [b"two"]
    net.feed(subscriber.node, accepted(subscriber))
    publisher.settle(EMPTY)
    assert publisher.accepted == [2]
    assert net.nodes[0].count(Decision.DELIVERY_GIVEN_UP) == 1
