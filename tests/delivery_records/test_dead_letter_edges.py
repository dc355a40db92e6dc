"""Dead letters where lives, routers, rules and messages change under them (rule I-3e)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delivery_records.model import effects
from delivery_records.model.inputs import PoliciesChanged, RouterDatagram, RouterFrame, Share, SubscriberDisposition
from delivery_records.model.limits import Limits, TopicPolicy
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.messages import Ack
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.tags import link_key
from tests.delivery_records.harness import Net
from tests.delivery_records.test_dead_letters import (
    DEAD,
    FAILED,
    LIMITS,
    POLICY,
    REJECTED,
    bodies,
    dead_letters,
    described,
)


def _rules(net: Net, policy: TopicPolicy) -> None:
    for node in net.nodes:
        if not node.is_gone:
            net.feed(node, PoliciesChanged(lambda _topic: policy))


def _annotate(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
    if message == b"broken":
        raise ValueError("no sections")
    return message


def test_the_next_life_of_a_dead_letter_subscription_has_its_own_attempts() -> None:
    net = Net(limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    letters.answer(FAILED, b"1")
    letters.detach(closed=True)
    again = dead_letters(net)
    assert [delivery.attempt for delivery in again.all(effects.Deliver)] == [0]
    again.answer(FAILED, b"1")
    assert publisher.outcomes == []
    net.advance(1.0)
    again.answer(FAILED, b"1")
    assert len(publisher.accepted) == 1


def test_a_message_that_comes_again_malformed_has_no_letter_and_holds_nobody_up() -> None:
    net = Net(2, limits=LIMITS, message_format=MessageFormat(_annotate))
    subscriber, letters = net.subscriber(net.nodes[0]), dead_letters(net)
    net.publisher(net.nodes[1]).send(b"1")
    subscriber.answer(REJECTED, b"1")
    letters.accept(b"1")
    net.kill(net.nodes[1])
    second = net.publisher(net.nodes[0], unsettled={b"1": None})
    first, other = second.send(b"1", b"broken"), second.send(b"2")
    subscriber.accept(b"2")
    assert second.outcomes == [(first, REJECTED), (other, DeliveryOutcome.ACCEPTED)]
    assert letters.deliveries == [b"1"]
    second.settle(b"1", b"2")
    assert letters.settled == [b"1"]
    assert net.nodes[0].count(Decision.DEAD_LETTER_SENT) == 0


def test_what_is_failed_after_a_topic_was_taken_away_and_named_again_has_a_letter() -> None:
    net = Net(limits=LIMITS)
    one, other = net.subscriber(net.nodes[0], "one"), net.subscriber(net.nodes[0], "other")
    letters, publisher = dead_letters(net), net.publisher(net.nodes[0])
    sent = publisher.send(b"1")
    one.answer(REJECTED, b"1")
    _rules(net, replace(POLICY, dead_letter=""))
    _rules(net, POLICY)
    other.answer(REJECTED, b"1")
    assert letters.deliveries == [b"1"]
    assert publisher.outcomes == []
    letters.accept(b"1")
    assert publisher.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]


def test_a_topic_that_is_taken_away_lets_no_letter_wait() -> None:
    net = Net(limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    _rules(net, replace(POLICY, dead_letter=""))
    assert net.nodes[0].count(Decision.DEAD_LETTER_WAITS) == 0
    assert net.nodes[0].count(Decision.DELIVERY_FAILED) == 1
    assert letters.settled == [b"1"]


def test_a_reload_that_changes_no_dead_letter_topic_repeats_nothing() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, letters = net.subscriber(net.nodes[0]), dead_letters(net, 1)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    before = len(net.nodes[0].all(effects.SendToRouters))
    _rules(net, replace(POLICY, max_attempts=7))
    assert len(net.nodes[0].all(effects.SendToRouters)) == before
    letters.accept(b"1")
    assert len(publisher.accepted) == 1


def test_the_letter_says_why_a_member_of_a_shared_subscription_rejects() -> None:
    net = Net(limits=LIMITS, message_format=MessageFormat(make_letter=described))
    member = net.subscriber(net.nodes[0], share=Share("workers"))
    letters, publisher = dead_letters(net), net.publisher(net.nodes[0])
    publisher.send(b"1")
    member.answer(REJECTED, b"1", error="app:broken")
    (body,) = bodies(letters)
    assert body.split(b"|")[5] == b"app:broken"


def test_a_late_answer_of_a_former_life_is_not_one_of_the_next() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    letters = dead_letters(net, 1)
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    late: list[RouterFrame] = []

    def is_late(frame: RouterFrame | RouterDatagram) -> bool:
        if isinstance(frame, RouterFrame) and isinstance(frame.message, Ack):
            late.append(frame)
            return True
        return False

    net.lost = is_late
    letters.accept(b"1")
    net.lost = lambda frame: False
    letters.detach(closed=True)
    again = dead_letters(net, 1)
    assert again.deliveries == [b"1"]
    assert late
    net.nodes[0].core._to_ingresses.deliver(late[0].message)  # type: ignore[arg-type]
    net.feed(net.nodes[0])
    assert publisher.outcomes == []
    again.accept(b"1")
    assert len(publisher.accepted) == 1


def test_letters_of_a_topic_that_has_lost_its_dead_letter_topic_while_its_publisher_was_away_are_settled() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[1])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    letters.accept(b"1")
    net.kill(net.nodes[1])
    _rules(net, replace(POLICY, dead_letter=""))
    second = net.publisher(net.nodes[0], unsettled={b"1": None})
    second.send(b"1")
    second.settle(b"1")
    assert letters.settled == [b"1"]


@pytest.mark.parametrize("last", [0, 1])
def test_letters_are_settled_whichever_router_hears_last_that_there_is_no_topic(last: int) -> None:
    net = Net(3, limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net, 1), net.publisher(net.nodes[2])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    letters.accept(b"1")
    net.kill(net.nodes[2])
    none = PoliciesChanged(lambda _topic: replace(POLICY, dead_letter=""))
    net.feed(net.nodes[1 - last], none)
    second = net.publisher(net.nodes[0], unsettled={b"1": None})
    second.send(b"1")
    net.feed(net.nodes[last], none)
    second.settle(b"1")
    assert set(letters.settled) == {b"1"}  # sent again where its own router has heard first
    assert net.nodes[1].core.egresses[link_key("d", "link")].unsettled == 0
    assert second.accepted


def test_a_message_of_another_format_goes_to_the_dead_letter_topic_as_it_is() -> None:
    net = Net(limits=LIMITS, message_format=MessageFormat(make_letter=described))
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net), net.publisher(net.nodes[0])
    publisher.send(b"1", message_format=7)
    subscriber.answer(REJECTED, b"1")
    assert [(d.message, d.message_format) for d in letters.all(effects.Deliver)] == [(b"1", 7)]


def test_a_delivery_that_is_given_up_takes_its_letter_with_it() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net, 1), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    publisher.settle(b"1")
    assert letters.settled == [b"1"]
    letters.detach(closed=True)
    publisher.send(b"2")
    subscriber.accept(b"2")
    assert len(publisher.accepted) == 1


def test_the_letters_of_several_publishers_share_a_full_map() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, letters = net.subscriber(net.nodes[0]), dead_letters(net, 1, map_bound=1)
    one, other = net.publisher(net.nodes[0], "one"), net.publisher(net.nodes[1], "other")
    for publisher, tags in ((one, (b"1", b"2")), (other, (b"3", b"4"))):
        for tag in tags:
            publisher.send(tag)
            subscriber.answer(REJECTED, tag)
    assert letters.deliveries == [b"1", b"3"]
    letters.accept(b"1", b"3")
    one.settle(b"1")
    other.settle(b"3")
    letters.accept(b"2", b"4")
    assert len(one.accepted) == len(other.accepted) == 2


def test_a_publisher_that_settles_with_its_outcome_is_reported_behind_the_letter() -> None:
    net = Net(limits=LIMITS)
    subscriber, letters = net.subscriber(net.nodes[0]), dead_letters(net)
    publisher = net.publisher(net.nodes[0], settles_first=True)
    sent = publisher.send(b"1")
    subscriber.answer(REJECTED, b"1")
    assert publisher.outcomes == []
    letters.accept(b"1")
    assert publisher.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]
    assert letters.settled == [b"1"]


def test_a_dead_letter_subscriber_without_a_map_gets_what_is_open_again() -> None:
    net = Net(limits=LIMITS)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    letters = net.stock_subscriber(net.nodes[0], "d", topic=DEAD)
    for tag in (b"1", b"2"):
        publisher.send(tag)
        subscriber.answer(REJECTED, tag)
    letters.answer(DeliveryOutcome.ACCEPTED, b"1", settled=True)
    letters.drop()
    assert net.stock_subscriber(net.nodes[0], "d", topic=DEAD).deliveries == [b"2"]


def test_a_channel_that_restarts_sends_letters_that_are_open_again() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net, 1), net.publisher(net.nodes[0])
    net.lost = lambda frame: isinstance(frame, RouterFrame)
    publisher.send(b"1")
    subscriber.feed(
        SubscriberDisposition(subscriber.number, [d.tag for d in subscriber.all(effects.Deliver)], REJECTED, False)
    )
    net.lost = lambda frame: False
    net.nodes[0].core.channels.channel(net.nodes[1].rid).restart("test")
    net.advance(10.0)
    assert letters.deliveries == [b"1"]


ONCE = Limits(policy=replace(POLICY, max_attempts=1))


def test_a_letter_that_is_failed_before_the_next_ingress_has_sent_it_counts_as_failed_there() -> None:
    net = Net(2, limits=ONCE)
    subscriber, letters = net.subscriber(net.nodes[0]), dead_letters(net)
    net.publisher(net.nodes[1]).send(b"1")
    subscriber.answer(REJECTED, b"1")
    net.kill(net.nodes[1])
    second = net.publisher(net.nodes[0], unsettled={b"1": None})
    letters.answer(FAILED, b"1")
    sent = second.send(b"1")
    assert letters.deliveries == [b"1"]
    assert second.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]


def test_a_letter_that_was_failed_too_often_before_it_is_sent_again_is_done_once() -> None:
    net = Net(2, limits=ONCE)
    subscriber, letters = net.subscriber(net.nodes[0]), dead_letters(net)
    net.publisher(net.nodes[1]).send(b"1")
    subscriber.answer(REJECTED, b"1")
    tag = letters.last(effects.Deliver).tag
    net.kill(net.nodes[1])
    letters.drop()
    dead_letters(net, unsettled={tag: FAILED})
    second = net.publisher(net.nodes[0], unsettled={b"1": None})
    sent = second.send(b"1")
    assert second.outcomes == [(sent, DeliveryOutcome.ACCEPTED)]
    assert net.nodes[0].count(Decision.DEAD_LETTER_DONE) == 1


def test_letters_under_way_from_a_former_ingress_do_not_come_when_there_is_no_topic_any_more() -> None:
    net = Net(2, limits=LIMITS)
    subscriber, letters, publisher = net.subscriber(net.nodes[0]), dead_letters(net, 1), net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.held.add((0, 1))
    subscriber.answer(REJECTED, b"1")
    _rules(net, replace(POLICY, dead_letter=""))
    publisher.drop()
    second = net.publisher(net.nodes[0], unsettled={b"1": None})
    net.held.clear()
    second.send(b"1")
    second.settle(b"1")
    assert letters.deliveries == []
    assert net.nodes[1].core.egresses[link_key("d", "link")].unsettled == 0
