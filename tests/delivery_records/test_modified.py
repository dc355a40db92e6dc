"""What *modified* adds to a message stays for all later attempts, and only failed attempts are counted (E-4b, SH-5)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.limits import ANNOTATIONS_BYTES, Limits, TopicPolicy
from delivery_records.model.messages import Ack, Annotations, FormerAnnotations
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from tests.delivery_records.harness import Net
from tests.delivery_records.links import SubscriberLink
from tests.delivery_records.nodes import Node

BUSY, WHO, LATER = {b"why": b"busy"}, {b"who": b"ann"}, {b"why": b"later"}
MODIFIED, FAILED, RELEASED = DeliveryOutcome.MODIFIED, DeliveryOutcome.MODIFIED_FAILED, DeliveryOutcome.RELEASED
UNDELIVERABLE, FAILED_FOR_GOOD = DeliveryOutcome.UNDELIVERABLE, DeliveryOutcome.UNDELIVERABLE_FAILED
ROUTERS = pytest.mark.parametrize("routers", [1, 2], ids=["one router", "two routers"])


def member(net: Net, node: Node, name: str, limit: int = 100) -> SubscriberLink:
    return net.subscriber(node, name, share=inputs.Share("work", is_global=True), limit=limit)


def carried(subscriber: SubscriberLink) -> list[dict[bytes, bytes]]:
    """The annotations of each attempt."""
    return [dict(delivery.annotations or {}) for delivery in subscriber.all(effects.Deliver)]


def pair_of(net: Net) -> tuple[SubscriberLink, SubscriberLink]:
    """Two members; the first one is sent what comes, for the other one has no credit yet."""
    return member(net, net.nodes[0], "m0"), member(net, net.nodes[-1], "m1", limit=0)


@ROUTERS
@pytest.mark.parametrize("second", [MODIFIED, FAILED, RELEASED])
def test_what_one_modified_adds_comes_with_each_later_attempt(routers: int, second: DeliveryOutcome) -> None:
    net = Net(routers)
    subscriber, publisher = net.subscriber(net.nodes[-1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(MODIFIED, b"1", annotations=BUSY | WHO)
    subscriber.answer(second, b"1", annotations=LATER if second is FAILED else None)
    net.advance(10.0)
    assert carried(subscriber) == [{}, BUSY | WHO, WHO | LATER if second is FAILED else BUSY | WHO]


@ROUTERS
@pytest.mark.parametrize("outcome", [MODIFIED, FAILED, UNDELIVERABLE])
def test_what_a_member_adds_comes_to_the_member_that_gets_it_next(routers: int, outcome: DeliveryOutcome) -> None:
    net = Net(routers)
    one, other = pair_of(net)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    one.flow(1, delivery_count=1)  # it takes no more
    one.answer(outcome, b"1", annotations=BUSY)
    other.flow(10)
    net.advance(2.0)
    assert carried(other) == [BUSY]
    other.answer(MODIFIED, b"1", annotations=WHO)
    other.flow(10, delivery_count=1)
    net.advance(2.0)
    assert carried(other) == [BUSY, BUSY | WHO]


@ROUTERS
def test_what_a_subscriber_added_goes_with_it_to_its_next_router(routers: int) -> None:
    net = Net(routers + 1)
    subscriber, publisher = net.subscriber(net.nodes[-1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    subscriber.answer(MODIFIED, b"1", annotations=BUSY)
    subscriber.drop()
    moved = net.subscriber(net.nodes[0])
    assert [(each.tag[11:], each.annotations) for each in moved.all(effects.Deliver)] == [(b"1", BUSY), (b"2", None)]


def test_what_was_added_is_forgotten_in_work_that_does_not_grow_with_the_length_of_a_run() -> None:
    net = Net(1)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    (egress,) = net.nodes[0].core.egresses.values()
    (sync,) = egress.syncs.values()
    sync.annotated.update({7: BUSY, 8: WHO})
    egress.on_settle(sync.epoch, ((7, 1),))
    assert sync.annotated == {8: WHO}
    egress.on_settle(sync.epoch, ((0, 2**62),))
    assert sync.annotated == {}
    assert carried(subscriber) == [{}]


def test_what_a_subscriber_added_survives_its_publishers_router_and_then_its_own() -> None:
    net = Net(4)
    subscriber = net.subscriber(net.nodes[0])
    net.publisher(net.nodes[1]).send(b"1")
    subscriber.answer(FAILED, b"1", annotations=BUSY)
    net.kill(net.nodes[1])
    net.publisher(net.nodes[2], unsettled={b"1": None}).send(b"1")
    assert carried(subscriber) == [{}, BUSY]
    subscriber.answer(MODIFIED, b"1", annotations=WHO)
    net.kill(net.nodes[0])
    moved = net.subscriber(net.nodes[3])
    assert carried(moved) == [BUSY | WHO]


def test_what_a_subscriber_added_concerns_it_alone_and_no_other_message() -> None:
    net = Net()
    one, other = net.subscriber(net.nodes[0], "one"), net.subscriber(net.nodes[0], "other")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    one.answer(MODIFIED, b"1", annotations=BUSY)
    other.answer(RELEASED, b"1")
    assert carried(other) == [{}, {}]
    publisher.settle(b"1")
    publisher.send(b"1")
    assert carried(one) == [{}, BUSY, {}]


@ROUTERS
@pytest.mark.parametrize("outcome", [RELEASED, MODIFIED, UNDELIVERABLE])
def test_what_a_member_hands_back_without_a_failure_is_a_first_attempt_for_the_next_one(
    routers: int, outcome: DeliveryOutcome
) -> None:
    net = Net(routers)
    one, other = pair_of(net)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    one.flow(1, delivery_count=1)
    one.answer(outcome, b"1")
    other.flow(10)
    net.advance(2.0)
    again = other.last(effects.Deliver)
    # A flagged delivery has a delivery-count of 1 or more where its subscriber keeps no map (c.5).
    assert (again.attempt, again.redelivered) == (0, False)
    other.accept(b"1")
    assert len(publisher.accepted) == 1


def test_what_a_member_may_have_processed_is_flagged_although_another_one_has_handed_it_back() -> None:
    net = Net()
    one, other = pair_of(net)
    third = member(net, net.nodes[0], "m2", limit=0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    one.flow(1, delivery_count=1)
    one.answer(RELEASED, b"1")
    other.flow(10)
    assert other.deliveries == [b"1"]
    other.drop()
    net.delete_subscription("m1")
    third.flow(10)
    assert third.last(effects.Deliver).redelivered


@ROUTERS
def test_a_failure_for_good_is_counted_at_the_next_member_and_once(routers: int) -> None:
    net = Net(routers + 1)
    one, other = pair_of(net)
    net.publisher(net.nodes[0]).send(b"1")
    one.flow(1, delivery_count=1)
    one.answer(FAILED_FOR_GOOD, b"1")
    other.flow(10)
    assert (other.last(effects.Deliver).attempt, other.last(effects.Deliver).redelivered) == (1, False)
    other.answer(FAILED, b"1")
    net.advance(2.0)
    assert [each.attempt for each in other.all(effects.Deliver)] == [1, 2]


def test_members_that_all_fail_for_good_reach_the_limit_of_attempts_like_others() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(max_attempts=2, report_rejections=True)))
    one, other = pair_of(net)
    third = member(net, net.nodes[0], "m2", limit=0)
    publisher = net.publisher(net.nodes[0])
    sent = publisher.send(b"1")
    one.answer(FAILED_FOR_GOOD, b"1")
    other.flow(10)
    assert publisher.outcomes == []
    other.answer(FAILED_FOR_GOOD, b"1")
    third.flow(10)
    assert publisher.outcomes == [(sent, DeliveryOutcome.REJECTED)]
    assert third.deliveries == []


def test_what_is_added_beyond_the_bound_is_refused_and_what_was_added_before_stays() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(MODIFIED, b"1", annotations={b"k": bytes(ANNOTATIONS_BYTES - 1)})
    assert subscriber.all(effects.DetachLink) == []
    subscriber.answer(FAILED, b"1", annotations=BUSY)
    refused = subscriber.last(effects.DetachLink)
    assert (refused.closed, refused.condition) == (False, "amqp:resource-limit-exceeded")
    assert f"{ANNOTATIONS_BYTES} bytes" in refused.description
    assert net.nodes[0].count(Decision.ANNOTATIONS_REFUSED) == 1
    again = net.subscriber(net.nodes[0]).last(effects.Deliver)
    assert (again.attempt, again.annotations) == (1, {b"k": bytes(ANNOTATIONS_BYTES - 1)})


def test_what_is_said_of_the_same_key_again_and_again_does_not_grow() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(max_attempts=100)))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    for attempt in range(20):
        subscriber.answer(FAILED, b"1", annotations={b"k": bytes([attempt]) * 1000})
        net.advance(60.0)
    assert subscriber.all(effects.DetachLink) == []
    assert carried(subscriber)[-1] == {b"k": bytes([19]) * 1000}


def test_a_dead_letter_that_is_wanted_again_keeps_what_its_subscriber_added_when_that_moves() -> None:
    net = Net(2, limits=Limits(policy=TopicPolicy(dead_letter="dead")))
    subscriber, letters = net.subscriber(net.nodes[0]), net.subscriber(net.nodes[1], "d", topic="dead")
    net.publisher(net.nodes[0]).send(b"1")
    subscriber.answer(DeliveryOutcome.REJECTED, b"1")
    letters.answer(MODIFIED, b"1", annotations=BUSY)
    assert carried(letters) == [{}, BUSY]
    letters.drop()
    assert carried(net.subscriber(net.nodes[0], "d", topic="dead")) == [BUSY]


def test_an_ingress_is_sent_annotations_and_that_a_failure_is_for_good() -> None:
    net = Net(2)
    one, other = pair_of(net)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    sent: list[object] = []

    def seen(frame: inputs.RouterFrame | inputs.RouterDatagram) -> bool:
        sent.append(frame.message)
        return False

    net.lost = seen
    other.flow(1)
    one.flow(2, delivery_count=2)
    one.answer(MODIFIED, b"1", annotations=BUSY)  # goes to the other one
    other.answer(FAILED_FOR_GOOD, b"1", annotations=WHO)
    named = {type(message) for message in sent} & {Annotations, FormerAnnotations}
    said = {message.outcome for message in sent if isinstance(message, Ack)}
    assert named == {Annotations, FormerAnnotations}
    assert said == {FAILED_FOR_GOOD}


def test_what_a_member_has_handed_back_does_not_expire() -> None:  # E-10
    net = Net(limits=Limits(policy=TopicPolicy(ttl_s=5.0)))
    one, other = pair_of(net)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    one.flow(1, delivery_count=1)
    one.answer(RELEASED, b"1")
    net.advance(20.0)
    assert publisher.outcomes == []
    other.flow(10)
    assert other.deliveries == [b"1"]
