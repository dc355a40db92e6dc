"""A watch that was lost is made good by the difference to a snapshot (rules K-1, K-4, A-3)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.inputs import StoreFailure
from delivery_records.model.limits import UNKNOWN_PUT_S, Limits
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import Kind, SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import Link, PublisherLink, SubscriberLink
from tests.delivery_records.nodes import StoreFault


def test_a_key_that_was_deleted_and_made_again_is_a_new_subscription() -> None:
    net = Net(2)
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    one = publisher.send(b"1")
    net.nodes[1].is_watch_held = True
    first.detach(closed=True)
    net.subscriber(net.nodes[0])
    assert publisher.accepted == []
    net.load_snapshot(net.nodes[1])
    net.nodes[1].is_watch_held = False
    net.run()
    assert publisher.accepted == [one]
    two = publisher.send(b"2")
    assert publisher.accepted == [one]
    assert two not in publisher.accepted


def test_a_link_whose_key_was_deleted_and_made_again_is_reported_of_the_deletion() -> None:
    net = Net(2)
    here = net.subscriber(net.nodes[0])
    net.nodes[0].is_watch_held = True
    net.delete_subscription()
    net.subscriber(net.nodes[1])
    net.load_snapshot(net.nodes[0])
    assert here.end().condition == "amqp:resource-deleted"


def test_a_link_whose_key_was_put_elsewhere_is_stolen() -> None:
    net = Net(2)
    here, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    net.nodes[0].is_watch_held = True
    there = net.subscriber(net.nodes[1])
    newer = net.publisher(net.nodes[1])
    net.load_snapshot(net.nodes[0])
    net.nodes[0].is_watch_held = False
    net.advance(0.1)
    assert here.end().condition == publisher.end().condition == "amqp:link:stolen"
    delivery = newer.send(b"1")
    there.accept(b"1")
    assert newer.accepted == [delivery]


def test_an_unchanged_view_makes_nothing_happen() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    before = len(subscriber.got), len(publisher.got)
    net.load_snapshot(net.nodes[0])
    assert (len(subscriber.got), len(publisher.got)) == before
    subscriber.accept(b"1")
    assert len(publisher.accepted) == 1


def test_a_session_that_ended_unseen_is_settled() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    publisher.send(b"1")
    subscriber.accept(b"1")
    net.nodes[0].is_watch_held = True
    publisher.detach(closed=True)
    net.publisher(net.nodes[1])
    assert subscriber.settled == []
    net.load_snapshot(net.nodes[0])
    assert subscriber.settled == [b"1"]


def test_a_session_whose_publisher_moved_after_the_attach_is_in_view_for_all_of_the_snapshot() -> None:
    """F37: what the subscriber had processed was left out of the reply, and sent again."""
    net = Net(3)
    net.nodes[0].is_watch_held = True
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[1])
    publisher.send(b"1")
    subscriber.accept(b"1")
    tag = subscriber.network_tag(b"1")
    subscriber.drop()
    here = SubscriberLink(net, net.nodes[0])
    here.attach(unsettled={tag: DeliveryOutcome.ACCEPTED})
    net.run()
    publisher.drop()
    net.publisher(net.nodes[2], unsettled={b"1": None}).send(b"1")
    net.load_snapshot(net.nodes[0])
    net.nodes[0].is_watch_held = False
    net.advance(0.1)
    assert here.last(effects.SubscriberReply).kept == [tag]
    assert here.deliveries == []


def test_a_router_that_died_unseen_is_noticed() -> None:
    net = Net(3)
    net.subscriber(net.nodes[1], timeout_s=5.0)
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    net.nodes[0].is_watch_held = net.nodes[2].is_watch_held = True
    net.kill(net.nodes[1])
    for node in (net.nodes[0], net.nodes[2]):
        net.load_snapshot(node)
        node.is_watch_held = False
    net.advance(5.0 + 2 * 2.0 + 1.0)
    assert publisher.accepted == [delivery]


def test_reloading_does_not_put_the_expiry_of_orphans_off() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1], timeout_s=5.0)
    net.kill(net.nodes[1])
    for _ in range(10):
        net.advance(1.0)
        net.load_snapshot(net.nodes[0])
    assert not net.has_subscription()


def test_messages_that_need_the_newer_revision_are_handled_behind_the_snapshot() -> None:
    net = Net(2)
    net.nodes[1].is_watch_held = True
    subscriber = SubscriberLink(net, net.nodes[1])
    subscriber.attach(unsettled={}, exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE)
    net.publisher(net.nodes[0]).send(b"1")
    net.advance(0.5)
    net.load_snapshot(net.nodes[1])
    net.nodes[1].is_watch_held = False
    net.run()
    assert subscriber.all(effects.SubscriberReply)
    subscriber.flow(10)
    assert subscriber.deliveries == [b"1"]


@pytest.mark.parametrize("kind", ["s", "p"])
def test_an_attach_whose_put_a_snapshot_passed_over_is_stolen_and_stops_nobody(kind: str) -> None:
    net = Net(2)
    node = net.nodes[0]
    node.is_watch_held = True
    link: Link
    if kind == "s":
        link = subscriber = SubscriberLink(net, node)
        subscriber.attach(unsettled={}, exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE)
        net.subscriber(net.nodes[1])
    else:
        link = publisher = PublisherLink(net, node)
        publisher.attach(unsettled={})
        net.publisher(net.nodes[1])
    net.load_snapshot(node)
    assert (link.end().condition, link.end().closed) == ("amqp:link:stolen", True)
    node.is_watch_held = False
    net.run()
    again: Link = net.subscriber(node) if kind == "s" else net.publisher(node)
    assert again.detached() is None
    assert again.answered()


@pytest.mark.parametrize("kind", ["s", "p"])
def test_an_attach_whose_key_a_snapshot_does_not_show_ends_after_a_while(kind: str) -> None:
    net = Net()
    node = net.nodes[0]
    node.is_watch_held = True
    link: Link
    if kind == "s":
        link = subscriber = SubscriberLink(net, node)
        subscriber.attach()
        net.etcd.delete(Kind.SUBSCRIPTION, net.subscription_path().partition("/")[2])
    else:
        link = publisher = PublisherLink(net, node)
        publisher.attach(unsettled={})
        net.etcd.delete(Kind.PUBLISHER, net.publisher_path().partition("/")[2])
    net.load_snapshot(node)
    assert not link.is_refused_by_store()
    net.advance(UNKNOWN_PUT_S + 0.1)
    assert link.is_refused_by_store()
    node.is_watch_held = False
    net.run()
    again: Link = net.subscriber(node) if kind == "s" else net.publisher(node)
    assert again.answered()


def test_an_attach_that_had_not_written_before_the_snapshot_goes_on() -> None:
    net = Net(2)
    node = net.nodes[0]
    net.subscriber(net.nodes[1]).drop()
    node.is_store_held = True
    subscriber = SubscriberLink(net, node)
    subscriber.attach(unsettled={}, exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE)
    net.load_snapshot(node)  # before the read
    net._operate(node, node.waiting.popleft())
    net.run()
    net.load_snapshot(node)  # before the put
    node.is_store_held = False
    net.run()
    assert subscriber.all(effects.SubscriberReply)
    net.advance(2 * UNKNOWN_PUT_S)
    assert not subscriber.is_refused_by_store()
    assert subscriber.detached() is None


def test_an_attach_that_lost_its_compare_around_a_snapshot_is_stolen_or_goes_on() -> None:
    net = Net(2)
    node = net.nodes[0]
    node.is_watch_held = True
    node.is_store_held = True
    subscriber = SubscriberLink(net, node)
    subscriber.attach(unsettled={}, exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE)
    net._operate(node, node.waiting.popleft())
    net.run()
    net.subscriber(net.nodes[1])  # between our read and our put
    net.load_snapshot(node)
    node.is_store_held = node.is_watch_held = False
    net.advance(1.0)
    assert subscriber.detached() is not None or subscriber.all(effects.SubscriberReply)
    assert net.subscriber(node).detached() is None


@pytest.mark.parametrize("applied", [False, True])
def test_a_proof_of_life_around_a_snapshot_keeps_its_link(applied: bool) -> None:
    net = Net()
    node = net.nodes[0]
    subscriber, publisher = net.subscriber(node, timeout_s=3600.0), net.publisher(node)
    node.is_watch_held = True
    node.faults.append(StoreFault(StoreFailure.UNKNOWN, is_applied=applied))
    subscriber.flow(10, delivery_count=1)
    net.load_snapshot(node)
    node.is_watch_held = False
    net.run()
    assert subscriber.detached() is None
    publisher.send(b"1")
    assert subscriber.deliveries == [b"1"]


def test_a_start_of_session_around_a_snapshot_gives_credit() -> None:
    net = Net()
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(unsettled={})
    net.nodes[0].is_watch_held = True
    publisher.echo()
    net.load_snapshot(net.nodes[0])
    assert publisher.credit > 0


def test_the_first_snapshot_answers_barriers_at_its_own_revision() -> None:
    net = Net()
    net.subscriber(net.nodes[0]).drop()
    net.start_router()
    assert net.nodes[1].core.view.applied == net.etcd.revision
    assert net.subscriber(net.nodes[0], "new").confirmed()
    assert not [d for d in net.nodes[1].answers if isinstance(d, inputs.StoreFailed)]


def test_a_move_to_a_router_that_is_gone_already_is_only_remembered() -> None:
    net = Net(3)
    net.subscriber(net.nodes[1]).drop()
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    net.nodes[0].is_watch_held = True
    net.subscriber(net.nodes[2])
    net.kill(net.nodes[2])
    net.nodes[0].is_watch_held = False
    net.load_snapshot(net.nodes[0])
    assert publisher.accepted == []
    net.subscriber(net.nodes[1]).accept(b"1")
    assert publisher.accepted == [delivery]


def test_where_many_attach_a_snapshot_with_an_earlier_write_does_not_mean_that_the_link_is_stolen() -> None:
    net = Net(2, limits=Limits(read_attaches=0))
    node = net.nodes[0]
    node.is_watch_held = node.is_store_held = True
    subscriber = SubscriberLink(net, node)
    subscriber.attach(unsettled={}, exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE)
    net.subscriber(net.nodes[1])  # before our put
    net.load_snapshot(node)
    node.is_store_held = node.is_watch_held = False
    net.run()
    assert subscriber.all(effects.SubscriberReply)
    assert subscriber.detached() is None
