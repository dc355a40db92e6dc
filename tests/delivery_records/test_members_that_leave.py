"""What members of a shared subscription cost that leave, or have no credit: each its own work alone (SH-2).

The bounds are numbers of messages, not times: M members and D deliveries cost some for each, and never M x D or M x M.
"""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.inputs import LossCause
from delivery_records.model.messages import Claim, Msg, Return, Room
from delivery_records.model.outcomes import Decision
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node

SHARE = inputs.Share("work", is_global=True)
EACH = 6
"""Messages about each member and each delivery, at most."""


def members(net: Net, node: Node, count: int, *, limit: int = 0, map_bound: int = 0) -> list[SubscriberLink]:
    return [
        net.subscriber(node, f"m{number}", share=SHARE, limit=limit, map_bound=map_bound) for number in range(count)
    ]


def leave_at_once(net: Net, node: Node, links: list[SubscriberLink]) -> None:
    """Their connection ends: one turn."""
    net.feed(node, *(inputs.LinkLost(link.number, LossCause.CONNECTION_LOSS) for link in links))


def said(net: Net) -> int:
    """MSG, RETURN, ROOM and CLAIM between routers, a frame at a time."""
    frames = [effect.message for node in net.nodes for effect in node.all(effects.SendToRouters)]
    return sum(isinstance(message, Msg | Return | Room | Claim) for message in frames)


def returned(net: Net) -> int:
    return sum(node.count(Decision.RETURNED_BY_MEMBER) for node in net.nodes)


@pytest.mark.parametrize("routers", [1, 2])
@pytest.mark.parametrize("count", [10, 60])
def test_members_without_credit_that_leave_together_are_offered_nothing_again(count: int, routers: int) -> None:  # SH-2
    net = Net(routers)
    links = members(net, net.nodes[-1], count)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"waits")
    before = said(net), returned(net)
    leave_at_once(net, net.nodes[-1], links)
    assert returned(net) - before[1] <= EACH
    assert said(net) - before[0] <= EACH * count


@pytest.mark.parametrize("routers", [1, 2])
def test_a_full_window_costs_members_that_leave_no_more_than_one_message_does(routers: int) -> None:  # SH-2
    net = Net(routers)
    links = members(net, net.nodes[-1], 40)
    publishers = [net.publisher(net.nodes[0], f"p{number}") for number in range(4)]
    for publisher in publishers:
        for number in range(30):
            publisher.send(b"%d" % number)
    leave_at_once(net, net.nodes[-1], links)
    assert returned(net) <= EACH * len(publishers)
    assert said(net) <= EACH * len(publishers) * (40 + 30)


def work(one: SubscriberLink, publisher: PublisherLink, count: int) -> None:
    """A member takes one message at a time; each is settled before the next is sent."""
    for number in range(count):
        tag = b"%d" % number
        publisher.send(tag)
        assert one.deliveries[-1] == tag
        one.accept(tag)
        publisher.settle(tag)
        one.flow(number + 2, delivery_count=number + 1)


@pytest.mark.parametrize("routers", [1, 2])
def test_members_without_credit_cost_the_deliveries_of_another_one_nothing(routers: int) -> None:  # SH-2
    net = Net(routers)
    members(net, net.nodes[-1], 40)
    one = net.subscriber(net.nodes[0], "works", share=SHARE, limit=1)
    publisher = net.publisher(net.nodes[0])
    work(one, publisher, 50)
    assert returned(net) <= EACH * 50
    assert said(net) <= EACH * (40 + 50)


@pytest.mark.parametrize("routers", [1, 2])
def test_members_whose_maps_are_full_are_not_asked_again_for_each_message_of_others(routers: int) -> None:  # C-4, SH-2
    net = Net(routers)
    full = members(net, net.nodes[-1], 20, limit=1000, map_bound=2)
    slow = net.publisher(net.nodes[0], "slow")
    for number in range(100):
        slow.send(b"s%d" % number)
    assert all(link.deliveries for link in full), "their maps hold what they do not answer"
    one = net.subscriber(net.nodes[0], "works", share=SHARE, limit=1)
    before = said(net), returned(net)
    publisher = net.publisher(net.nodes[0], "quick")
    for number in range(50):
        publisher.send(b"%d" % number)
        for link in [one, *full]:
            for tag in link.deliveries:
                if not tag.startswith(b"s") and tag == b"%d" % number:
                    link.accept(tag)
        publisher.settle(b"%d" % number)
        one.flow(number + 2, delivery_count=number + 1)
    assert returned(net) - before[1] <= EACH * (20 + 50)
    assert said(net) - before[0] <= EACH * (20 + 50)


def test_a_member_that_returned_what_a_publisher_waits_for_gets_it_when_it_has_credit() -> None:  # SH-2, G5
    net = Net(2)
    links = members(net, net.nodes[1], 5)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"waits")
    assert not any(link.deliveries for link in links)
    links[3].flow(1)
    assert links[3].deliveries == [b"waits"]
    links[3].accept(b"waits")
    assert publisher.accepted == [1]
