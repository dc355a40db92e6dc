"""What large messages do to others, and what is left when they end before their end (rules L-1 to L-7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.limits import LARGE_LOOKS, LARGE_STALL_S
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.parts import Part
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.large_parts import (
    FIRST,
    LIMITS,
    MORE,
    PIECE,
    answer,
    part,
    parts,
    send_large,
    take,
    take_all,
    unread,
)
from tests.delivery_records.links import SubscriberLink

SHARE = inputs.Share("g")


def body(subscriber: SubscriberLink, tag: bytes) -> bytes:
    """What it has of a delivery: of the last transfer that was not aborted."""
    data = b""
    for sent in subscriber.all(effects.DeliverPart):
        if sent.tag[11:] == tag:
            data = sent.data if sent.part in (Part.FIRST, Part.ABORT) else data + sent.data
    return data


# ---------------------------------------------------------------------- L-6


def test_whoever_has_taken_all_is_reported_from_who_takes_nothing_though_taken_is_stated_in_steps() -> None:
    net = Net(limits=LIMITS)
    quick, slow = net.subscriber(net.nodes[0]), net.subscriber(net.nodes[0], "t", limit=0)
    publisher = net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(3):
        part(publisher, b"1", bytes(1_500), Part.MIDDLE)
    take_all(quick)
    net.advance(1.5 * LARGE_STALL_S)
    assert net.nodes[0].count(Decision.LARGE_LEFT_OUT) == 1
    part(publisher, b"1", MORE, Part.LAST)
    take_all(quick)
    assert parts(quick)[-1] == (b"1", Part.LAST)
    assert (parts(slow), publisher.detached()) == ([], None)


# ---------------------------------------------------------------------- L-2 and E-4a


@pytest.mark.parametrize("routers", [1, 2])
def test_what_is_refused_while_it_waits_comes_whole_in_its_next_attempt(routers: int) -> None:
    net = Net(routers, limits=replace(LIMITS, window_bytes=50_000))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[-1])
    send_large(publisher, b"1")
    take_all(subscriber)
    name = subscriber.all(effects.DeliverPart)[0].tag
    subscriber.drop()
    publisher.drop()
    again = net.subscriber(net.nodes[0], unsettled={name: None}, limit=0)
    publisher = net.publisher(net.nodes[-1], unsettled={b"1": None})
    part(publisher, b"1", FIRST, Part.FIRST)
    part(publisher, b"1", MORE, Part.MIDDLE)
    again.feed(inputs.SubscriberDisposition(again.number, [name], DeliveryOutcome.RELEASED, False))
    net.advance(1.0)
    again.flow(10)
    part(publisher, b"1", MORE, Part.LAST)
    take_all(again)
    assert body(again, b"1") == FIRST + MORE + MORE


# ---------------------------------------------------------------------- L-7


def test_what_was_asked_for_may_come_whole() -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    send_large(publisher, b"1")
    take_all(subscriber)
    name = subscriber.all(effects.DeliverPart)[0].tag
    subscriber.drop()
    again = net.subscriber(net.nodes[0], unsettled={name: None})
    assert publisher.end().description.startswith("a subscription needs a large message again")
    publisher = net.publisher(net.nodes[0], unsettled={b"1": None})
    publisher.send(b"1", FIRST + MORE)
    assert again.deliveries == [b"1"]


# ---------------------------------------------------------------------- L-3 and SH-2


@pytest.mark.parametrize("ends", ["abort", "answer", "sync", "session", "silence", "channel"])
def test_a_member_takes_others_when_a_large_delivery_has_ended_before_its_end(ends: str) -> None:
    net = Net(3, limits=LIMITS)
    member = net.subscriber(net.nodes[0], share=SHARE)
    first, second = net.publisher(net.nodes[1]), net.publisher(net.nodes[2], "q")
    part(first, b"1", FIRST, Part.FIRST)
    first.drop()
    first = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(first, b"1", FIRST, Part.FIRST)
    take(member, unread(member))
    second.send(b"small")
    assert member.deliveries == []
    if ends == "abort":
        first.drop()
    elif ends == "answer":
        answer(member, DeliveryOutcome.ACCEPTED, b"1")
    elif ends == "sync":
        net.held.add((1, 0))
        first.drop()
        first = net.publisher(net.nodes[1], unsettled={})
        net.held.clear()
        net.run()
    elif ends == "session":
        net.held.add((1, 0))
        first.detach(closed=True)
    elif ends == "silence":
        net.held.add((1, 0))
        net.advance(3 * LARGE_STALL_S)
    else:
        net.kill(net.nodes[1])
    assert member.deliveries == [b"small"]


# ---------------------------------------------------------------------- K-3b


def test_a_fault_with_a_first_part_ends_its_link_alone() -> None:
    def fails(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
        if message == FIRST:
            raise LookupError
        return message

    net = Net(limits=LIMITS, message_format=MessageFormat(fails))
    net.expects_faults = True
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    other = net.publisher(net.nodes[0], "q")
    part(publisher, b"1", FIRST, Part.FIRST)
    assert publisher.end().condition == "amqp:internal-error"
    other.send(b"2")
    assert (subscriber.deliveries, other.detached()) == ([b"2"], None)


# ---------------------------------------------------------------------- L-2


def test_a_subscription_whose_router_is_gone_holds_nobody_up() -> None:
    net = Net(2, limits=LIMITS)
    here, there = net.subscriber(net.nodes[0]), net.subscriber(net.nodes[1], "t")
    publisher = net.publisher(net.nodes[0])
    net.kill(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(10):
        part(publisher, b"1", MORE, Part.MIDDLE)
        take_all(here)
    (ingress,) = net.nodes[0].core.ingresses.values()
    assert ingress.window.body_bytes < LIMITS.window_bytes // 2
    part(publisher, b"1", MORE, Part.LAST)
    take_all(here)
    answer(here, DeliveryOutcome.ACCEPTED, b"1")
    there = net.subscriber(net.nodes[0], "t")
    assert publisher.end().description.startswith("a subscription needs a large message again")
    publisher = net.publisher(net.nodes[0], unsettled={b"1": None})
    number = send_large(publisher, b"1")
    take_all(there)
    answer(there, DeliveryOutcome.ACCEPTED, b"1")
    assert publisher.accepted == [number]


def test_what_a_subscriber_has_and_has_not_answered_is_not_kept_when_it_is_sent_again() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    send_large(publisher, b"1")
    take_all(subscriber)
    publisher.drop()
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(10):
        part(publisher, b"1", MORE, Part.MIDDLE)
    (ingress,) = net.nodes[1].core.ingresses.values()
    assert ingress.window.body_bytes < LIMITS.window_bytes // 2
    part(publisher, b"1", MORE, Part.LAST)
    publisher.send(b"2")
    assert subscriber.deliveries == [b"2"]


def test_a_slow_subscriber_takes_something_and_is_not_left_out() -> None:
    net = Net(2, limits=LIMITS)
    quick, slow = net.subscriber(net.nodes[0]), net.subscriber(net.nodes[0], "t")
    publisher = net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(4):
        part(publisher, b"1", MORE, Part.MIDDLE)
    take_all(quick)
    for _ in range(16):
        net.advance(LARGE_STALL_S / 8)
        take(slow, 50)
    assert net.nodes[1].count(Decision.LARGE_LEFT_OUT) == 0


def test_what_is_taken_is_stated_though_it_is_less_than_a_step_and_nothing_more_comes() -> None:
    """L-4: the publisher may have no room for more before that."""
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    take(subscriber, PIECE)
    take(subscriber, PIECE)
    ingress = next(iter(net.nodes[1].core.ingresses.values()))
    assert ingress.fanout.streams.held_bytes == len(FIRST) - PIECE
    net.advance(LARGE_STALL_S / LARGE_LOOKS)
    assert ingress.fanout.streams.held_bytes == len(FIRST) - 2 * PIECE


# ---------------------------------------------------------------------- L-1 and c.3


def test_an_at_most_once_subscriber_gets_all_of_it_before_the_settlement_would_end_it() -> None:
    net = Net(2, limits=LIMITS)
    subscriber = net.subscriber(net.nodes[0], mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = net.publisher(net.nodes[1])
    number = send_large(publisher, b"1", more=4)
    assert publisher.outcomes == []
    take_all(subscriber)
    assert publisher.accepted == [number]
    publisher.settle(b"1")
    assert parts(subscriber)[-1] == (b"1", Part.LAST)
    assert net.nodes[1].core.budget.held == 0


@pytest.mark.parametrize("is_whole", [False, True])
def test_an_at_most_once_subscriber_that_reads_nothing_holds_its_publisher_up_for_a_time_only(is_whole: bool) -> None:
    net = Net(2, limits=LIMITS)
    subscriber = net.subscriber(net.nodes[0], mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    part(publisher, b"1", MORE, Part.MIDDLE)
    part(publisher, b"1", MORE, Part.LAST if is_whole else Part.MIDDLE)
    net.advance(LARGE_STALL_S)
    assert parts(subscriber)[-1] == (b"1", Part.ABORT)
    if not is_whole:
        part(publisher, b"1", MORE, Part.LAST)
    assert publisher.accepted == [1]
    publisher.settle(b"1")
    assert net.nodes[1].core.budget.held == 0


# ---------------------------------------------------------------------- I-4a and I-1c


def test_what_is_settled_with_its_last_part_is_sent_to_its_end() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    take_all(subscriber)
    part(publisher, b"1", MORE, Part.LAST, settled=True)
    take_all(subscriber)
    assert parts(subscriber)[-1] == (b"1", Part.LAST)
    assert net.nodes[1].core.budget.held == 0


def test_a_presettled_message_does_not_wait_for_what_another_publisher_is_asked_for() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    other = net.publisher(net.nodes[0], "q")
    send_large(publisher, b"1")
    take_all(subscriber)
    subscriber.drop()
    net.held.add((0, 1))
    again = net.subscriber(net.nodes[0])
    other.send(b"2", settled=True)
    assert again.deliveries == [b"2"]


def test_a_member_whose_map_is_full_hands_a_large_message_back_once_and_gets_it_when_there_is_room() -> None:
    net = Net(limits=LIMITS)
    member, publisher = net.subscriber(net.nodes[0], share=SHARE, map_bound=1), net.publisher(net.nodes[0])
    sent = publisher.send(b"1")
    member.accept(b"1")
    assert publisher.accepted == [sent]  # and is not settled: the place is taken
    part(publisher, b"2", FIRST, Part.FIRST)  # handed out and back without end if a ROOM follows the RETURN
    assert parts(member) == []
    part(publisher, b"2", MORE, Part.LAST)
    publisher.settle(b"1")
    take_all(member)  # L-2: all of it waited at the ingress
    assert [which for _, which in parts(member)][:: len(parts(member)) - 1] == [Part.FIRST, Part.LAST]
