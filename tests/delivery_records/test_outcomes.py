"""What subscribers answer, what is sent again when, and what is reported to the publisher (rules E-4, E-4a, I-3)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.limits import Limits, TopicPolicy
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.tags import network_tag
from delivery_records.model.view import Kind, PublisherRecord
from tests.delivery_records.harness import NONCE, Net
from tests.delivery_records.links import PublisherLink, SubscriberLink

AGAIN = [DeliveryOutcome.RELEASED, DeliveryOutcome.MODIFIED, DeliveryOutcome.MODIFIED_FAILED]


def session_of(net: Net, name: str = "p") -> int:
    """The session of a publisher, as it stands in etcd."""
    held = net.etcd.keys[(Kind.PUBLISHER, net.publisher_path(name).partition("/")[2])]
    assert isinstance(held.record, PublisherRecord)
    return held.record.session if held.record.session > 0 else held.mod_revision


@pytest.mark.parametrize("outcome", [DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED, DeliveryOutcome.UNDELIVERABLE])
def test_a_subscription_that_is_done_owes_nothing_whatever_it_said(outcome: DeliveryOutcome) -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    subscriber.answer(outcome, b"1")
    assert publisher.outcomes == [(delivery, DeliveryOutcome.ACCEPTED)]


def test_a_publisher_is_accepted_only_after_every_subscription_is_done() -> None:
    net = Net(2)
    near, far = net.subscriber(net.nodes[0], "near"), net.subscriber(net.nodes[1], "far")
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    near.accept(b"1")
    assert publisher.outcomes == []
    far.answer(DeliveryOutcome.REJECTED, b"1")
    assert publisher.outcomes == [(delivery, DeliveryOutcome.ACCEPTED)]


def test_with_reports_on_a_rejection_is_reported_with_names_and_number() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(report_rejections=True)))
    subscribers = [net.subscriber(net.nodes[0], f"s{index}") for index in range(10)]
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    for subscriber in subscribers:
        subscriber.answer(DeliveryOutcome.REJECTED, b"1")
    reported = publisher.last(effects.Dispose)
    assert reported.outcome is DeliveryOutcome.REJECTED
    assert reported.condition == "oncewire:rejected"
    assert reported.info == {"subscriptions": [f"s{index}/link" for index in range(8)], "count": 10}


def test_with_reports_on_an_accepted_delivery_behind_a_rejected_one_is_accepted() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(report_rejections=True)))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    first, second = publisher.send(b"1"), publisher.send(b"2")
    subscriber.accept(b"2")
    subscriber.answer(DeliveryOutcome.REJECTED, b"1")
    assert sorted(publisher.outcomes) == [(first, DeliveryOutcome.REJECTED), (second, DeliveryOutcome.ACCEPTED)]


@pytest.mark.parametrize("outcome", AGAIN)
@pytest.mark.parametrize("routers", [1, 2])
def test_an_answer_of_again_settles_the_delivery_and_it_comes_again(outcome: DeliveryOutcome, routers: int) -> None:
    net = Net(routers)
    subscriber, publisher = net.subscriber(net.nodes[-1]), net.publisher(net.nodes[0])
    publisher.send(b"1", b"body")
    subscriber.answer(outcome, b"1")
    assert subscriber.settled == [b"1"]
    net.advance(1.0)
    again = subscriber.all(effects.Deliver)[1]
    assert (again.tag[11:], again.message, again.resume) == (b"1", b"body", False)
    subscriber.accept(b"1")
    assert len(publisher.accepted) == 1


def test_a_subscriber_that_settles_with_released_gets_no_settlement_of_its_own_back() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(DeliveryOutcome.RELEASED, b"1", settled=True)
    assert subscriber.settled == []
    assert subscriber.deliveries == [b"1", b"1"]


def test_settled_without_an_outcome_counts_as_released() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(None, b"1", settled=True)
    assert subscriber.deliveries == [b"1", b"1"]
    assert publisher.outcomes == []


def test_an_outcome_that_is_not_terminal_changes_nothing() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(None, b"1")
    net.advance(10.0)
    assert subscriber.deliveries == [b"1"]
    assert publisher.outcomes == []


def test_a_first_release_is_retried_at_once_and_later_ones_after_doubling_waits() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    waits = [_wait_for_attempt(net, subscriber, DeliveryOutcome.RELEASED) for _ in range(9)]
    assert waits == pytest.approx([0, 1, 2, 4, 8, 16, 32, 60, 60])
    assert {delivery.attempt for delivery in subscriber.all(effects.Deliver)} == {0}


def test_failed_attempts_are_counted_and_wait_for_a_doubling_time() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    waits = [_wait_for_attempt(net, subscriber, DeliveryOutcome.MODIFIED_FAILED) for _ in range(8)]
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])
    assert [delivery.attempt for delivery in subscriber.all(effects.Deliver)] == list(range(9))


def _wait_for_attempt(net: Net, subscriber: SubscriberLink, outcome: DeliveryOutcome) -> float:
    """Answer the newest attempt; seconds until the next one came."""
    started, had = net.now, len(subscriber.deliveries)
    subscriber.answer(outcome, b"1")
    while len(subscriber.deliveries) == had:
        deadline = net.nodes[0].core.next_deadline()
        assert deadline is not None
        net.advance(deadline - net.now)
    return net.now - started


def test_at_the_poison_limit_a_delivery_counts_as_rejected() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(max_attempts=3, report_rejections=True)))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    for _ in range(3):
        subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
        net.advance(60.0)
    assert publisher.outcomes == [(delivery, DeliveryOutcome.REJECTED)]
    assert len(subscriber.deliveries) == 3
    assert net.nodes[0].count(Decision.DELIVERY_POISONED) == 1
    publisher.settle(b"1")
    net.advance(600.0)
    assert len(subscriber.deliveries) == 3


def test_one_subscription_at_the_poison_limit_does_not_end_the_retries_of_another() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(max_attempts=2)))
    poisoned, slow = net.subscriber(net.nodes[0], "poisoned"), net.subscriber(net.nodes[0], "slow")
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    poisoned.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    net.advance(1.0)
    slow.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    poisoned.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    net.advance(1.0)
    assert slow.deliveries == [b"1", b"1"]
    slow.accept(b"1")
    assert publisher.outcomes == [(delivery, DeliveryOutcome.ACCEPTED)]


def test_a_loop_of_releases_ends_at_the_poison_limit() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(max_attempts=2)))
    subscriber, publisher = net.subscriber(net.nodes[0], timeout_s=60.0), net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    for _ in range(199):
        subscriber.answer(DeliveryOutcome.RELEASED, b"1")
        net.advance(60.0)
    assert publisher.outcomes == []
    subscriber.answer(DeliveryOutcome.RELEASED, b"1")
    net.advance(60.0)
    assert publisher.outcomes == [(delivery, DeliveryOutcome.ACCEPTED)]
    assert len(subscriber.deliveries) == 200


def test_the_waiting_time_stays_finite_however_many_attempts_are_allowed() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(max_attempts=2000)))
    subscriber, publisher = net.subscriber(net.nodes[0], limit=2000), net.publisher(net.nodes[0])
    publisher.send(b"1")
    for _ in range(1100):
        subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
        net.advance(60.0)
    assert len(subscriber.deliveries) == 1101


def test_while_one_delivery_waits_for_its_retry_later_ones_go_on() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    first, second = publisher.send(b"1"), publisher.send(b"2")
    subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    third = publisher.send(b"3")
    subscriber.accept(b"2", b"3")
    assert subscriber.deliveries == [b"1", b"2", b"3"]
    assert publisher.accepted == []
    net.advance(1.0)
    subscriber.accept(b"1")
    assert publisher.accepted == [first, second, third]


def test_a_retry_goes_to_the_subscription_that_asked_and_to_no_other() -> None:
    net = Net()
    one, other = net.subscriber(net.nodes[0], "one"), net.subscriber(net.nodes[0], "other")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    one.answer(DeliveryOutcome.RELEASED, b"1")
    assert (one.deliveries, other.deliveries) == ([b"1", b"1"], [b"1"])


def test_a_retry_that_is_due_after_the_publisher_settled_is_not_sent() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    publisher.settle(b"1")
    net.advance(100.0)
    assert subscriber.deliveries == [b"1"]


def test_a_retry_of_a_subscription_that_is_gone_is_not_sent() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    net.delete_subscription()
    net.advance(100.0)
    assert subscriber.deliveries == [b"1"]
    assert publisher.accepted == [delivery]


def test_a_request_that_was_lost_with_its_channel_is_answered_by_the_repeat() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    delivery = publisher.send(b"1", b"body")
    net.lost = lambda frame: isinstance(frame, inputs.RouterFrame)
    subscriber.answer(DeliveryOutcome.RELEASED, b"1")
    net.lost = lambda frame: False
    net.advance(5.0)
    assert [d.message for d in subscriber.all(effects.Deliver)] == [b"body", b"body"]
    subscriber.accept(b"1")
    assert publisher.accepted == [delivery]


def test_a_delivery_its_publisher_has_not_repeated_yet_is_not_retried_without_its_body() -> None:
    net = Net(3)
    subscriber = net.subscriber(net.nodes[0])
    net.publisher(net.nodes[1]).send(b"1", b"body")
    net.kill(net.nodes[1])
    again = net.publisher(net.nodes[2], unsettled={b"1": None})
    subscriber.answer(DeliveryOutcome.RELEASED, b"1")
    net.advance(5.0)
    assert [d.message for d in subscriber.all(effects.Deliver)] == [b"body"]
    delivery = again.send(b"1", b"body")
    assert [d.message for d in subscriber.all(effects.Deliver)] == [b"body", b"body"]
    subscriber.accept(b"1")
    assert again.accepted == [delivery]


def test_what_waits_for_a_retry_is_not_taken_for_older_than_the_subscription_when_its_publisher_moves() -> None:
    net = Net(3)
    subscriber = net.subscriber(net.nodes[0])
    first = net.publisher(net.nodes[1])
    first.send(b"1")
    first.send(b"2")
    subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    net.kill(net.nodes[1])
    again = net.publisher(net.nodes[2], unsettled={b"1": None, b"2": None})
    again.send(b"1")
    again.send(b"2")
    assert subscriber.deliveries == [b"1", b"2", b"1"]
    subscriber.accept(b"2", b"1")
    assert len(again.accepted) == 2


def test_a_retry_that_waits_for_credit_is_not_taken_for_older_than_the_subscription() -> None:
    net = Net(3)
    subscriber = net.subscriber(net.nodes[0], limit=2)
    first = net.publisher(net.nodes[1])
    first.send(b"1")
    first.send(b"2")
    subscriber.answer(DeliveryOutcome.RELEASED, b"1")  # held: both credits are used up
    net.advance(1.0)
    assert subscriber.deliveries == [b"1", b"2"]
    net.kill(net.nodes[1])
    again = net.publisher(net.nodes[2], unsettled={b"1": None, b"2": None})
    again.send(b"1")
    again.send(b"2")
    subscriber.accept(b"2")
    assert again.accepted == []
    subscriber.flow(10)
    assert subscriber.deliveries == [b"1", b"2", b"1"]
    subscriber.accept(b"1")
    assert len(again.accepted) == 2


@pytest.mark.parametrize("outcome", AGAIN)
def test_an_entry_presented_as_wanted_again_is_left_out_of_the_reply_and_comes_as_new(outcome: DeliveryOutcome) -> None:
    net = Net(2)
    first = net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[1])
    publisher.send(b"1", b"one")
    publisher.send(b"2", b"two")
    first.drop()
    session = session_of(net)
    one, two = network_tag(NONCE, session, b"1"), network_tag(NONCE, session, b"2")
    second = net.subscriber(net.nodes[0], unsettled={one: outcome, two: DeliveryOutcome.ACCEPTED})
    assert second.last(effects.SubscriberReply).kept == [two]
    net.advance(1.0)  # a failure is answered with a wait, also one that the map states
    assert [(d.tag[11:], d.resume) for d in second.all(effects.Deliver)] == [(b"1", False)]
    assert publisher.accepted == []
    second.accept(b"1")
    assert len(publisher.accepted) == 2


def test_an_outcome_is_repeated_when_the_same_delivery_comes_again() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.lost = lambda frame: isinstance(frame, inputs.RouterFrame)
    subscriber.accept(b"1")  # its ACK is lost
    net.lost = lambda frame: False
    net.advance(5.0)
    assert len(publisher.accepted) == 1
    assert subscriber.deliveries == [b"1"]


def test_outcomes_are_reported_in_window_order_whoever_answers_first() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    deliveries = [publisher.send(bytes([number])) for number in range(5)]
    for number in (4, 2, 0, 3, 1):
        subscriber.accept(bytes([number]))
    assert publisher.accepted == deliveries


def test_a_malformed_message_is_rejected_in_its_place_and_goes_nowhere() -> None:
    net = Net(message_format=MessageFormat(_refuse_bad))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    ids = _send_all(publisher, [b"1", b"bad", b"3"])
    assert subscriber.deliveries == [b"1", b"3"]
    assert publisher.outcomes == []
    subscriber.accept(b"3", b"1")
    assert sorted(publisher.outcomes) == [
        (ids[0], DeliveryOutcome.ACCEPTED),
        (ids[1], DeliveryOutcome.REJECTED),
        (ids[2], DeliveryOutcome.ACCEPTED),
    ]
    rejected = next(
        reported for reported in publisher.all(effects.Dispose) if reported.outcome is DeliveryOutcome.REJECTED
    )
    assert (rejected.condition, rejected.description) == ("amqp:decode-error", "no section at byte 0")


def test_a_malformed_message_is_owed_by_nobody() -> None:
    net = Net(message_format=MessageFormat(_refuse_bad))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    _send_all(publisher, [b"1", b"bad"])
    reported = publisher.ask(b"bad")
    assert (list(reported.names), reported.count) == ([], 0)
    net.delete_subscription()
    assert len(publisher.outcomes) == 2
    assert subscriber.deliveries == [b"1"]


def _refuse_bad(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
    if message == b"bad":
        raise ValueError("no section at byte 0")
    return message


def _send_all(publisher: PublisherLink, tags: list[bytes]) -> list[int]:
    return [publisher.send(tag) for tag in tags]
