"""Closing a link for good is answered when it is true (rules E-8, I-8, A-9)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects
from delivery_records.model.inputs import LossCause, StoreFailure
from delivery_records.model.limits import UNKNOWN_PUT_S
from tests.delivery_records.harness import Net
from tests.delivery_records.links import Link, PublisherLink, SubscriberLink
from tests.delivery_records.nodes import StoreFault

LONG = 3600.0


def _attached(net: Net, kind: str) -> Link:
    return net.subscriber(net.nodes[0]) if kind == "s" else net.publisher(net.nodes[0])


def _exists(net: Net, kind: str) -> bool:
    return net.has_subscription() if kind == "s" else net.has_publisher()


KINDS = pytest.mark.parametrize("kind", ["s", "p"])


@KINDS
def test_a_close_is_answered_only_when_the_watch_shows_the_deletion(kind: str) -> None:
    net = Net()
    link = _attached(net, kind)
    net.nodes[0].is_watch_held = True
    link.detach(closed=True)
    assert not _exists(net, kind)
    assert link.detached() is None
    net.nodes[0].is_watch_held = False
    net.run()
    assert (link.end().closed, link.end().condition) == (True, "")


@KINDS
def test_a_close_that_lost_against_a_newer_attach_is_answered_as_stolen(kind: str) -> None:
    net = Net(2)
    link = _attached(net, kind)
    net.nodes[0].is_watch_held = True
    newer: Link = net.subscriber(net.nodes[1]) if kind == "s" else net.publisher(net.nodes[1])
    link.detach(closed=True)
    assert (link.end().closed, link.end().condition) == (True, "amqp:link:stolen")
    net.nodes[0].is_watch_held = False
    net.run()
    assert newer.detached() is None
    assert _exists(net, kind)


@KINDS
def test_a_newer_epoch_seen_before_the_answer_of_etcd_is_answered_as_stolen_once(kind: str) -> None:
    net = Net(2)
    link = _attached(net, kind)
    net.nodes[0].is_watch_held = True
    if kind == "s":
        net.subscriber(net.nodes[1])
    else:
        net.publisher(net.nodes[1])
    net.nodes[0].is_store_held = True
    link.detach(closed=True)
    net.nodes[0].is_watch_held = False
    net.run()
    net.nodes[0].is_store_held = False
    net.run()
    assert [(end.closed, end.condition) for end in link.all(effects.DetachLink)] == [(True, "amqp:link:stolen")]


@KINDS
def test_a_close_that_cannot_reach_etcd_ends_the_link(kind: str) -> None:
    net = Net()
    link = _attached(net, kind)
    net.nodes[0].faults.append(StoreFault(StoreFailure.UNAVAILABLE))
    link.detach(closed=True)
    assert link.is_refused_by_store()
    assert link.end().condition == "amqp:internal-error"
    assert _exists(net, kind)
    again = _attached(net, kind)
    again.detach(closed=True)
    assert (again.end().closed, again.end().condition) == (True, "")


@KINDS
@pytest.mark.parametrize("applied", [False, True])
def test_a_close_of_unknown_fate_waits_for_the_watch_and_then_ends_the_link(kind: str, applied: bool) -> None:
    net = Net()
    link = _attached(net, kind)
    node = net.nodes[0]
    node.is_watch_held = True
    node.faults.append(StoreFault(StoreFailure.UNKNOWN, is_applied=applied))
    link.detach(closed=True)
    net.advance(UNKNOWN_PUT_S - 0.1)
    assert link.detached() is None
    assert not link.is_refused_by_store()
    node.is_watch_held = False
    net.run()
    net.advance(0.2)
    assert link.end().condition == ("" if applied else "amqp:internal-error")
    assert link.is_refused_by_store() == (not applied)


@KINDS
def test_nothing_goes_on_behind_a_close(kind: str) -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.nodes[0].is_watch_held = True
    link: Link = subscriber if kind == "s" else publisher
    link.detach(closed=True)
    publisher.send(b"2")
    subscriber.accept(b"1")
    assert subscriber.deliveries == [b"1"]


def test_a_close_ends_what_the_subscription_owed() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    subscriber.detach(closed=True)
    assert publisher.accepted == [delivery]


@KINDS
def test_a_close_before_the_attach_is_complete_is_not_answered_as_done(kind: str) -> None:
    net = Net()
    net.nodes[0].is_watch_held = True
    link: Link
    if kind == "s":
        link = subscriber = SubscriberLink(net, net.nodes[0])
        subscriber.attach()
    else:
        link = publisher = PublisherLink(net, net.nodes[0])
        publisher.attach(unsettled={})
    link.detach(closed=True)
    assert (link.end().closed, link.end().condition) == (True, "amqp:link:stolen")
    net.nodes[0].is_watch_held = False
    net.run()
    again = _attached(net, kind)
    again.detach(closed=True)
    assert (again.end().closed, again.end().condition) == (True, "")
    assert not _exists(net, kind)


@KINDS
def test_a_detach_without_close_is_answered_at_once_and_keeps_the_key(kind: str) -> None:
    net = Net()
    link = _attached(net, kind)
    link.detach(closed=False)
    assert (link.end().closed, link.end().condition) == (False, "")
    assert _exists(net, kind)


@KINDS
def test_a_detach_before_the_attach_is_complete_counts_as_attached_and_lost(kind: str) -> None:
    net = Net()
    net.nodes[0].is_watch_held = True
    if kind == "s":
        subscriber = SubscriberLink(net, net.nodes[0])
        subscriber.attach(timeout_s=5.0)
        subscriber.detach(closed=False)
    else:
        publisher = PublisherLink(net, net.nodes[0])
        publisher.attach(exactly_once=False)
        publisher.detach(closed=False)
    assert _exists(net, kind)
    net.nodes[0].is_watch_held = False
    net.run()
    net.advance(6.0)
    assert not _exists(net, kind)


def test_a_connection_lost_behind_a_close_leaves_the_deletion_to_etcd() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    net.nodes[0].is_store_held = True
    subscriber.detach(closed=True)
    subscriber.drop(LossCause.CONNECTION_LOSS)
    net.nodes[0].is_store_held = False
    net.run()
    assert not net.has_subscription()


def test_a_suspended_publisher_goes_on_collecting_outcomes_and_notifies_none() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.drop()
    subscriber.accept(b"1")
    assert publisher.outcomes == []
    again = net.publisher(net.nodes[0], unsettled={b"1": None})
    delivery = again.send(b"1")
    assert again.accepted == [delivery]
    assert subscriber.deliveries == [b"1"]


def test_a_close_right_behind_the_proof_of_life_succeeds_or_is_stolen_but_never_hangs() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], timeout_s=LONG)
    net.nodes[0].is_store_held = True
    subscriber.flow(10, delivery_count=1)  # writes the real timeout: a newer epoch
    subscriber.detach(closed=True)
    net.nodes[0].is_store_held = False
    net.run()
    assert subscriber.end().closed
    if subscriber.end().condition:
        again = net.subscriber(net.nodes[0], timeout_s=LONG)
        again.detach(closed=True)
        assert again.end().condition == ""
    assert not net.has_subscription()
