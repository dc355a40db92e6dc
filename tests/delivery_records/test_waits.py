"""Who waits for whom, and a delivery's record by its tag, as the records of real cores have it."""

from __future__ import annotations

import pytest

from delivery_records.diagnostics.lookup import FoundDelivery, find
from delivery_records.diagnostics.waits import Holder, Reason, Wait, owing, unsettled_since, waiting
from delivery_records.model.limits import Limits, TopicPolicy
from delivery_records.model.outcomes import DeliveryOutcome
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink
from tests.delivery_records.nodes import Node


def wait_of(node: Node) -> Wait:
    (ingress,) = node.core.ingresses.values()
    found = waiting(ingress)
    assert found is not None
    return found


def states(node: Node) -> dict[str, Holder]:
    (ingress,) = node.core.ingresses.values()
    found, _ = owing(node.core.turn, node.core.egresses, ingress, wait_of(node).number, 8, 1_000)
    return {each.subscription.name: each.state for each in found}


def only(node: Node, tag: bytes, publisher: str = "") -> FoundDelivery:
    (found,) = find(node.core.turn, node.core.endpoints, tag, publisher)
    return found


def test_a_publisher_without_unsettled_deliveries_waits_for_nothing() -> None:
    net = Net()
    net.publisher(net.nodes[0])
    (ingress,) = net.nodes[0].core.ingresses.values()
    assert waiting(ingress) is None
    assert unsettled_since(ingress) is None


def test_a_delivery_waits_for_the_subscriptions_that_owe_it_and_since_it_came() -> None:
    net = Net(2)
    here, there = net.nodes
    net.subscriber(here, "has")
    net.subscriber(here, "poor", limit=0)
    net.subscriber(there, "far")
    publisher = net.publisher(here)
    net.advance(5)
    publisher.send(b"m1")
    began = net.now
    net.advance(3)
    publisher.send(b"m2")
    found = wait_of(here)
    assert (found.reason, found.tag, found.since, found.owing) == (Reason.SUBSCRIPTIONS, b"m1", began, 3)
    assert states(here) == {"has/link": Holder.IN_DOUBT, "poor/link": Holder.HELD, "far/link": Holder.ELSEWHERE}


def test_subscriptions_that_are_away_are_reported_from_those_whose_router_is_gone() -> None:
    net = Net(2)
    here, there = net.nodes
    away = net.subscriber(here, "away")
    net.subscriber(there, "lost")
    publisher = net.publisher(here)
    publisher.send(b"m1")
    away.drop()
    net.kill(there)
    assert states(here) == {"away/link": Holder.DETACHED, "lost/link": Holder.ORPHANED}


def test_a_delivery_that_is_wanted_again_says_so() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"m1")
    subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"m1")
    assert states(net.nodes[0]) == {"s/link": Holder.AGAIN}


def test_at_most_so_many_cursors_are_looked_at() -> None:
    net = Net()
    for name in "abcdef":
        net.subscriber(net.nodes[0], name)
    net.publisher(net.nodes[0]).send(b"m1")
    core = net.nodes[0].core
    (ingress,) = core.ingresses.values()
    found, looked = owing(core.turn, core.egresses, ingress, 0, 8, 4)
    assert (len(found), looked) == (4, 4)
    found, looked = owing(core.turn, core.egresses, ingress, 0, 2, 1_000)
    assert (len(found), looked) == (2, 2)


def test_a_publisher_that_does_not_settle_is_what_is_waited_for() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    net.publisher(net.nodes[0]).send(b"m1")
    subscriber.accept(b"m1")
    assert wait_of(net.nodes[0]).reason is Reason.PUBLISHER_SETTLES


def test_a_map_that_was_not_repeated_waits_for_its_publisher() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    first = net.publisher(net.nodes[0])
    first.send(b"m1")
    first.drop()
    assert wait_of(net.nodes[0]).reason is Reason.SUBSCRIPTIONS
    second = PublisherLink(net, net.nodes[0])
    second.attach("p", unsettled={b"m1": None}, exactly_once=True)
    assert wait_of(net.nodes[0]).reason is Reason.PUBLISHER_PROVES
    second.echo()
    assert wait_of(net.nodes[0]).reason is Reason.PUBLISHER_REPEATS


def test_an_outcome_without_a_link_to_notify_it_on_waits_for_the_publisher() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"m1")
    publisher.drop()
    subscriber.accept(b"m1")
    assert wait_of(net.nodes[0]).reason is Reason.PUBLISHER_AWAY


def test_the_ingress_knows_the_message_its_own_subscriptions_and_the_other_routers() -> None:
    net = Net(2)
    here, there = net.nodes
    done = net.subscriber(here, "done")
    net.subscriber(here, "slow")
    net.subscriber(there, "far")
    publisher = net.publisher(here)
    publisher.send(b"m1", b"body")
    began = net.now
    done.accept(b"m1")
    net.advance(2)
    found = only(here, done.network_tag(b"m1"))
    assert found.is_ingress
    assert (found.message, found.publisher, found.publisher_tag, found.topic) == (b"body", "p/link", b"m1", "orders")
    assert (found.network_tag, found.state, found.arrived) == (done.network_tag(b"m1"), "in-doubt", began)
    assert [(each.name, each.state, each.detail) for each in found.local] == [
        ("done/link", "accepted", "done"),
        ("slow/link", "in-doubt", "sent"),
    ]
    assert [(each.rid, each.subscriptions, each.owing) for each in found.others] == [(there.rid, 1, 1)]


def test_an_egress_knows_its_own_subscriptions_and_no_body_once_it_was_sent() -> None:
    net = Net(2)
    here, there = net.nodes
    far = net.subscriber(there, "far")
    net.subscriber(there, "poor", limit=0)
    net.publisher(here).send(b"m1", b"body")
    found = only(there, far.network_tag(b"m1"))
    assert not found.is_ingress
    assert [(each.name, each.state, each.detail) for each in found.local] == [
        ("far/link", "in-doubt", "sent"),
        ("poor/link", "in-doubt", "held"),
    ]
    assert (found.message, found.publisher, found.publisher_tag, found.arrived) == (b"body", "p/link", b"m1", None)


@pytest.mark.parametrize("tag", [b"m1", b"a tag of more than twenty-one"])
def test_a_publishers_own_tag_is_found_at_its_ingress_and_with_its_name_anywhere(tag: bytes) -> None:
    net = Net(2)
    here, there = net.nodes
    net.subscriber(there, "far")
    net.publisher(here).send(tag)
    assert only(here, tag).publisher_tag == tag
    assert find(there.core.turn, there.core.endpoints, tag) == []
    far = only(there, tag, "p/link")
    assert far.network_tag == only(here, tag).network_tag
    assert far.publisher_tag == (tag if len(tag) <= 21 else None)
    assert only(here, far.network_tag).publisher_tag == tag
    assert find(there.core.turn, there.core.endpoints, tag, "other/link") == []
    assert find(there.core.turn, there.core.endpoints, far.network_tag, "other/link") == []


def test_two_publishers_with_one_tag_are_two_deliveries() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    for name in ("p", "q"):
        net.publisher(net.nodes[0], name).send(b"m1")
    core = net.nodes[0].core
    assert {each.publisher for each in find(core.turn, core.endpoints, b"m1")} == {"p/link", "q/link"}
    assert only(net.nodes[0], b"m1", "q/link").publisher == "q/link"


def test_a_subscription_that_came_later_is_not_named() -> None:
    net = Net()
    net.subscriber(net.nodes[0], "old")
    net.publisher(net.nodes[0]).send(b"m1")
    net.subscriber(net.nodes[0], "new")
    assert [each.name for each in only(net.nodes[0], b"m1").local] == ["old/link"]


def test_a_settled_delivery_is_forgotten_everywhere() -> None:
    net = Net(2)
    far = net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"m1")
    tag = far.network_tag(b"m1")
    far.accept(b"m1")
    assert only(net.nodes[0], tag).state == "accepted"
    publisher.settle(b"m1")
    assert [find(node.core.turn, node.core.endpoints, tag) for node in net.nodes] == [[], []]


@pytest.mark.parametrize(("reports", "reported"), [(False, "accepted"), (True, "rejected")])
def test_a_rejected_delivery_names_the_outcome_that_its_publisher_got(reports: bool, reported: str) -> None:
    net = Net(limits=Limits(policy=TopicPolicy(report_rejections=reports)))
    subscriber = net.subscriber(net.nodes[0])
    net.publisher(net.nodes[0]).send(b"m1")
    subscriber.answer(DeliveryOutcome.REJECTED, b"m1")
    found = only(net.nodes[0], b"m1")
    assert (found.state, found.local[0].state) == (reported, "rejected")
