"""A publisher that requires subscriptions learns on arrival that there are too few, and who processed what (I-3c)."""

from __future__ import annotations

from collections.abc import Sequence

from delivery_records.model import effects
from delivery_records.model.inputs import UnsettledMap
from delivery_records.model.limits import OWING_NAMES
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink
from tests.delivery_records.nodes import Node

ACCEPTED, RELEASED = DeliveryOutcome.ACCEPTED, DeliveryOutcome.RELEASED


def requiring(
    net: Net,
    node: Node,
    require: int,
    unsettled: UnsettledMap | None = None,
    *,
    waits: bool = False,
    starts: Sequence[tuple[bytes, int]] = (),
) -> PublisherLink:
    link = PublisherLink(net, node)
    link.attach("p", unsettled={} if unsettled is None else unsettled, require=require, waits=waits, starts=starts)
    link.echo()
    return link


def reports(publisher: PublisherLink) -> list[tuple[bytes, tuple[str, ...], int]]:
    return [
        (reported.tag, tuple(reported.names), reported.count) for reported in publisher.all(effects.NotifyAcceptedBy)
    ]


def test_a_message_that_nobody_subscribes_to_is_released() -> None:
    net = Net()
    publisher = requiring(net, net.nodes[0], 1)
    sent = publisher.send(b"1")
    assert publisher.outcomes == [(sent, RELEASED)]


def test_what_too_few_are_there_for_is_sent_to_none_of_them() -> None:
    net = Net(2)
    there = net.subscriber(net.nodes[1])
    listening = net.subscriber(net.nodes[0], "settled", mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = requiring(net, net.nodes[0], 2)
    sent = publisher.send(b"1")
    publisher.settle(b"1")
    there.drop()
    back = net.subscriber(net.nodes[0])
    assert publisher.outcomes == [(sent, RELEASED)]
    assert not there.all(effects.Deliver)
    assert not listening.all(effects.Deliver)
    assert not back.all(effects.Deliver)


def test_a_disconnected_subscription_counts_and_one_that_is_owed_nothing_does_not() -> None:
    net = Net()
    net.subscriber(net.nodes[0], "settled", mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = requiring(net, net.nodes[0], 1)
    first = publisher.send(b"1")
    publisher.settle(b"1")
    net.subscriber(net.nodes[0]).drop()
    publisher.send(b"2")
    assert publisher.outcomes == [(first, RELEASED)]
    back = net.subscriber(net.nodes[0])
    back.accept(b"2")
    assert [outcome for _, outcome in publisher.outcomes] == [RELEASED, ACCEPTED]


def test_behind_a_released_message_all_is_released_and_credit_comes_back_when_it_is_settled() -> None:
    net = Net()
    publisher = requiring(net, net.nodes[0], 1)
    publisher.send(b"1")
    assert publisher.credit == 0
    subscriber = net.subscriber(net.nodes[0])
    publisher.send(b"2")  # it was under way
    assert [outcome for _, outcome in publisher.outcomes] == [RELEASED, RELEASED]
    publisher.settle(b"1")
    assert publisher.credit <= 0
    publisher.settle(b"2")
    assert publisher.credit > 0
    publisher.send(b"3")
    subscriber.accept(b"3")
    assert publisher.outcomes[-1][1] is ACCEPTED
    assert len(subscriber.all(effects.Deliver)) == 1


def test_an_entry_of_a_map_is_not_released_although_nobody_is_there_any_more() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[0])
    publisher = requiring(net, net.nodes[0], 1)
    publisher.send(b"1")
    publisher.drop()
    subscriber.accept(b"1")
    subscriber.detach(closed=True)
    moved = requiring(net, net.nodes[1], 1, {b"1": None})
    moved.send(b"1")
    assert [outcome for _, outcome in moved.outcomes] == [ACCEPTED]
    assert reports(moved) == [(b"1", (), 0)]


def test_an_entry_that_was_released_and_not_recorded_goes_to_whoever_is_there_now() -> None:
    net = Net(2)
    publisher = requiring(net, net.nodes[0], 1)
    publisher.send(b"1")
    publisher.drop()
    subscriber = net.subscriber(net.nodes[0])
    moved = requiring(net, net.nodes[1], 1, {b"1": None})
    moved.send(b"1")
    subscriber.accept(b"1")
    assert [outcome for _, outcome in moved.outcomes] == [ACCEPTED]
    assert reports(moved) == [(b"1", ("s/link",), 1)]


def test_who_processed_is_reported_before_the_outcome_and_again_only_when_it_changes() -> None:
    net = Net()
    first = net.subscriber(net.nodes[0])
    publisher = requiring(net, net.nodes[0], 0)
    for tag in (b"1", b"2"):
        publisher.send(tag)
        first.accept(tag)
    second = net.subscriber(net.nodes[0], "s2")
    publisher.send(b"3")
    first.accept(b"3")
    second.accept(b"3")
    assert reports(publisher) == [(b"1", ("s/link",), 1), (b"3", ("s/link", "s2/link"), 2)]
    kinds = [
        type(reported) for reported in publisher.got if isinstance(reported, effects.NotifyAcceptedBy | effects.Dispose)
    ]
    reported = [effects.NotifyAcceptedBy, effects.Dispose]
    assert kinds == [*reported, effects.Dispose, *reported]


def test_a_late_subscription_is_not_named_for_what_it_was_not_owed() -> None:
    net = Net()
    first = net.subscriber(net.nodes[0])
    publisher = requiring(net, net.nodes[0], 0)
    publisher.send(b"1")
    net.subscriber(net.nodes[0], "late")
    first.accept(b"1")
    assert reports(publisher) == [(b"1", ("s/link",), 1)]


def test_one_that_ended_counts_for_what_it_had_processed_and_for_nothing_else() -> None:
    net = Net()
    first = net.subscriber(net.nodes[0])
    other = net.subscriber(net.nodes[0], "other")
    publisher = requiring(net, net.nodes[0], 0)
    for tag in (b"1", b"2", b"3"):
        publisher.send(tag)
    other.accept(b"1", b"2")
    net.delete_subscription("other")
    first.accept(b"1", b"2", b"3")
    assert reports(publisher) == [(b"1", ("s/link", "other/link"), 2), (b"3", ("s/link",), 1)]


def test_many_that_processed_are_a_number_and_few_names() -> None:
    net = Net()
    all_of_them = [net.subscriber(net.nodes[0], f"s{number}") for number in range(OWING_NAMES + 3)]
    publisher = requiring(net, net.nodes[0], len(all_of_them))
    publisher.send(b"1")
    for subscriber in all_of_them:
        subscriber.accept(b"1")
    [(_, names, count)] = reports(publisher)
    assert (len(names), count) == (OWING_NAMES, OWING_NAMES + 3)


def test_a_publisher_that_does_not_ask_is_reported_outcomes_alone() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.accept(b"1")
    assert publisher.outcomes
    assert reports(publisher) == []


def test_what_a_map_names_waits_for_subscriptions_where_the_publisher_does_and_comes_to_them_in_order() -> None:
    """I-3f."""
    net = Net(2)
    requiring(net, net.nodes[0], 1, waits=True).drop()  # it ends before it has read anything
    waiting = requiring(net, net.nodes[1], 1, {b"1": None, b"2": None}, waits=True)
    for tag in (b"1", b"2", b"3"):
        waiting.send(tag)
    assert waiting.outcomes == []
    subscriber = net.subscriber(net.nodes[0])
    assert waiting.last(effects.DetachLink).condition == "amqp:link:detach-forced"
    again = requiring(net, net.nodes[1], 1, dict.fromkeys((b"1", b"2", b"3")), waits=True, starts=[(b"3", 1)])
    for tag in (b"1", b"2", b"3"):
        again.send(tag)
        subscriber.accept(tag)
    assert [outcome for _, outcome in again.outcomes] == [ACCEPTED] * 3
    assert reports(again) == [(b"1", ("s/link",), 1)]
    assert not again.all(effects.DetachLink)


def test_what_its_only_subscription_left_waits_for_the_next_one() -> None:
    net = Net()
    first = net.subscriber(net.nodes[0])
    publisher = requiring(net, net.nodes[0], 1, waits=True)
    publisher.send(b"1")
    first.detach(closed=True)
    assert publisher.outcomes == []
    second = net.subscriber(net.nodes[0], "second")
    assert publisher.all(effects.DetachLink)
    again = requiring(net, net.nodes[0], 1, {b"1": None}, waits=True)
    again.send(b"1")
    second.accept(b"1")
    assert [outcome for _, outcome in again.outcomes] == [ACCEPTED]
