"""What becomes of large messages that do not come to their end, and of who needs them again (rules L-5 to L-7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.inputs import LossCause
from delivery_records.model.limits import LARGE_STALL_S
from delivery_records.model.messages import Need, Taken
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.parts import Part
from delivery_records.model.view import Kind, SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.large_parts import (
    AHEAD,
    FIRST,
    LIMITS,
    MORE,
    answer,
    part,
    parts,
    send_large,
    take,
    take_all,
    unread,
)
from tests.delivery_records.links import PublisherLink, SubscriberLink

# ---------------------------------------------------------------------- L-5


def test_what_its_publisher_aborts_ends_aborted_and_may_be_another_delivery_then() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    part(publisher, b"1", b"", Part.ABORT)
    assert parts(subscriber)[-1] == (b"1", Part.ABORT)
    publisher.send(b"1", b"small")
    assert subscriber.deliveries == [b"1"]
    subscriber.accept(b"1")
    assert publisher.accepted == [2]
    assert net.nodes[0].core.counts[Decision.LARGE_DELIVERED] == 0


@pytest.mark.parametrize("loses", ["link", "router"])
def test_a_publisher_that_fails_in_the_middle_reaches_subscribers_as_aborted(loses: str) -> None:
    net = Net(3, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    if loses == "link":
        publisher.drop()
    else:
        net.kill(net.nodes[1])
    assert parts(subscriber)[-1] == (b"1", Part.ABORT)
    again = net.publisher(net.nodes[2], unsettled={b"1": None})
    send_large(again, b"1")
    take_all(subscriber)
    assert parts(subscriber)[-3:] == [(b"1", Part.FIRST), (b"1", Part.MIDDLE), (b"1", Part.LAST)]
    answer(subscriber, DeliveryOutcome.ACCEPTED, b"1")
    assert again.accepted == [1]


def test_a_repeated_delivery_that_is_aborted_is_awaited_again() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, first = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    first.send(b"1")
    first.drop()
    publisher = net.publisher(net.nodes[1], unsettled={b"2": None})
    part(publisher, b"2", FIRST, Part.FIRST)
    part(publisher, b"2", b"", Part.ABORT)
    send_large(publisher, b"2")
    take_all(subscriber)
    answer(subscriber, DeliveryOutcome.ACCEPTED, b"2")
    assert publisher.accepted == [2]


def test_a_publisher_that_stops_in_the_middle_is_detached_and_its_subscribers_go_on() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    other = net.publisher(net.nodes[1], "q")
    part(publisher, b"1", FIRST, Part.FIRST)
    take(subscriber, len(FIRST))
    other.send(b"a")
    net.advance(LARGE_STALL_S / 2)
    part(publisher, b"1", b"m", Part.MIDDLE)
    take(subscriber, 1)
    net.advance(LARGE_STALL_S * 3 / 4)
    assert publisher.detached() is None
    net.advance(LARGE_STALL_S)
    assert (publisher.end().condition, publisher.end().closed) == ("amqp:link:detach-forced", False)
    assert parts(subscriber)[-1] == (b"1", Part.ABORT)
    assert subscriber.deliveries == [b"a"]


def test_a_publisher_without_room_is_not_detached_for_that() -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(4):
        part(publisher, b"1", MORE, Part.MIDDLE)
    net.advance(4 * LARGE_STALL_S)
    assert publisher.detached() is None
    assert parts(subscriber)[-1] == (b"1", Part.MIDDLE)


def test_what_follows_a_lost_stream_waits_for_the_next_sync() -> None:
    net = Net(3, limits=replace(LIMITS, window_bytes=100_000))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    send_large(publisher, b"1", more=4)
    publisher.send(b"2")
    net.kill(net.nodes[1])
    assert parts(subscriber)[-1] == (b"1", Part.ABORT)
    assert subscriber.deliveries == [], "2 is not sent while 1 is missing: it would be skipped"
    again = net.publisher(net.nodes[2], unsettled={b"1": None, b"2": None})
    send_large(again, b"1", more=4)
    again.send(b"2")
    take_all(subscriber)
    assert subscriber.deliveries == [b"2"]
    answer(subscriber, DeliveryOutcome.ACCEPTED, b"1")
    subscriber.accept(b"2")
    assert again.accepted == [1, 2]


def test_a_channel_that_starts_again_in_the_middle_makes_the_publisher_send_again() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    part(publisher, b"1", MORE, Part.MIDDLE)
    take(subscriber, unread(subscriber))
    lost = iter([True])
    net.lost = lambda frame: next(lost, False)
    part(publisher, b"1", MORE, Part.MIDDLE)
    net.advance(1.0)
    assert (b"1", Part.ABORT) in parts(subscriber)
    part(publisher, b"1", MORE, Part.LAST)
    assert publisher.end().condition == "amqp:link:detach-forced"


def test_a_subscriber_is_not_left_in_the_middle_for_want_of_room_of_its_publisher() -> None:
    net = Net(limits=LIMITS)
    quick, slow = net.subscriber(net.nodes[0]), net.subscriber(net.nodes[0], "t", limit=0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"0", bytes(LIMITS.window_bytes))
    part(publisher, b"1", FIRST, Part.FIRST)
    take(quick, unread(quick))
    slow.drop()
    net.advance(5 * LARGE_STALL_S)
    assert parts(quick)[-1] == (b"1", Part.ABORT)
    assert publisher.end().condition == "amqp:link:detach-forced"


# ---------------------------------------------------------------------- L-6


def test_whoever_takes_nothing_while_others_wait_for_it_is_left_out_and_gets_it_later() -> None:
    net = Net(2, limits=LIMITS)
    quick, slow = net.subscriber(net.nodes[0]), net.subscriber(net.nodes[0], "t", limit=0)
    publisher = net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(4):
        part(publisher, b"1", MORE, Part.MIDDLE)
    take_all(quick)
    net.advance(1.5 * LARGE_STALL_S)
    assert net.nodes[1].count(Decision.LARGE_LEFT_OUT) == 1
    part(publisher, b"1", MORE, Part.LAST)
    take_all(quick)
    assert parts(quick)[-1] == (b"1", Part.LAST)
    answer(quick, DeliveryOutcome.ACCEPTED, b"1")
    assert (publisher.outcomes, publisher.detached()) == ([], None)
    slow.flow(5)
    assert publisher.end().description.startswith("a subscription needs a large message again")


def test_a_subscriber_that_is_alone_is_waited_for() -> None:
    net = Net(limits=LIMITS)
    slow, publisher = net.subscriber(net.nodes[0], limit=0), net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(4):
        part(publisher, b"1", MORE, Part.MIDDLE)
    net.advance(10 * LARGE_STALL_S)
    slow.flow(5)
    assert parts(slow)[0] == (b"1", Part.FIRST)
    assert publisher.detached() is None


# ---------------------------------------------------------------------- L-7


def moved(net: Net, limit: int = 5, other: SubscriberLink | None = None) -> tuple[SubscriberLink, PublisherLink]:
    """A subscriber that was in the middle of a delivery when its link was lost, and has come back at another router."""
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    part(publisher, b"1", MORE, Part.MIDDLE)
    take(subscriber, unread(subscriber))
    if other is not None:
        take(other, unread(other))
    subscriber.drop(LossCause.CONNECTION_LOSS)
    return net.subscriber(net.nodes[1], limit=limit), publisher


def test_a_subscriber_that_comes_back_in_the_middle_has_the_publisher_send_again_once_that_is_through() -> None:
    net = Net(2, limits=LIMITS)
    other = net.subscriber(net.nodes[1], "t")
    subscriber, publisher = moved(net, other=other)
    take(other, unread(other))
    assert publisher.detached() is None, "another one is in the middle of it"
    part(publisher, b"1", MORE, Part.LAST)
    take_all(other)
    answer(other, DeliveryOutcome.ACCEPTED, b"1")
    assert (publisher.end().condition, publisher.end().closed) == ("amqp:link:detach-forced", False)
    again = net.publisher(net.nodes[0], unsettled={b"1": None})
    send_large(again, b"1", more=2)
    take_all(subscriber)
    assert parts(subscriber) == [(b"1", Part.FIRST), (b"1", Part.MIDDLE), (b"1", Part.LAST)]
    answer(subscriber, DeliveryOutcome.ACCEPTED, b"1")
    assert again.accepted == [1]
    assert len([tag for tag, kind in parts(other) if kind is Part.FIRST]) == 1


def test_nothing_is_asked_for_while_its_subscriber_has_no_credit() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = moved(net, limit=0)
    part(publisher, b"1", MORE, Part.LAST)
    net.advance(LARGE_STALL_S)
    assert publisher.detached() is None
    subscriber.flow(1)
    assert publisher.end().condition == "amqp:link:detach-forced"


def test_what_follows_waits_for_what_is_asked_for_and_other_publishers_do_not() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = moved(net, limit=0)
    other = net.publisher(net.nodes[1], "q")
    part(publisher, b"1", MORE, Part.LAST)
    publisher.send(b"2")
    other.send(b"a")
    publisher.drop()
    subscriber.flow(5)
    assert subscriber.deliveries == [b"a"]
    assert net.nodes[1].count(Decision.LARGE_NEEDED) == 1
    again = net.publisher(net.nodes[1], unsettled={b"1": None, b"2": None})
    send_large(again, b"1", more=2)
    again.send(b"2")
    take_all(subscriber)
    assert subscriber.deliveries == [b"a", b"2"]


def test_a_large_delivery_behind_one_that_is_asked_for_holds_nobody_up() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = moved(net, limit=0)
    other = net.subscriber(net.nodes[1], "t")
    part(publisher, b"1", MORE, Part.LAST)
    subscriber.flow(5)
    part(publisher, b"2", FIRST, Part.FIRST)
    assert parts(other) == []
    assert publisher.detached() is not None


def test_what_is_given_up_is_not_waited_for() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = moved(net, limit=0)
    net.held = {(0, 1)}
    part(publisher, b"1", MORE, Part.LAST)
    publisher.send(b"2")
    publisher.drop()
    subscriber.flow(5)
    assert subscriber.deliveries == []
    again = net.publisher(net.nodes[1], unsettled={b"2": None})
    again.send(b"2")
    assert subscriber.deliveries == [b"2"]


def test_a_resumed_delivery_that_is_cut_off_stays_in_the_map_and_is_resumed_again() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    send_large(publisher, b"1")
    take_all(subscriber)
    name = subscriber.all(effects.DeliverPart)[0].tag
    subscriber.drop()
    publisher.drop()
    resumed = net.subscriber(net.nodes[0], unsettled={name: None})
    second = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(second, b"1", FIRST, Part.FIRST)
    assert resumed.all(effects.DeliverPart)[0].resume
    second.drop()
    assert parts(resumed)[-1] == (b"1", Part.ABORT)
    third = net.publisher(net.nodes[1], unsettled={b"1": None})
    send_large(third, b"1")
    take_all(resumed)
    assert [sent.resume for sent in resumed.all(effects.DeliverPart) if sent.part is Part.FIRST] == [True, True]
    answer(resumed, DeliveryOutcome.ACCEPTED, b"1")
    assert third.accepted == [1]


def test_a_resumed_delivery_that_is_cut_off_and_settled_is_settled_by_a_resume() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    send_large(publisher, b"1")
    take_all(subscriber)
    name = subscriber.all(effects.DeliverPart)[0].tag
    subscriber.drop()
    publisher.drop()
    resumed = net.subscriber(net.nodes[0], unsettled={name: None})
    second = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(second, b"1", FIRST, Part.FIRST)
    second.settle(b"1")
    assert parts(resumed)[-1] == (b"1", Part.ABORT)
    assert [(sent.resume, sent.settled) for sent in resumed.all(effects.Deliver)] == [(True, True)]


def test_an_at_most_once_subscriber_is_cut_off_and_nothing_waits_for_it() -> None:
    net = Net(limits=LIMITS)
    subscriber = net.subscriber(net.nodes[0], mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    assert subscriber.all(effects.DeliverPart)[0].settled
    part(publisher, b"1", b"", Part.ABORT)
    assert parts(subscriber)[-1] == (b"1", Part.ABORT)
    delivery = send_large(publisher, b"2")
    take_all(subscriber)
    assert publisher.accepted == [delivery]
    assert parts(subscriber)[-1] == (b"2", Part.LAST)


def test_one_that_has_taken_nearly_all_waits_for_one_that_takes_nothing() -> None:
    net = Net(limits=LIMITS)
    quick, slow = net.subscriber(net.nodes[0]), net.subscriber(net.nodes[0], "t", limit=0)
    publisher = net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(3):
        part(publisher, b"1", b"x" * 1_500, Part.MIDDLE)
        take_all(quick)
    assert unread(quick) == 0
    net.advance(1.5 * LARGE_STALL_S)
    assert net.nodes[0].count(Decision.LARGE_LEFT_OUT) == 1
    assert slow.all(effects.DeliverPart) == []


def test_what_waits_and_is_released_comes_whole_in_its_next_attempt() -> None:
    net = Net(2, limits=replace(LIMITS, window_bytes=50_000))
    subscriber, first = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    send_large(first, b"1")
    take_all(subscriber)
    name = subscriber.all(effects.DeliverPart)[0].tag
    first.drop()
    subscriber.drop()
    again = net.subscriber(net.nodes[0], unsettled={name: None}, limit=0)
    second = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(second, b"1", FIRST, Part.FIRST)
    again.feed(inputs.SubscriberDisposition(again.number, [name], DeliveryOutcome.RELEASED, False))
    net.advance(1.0)
    part(second, b"1", MORE, Part.LAST)
    again.flow(10)
    take_all(again)
    assert b"".join(sent.data for sent in again.all(effects.DeliverPart)) == FIRST + MORE


def test_the_next_ingress_hears_nothing_of_what_another_one_has_sent() -> None:
    net = Net(3, limits=replace(LIMITS, window_bytes=50_000))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    send_large(publisher, b"1")
    take(subscriber, AHEAD)
    publisher.drop()
    net.publisher(net.nodes[2], unsettled={b"1": None})
    take_all(subscriber)
    assert parts(subscriber)[-1] == (b"1", Part.LAST)
    answer(subscriber, DeliveryOutcome.ACCEPTED, b"1")
    to_next = [effect.message for effect in net.nodes[0].all(effects.SendToRouters) if effect.targets[0][0] == 7003]
    assert to_next, "its outcome"
    assert not [message for message in to_next if isinstance(message, (Taken, Need))]


def test_one_that_goes_out_settled_ends_in_the_middle_with_its_publishers_session() -> None:  # E-5, E-6, c.3
    net = Net(2, limits=LIMITS)
    subscriber = net.subscriber(net.nodes[0], mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    net.held.add((1, 0))  # the abort is under way when the key is gone
    publisher.drop()
    net.etcd.delete(Kind.PUBLISHER, net.publisher_path().partition("/")[2])
    net.run()
    assert parts(subscriber)[-1] == (b"1", Part.ABORT)
    assert net.nodes[0].all(effects.Faulted) == []
    net.held.clear()
    net.publisher(net.nodes[1], "q").send(b"2")
    assert subscriber.deliveries == [b"2"]
