"""A large delivery that comes, or is assigned, a second time: its body, format and outcome (L-1, L-5, L-7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.parts import Part
from delivery_records.model.tags import network_tag
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import NONCE, Net
from tests.delivery_records.large_parts import LIMITS, MORE, answer, part, parts, take, take_all
from tests.delivery_records.test_dead_letters import POLICY, bodies, dead_letters, described
from tests.delivery_records.test_filters import Words

SHARE = inputs.Share("work", is_global=True)


def test_a_release_of_an_aborted_try_does_not_double_pieces_of_the_next() -> None:  # L-5
    net = Net(2, limits=LIMITS)
    one = net.subscriber(net.nodes[0])
    net.publisher(net.nodes[1]).drop()
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(publisher, b"1", b"a" * 1000 + b"b" * 1000, Part.FIRST)
    net.held.add((0, 1))
    name = one.all(effects.DeliverPart)[0].tag
    one.feed(inputs.SubscriberDisposition(one.number, [name], DeliveryOutcome.RELEASED, False))
    part(publisher, b"1", b"", Part.ABORT)
    before = len(one.all(effects.DeliverPart))
    part(publisher, b"1", b"a" * 1000 + b"b" * 1000, Part.FIRST)
    sender, receiver = net.nodes[0], net.nodes[1]
    under_way = net.frames[(sender.rid, receiver.rid)]
    while under_way:  # NOT_WANTED and NACK; what they cause is under way again
        frame = under_way.popleft()
        net.feed(receiver, frame)
        if "Nack" in type(getattr(frame, "message", None)).__name__:
            break
    part(publisher, b"1", b"c" * 1000, Part.LAST)
    take_all(one)
    net.held.clear()
    net.run()
    take_all(one)
    net.advance(100.0)
    sent = one.all(effects.DeliverPart)[before:]
    body = b""
    for each in sent:
        body = each.data if each.part is Part.FIRST else body + each.data
        if each.part is Part.LAST:
            assert body == b"a" * 1000 + b"b" * 1000 + b"c" * 1000


def test_an_at_most_once_member_is_not_done_with_what_has_no_body() -> None:  # c.3, L-7
    net = Net(2, limits=LIMITS)
    one = net.subscriber(net.nodes[0], "m0", share=SHARE)
    publisher = net.publisher(net.nodes[1])
    part(publisher, b"1", b"f" * 3000, Part.FIRST)
    take_all(one)
    part(publisher, b"1", b"m" * 2000, Part.MIDDLE)
    take(one, 2000)
    other = net.subscriber(net.nodes[0], "m1", share=SHARE, mode=SubscriptionMode.AT_MOST_ONCE)
    one.detach(closed=True)
    part(publisher, b"1", MORE, Part.LAST)
    net.advance(1.0)
    take_all(other)
    assert not publisher.accepted or parts(other)[-1:] == [(b"1", Part.LAST)]


def test_a_repeat_in_another_format_has_its_own() -> None:
    net = Net(2, limits=LIMITS)
    one = net.subscriber(net.nodes[0])
    net.publisher(net.nodes[1]).drop()
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(publisher, b"1", b"f" * 2000, Part.FIRST, message_format=7)
    part(publisher, b"1", b"", Part.ABORT)
    publisher.send(b"1")
    assert [sent.message_format for sent in one.all(effects.Deliver)] == [0]


@pytest.mark.parametrize("again", ["small", "large"])
def test_a_malformed_try_that_was_aborted_does_not_decide_for_the_next(again: str) -> None:
    def annotate(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
        if message.startswith(b"bad"):
            raise ValueError("cannot be read")
        return message

    net = Net(2, limits=LIMITS, message_format=MessageFormat(annotate))
    one = net.subscriber(net.nodes[0], limit=0)
    net.publisher(net.nodes[1]).drop()
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(publisher, b"1", b"bad" * 1000, Part.FIRST)
    part(publisher, b"1", b"", Part.ABORT)
    if again == "small":
        publisher.send(b"1")
    else:
        part(publisher, b"1", b"f" * 2000, Part.FIRST)
        part(publisher, b"1", b"l" * 1000, Part.LAST)
    one.flow(10)
    got = one.deliveries or parts(one)
    assert bool(publisher.outcomes) != bool(got), "reported, and the subscription is sent it"


@pytest.mark.parametrize("whole", [True, False])
def test_an_at_most_once_member_here_is_not_done_with_what_has_no_body(whole: bool) -> None:  # c.3, L-7
    net = Net(limits=LIMITS)
    one = net.subscriber(net.nodes[0], "m0", share=SHARE)
    publisher = net.publisher(net.nodes[0])
    part(publisher, b"1", b"f" * 3000, Part.FIRST)
    take_all(one)
    part(publisher, b"1", MORE, Part.LAST if whole else Part.MIDDLE)
    take_all(one)
    other = net.subscriber(net.nodes[0], "m1", share=SHARE, mode=SubscriptionMode.AT_MOST_ONCE)
    one.detach(closed=True)
    if not whole:
        part(publisher, b"1", MORE, Part.LAST)
    net.advance(1.0)
    take_all(other)
    assert not publisher.accepted or parts(other)[-1:] == [(b"1", Part.LAST)]


@pytest.mark.parametrize("when", ["arriving", "awaited", "presented"])
def test_a_rejected_delivery_that_is_aborted_and_comes_small_has_a_letter(when: str) -> None:  # I-3e
    net = Net(3, limits=replace(LIMITS, policy=POLICY), message_format=MessageFormat(make_letter=described))
    letters = dead_letters(net)
    net.publisher(net.nodes[2])
    (ingress,) = net.nodes[2].core.ingresses.values()
    name = network_tag(NONCE, ingress.session, b"1")
    net.kill(net.nodes[2])
    one = net.subscriber(net.nodes[0], unsettled={name: DeliveryOutcome.REJECTED} if when == "presented" else {})
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(publisher, b"1", b"f" * 2000, Part.FIRST)
    if when == "arriving":
        answer(one, DeliveryOutcome.REJECTED, b"1")
    elif when == "awaited":
        net.held.add((0, 1))
        answer(one, DeliveryOutcome.REJECTED, b"1")
    part(publisher, b"1", b"", Part.ABORT)
    net.held.clear()
    net.run()
    publisher.send(b"1")
    net.advance(1.0)
    assert bodies(letters) or not publisher.accepted


def test_what_comes_small_is_not_kept_out_by_a_place() -> None:
    net = Net(2, limits=LIMITS)
    one = net.subscriber(net.nodes[0], limit=1)
    two = net.subscriber(net.nodes[0], "t")
    net.publisher(net.nodes[1]).drop()
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(publisher, b"1", b"f" * 3000, Part.FIRST)
    take_all(one)
    take_all(two)
    answer(one, DeliveryOutcome.RELEASED, b"1")
    net.advance(1.0)
    part(publisher, b"1", b"", Part.ABORT)
    publisher.send(b"1")
    one.flow(10, delivery_count=1)
    net.advance(100.0)
    assert one.deliveries == [b"1"] or publisher.detached() is not None


def test_a_filter_does_not_exclude_a_repeat_for_the_format_of_the_aborted_try() -> None:  # E-9, L-5
    net = Net(2, limits=LIMITS, filters=Words())
    net.subscriber(net.nodes[0], filter_text="red").drop()
    net.publisher(net.nodes[1]).drop()
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    part(publisher, b"1", b"red" * 1000, Part.FIRST, message_format=7)
    part(publisher, b"1", b"", Part.ABORT)
    one = net.subscriber(net.nodes[0], filter_text="red")
    publisher.send(b"1", b"red")
    assert one.deliveries == [b"1"] or not publisher.accepted


@pytest.mark.parametrize("again", [DeliveryOutcome.UNDELIVERABLE, DeliveryOutcome.MODIFIED_FAILED])
@pytest.mark.parametrize("is_shared", [True, False])
def test_what_would_come_as_a_new_message_is_stated_as_modified_and_no_publisher_is_detached(
    again: DeliveryOutcome, is_shared: bool
) -> None:  # L-7: else the member that was asked first declines each new message, and all others get it without end
    net = Net(2, limits=LIMITS)
    share = SHARE if is_shared else None
    other = net.subscriber(net.nodes[0], "other")
    members = [net.subscriber(net.nodes[0], f"m{number}", share=share) for number in range(1 + is_shared)]
    publisher = net.stock_publisher(net.nodes[1])
    part(publisher, b"1", b"f" * 3000, Part.FIRST)
    for each in (*members, other):
        take_all(each)
    part(publisher, b"1", MORE, Part.LAST)
    for each in (*members, other):
        take_all(each)
    first = next(each for each in members if parts(each))
    answer(other, DeliveryOutcome.ACCEPTED, b"1")
    answer(first, again, b"1")
    net.advance(5.0)
    assert not publisher.all(effects.DetachLink)
    stated = [
        reported for reported in publisher.all(effects.Dispose) if reported.outcome is not DeliveryOutcome.ACCEPTED
    ]
    if again is DeliveryOutcome.UNDELIVERABLE and not is_shared:
        assert not stated, "it is done with it"
    else:
        assert [reported.outcome for reported in stated] == [DeliveryOutcome.MODIFIED_FAILED]
        assert not publisher.accepted
    part(publisher, b"2", b"f" * 3000, Part.FIRST)
    assert (b"2", Part.FIRST) in parts(other), "what follows is not held up"


def test_what_follows_a_needed_delivery_in_the_map_is_resumed_behind_it() -> None:  # L-7, G3
    net = Net(2, limits=LIMITS)
    one = net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[1])
    part(publisher, b"1", b"f" * 3000, Part.FIRST)
    take_all(one)
    part(publisher, b"1", MORE, Part.LAST)
    take_all(one)
    publisher.send(b"2")
    net.run()
    tags = [one.all(effects.DeliverPart)[0].tag, one.all(effects.Deliver)[0].tag]
    one.drop()
    again = net.subscriber(net.nodes[0], unsettled=dict.fromkeys(tags))
    net.advance(1.0)
    assert not again.all(effects.Deliver), "the first one has no body yet"
    assert [left.condition for left in publisher.all(effects.DetachLink)] == ["amqp:link:detach-forced"]
    repeats = net.publisher(net.nodes[1], unsettled={b"1": None, b"2": None})
    part(repeats, b"1", b"f" * 3000, Part.FIRST)
    take_all(again)
    part(repeats, b"1", MORE, Part.LAST)
    repeats.send(b"2")
    net.run()
    take_all(again)
    assert [sent.tag for sent in again.all(effects.DeliverPart) if sent.part is Part.LAST or sent.part is Part.FIRST]
    assert [sent.tag for sent in again.all(effects.Deliver)] == tags[1:]
    assert parts(again)[-1] == (b"1", Part.LAST)
