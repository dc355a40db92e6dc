"""What a publisher's transfers do, legal and odd ones (rules I-1, I-1a, I-3, I-4a, I-9, A-3a)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects
from delivery_records.model.limits import RESUME_FLAGS_IGNORED
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink


def _moved(net: Net, *tags: bytes) -> tuple[SubscriberLink, PublisherLink]:
    """A subscriber that got `tags`, and their publisher, resumed at another router with all of them unsettled."""
    subscriber = net.subscriber(net.nodes[0])
    first = net.publisher(net.nodes[1])
    for tag in tags:
        first.send(tag)
    first.drop()
    return subscriber, net.publisher(net.nodes[0], unsettled=dict.fromkeys(tags))


def test_the_reply_to_a_publisher_carries_an_empty_map_for_a_map_and_null_for_null() -> None:
    net = Net()
    assert net.publisher(net.nodes[0]).last(effects.PublisherReply).unsettled == {}
    assert net.stock_publisher(net.nodes[0], "q").last(effects.PublisherReply).unsettled is None


def test_a_resumed_transfer_is_ignored_and_costs_its_credit() -> None:
    net = Net(2)
    subscriber, publisher = _moved(net, b"1")
    before = publisher.credit
    publisher.send(b"1", resume=True)
    assert publisher.credit == before - 1 or publisher.all(effects.GrantPublisherCredit)[-1].limit > before
    assert publisher.outcomes == []
    subscriber.accept(b"1")
    assert publisher.outcomes == []
    delivery = publisher.send(b"1")
    assert publisher.accepted == [delivery]
    assert subscriber.deliveries == [b"1"]


def test_the_third_resumed_transfer_ends_the_link() -> None:
    net = Net(2)
    _, publisher = _moved(net, b"1")
    for _ in range(RESUME_FLAGS_IGNORED - 1):
        publisher.send(b"1", resume=True)
    assert publisher.detached() is None
    publisher.send(b"1", resume=True)
    assert (publisher.end().condition, publisher.end().closed) == ("amqp:not-allowed", False)
    assert "resend without resume" in publisher.end().description
    assert net.has_publisher()


def test_an_aborted_delivery_leaves_no_trace() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1", aborted=True)
    assert subscriber.deliveries == []
    assert publisher.outcomes == []
    delivery = publisher.send(b"1")
    subscriber.accept(b"1")
    assert publisher.accepted == [delivery]


def test_aborted_deliveries_do_not_use_credit_up() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    for _ in range(5000):
        assert publisher.credit > 0
        publisher.send(b"1", aborted=True)


def test_an_aborted_resend_may_be_sent_again() -> None:
    net = Net(2)
    subscriber, publisher = _moved(net, b"1", b"2")
    publisher.send(b"1", aborted=True)
    one, two = publisher.send(b"1"), publisher.send(b"2")
    subscriber.accept(b"1", b"2")
    assert publisher.accepted == [one, two]


def test_an_aborted_resend_that_does_not_come_again_is_given_up_with_the_next_new_delivery() -> None:
    net = Net(2)
    subscriber, publisher = _moved(net, b"1")
    publisher.send(b"1", aborted=True)
    delivery = publisher.send(b"new")
    assert subscriber.settled == [b"1"]
    subscriber.accept(b"new")
    assert publisher.accepted == [delivery]


@pytest.mark.parametrize("settled", [False, True])
def test_a_new_delivery_ends_the_resend_phase_settled_or_not(settled: bool) -> None:
    net = Net(2)
    subscriber, publisher = _moved(net, b"1", b"2")
    publisher.send(b"new", settled=settled)
    assert subscriber.settled == [b"1", b"2"]
    net.advance(100.0)
    assert publisher.detached() is None


def test_a_tag_that_is_in_use_ends_the_link() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"1")
    assert (publisher.end().condition, publisher.end().closed) == ("amqp:not-allowed", False)
    assert subscriber.deliveries == [b"1"]
    assert net.has_publisher()


def test_a_tag_is_free_again_once_it_is_settled() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    for _ in range(3):
        publisher.send(b"1")
        subscriber.accept(b"1")
        publisher.settle(b"1")
    assert len(publisher.accepted) == 3
    assert subscriber.deliveries == [b"1"] * 3


def test_settling_early_means_giving_up_and_a_held_copy_is_dropped() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0], limit=1), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    publisher.settle(b"1", b"2")
    assert subscriber.settled == [b"1"]
    subscriber.flow(10)
    assert subscriber.deliveries == [b"1"]
    assert publisher.outcomes == []
    assert net.nodes[0].count(Decision.DELIVERY_GIVEN_UP) == 2


def test_what_is_given_up_in_the_middle_does_not_stop_what_follows() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    ids = [publisher.send(tag) for tag in (b"1", b"2", b"3")]
    publisher.settle(b"2")
    subscriber.accept(b"1", b"3")
    assert publisher.accepted == [ids[0], ids[2]]


def test_an_outcome_in_the_presented_map_is_the_publishers_to_settle() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[0])
    first = net.publisher(net.nodes[1])
    first.send(b"1")
    first.send(b"2")
    subscriber.accept(b"1")
    first.drop()
    publisher = net.publisher(net.nodes[0], unsettled={b"1": DeliveryOutcome.ACCEPTED, b"2": None})
    assert subscriber.settled == [b"1"]
    delivery = publisher.send(b"2")
    subscriber.accept(b"2")
    assert publisher.accepted == [delivery]


def test_a_message_of_another_format_is_passed_through_unread() -> None:
    def annotate(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
        return message + b" annotated"

    net = Net(message_format=MessageFormat(annotate))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1", b"opaque", message_format=7)
    publisher.send(b"2", b"plain")
    deliveries = subscriber.all(effects.Deliver)
    assert [(d.message, d.message_format) for d in deliveries] == [(b"opaque", 7), (b"plain annotated", 0)]


def test_transfers_before_the_link_is_active_go_nowhere() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(unsettled={})
    publisher.send(b"1")
    assert subscriber.deliveries == []
    assert net.nodes[0].count(Decision.TRANSFER_NOT_ACTIVE) == 1


def test_a_subscription_that_joins_owes_only_what_is_received_from_then_on() -> None:
    net = Net()
    old, publisher = net.subscriber(net.nodes[0], "old"), net.publisher(net.nodes[0])
    one = publisher.send(b"1")
    new = net.subscriber(net.nodes[0], "new")
    two = publisher.send(b"2")
    old.accept(b"1", b"2")
    assert publisher.accepted == [one]
    assert new.deliveries == [b"2"]
    new.accept(b"2")
    assert publisher.accepted == [one, two]
