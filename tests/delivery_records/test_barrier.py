"""Confirmed means every live router knows (rules A-6, A-6a, A-6b, K-8)."""

from __future__ import annotations

from delivery_records.model import effects, inputs
from delivery_records.model.limits import BARRIER_PERIOD_S, BARRIER_REPEAT_CAP_S, BARRIER_REPEAT_S, GRACE_S
from delivery_records.model.messages import Applied, Barrier
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import SubscriberLink
from tests.delivery_records.nodes import Node


def _join(net: Net, node: Node, name: str = "s") -> SubscriberLink:
    subscriber = SubscriberLink(net, node)
    subscriber.attach(name, unsettled={}, exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE)
    return subscriber


def _barriers(node: Node) -> list[effects.SendDatagram]:
    return [sent for sent in node.all(effects.SendDatagram) if isinstance(sent.message, Barrier)]


def test_the_only_router_confirms_at_once() -> None:
    net = Net()
    assert _join(net, net.nodes[0]).confirmed()


def test_a_subscription_is_answered_at_once_and_confirmed_when_every_router_has_applied_it() -> None:
    net = Net(3)
    net.nodes[2].is_watch_held = True
    subscriber = _join(net, net.nodes[0])
    assert subscriber.all(effects.SubscriberReply)
    net.advance(5.0)
    assert not subscriber.confirmed()
    net.nodes[2].is_watch_held = False
    net.run()
    assert subscriber.confirmed()
    confirmed = subscriber.last(effects.Confirm)
    assert confirmed.incarnation == subscriber.last(effects.SubscriberReply).incarnation


def test_transfers_follow_the_reply_before_the_confirmation() -> None:
    net = Net(3)
    net.nodes[2].is_watch_held = True
    subscriber = _join(net, net.nodes[0])
    subscriber.flow(10)
    net.publisher(net.nodes[1]).send(b"1")
    assert subscriber.deliveries == [b"1"]
    assert not subscriber.confirmed()


def test_a_message_accepted_by_a_router_that_does_not_know_the_subscription_was_sent_before_its_confirmation() -> None:
    net = Net(2)
    publisher = net.publisher(net.nodes[1])
    net.nodes[1].is_watch_held = True
    subscriber = _join(net, net.nodes[0])
    delivery = publisher.send(b"1")
    assert publisher.accepted == [delivery]
    net.advance(1.0)
    assert not subscriber.confirmed()


def test_joins_of_one_period_share_a_barrier() -> None:
    net = Net(2)
    net.subscriber(net.nodes[0], "warm")
    net.advance(1.0)
    before = len(_barriers(net.nodes[0]))
    net.nodes[1].is_watch_held = True
    joins = [_join(net, net.nodes[0], f"s{number}") for number in range(20)]
    net.advance(BARRIER_PERIOD_S + 0.001)
    assert len(_barriers(net.nodes[0])) == before + 1
    net.nodes[1].is_watch_held = False
    net.run()
    assert all(join.confirmed() for join in joins)
    assert len(_barriers(net.nodes[0])) == before + 1


def test_a_join_does_not_wait_for_the_repeat_of_an_earlier_barrier() -> None:
    net = Net(3)
    net.nodes[2].is_watch_held = True
    _join(net, net.nodes[0], "early")
    net.advance(BARRIER_PERIOD_S + 0.001)
    before = len(_barriers(net.nodes[0]))
    _join(net, net.nodes[0], "late")
    net.advance(BARRIER_PERIOD_S + 0.001)
    assert len(_barriers(net.nodes[0])) > before


def test_a_steady_stream_of_joins_does_not_put_the_barrier_off() -> None:
    net = Net(2)
    net.held = {(1, 0)}
    for number in range(40):
        _join(net, net.nodes[0], f"s{number}")
        net.advance(BARRIER_PERIOD_S / 4)
    assert 8 <= len(_barriers(net.nodes[0])) <= 12


def test_a_barrier_that_was_lost_is_repeated() -> None:
    net = Net(2)
    net.lost = lambda frame: isinstance(frame, inputs.RouterDatagram)
    subscriber = _join(net, net.nodes[0])
    net.advance(1.0)
    assert not subscriber.confirmed()
    net.lost = lambda frame: False
    net.advance(4 * BARRIER_REPEAT_S)
    assert subscriber.confirmed()


def test_a_router_that_does_not_answer_is_asked_less_and_less() -> None:
    net = Net(2)
    net.held = {(1, 0), (0, 1)}
    _join(net, net.nodes[0])
    net.advance(60.0)
    assert 60.0 / BARRIER_REPEAT_CAP_S <= len(_barriers(net.nodes[0])) <= 60.0 / BARRIER_REPEAT_CAP_S + 6


def test_one_answer_serves_every_smaller_barrier() -> None:
    net = Net(2)
    net.held = {(1, 0)}
    early, late = _join(net, net.nodes[0], "early"), _join(net, net.nodes[0], "late")
    net.advance(1.0)
    net.frames.clear()
    net.held = set()
    net.feed(
        net.nodes[0], inputs.RouterDatagram(net.nodes[1].rid, Applied(early.last(effects.SubscriberReply).incarnation))
    )
    assert (early.confirmed(), late.confirmed()) == (True, False)


def test_a_router_younger_than_the_subscription_is_not_waited_for() -> None:
    net = Net(2)
    net.held = {(1, 0)}
    subscriber = _join(net, net.nodes[0])
    net.held = {(1, 0), (2, 0)}
    net.start_router()
    net.held = {(2, 0)}
    net.advance(1.0)
    assert subscriber.confirmed()


def test_a_vanished_router_is_waited_for_until_its_grace_is_over() -> None:
    net = Net(2)
    net.held = {(1, 0), (0, 1)}
    subscriber = _join(net, net.nodes[0])
    net.kill(net.nodes[1])
    net.advance(GRACE_S - 0.1)
    assert not subscriber.confirmed()
    net.advance(0.2)
    assert subscriber.confirmed()


def test_a_join_after_a_router_vanished_waits_for_the_rest_of_the_grace() -> None:
    net = Net(2)
    net.kill(net.nodes[1])
    net.advance(0.5 * GRACE_S)
    subscriber = _join(net, net.nodes[0])
    net.advance(0.4 * GRACE_S)
    assert not subscriber.confirmed()
    net.advance(0.2 * GRACE_S)
    assert subscriber.confirmed()


def test_a_router_that_left_in_order_needs_no_grace() -> None:
    net = Net(2)
    net.held = {(1, 0), (0, 1)}
    subscriber = _join(net, net.nodes[0])
    net.kill(net.nodes[1], leaving=True)
    assert subscriber.confirmed()


def test_a_dead_router_whose_lease_still_runs_is_waited_for() -> None:
    net = Net(2)
    net.kill(net.nodes[1], lease_ends=False)
    subscriber = _join(net, net.nodes[0])
    net.advance(10.0)
    assert not subscriber.confirmed()
    net.end_lease(net.nodes[1])
    net.advance(GRACE_S + 0.1)
    assert subscriber.confirmed()


def test_a_subscription_that_comes_back_is_confirmed_at_once() -> None:
    net = Net(3)
    net.subscriber(net.nodes[0]).drop()
    net.held = {(1, 0), (2, 0), (0, 1), (0, 2)}
    assert _join(net, net.nodes[0]).confirmed()


def test_a_waiting_subscription_that_is_lost_is_not_confirmed_later() -> None:
    net = Net(2)
    net.held = {(1, 0)}
    subscriber = _join(net, net.nodes[0])
    subscriber.drop()
    net.held = set()
    net.advance(1.0)
    assert not subscriber.confirmed()
    assert net.nodes[0].core.barrier.waiting == 0


def test_subscriptions_of_a_router_that_died_are_confirmed_at_another_before_its_lease_has_ended() -> None:
    net = Net(2)
    dead, other = net.nodes
    _join(net, dead, "warm")  # its HELLO says how far the router is then
    net.advance(1.0)
    joins = [_join(net, dead, f"s{number}") for number in range(3)]
    net.advance(1.0)
    assert all(join.confirmed() for join in joins)
    net.kill(dead, lease_ends=False)
    again = [_join(net, other, f"s{number}") for number in range(3)]
    assert all(join.confirmed() for join in again)


def test_a_new_subscription_waits_for_the_router_that_died() -> None:
    net = Net(2)
    dead, other = net.nodes
    _join(net, dead)
    net.advance(1.0)
    net.kill(dead, lease_ends=False)
    new = _join(net, other, "new")
    net.advance(1.0)
    assert not new.confirmed()
