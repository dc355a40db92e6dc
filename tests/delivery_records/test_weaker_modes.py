"""At-least-once and at-most-once links, mixed freely with exactly-once ones (rules I-1c, E-4, section c.3)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.limits import HELD_PRESETTLED, Limits
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.patience import Patience, SlowAction
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net

AT_MOST_ONCE = SubscriptionMode.AT_MOST_ONCE


def test_a_publisher_that_settles_first_gets_its_outcome_settled() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0], settles_first=True)
    first, second = publisher.send(b"1"), publisher.send(b"2")
    subscriber.accept(b"1", b"2")
    assert publisher.outcomes == [(first, DeliveryOutcome.ACCEPTED), (second, DeliveryOutcome.ACCEPTED)]
    assert all(reported.settled for reported in publisher.all(effects.Dispose))
    assert subscriber.settled == [b"1", b"2"]
    assert len(net.nodes[0].core.ingresses[net.publisher_path().partition("/")[2]].window) == 0


def test_a_delivery_of_mode_first_on_a_link_of_mode_second_gets_its_outcome_settled() -> None:  # 2.7.5
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    first = publisher.send(b"1", receiver_settles=True)
    second = publisher.send(b"2")
    subscriber.accept(b"1", b"2")
    reported = {
        number: dispose.settled for dispose in publisher.all(effects.Dispose) for number in dispose.delivery_ids
    }
    assert reported == {first: True, second: False}
    assert subscriber.settled == [b"1"]
    publisher.settle(b"2")
    assert subscriber.settled == [b"1", b"2"]


def test_a_malformed_delivery_of_mode_first_is_rejected_and_settled() -> None:
    def refuse(*_: object) -> bytes:
        raise ValueError("no message")

    net = Net(message_format=MessageFormat(refuse))
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1", receiver_settles=True)
    (reported,) = publisher.all(effects.Dispose)
    assert (reported.outcome, reported.settled) == (DeliveryOutcome.REJECTED, True)


def test_outcomes_settled_with_the_notifying_do_not_count_as_never_settled() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0], settles_first=True)
    for number in range(10):
        publisher.send(bytes([number]))
        subscriber.accept(bytes([number]))
        net.advance(20.0)
    assert publisher.detached() is None


def test_a_subscriber_that_settles_as_it_accepts_gets_no_settlement_back() -> None:
    net = Net()
    subscriber, publisher = net.stock_subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    subscriber.answer(DeliveryOutcome.ACCEPTED, b"1", settled=True)
    assert publisher.accepted == [delivery]
    publisher.settle(b"1")
    assert subscriber.settled == []


def test_a_subscriber_without_a_map_gets_what_it_did_not_confirm_again_and_flagged() -> None:
    net = Net(2)
    subscriber, publisher = net.stock_subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    subscriber.answer(DeliveryOutcome.ACCEPTED, b"1", settled=True)
    subscriber.drop()
    second = net.stock_subscriber(net.nodes[1])
    assert [(d.tag[11:], d.redelivered, d.resume) for d in second.all(effects.Deliver)] == [(b"2", True, False)]


def test_a_repeat_that_is_wanted_again_is_still_flagged_as_one() -> None:
    net = Net()
    subscriber, publisher = net.stock_subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")  # processed, and the answer was lost
    subscriber.drop()
    second = net.stock_subscriber(net.nodes[0])
    second.answer(DeliveryOutcome.RELEASED, b"1", settled=True)
    assert [d.redelivered for d in second.all(effects.Deliver)] == [True, True]


def test_the_tag_of_a_repeat_is_the_same_within_a_session() -> None:
    net = Net(2)
    subscriber, publisher = net.stock_subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.drop()
    second = net.stock_subscriber(net.nodes[0])
    assert second.all(effects.Deliver)[0].tag == subscriber.all(effects.Deliver)[0].tag


def test_a_presettled_delivery_takes_its_place_in_the_stream_and_no_place_in_the_window() -> None:
    net = Net(2)
    near, far = net.subscriber(net.nodes[0], "near"), net.subscriber(net.nodes[1], "far")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2", settled=True)
    publisher.send(b"3")
    for subscriber in (near, far):
        assert [(d.tag[11:], d.settled) for d in subscriber.all(effects.Deliver)] == [
            (b"1", False),
            (b"2", True),
            (b"3", False),
        ]
        subscriber.accept(b"1", b"3")
    assert len(publisher.accepted) == 2
    publisher.settle(b"1", b"3")
    assert near.settled == far.settled == [b"1", b"3"]


def test_a_presettled_delivery_costs_credit_and_credit_comes_back() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    for number in range(5000):
        assert publisher.credit > 0
        publisher.send(number.to_bytes(4, "big"), settled=True)


@pytest.mark.parametrize(("first", "most"), [(0, Limits().window), (1, HELD_PRESETTLED)])
def test_presettled_deliveries_wait_for_credit_and_for_the_first_one_as_many_as_a_publisher_may_send(
    first: int, most: int
) -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1], limit=first), net.publisher(net.nodes[0])
    publisher.send(b"0")
    tags = [b"%d" % number for number in range(1, most + 5)]
    for tag in tags:
        publisher.send(tag, settled=True)
    assert subscriber.deliveries == [b"0"][:first]
    subscriber.flow(10_000)
    assert subscriber.deliveries == [b"0", *tags[:most]]
    assert net.nodes[1].count(Decision.DROPPED_AT_MOST_ONCE) == 4


def test_what_was_sent_settled_and_waits_is_bounded_in_bytes_and_counts_in_the_routers_budget() -> None:
    net = Net(limits=Limits(window_bytes=10_000))
    subscriber, publisher = net.subscriber(net.nodes[0], limit=0), net.stock_publisher(net.nodes[0])
    for number in range(5):
        publisher.send(b"%d" % number, bytes(3_000), settled=True)
    assert net.nodes[0].core.budget.held == 9_000
    assert net.nodes[0].count(Decision.DROPPED_AT_MOST_ONCE) == 2
    subscriber.flow(1)
    assert net.nodes[0].core.budget.held == 6_000
    subscriber.drop()
    assert net.nodes[0].core.budget.held == 0


def test_a_subscriber_that_gives_no_credit_for_what_was_sent_settled_is_not_slow() -> None:
    net = Net()
    patience = Patience(4.0, SlowAction.DETACH)
    subscriber = net.subscriber(net.nodes[0], limit=0, patience=patience)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1", settled=True)
    net.advance(30.0)
    assert subscriber.detached() is None
    publisher.send(b"2")
    net.advance(30.0)
    assert subscriber.detached() is not None


def test_a_presettled_delivery_waits_behind_held_ones_up_to_a_limit() -> None:
    net = Net()
    mixed = net.publisher(net.nodes[0])
    subscriber = net.subscriber(net.nodes[0], map_bound=1)
    mixed.send(b"1")
    mixed.send(b"2")  # held: the subscriber's map is full (C-4)
    for number in range(HELD_PRESETTLED + 10):
        mixed.send(b"s%d" % number, settled=True)
    assert subscriber.deliveries == [b"1"]
    subscriber.accept(b"1")
    mixed.settle(b"1")
    kept = [b"s%d" % number for number in range(HELD_PRESETTLED)]
    assert subscriber.deliveries == [b"1", b"2", *kept]


def test_a_presettled_delivery_is_never_repeated() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    net.lost = lambda frame: isinstance(frame, inputs.RouterFrame)
    publisher.send(b"1", settled=True)
    net.lost = lambda frame: False
    net.advance(5.0)
    assert subscriber.deliveries == []
    publisher.send(b"2")
    assert subscriber.deliveries == [b"2"]


def test_a_malformed_presettled_message_goes_nowhere() -> None:
    def refuse(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
        raise ValueError("no")

    net = Net(message_format=MessageFormat(refuse))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1", settled=True)
    assert subscriber.deliveries == []
    assert publisher.outcomes == []


def test_a_map_entry_that_is_repeated_settled_is_forwarded_once_and_settled_at_once() -> None:
    net = Net(3)
    subscriber = net.subscriber(net.nodes[0])
    net.publisher(net.nodes[1]).send(b"0")
    net.kill(net.nodes[1])
    again = net.publisher(net.nodes[2], unsettled={b"0": None, b"1": None, b"2": None})
    again.send(b"0")
    again.send(b"1", settled=True)
    again.send(b"2")
    assert subscriber.deliveries == [b"0", b"1", b"2"]
    assert subscriber.settled == [b"1"]
    subscriber.accept(b"0", b"2")
    again.settle(b"0", b"2")
    assert len(again.accepted) == 2
    net.advance(100.0)
    assert again.detached() is None


def test_an_at_most_once_subscriber_gets_settled_transfers_and_owes_nothing() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0], mode=AT_MOST_ONCE), net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    assert [(d.tag[11:], d.settled) for d in subscriber.all(effects.Deliver)] == [(b"1", True)]
    assert publisher.accepted == [delivery]
    publisher.settle(b"1")
    assert subscriber.settled == []


@pytest.mark.parametrize("routers", [1, 2])
def test_an_at_most_once_subscriber_without_credit_or_away_holds_nobody(routers: int) -> None:
    net = Net(routers)
    subscriber = net.subscriber(net.nodes[-1], mode=AT_MOST_ONCE, limit=0)
    publisher = net.publisher(net.nodes[0])
    first = publisher.send(b"1")
    assert publisher.accepted == [first]
    subscriber.drop()
    second = publisher.send(b"2")
    assert publisher.accepted == [first, second]


def test_an_at_most_once_subscriber_never_gets_a_repeat() -> None:
    net = Net(3)
    subscriber = net.subscriber(net.nodes[0], "once", mode=AT_MOST_ONCE)
    net.subscriber(net.nodes[0], "owing")
    net.publisher(net.nodes[1]).send(b"1")
    net.kill(net.nodes[1])
    again = net.publisher(net.nodes[2], unsettled={b"1": None})
    again.send(b"1")
    again.send(b"2")
    assert subscriber.deliveries == [b"1", b"2"]
    subscriber.drop()
    second = net.subscriber(net.nodes[0], "once", mode=AT_MOST_ONCE)
    again.send(b"3")
    assert second.deliveries == [b"3"]


def test_a_topic_with_an_at_most_once_subscriber_is_not_without_subscriptions() -> None:
    net = Net()
    net.subscriber(net.nodes[0], mode=AT_MOST_ONCE)
    stock = net.stock_publisher(net.nodes[0])
    delivery = stock.send(b"1")
    assert stock.outcomes == [(delivery, DeliveryOutcome.ACCEPTED)]


def test_a_subscription_that_comes_back_at_most_once_owes_nothing_any_more_and_the_other_way_round() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    net.subscriber(net.nodes[0]).drop()
    first = publisher.send(b"1")
    assert publisher.accepted == []
    net.subscriber(net.nodes[0], mode=AT_MOST_ONCE).drop()
    assert publisher.accepted == [first]
    owing = net.subscriber(net.nodes[0])
    second = publisher.send(b"2")
    assert publisher.accepted == [first]
    owing.accept(b"2")
    assert publisher.accepted == [first, second]


@pytest.mark.parametrize("end", ["settled", "publisher closed", "channel restarted"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_slow_at_most_once_subscriber_gets_what_is_settled_before_it_has_credit(first: int, end: str) -> None:
    net = Net(2)
    slow = net.subscriber(net.nodes[1], "slow", mode=AT_MOST_ONCE, limit=first)
    publisher = net.publisher(net.nodes[0])
    for tag in (b"1", b"2", b"3"):
        publisher.send(tag)
    if end == "settled":
        publisher.settle(b"1", b"2")
    elif end == "publisher closed":
        publisher.detach(closed=True)
    else:
        net.nodes[0].core.channels.channel(net.nodes[1].rid).restart("test")
        net.feed(net.nodes[0])
    slow.flow(10)
    assert slow.deliveries == [b"1", b"2", b"3"]
    assert net.nodes[1].tables()["endpoints"][0]["held"] == 0  # type: ignore[index]
    publisher.settle(b"3")


def test_a_slow_at_most_once_subscriber_misses_what_is_settled_when_many_wait() -> None:
    net = Net()
    slow = net.subscriber(net.nodes[0], "slow", mode=AT_MOST_ONCE, limit=1)
    publisher = net.publisher(net.nodes[0])
    tags = [b"%d" % number for number in range(HELD_PRESETTLED + 10)]
    for tag in tags:
        publisher.send(tag)
    publisher.settle(*tags)
    slow.flow(1000)
    assert slow.deliveries == tags[: HELD_PRESETTLED + 1]


@pytest.mark.parametrize("at", [0, 1])
def test_an_at_most_once_subscription_gets_messages_of_every_format(at: int) -> None:
    """One with a message-format other than 0 was accepted and sent to nobody."""
    net = Net(2)
    subscriber = net.subscriber(net.nodes[at], mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = net.stock_publisher(net.nodes[0])
    sent = [publisher.send(b"1"), publisher.send(b"2", message_format=7), publisher.send(b"3")]
    assert [(found.tag[11:], found.message_format) for found in subscriber.all(effects.Deliver)] == [
        (b"1", 0),
        (b"2", 7),
        (b"3", 0),
    ]
    assert publisher.accepted == sent


def test_an_at_most_once_subscription_is_not_sent_what_a_publisher_repeats_in_another_format() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = net.publisher(net.nodes[0])
    publisher.drop()
    publisher = net.publisher(net.nodes[0], unsettled={b"1": None})
    publisher.send(b"1", message_format=7)
    assert subscriber.deliveries == []
