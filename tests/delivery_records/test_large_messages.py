"""Large messages pass in parts, and nobody keeps them (rules L-1 to L-8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delivery_records import effects, inputs
from delivery_records.attachments.view import RETRIES, Kind, RouterRecord, SubscriptionMode, router_key
from delivery_records.channels import codec
from delivery_records.channels.messages import LargePart, Msg, Need, RouterMessage, Taken
from delivery_records.inputs import LossCause
from delivery_records.limits import LARGE_BYTES, LARGE_STALL_S, Limits
from delivery_records.outcomes import Decision, DeliveryOutcome
from delivery_records.parts import NOT_WANTED, Part
from delivery_records.patience import Patience, SlowAction
from tests.delivery_records.harness import Net, PublisherLink, SubscriberLink

AHEAD, PIECE = 4_000, 1_000
LIMITS = Limits(large_ahead_bytes=AHEAD, large_piece_bytes=PIECE, window_bytes=12_000)
FIRST = b"f" * 3_000
MORE = b"m" * 2_000


def part(publisher: PublisherLink, tag: bytes, data: bytes, which: Part, **fields: bool) -> None:
    """A part of a large delivery."""
    if which is Part.FIRST:
        publisher._deliveries += 1
    publisher.feed(inputs.LargeTransfer(publisher.number, publisher._deliveries, tag, data, which, **fields))


def send_large(publisher: PublisherLink, tag: bytes, *, more: int = 1) -> int:
    """All of one; returns its delivery-id."""
    part(publisher, tag, FIRST, Part.FIRST)
    for _ in range(more - 1):
        part(publisher, tag, MORE, Part.MIDDLE)
    part(publisher, tag, MORE, Part.LAST)
    return publisher._deliveries


def parts(subscriber: SubscriberLink) -> list[tuple[bytes, Part]]:
    """Publisher's tag and kind of every part it was sent, in order; several MIDDLEs in a row are one."""
    found: list[tuple[bytes, Part]] = []
    for sent in subscriber.all(effects.DeliverPart):
        entry = (sent.tag[11:], sent.part)
        if sent.part is not Part.MIDDLE or not found or found[-1] != entry:
            found.append(entry)
    return found


TAKEN: dict[SubscriberLink, int] = {}


def sent_bytes(subscriber: SubscriberLink) -> int:
    """Bytes of large deliveries that it was sent in all."""
    return sum(len(sent.data) for sent in subscriber.all(effects.DeliverPart))


def unread(subscriber: SubscriberLink) -> int:
    """Of these, what it has not taken."""
    return sent_bytes(subscriber) - TAKEN.get(subscriber, 0)


def take(subscriber: SubscriberLink, size: int) -> None:
    """So much has left for the subscriber."""
    TAKEN[subscriber] = TAKEN.get(subscriber, 0) + size
    subscriber.feed(inputs.LargeTaken(subscriber.number, size))


def take_all(subscriber: SubscriberLink) -> None:
    """It reads whatever comes, until nothing more does."""
    while unread(subscriber) > 0:
        take(subscriber, unread(subscriber))


def answer(subscriber: SubscriberLink, outcome: DeliveryOutcome, tag: bytes, *, settled: bool = False) -> None:
    """An outcome of a large delivery."""
    name = next(sent.tag for sent in reversed(subscriber.all(effects.DeliverPart)) if sent.tag[11:] == tag)
    subscriber.feed(inputs.SubscriberDisposition(subscriber.number, [name], outcome, settled))


# ---------------------------------------------------------------------- L-1


def test_parts_leave_before_the_last_has_come_and_the_outcome_is_told_behind_it() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    assert parts(subscriber)[0] == (b"1", Part.FIRST)
    assert b"".join(sent.data for sent in subscriber.all(effects.DeliverPart)) == FIRST
    part(publisher, b"1", MORE, Part.LAST)
    take_all(subscriber)
    assert parts(subscriber) == [(b"1", Part.FIRST), (b"1", Part.MIDDLE), (b"1", Part.LAST)]
    assert b"".join(sent.data for sent in subscriber.all(effects.DeliverPart)) == FIRST + MORE
    assert publisher.accepted == []
    answer(subscriber, DeliveryOutcome.ACCEPTED, b"1")
    assert publisher.accepted == [1]
    publisher.settle(b"1")
    assert subscriber.settled == [b"1"]


def test_what_nobody_subscribes_to_is_told_behind_its_last_part_too() -> None:
    net = Net(limits=LIMITS)
    publisher = net.stock_publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    assert publisher.outcomes == []
    part(publisher, b"1", MORE, Part.LAST)
    assert publisher.outcomes == [(1, DeliveryOutcome.RELEASED)]


def test_a_subscription_that_comes_in_the_middle_is_not_owed_the_delivery() -> None:
    net = Net(limits=LIMITS)
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    second = net.subscriber(net.nodes[0], "t")
    part(publisher, b"1", MORE, Part.LAST)
    take_all(first)
    answer(first, DeliveryOutcome.ACCEPTED, b"1")
    assert publisher.accepted == [1]
    assert parts(second) == []


def test_a_malformed_first_part_is_rejected_behind_the_last_and_goes_to_nobody() -> None:
    def refuse(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
        raise ValueError("no section")

    net = Net(limits=LIMITS, annotate=refuse)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    assert publisher.outcomes == []
    part(publisher, b"1", MORE, Part.LAST)
    assert publisher.outcomes == [(1, DeliveryOutcome.REJECTED)]
    assert parts(subscriber) == []
    assert net.nodes[0].core.ingresses[next(iter(net.nodes[0].core.ingresses))].window.body_bytes == 0


def test_a_resumed_large_transfer_is_ignored_to_its_end() -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST, resume=True)
    part(publisher, b"1", MORE, Part.LAST)
    assert net.nodes[0].count(Decision.TRANSFER_RESUME_IGNORED) == 1
    assert (parts(subscriber), publisher.outcomes) == ([], [])


def test_a_tag_in_use_ends_the_link_and_its_parts_are_ignored() -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    part(publisher, b"1", FIRST, Part.FIRST)
    assert publisher.end().condition == "amqp:not-allowed"
    part(publisher, b"1", MORE, Part.LAST)
    assert (subscriber.deliveries, parts(subscriber)) == ([b"1"], [])


# ---------------------------------------------------------------------- L-2 and L-4


def test_no_router_keeps_the_body_when_all_have_taken_it() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(20):
        part(publisher, b"1", MORE, Part.MIDDLE)
        take(subscriber, unread(subscriber))
    (ingress,) = net.nodes[1].core.ingresses.values()
    assert ingress.window.body_bytes <= PIECE + AHEAD
    part(publisher, b"1", MORE, Part.LAST)
    take_all(subscriber)
    assert ingress.window.body_bytes == PIECE
    assert sum(net.nodes[0].core.egresses[key].outgoing.held for key in net.nodes[0].core.egresses) == 0
    answer(subscriber, DeliveryOutcome.ACCEPTED, b"1")
    publisher.settle(b"1")
    assert net.nodes[1].core.budget.held == 0


def test_a_subscriber_that_does_not_read_is_sent_no_more_than_its_credit() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(4):
        part(publisher, b"1", MORE, Part.MIDDLE)
    assert AHEAD <= unread(subscriber) < AHEAD + PIECE
    take(subscriber, AHEAD)
    assert sent_bytes(subscriber) == 2 * AHEAD


def test_a_stream_that_stands_keeps_no_body_of_another_publisher_back() -> None:
    net = Net(2, limits=replace(LIMITS, window_bytes=50_000_000, large_piece_bytes=32_768, large_ahead_bytes=1_000_000))
    stuck, publisher = net.subscriber(net.nodes[0], topic="a"), net.publisher(net.nodes[1], topic="a")
    other, small = net.subscriber(net.nodes[0], "t", topic="b"), net.publisher(net.nodes[1], "q", topic="b")
    part(publisher, b"1", bytes(8_000_000), Part.FIRST)
    assert unread(stuck) < 1_100_000
    for number in range(64):
        small.send(b"%d" % number, bytes(100_000))
    assert len(other.deliveries) == 64


def test_one_frame_goes_to_two_routers_that_are_equally_far() -> None:
    net = Net(3, limits=LIMITS)
    subscribers = [net.subscriber(net.nodes[0]), net.subscriber(net.nodes[1], "t")]
    publisher = net.publisher(net.nodes[2])
    send_large(publisher, b"1")
    for subscriber in subscribers:
        take_all(subscriber)
        assert b"".join(sent.data for sent in subscriber.all(effects.DeliverPart)) == FIRST + MORE
    sent = [effect for effect in net.nodes[2].all(effects.SendToRouters) if isinstance(effect.message, LargePart)]
    assert len(sent[0].targets) == 2


def test_who_comes_while_the_beginning_is_here_gets_all_of_it() -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    subscriber.drop()
    send_large(publisher, b"1")
    again = net.subscriber(net.nodes[0])
    take_all(again)
    assert b"".join(sent.data for sent in again.all(effects.DeliverPart)) == FIRST + MORE
    assert publisher.detached() is None


def test_what_a_subscriber_has_is_not_sent_again_and_holds_nobody_up() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, first = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    send_large(first, b"1", more=4)
    take_all(subscriber)
    first.drop()
    second = net.publisher(net.nodes[1], unsettled={b"1": None})
    before = len(subscriber.all(effects.DeliverPart))
    send_large(second, b"1", more=4)
    assert len(subscriber.all(effects.DeliverPart)) == before
    answer(subscriber, DeliveryOutcome.ACCEPTED, b"1")
    assert second.accepted == [1]
    (ingress,) = net.nodes[1].core.ingresses.values()
    assert ingress.window.body_bytes == PIECE


# ---------------------------------------------------------------------- L-3


def test_nothing_else_is_sent_in_the_middle_and_then_all_of_it_in_order() -> None:
    net = Net(limits=LIMITS)
    subscriber = net.subscriber(net.nodes[0])
    large, small = net.publisher(net.nodes[0]), net.publisher(net.nodes[0], "q")
    small.send(b"a")
    subscriber.accept(b"a")
    part(large, b"1", FIRST, Part.FIRST)
    small.send(b"b")
    small.send(b"c")
    small.settle(b"a")
    assert subscriber.settled == [b"a"], "a disposition passes"
    part(large, b"1", MORE, Part.LAST)
    large.send(b"2")
    assert subscriber.deliveries == [b"a"]
    take_all(subscriber)
    assert subscriber.deliveries == [b"a", b"b", b"c", b"2"]


def test_a_second_large_delivery_waits_for_the_end_of_the_first() -> None:
    net = Net(limits=LIMITS)
    subscriber = net.subscriber(net.nodes[0])
    one, other = net.publisher(net.nodes[0]), net.publisher(net.nodes[0], "q")
    part(one, b"1", FIRST, Part.FIRST)
    send_large(other, b"2")
    part(one, b"1", MORE, Part.LAST)
    assert {tag for tag, _ in parts(subscriber)} == {b"1"}
    take(subscriber, AHEAD)
    take(subscriber, len(FIRST + MORE) - AHEAD)
    assert parts(subscriber)[-2:] == [(b"2", Part.FIRST), (b"2", Part.MIDDLE)]
    take_all(subscriber)
    assert parts(subscriber)[-1] == (b"2", Part.LAST)


@pytest.mark.parametrize("outcome", [DeliveryOutcome.REJECTED, DeliveryOutcome.ACCEPTED])
def test_an_answer_in_the_middle_counts_and_ends_the_transfer_and_is_told_at_the_end(outcome: DeliveryOutcome) -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.stock_subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    answer(subscriber, outcome, b"1")
    assert parts(subscriber)[-1] == (b"1", Part.ABORT)
    part(publisher, b"1", MORE, Part.MIDDLE)
    assert publisher.outcomes == []
    part(publisher, b"1", MORE, Part.LAST)
    assert publisher.accepted == [1]
    assert parts(subscriber)[-1] == (b"1", Part.ABORT)
    assert subscriber.settled == []


def test_what_is_released_in_the_middle_is_asked_for_when_its_turn_comes() -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.stock_subscriber(net.nodes[0], limit=2), net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    take(subscriber, AHEAD)
    answer(subscriber, DeliveryOutcome.RELEASED, b"1", settled=True)
    assert parts(subscriber)[-1] == (b"1", Part.ABORT)
    net.advance(0.1)
    assert publisher.end().condition == "amqp:link:detach-forced"


def test_a_member_in_the_middle_of_a_large_delivery_takes_nothing_else() -> None:
    net = Net(limits=LIMITS)
    share = inputs.Share("together")
    one = net.subscriber(net.nodes[0], "c", share=share, limit=5)
    publisher = net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    small = net.publisher(net.nodes[0], "q")
    small.send(b"a")
    assert one.deliveries == []
    part(publisher, b"1", MORE, Part.LAST)
    take_all(one)
    assert one.deliveries == [b"a"]


def test_taking_a_large_delivery_is_progress() -> None:
    net = Net(limits=LIMITS)
    patience = Patience(8.0, SlowAction.DETACH)
    subscriber, publisher = net.subscriber(net.nodes[0], patience=patience), net.publisher(net.nodes[0])
    part(publisher, b"1", FIRST, Part.FIRST)
    for _ in range(8):
        net.advance(2.0)
        part(publisher, b"1", b"m" * PIECE, Part.MIDDLE)
        take(subscriber, PIECE)
    assert subscriber.detached() is None
    net.advance(12.0)
    assert "no progress" in subscriber.end().description


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


# ---------------------------------------------------------------------- L-8


def set_version(net: Net, node: int, version: int) -> None:
    """A router says that it is of another release."""
    record = RouterRecord(f"r{node}", net.nodes[node].rid, protocol_max=version)
    net.etcd.put(Kind.ROUTER, router_key(record), record)
    net.run()


def test_the_reply_lets_deliveries_be_large_only_where_all_routers_read_them() -> None:
    net = Net(2, limits=LIMITS)
    assert net.publisher(net.nodes[0]).last(effects.PublisherReply).stream_above == LARGE_BYTES
    set_version(net, 1, RETRIES)
    assert net.publisher(net.nodes[0], "q").last(effects.PublisherReply).stream_above is None


def test_a_large_delivery_while_an_older_router_is_a_member_detaches_its_publisher() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    set_version(net, 1, RETRIES)
    part(publisher, b"1", FIRST, Part.FIRST)
    part(publisher, b"1", MORE, Part.LAST)
    assert publisher.end().condition == "amqp:link:detach-forced"
    again = net.publisher(net.nodes[0], unsettled={b"1": None})
    again.send(b"1", FIRST + MORE)
    assert subscriber.deliveries == [b"1"]


def test_an_older_router_is_sent_nothing_of_a_large_delivery() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    send_large(publisher, b"1")
    take_all(subscriber)
    subscriber.drop()
    set_version(net, 1, RETRIES)
    again = net.subscriber(net.nodes[1])
    assert publisher.end().condition == "amqp:link:detach-forced"
    sent = [effect.message for effect in net.nodes[0].all(effects.SendToRouters)]
    assert not [message for message in sent if isinstance(message, (LargePart, Taken, Need))]
    assert not [message for message in sent if isinstance(message, Msg) and message.is_large]
    second = net.publisher(net.nodes[0], unsettled={b"1": None})
    second.send(b"1", FIRST + MORE)
    assert again.deliveries == [b"1"]


# ---------------------------------------------------------------------- frames


@pytest.mark.parametrize(
    "message",
    [
        LargePart(7, 3, (9, 8), Part.FIRST, b"body", False, b"tag", True, 4, 1, True),
        LargePart(7, 3, (9,), Part.MIDDLE, b"body"),
        LargePart(7, 3, (9,), Part.LAST),
        LargePart(7, 3, (9,), Part.ABORT, is_owed=True),
        Taken(7, 9, 3, NOT_WANTED),
        Need(7, 9, 3),
    ],
    ids=lambda message: repr(message)[:40],
)
def test_frames_of_large_messages_are_read_as_they_were_written(message: RouterMessage) -> None:
    frame = codec.encode_frame(1, [(2, 1, 1)], message)
    header = codec.read_header(frame)
    assert codec.decode_message(frame, header) == message
    assert header.carries_body is isinstance(message, LargePart)


def test_a_message_without_its_body_is_read_as_it_was_written() -> None:
    frame = codec.encode_frame(1, [(2, 1, 1)], Msg(7, 3, b"t", b"head", (9,), is_large=True))
    read = codec.decode_message(frame, codec.read_header(frame))
    assert isinstance(read, Msg)
    assert (read.message, read.is_large) == (b"head", True)


def test_a_part_with_a_tag_that_is_too_long_is_refused() -> None:
    frame = codec.encode_frame(1, [(2, 1, 1)], LargePart(7, 3, (9,), Part.FIRST, b"", False, bytes(33)))
    with pytest.raises(codec.ChannelCodecError, match="a tag of 33 bytes"):
        codec.decode_message(frame, codec.read_header(frame))
