"""A publisher attaches behind the subscribers of its AMQP session (A-2d)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.inputs import LinkPlace
from delivery_records.model.limits import STOCK_REPLY_WAIT_S
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import TOPIC, PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node

SESSION = LinkPlace(amqp_session=901, connection=900)
OTHER = LinkPlace(amqp_session=902, connection=900)


def receiver(link: SubscriberLink, name: str = "s", topic: str = TOPIC) -> inputs.SubscriberAttach:
    """The attach of a stock subscriber, for one read with others."""
    mode = SubscriptionMode.AT_LEAST_ONCE
    return inputs.SubscriberAttach(link.number, name, "link", topic, None, False, mode, place=SESSION)


def sender(link: PublisherLink, place: LinkPlace = SESSION) -> inputs.PublisherAttach:
    """The attach of a stock publisher."""
    return inputs.PublisherAttach(link.number, "p", "link", TOPIC, None, place=place)


def answers(node: Node) -> list[int]:
    """Links in the order in which their attaches were answered."""
    kinds = (effects.SubscriberReply, effects.PublisherReply)
    return [effect.link for effect in node.done if isinstance(effect, kinds)]


@pytest.fixture
def net() -> Net:
    return Net(2)


def test_a_publisher_is_answered_behind_the_subscriber_before_it_and_reaches_it(net: Net) -> None:
    node = net.nodes[0]
    s, p = SubscriberLink(net, node), PublisherLink(net, node)
    net.feed(node, receiver(s), sender(p))
    net.advance(1.0)
    assert answers(node) == [s.number, p.number]
    s.flow(10)
    p.send(b"1")
    assert [delivery.tag[-1:] for delivery in s.all(effects.Deliver)] == [b"1"]


def test_it_waits_for_the_barrier_as_long_as_the_subscriber_does(net: Net) -> None:
    node, late = net.nodes
    late.is_watch_held = True
    s, p = SubscriberLink(net, node), PublisherLink(net, node)
    net.feed(node, receiver(s), sender(p))
    net.advance(STOCK_REPLY_WAIT_S - 0.1)
    assert answers(node) == []
    net.advance(0.2)
    assert answers(node) == [s.number, p.number]


def test_subscribers_behind_it_and_those_of_other_sessions_are_not_waited_for(net: Net) -> None:
    node, late = net.nodes
    late.is_watch_held = True
    p, q, s = PublisherLink(net, node), PublisherLink(net, node), SubscriberLink(net, node)
    net.feed(node, sender(p), receiver(s))
    assert answers(node) == [p.number]
    net.feed(node, inputs.PublisherAttach(q.number, "q", "link", TOPIC, None, place=OTHER))
    assert answers(node) == [p.number, q.number]


@pytest.mark.parametrize("ends", ["refused", "lost", "closed", "session"])
def test_a_subscriber_that_is_refused_or_ends_is_waited_for_no_longer(net: Net, ends: str) -> None:
    node, late = net.nodes
    late.is_watch_held = True
    s, p = SubscriberLink(net, node), PublisherLink(net, node)
    if ends == "refused":
        node.is_store_held = True
        net.feed(node, receiver(s), sender(p))
        net.feed(node, inputs.LinkDetach(s.number, True))
        node.is_store_held = False
        net.run()
    else:
        net.feed(node, receiver(s), sender(p))
        assert answers(node) == []
        ways: dict[str, inputs.Input] = {
            "lost": inputs.LinkLost(s.number),
            "closed": inputs.LinkDetach(s.number, True),
            "session": inputs.LinkLost(s.number, inputs.LossCause.SESSION_END),
        }
        net.feed(node, ways[ends])
    assert answers(node)[-1] == p.number


def test_a_publisher_that_ends_while_it_waits_lets_the_next_of_its_name_go_on(net: Net) -> None:
    node, late = net.nodes
    late.is_watch_held = True
    s, p, again = SubscriberLink(net, node), PublisherLink(net, node), PublisherLink(net, node)
    net.feed(node, receiver(s), sender(p))
    net.feed(node, sender(again, OTHER))  # the same container-id and link name, on another session
    assert answers(node) == []
    net.feed(node, inputs.LinkLost(p.number))
    assert answers(node) == [again.number]
    net.advance(STOCK_REPLY_WAIT_S)
    assert answers(node) == [again.number, s.number]
