"""Large messages pass in parts, and nobody keeps them (rules L-1 to L-4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delivery_records.channels import codec, frame_header
from delivery_records.channels.codec_error import ChannelCodecError
from delivery_records.model import effects, inputs
from delivery_records.model.assigned import Assigned
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.messages import LargePart, Msg, Need, RouterMessage, Taken
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.parts import NOT_WANTED, Part
from delivery_records.model.patience import Patience, SlowAction
from tests.delivery_records.harness import Net
from tests.delivery_records.large_parts import (
    AHEAD,
    FIRST,
    LIMITS,
    MORE,
    PIECE,
    answer,
    part,
    parts,
    send_large,
    sent_bytes,
    take,
    take_all,
    unread,
)

# ---------------------------------------------------------------------- L-1


def test_parts_leave_before_the_last_has_come_and_the_outcome_is_reported_behind_it() -> None:
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


def test_a_drain_is_answered_behind_the_last_part() -> None:
    """C-5: the compiled core raised `TypeError` where a drain began a large delivery."""
    net = Net(limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0], limit=0), net.publisher(net.nodes[0])
    send_large(publisher, b"1", more=2)
    subscriber.flow(2, drain=True)
    assert parts(subscriber)[0] == (b"1", Part.FIRST)
    assert subscriber.all(effects.CompleteDrain) == []
    take_all(subscriber)
    assert parts(subscriber)[-1] == (b"1", Part.LAST)
    assert len(subscriber.all(effects.CompleteDrain)) == 1


def test_what_nobody_subscribes_to_is_reported_behind_its_last_part_too() -> None:
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

    net = Net(limits=LIMITS, message_format=MessageFormat(refuse))
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


@pytest.mark.parametrize("routers", [1, 2])
def test_a_publisher_has_room_again_as_soon_as_all_that_has_come_is_taken(routers: int) -> None:
    """L-4: its window is smaller than a step, and no time passes."""
    net = Net(routers, limits=replace(LIMITS, window_bytes=1_000))
    one, two = net.subscriber(net.nodes[0]), net.subscriber(net.nodes[0], "t")
    publisher = net.publisher(net.nodes[-1])
    part(publisher, b"1", b"f" * 800, Part.FIRST)
    (ingress,) = net.nodes[-1].core.ingresses.values()
    for _ in range(5):
        take_all(one)
        assert ingress.fanout.streams.held_bytes == 800
        take_all(two)
        assert ingress.fanout.streams.held_bytes == 0
        part(publisher, b"1", b"m" * 800, Part.MIDDLE)
    assert sent_bytes(one) == sent_bytes(two) == 6 * 800


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
def test_an_answer_in_the_middle_counts_and_ends_the_transfer_and_is_reported_at_the_end(
    outcome: DeliveryOutcome,
) -> None:
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


# ---------------------------------------------------------------------- frames


@pytest.mark.parametrize(
    "message",
    [
        LargePart(7, 3, (9, 8), Part.FIRST, b"body", False, b"tag", True, 4, 1, Assigned.AS_HEAD),
        LargePart(7, 3, (9,), Part.FIRST, b"body", False, b"tag", assigned=Assigned.BY_ITS_MAP),
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
    header = frame_header.read_header(frame)
    assert codec.decode_message(frame, header) == message
    assert header.carries_body is isinstance(message, LargePart)


def test_a_message_without_its_body_is_read_as_it_was_written() -> None:
    frame = codec.encode_frame(1, [(2, 1, 1)], Msg(7, 3, b"t", b"head", (9,), is_large=True))
    read = codec.decode_message(frame, frame_header.read_header(frame))
    assert isinstance(read, Msg)
    assert (read.message, read.is_large) == (b"head", True)


def test_a_part_with_a_tag_that_is_too_long_is_refused() -> None:
    frame = codec.encode_frame(1, [(2, 1, 1)], LargePart(7, 3, (9,), Part.FIRST, b"", False, bytes(33)))
    with pytest.raises(ChannelCodecError, match="a tag of 33 bytes"):
        codec.decode_message(frame, frame_header.read_header(frame))
