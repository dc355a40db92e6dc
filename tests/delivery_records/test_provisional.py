"""Subscriptions that have not shown life yet (rule A-10)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects
from delivery_records.model.inputs import ClientFlow, StoreFailure
from delivery_records.model.limits import PROOF_TIMEOUT_S, PROVISIONAL_TIMEOUT_S
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import Kind, SubscriptionMode, SubscriptionRecord
from tests.delivery_records.harness import Net
from tests.delivery_records.links import SubscriberLink
from tests.delivery_records.nodes import Node, StoreFault

LONG = 3600.0


def _record(net: Net, name: str = "s") -> SubscriptionRecord:
    held = net.etcd.keys[(Kind.SUBSCRIPTION, net.subscription_path(name).partition("/")[2])]
    assert isinstance(held.record, SubscriptionRecord)
    return held.record


def _silent(
    net: Net, node: Node | None = None, *, name: str = "s", timeout_s: float = LONG, policy: str = "link-detach"
) -> SubscriberLink:
    """A subscriber that does not answer the echo."""
    return net.subscriber(node or net.nodes[0], name, timeout_s=timeout_s, policy=policy, answers=False)


def test_a_subscription_with_a_short_timeout_is_written_once() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0], timeout_s=60.0), net.publisher(net.nodes[0])
    revision = net.etcd.revision
    assert not _record(net).provisional
    publisher.send(b"1")
    subscriber.accept(b"1")
    assert net.etcd.revision == revision


def test_a_client_that_answers_the_echo_is_confirmed_with_its_whole_timeout_written() -> None:
    """A-10: confirmed, connection lost before its first message: it is there for all of its time."""
    net = Net(2)
    subscriber = SubscriberLink(net, net.nodes[0])
    subscriber.attach(timeout_s=LONG, exactly_once=True, unsettled={}, mode=SubscriptionMode.EXACTLY_ONCE)
    net.advance(1.0)
    assert subscriber.last(effects.SubscriberReply).timeout_s == PROVISIONAL_TIMEOUT_S
    assert _record(net).provisional
    assert not subscriber.confirmed()
    net.nodes[0].is_watch_held = True
    subscriber.echo()
    assert not subscriber.confirmed(), "the write is not in the watch yet"
    net.nodes[0].is_watch_held = False
    net.run()
    assert not _record(net).provisional
    (confirm,) = subscriber.all(effects.Confirm)
    assert (confirm.timeout_s, confirm.expiry_policy) == (LONG, "link-detach")
    publisher = net.publisher(net.nodes[1])
    subscriber.drop()
    publisher.send(b"1")
    net.advance(LONG - 60.0)
    assert publisher.accepted == []
    assert net.subscriber(net.nodes[1], timeout_s=LONG).deliveries == [b"1"]


def test_an_echo_of_another_attach_is_no_sign_of_life() -> None:
    net = Net()
    old = _silent(net)
    subscriber = _silent(net)
    subscriber.feed(ClientFlow(subscriber.number, limit=9, echoed_epoch=old.last(effects.AskEcho).epoch))
    subscriber.feed(ClientFlow(subscriber.number, limit=9))
    assert _record(net).provisional


def test_a_client_that_knows_no_echo_is_confirmed_with_what_it_has() -> None:
    net = Net()
    subscriber = _silent(net)
    assert not subscriber.confirmed()
    net.advance(PROOF_TIMEOUT_S)
    (confirm,) = subscriber.all(effects.Confirm)
    assert confirm.timeout_s == PROVISIONAL_TIMEOUT_S
    net.publisher(net.nodes[0]).send(b"1")
    subscriber.accept(b"1")
    assert [reported.timeout_s for reported in subscriber.all(effects.Confirm)] == [PROVISIONAL_TIMEOUT_S, LONG]


def test_the_reply_to_a_stock_client_states_what_it_has() -> None:
    net = Net()
    for name, timeout_s, stated in (("s", LONG, PROVISIONAL_TIMEOUT_S), ("u", 45.0, 45.0)):
        stock = SubscriberLink(net, net.nodes[0])
        stock.attach(name, timeout_s=timeout_s)
        net.advance(0.1)
        assert stock.last(effects.SubscriberReply).timeout_s == stated
        assert not stock.all(effects.AskEcho)
        stock.drop()
        net.advance(stated - 0.2)
        assert net.has_subscription(name)
        net.advance(0.3)
        assert not net.has_subscription(name)


def test_an_attach_that_has_shown_no_life_changes_no_terms() -> None:
    """A stale attach, or another process with the same identity, must not shorten what was confirmed."""
    net = Net()
    net.subscriber(net.nodes[0], timeout_s=LONG).drop()
    second = _silent(net, timeout_s=1.0, policy="session-end")
    reply = second.last(effects.SubscriberReply)
    assert (reply.timeout_s, reply.expiry_policy) == (LONG, "link-detach")
    second.drop()
    net.advance(LONG - 1.0)
    third = _silent(net, timeout_s=1.0, policy="session-end")
    third.echo()
    granted = third.last(effects.Confirm)
    assert (granted.timeout_s, granted.expiry_policy) == (1.0, "session-end")
    third.drop()
    net.advance(1.1)
    assert not net.has_subscription()


def test_a_look_up_changes_no_terms() -> None:
    net = Net()
    net.subscriber(net.nodes[0], timeout_s=LONG).drop()
    found = net.subscriber(net.nodes[0], topic=None, timeout_s=1.0, policy="session-end")
    assert not found.all(effects.AskEcho)
    found.drop()
    net.advance(LONG - 1.0)
    assert net.has_subscription()


def test_a_new_subscription_with_a_long_timeout_is_provisional_until_it_shows_life() -> None:
    net = Net()
    subscriber = _silent(net)
    assert _record(net).provisional
    assert subscriber.last(effects.SubscriberReply).timeout_s == PROVISIONAL_TIMEOUT_S
    net.publisher(net.nodes[0]).send(b"1")
    assert _record(net).provisional
    subscriber.accept(b"1")
    assert not _record(net).provisional
    assert _record(net).timeout_s == LONG


@pytest.mark.parametrize("outcome", [DeliveryOutcome.REJECTED, DeliveryOutcome.RELEASED, None])
def test_any_disposition_is_a_sign_of_life(outcome: DeliveryOutcome | None) -> None:
    net = Net()
    subscriber = _silent(net)
    net.publisher(net.nodes[0]).send(b"1")
    subscriber.answer(outcome, b"1")
    assert not _record(net).provisional


def test_a_flow_is_a_sign_of_life_only_once_it_counts_deliveries() -> None:
    net = Net()
    subscriber = _silent(net)
    subscriber.flow(50)
    assert _record(net).provisional
    subscriber.flow(50, delivery_count=1)
    assert not _record(net).provisional


def test_staying_attached_long_enough_is_a_sign_of_life() -> None:
    net = Net()
    subscriber = _silent(net)
    net.advance(PROVISIONAL_TIMEOUT_S - 1.0)
    assert _record(net).provisional
    net.advance(2.0)
    assert not _record(net).provisional
    assert subscriber.detached() is None


def test_the_proof_changes_the_epoch_and_not_the_stream() -> None:
    net = Net(2)
    subscriber, publisher = _silent(net), net.publisher(net.nodes[1])
    ids = [publisher.send(tag) for tag in (b"1", b"2", b"3")]
    subscriber.accept(b"1")  # shows life in the middle of the stream
    subscriber.accept(b"2", b"3")
    ids.append(publisher.send(b"4"))
    subscriber.accept(b"4")
    assert subscriber.deliveries == [b"1", b"2", b"3", b"4"]
    assert publisher.accepted == ids
    assert subscriber.detached() is None


def test_a_ghost_dies_after_a_minute_whatever_it_asked_for() -> None:
    net = Net()
    for name, policy in (("never", "never"), ("detach", "link-detach")):
        subscriber = _silent(net, name=name, policy=policy)
        subscriber.drop()
        net.advance(PROVISIONAL_TIMEOUT_S - 1.0)
        assert net.has_subscription(name)
        net.advance(2.0)
        assert not net.has_subscription(name)


def test_a_proven_subscription_gets_its_whole_timeout() -> None:
    net = Net()
    subscriber = _silent(net)
    subscriber.flow(10, delivery_count=1)
    subscriber.drop()
    net.advance(LONG - 1.0)
    assert net.has_subscription()
    net.advance(2.0)
    assert not net.has_subscription()


def test_a_provisional_subscription_that_comes_back_is_still_provisional() -> None:
    net = Net()
    _silent(net).drop()
    second = _silent(net)
    assert _record(net).provisional
    second.flow(10, delivery_count=1)
    assert not _record(net).provisional
    second.drop()
    _silent(net)
    assert not _record(net).provisional


def test_a_proof_that_could_not_be_written_is_tried_again_at_the_next_sign_of_life() -> None:
    net = Net()
    subscriber = _silent(net)
    net.nodes[0].faults.append(StoreFault(StoreFailure.UNAVAILABLE))
    subscriber.flow(10, delivery_count=1)
    assert _record(net).provisional
    subscriber.flow(11, delivery_count=2)
    assert not _record(net).provisional


def test_a_proof_that_could_not_be_written_is_tried_again_after_a_while_without_a_sign() -> None:
    net = Net()
    subscriber = _silent(net)
    net.nodes[0].faults.append(StoreFault(StoreFailure.UNAVAILABLE))
    subscriber.flow(10, delivery_count=1)
    net.advance(PROVISIONAL_TIMEOUT_S + 1.0)
    assert not _record(net).provisional


def test_a_proof_of_unknown_fate_that_was_written_does_not_steal_the_link() -> None:
    net = Net()
    subscriber, publisher = _silent(net), net.publisher(net.nodes[0])
    node = net.nodes[0]
    node.faults.append(StoreFault(StoreFailure.UNKNOWN, is_applied=True))
    node.is_watch_held = True
    subscriber.flow(10, delivery_count=1)
    node.is_watch_held = False
    net.run()
    assert subscriber.detached() is None
    assert not _record(net).provisional
    publisher.send(b"1")
    assert subscriber.deliveries == [b"1"]


def test_a_proof_of_unknown_fate_that_was_lost_is_tried_again() -> None:
    net = Net()
    subscriber = _silent(net)
    net.nodes[0].faults.append(StoreFault(StoreFailure.UNKNOWN))
    subscriber.flow(10, delivery_count=1)
    assert _record(net).provisional
    subscriber.flow(11, delivery_count=2)
    assert not _record(net).provisional
    assert subscriber.detached() is None


def test_a_subscriber_stolen_while_it_proves_itself_is_not_proven() -> None:
    net = Net(2)
    subscriber = _silent(net)
    net.nodes[0].is_watch_held = True
    _silent(net, net.nodes[1])
    subscriber.flow(10, delivery_count=1)  # its compare fails
    net.nodes[0].is_watch_held = False
    net.run()
    assert subscriber.end().condition == "amqp:link:stolen"
    assert _record(net).provisional


@pytest.mark.parametrize("limit", [0, 100])
def test_what_comes_by_the_former_epoch_is_not_dropped_and_what_is_held_then_is_no_repeat(limit: int) -> None:
    net = Net(2)
    publisher = net.publisher(net.nodes[0])
    subscriber = net.subscriber(net.nodes[1], timeout_s=600.0, answers=False, limit=limit)
    publisher.send(b"1")
    net.nodes[0].is_watch_held = True  # it does not see that the other one puts the subscription again
    epoch = subscriber.last(effects.AskEcho).epoch
    subscriber.feed(ClientFlow(subscriber.number, limit=limit, echoed_epoch=epoch))
    late = net.nodes[0].core
    for tag, settled in ((b"2", True), (b"3", False), (b"4", True)):
        publisher.send(tag, settled=settled)
    assert late.view.subscriptions != net.nodes[1].core.view.subscriptions
    net.nodes[0].is_watch_held = False
    net.run()
    subscriber.flow(100)
    delivered = [(d.tag[11:], d.settled, d.redelivered) for d in subscriber.all(effects.Deliver)]
    expected = [(b"1", False, False), (b"2", True, False), (b"3", False, False), (b"4", True, False)]
    assert (delivered if limit else sorted(delivered)) == expected
