"""K-8a: a router that is to stop takes credit back, sends nothing new, and lets each client go when it is at rest."""

from __future__ import annotations

from delivery_records.model import effects, inputs
from delivery_records.model.limits import DRAIN_CHECK_S, DRAIN_LIMIT_S, DRAIN_PATIENCE_S
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from tests.delivery_records.harness import Net
from tests.delivery_records.links import Link, PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node

REDIRECT = "amqp:connection:redirect"


def drain(net: Net, node: Node, *connections: list[Link], limit_s: float = DRAIN_LIMIT_S) -> None:
    """Have the router drain; each list holds the links of one connection."""
    net.feed(node, inputs.Drain([[link.number for link in links] for links in connections], limit_s))


def is_sent_away(link: Link) -> bool:
    return any(effect.condition == REDIRECT for effect in link.all(effects.CloseConnection))


def test_clients_at_rest_are_sent_away_in_the_same_turn_and_their_time_runs() -> None:
    net = Net(2)
    node = net.nodes[0]
    subscriber, publisher = net.subscriber(node), net.publisher(node)
    drain(net, node, [subscriber], [publisher])
    assert is_sent_away(subscriber)
    assert is_sent_away(publisher)
    assert node.core.links == {}
    assert net.has_subscription()
    net.advance(61.0)  # T_sub (K-5)
    assert not net.has_subscription()


def test_credit_is_taken_back_and_what_was_sent_on_it_is_still_accepted() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.stock_publisher(net.nodes[0])
    publisher.send(b"1")
    drain(net, net.nodes[0], [publisher])
    assert publisher.credit == 0
    second = publisher.send(b"2")
    assert subscriber.deliveries == [b"1", b"2"]
    subscriber.accept(b"1", b"2")
    assert publisher.accepted == [1, second]
    net.advance(DRAIN_CHECK_S)
    assert not is_sent_away(publisher)
    publisher.settle(b"1", b"2")
    net.advance(DRAIN_CHECK_S)
    assert is_sent_away(publisher)
    assert publisher.last(effects.GrantPublisherCredit).limit <= 2


def test_a_subscriber_without_a_map_goes_when_what_it_accepted_is_settled_and_gets_no_repeat() -> None:
    net = Net(2)
    subscriber, publisher = net.stock_subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    publisher.send(b"1")
    subscriber.answer(DeliveryOutcome.ACCEPTED, b"1", settled=True)
    drain(net, net.nodes[0], [subscriber])
    net.advance(1.0)
    assert not is_sent_away(subscriber)
    publisher.settle(b"1")
    net.advance(DRAIN_CHECK_S)
    assert is_sent_away(subscriber)
    again = net.stock_subscriber(net.nodes[1])
    publisher.send(b"2")
    assert again.deliveries == [b"2"]


def test_what_is_sent_settled_is_not_held_back() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    publisher.send(b"1")
    drain(net, net.nodes[0], [subscriber])
    publisher.send(b"2", settled=True)
    assert subscriber.deliveries == [b"1", b"2"]


def test_what_was_sent_settled_and_waits_goes_on_in_its_place() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0], map_bound=1), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")  # waits: the subscriber's map is full (C-4)
    publisher.send(b"3", settled=True)
    drain(net, net.nodes[0], [subscriber])
    subscriber.accept(b"1")
    publisher.settle(b"1")
    assert subscriber.deliveries == [b"1", b"2", b"3"]


def test_nothing_new_of_another_routers_publisher_is_sent_and_it_comes_at_the_next_router() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    publisher.send(b"1")
    drain(net, net.nodes[0], [subscriber])
    publisher.send(b"2")
    assert subscriber.deliveries == [b"1"]
    subscriber.accept(b"1")
    publisher.settle(b"1")
    net.advance(DRAIN_CHECK_S)
    assert is_sent_away(subscriber)
    moved = net.subscriber(net.nodes[1])
    assert moved.deliveries == [b"2"]


def test_what_publishers_of_this_router_have_sent_goes_on_so_that_one_connection_can_hold_both() -> None:
    net = Net(2)
    node = net.nodes[0]
    subscriber = net.stock_subscriber(node, limit=1)
    local, remote = net.stock_publisher(node, "local"), net.publisher(net.nodes[1], "remote")
    local.send(b"a")
    drain(net, node, [local, subscriber])
    remote.send(b"x")
    local.send(b"b")
    subscriber.flow(10)
    assert subscriber.deliveries == [b"a", b"b"]  # b passes x, which is held back
    for tag in (b"a", b"b"):
        subscriber.answer(DeliveryOutcome.ACCEPTED, tag, settled=True)
        local.settle(tag)
    net.advance(DRAIN_CHECK_S)
    assert is_sent_away(local)


def _unfinished(net: Net) -> tuple[PublisherLink, SubscriberLink, SubscriberLink]:
    """A publisher and two subscribers at router 0; the second subscriber, without a map, answers nothing."""
    node = net.nodes[0]
    quick, slow, publisher = net.subscriber(node, "quick"), net.stock_subscriber(node, "slow"), net.publisher(node)
    publisher.send(b"1")
    quick.accept(b"1")
    return publisher, quick, slow


def test_clients_that_resume_are_not_held_up_and_all_others_are_until_the_limit() -> None:
    net = Net(2)
    publisher, quick, slow = _unfinished(net)
    drain(net, net.nodes[0], [publisher], [quick], [slow])
    net.advance(DRAIN_PATIENCE_S - DRAIN_CHECK_S)
    assert not any(is_sent_away(link) for link in (publisher, quick, slow))
    net.advance(2 * DRAIN_CHECK_S)
    assert is_sent_away(publisher)
    assert is_sent_away(quick)
    assert not is_sent_away(slow)
    net.advance(DRAIN_LIMIT_S)
    assert is_sent_away(slow)
    assert net.nodes[0].core.links == {}
    assert net.nodes[0].count(Decision.DRAIN_STARTED) == 1


def test_a_shorter_limit_ends_the_patience_too() -> None:
    net = Net(2)
    publisher, quick, slow = _unfinished(net)
    drain(net, net.nodes[0], [publisher], [quick], [slow], limit_s=0.0)
    assert all(is_sent_away(link) for link in (publisher, quick, slow))


def test_a_delivery_that_is_wanted_again_keeps_its_subscriber_here_until_it_came() -> None:
    """E-4a: it is in no map but its publisher's, and would be taken for one before the start."""
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    publisher.send(b"1")
    drain(net, net.nodes[0], [subscriber])
    subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    net.advance(DRAIN_PATIENCE_S + DRAIN_CHECK_S)
    assert not is_sent_away(subscriber)
    net.advance(1.0)
    assert subscriber.deliveries == [b"1", b"1"]
    subscriber.accept(b"1")
    net.advance(DRAIN_CHECK_S)
    assert is_sent_away(subscriber)


def test_an_attach_is_refused_with_a_redirect_and_nothing_is_written() -> None:
    net = Net(2)
    drain(net, net.nodes[0])
    revision = net.etcd.revision
    late = SubscriberLink(net, net.nodes[0])
    late.attach()
    assert late.end().condition == "amqp:link:redirect"
    assert late.end().closed
    assert net.etcd.revision == revision


def test_an_attach_that_waits_for_etcd_does_not_hold_its_connection() -> None:
    net = Net(2)
    node = net.nodes[0]
    node.is_store_held = True
    waiting = SubscriberLink(net, node)
    waiting.attach()
    drain(net, node, [waiting])
    assert is_sent_away(waiting)
    node.is_store_held = False
    net.run()
    assert not waiting.answered()
    assert not net.has_subscription()


def test_a_second_drain_changes_nothing() -> None:
    net = Net(2)
    publisher, quick, slow = _unfinished(net)
    drain(net, net.nodes[0], [publisher], [quick], [slow])
    drain(net, net.nodes[0], limit_s=0.0)
    assert not is_sent_away(slow)
    assert net.nodes[0].count(Decision.DRAIN_STARTED) == 1
