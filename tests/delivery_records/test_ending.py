"""An operator ends a subscription by the compare-and-delete of expiry, and all hear of it in the watch (K-5a)."""

from __future__ import annotations

import pytest

from delivery_records.attachments.ending import ORDERS
from delivery_records.model import effects, inputs
from delivery_records.model.effects import OrderAnswered, OrderEnding
from delivery_records.model.inputs import EndSubscription, StoreFailure, StoreHealth
from delivery_records.model.limits import UNKNOWN_PUT_S
from delivery_records.model.outcomes import Decision
from tests.delivery_records.harness import Net
from tests.delivery_records.nodes import Node, StoreFault


def order(net: Net, node: Node, *, only_if_away: bool = False, epoch: int | None = None, number: int = 1) -> None:
    """An operator who has just looked at `node` orders the end of the subscription there."""
    key = net.subscription_path().partition("/")[2]
    if epoch is None:
        epoch = node.core.view.subscriptions[key].epoch
    net.feed(node, EndSubscription(number, key, epoch, only_if_away))


def reported(node: Node) -> list[OrderEnding]:
    return [answer.ending for answer in node.all(OrderAnswered)]


@pytest.mark.parametrize("asked", [0, 1], ids=["at its router", "at another router"])
def test_an_attached_subscriber_is_reported_that_its_subscription_is_gone(asked: int) -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[0])
    order(net, net.nodes[asked])
    assert not net.has_subscription()
    assert reported(net.nodes[asked]) == [OrderEnding.DELETED]
    detached = subscriber.end()
    assert (detached.closed, detached.condition) == (True, "amqp:resource-deleted")
    assert detached.info == {"x-opt-topic-resume": "expired"}
    assert net.nodes[asked].count(Decision.DELETION_ORDERED) == 1


def test_its_publishers_are_reported_what_the_others_have_said() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1])
    other = net.subscriber(net.nodes[1], "other")
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    order(net, net.nodes[0])
    assert publisher.accepted == []
    other.accept(b"1")
    assert publisher.accepted == [delivery]


def test_nothing_is_accepted_before_the_watch_shows_the_deletion() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1]).drop()
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    net.nodes[0].is_store_held = True
    order(net, net.nodes[0])
    assert publisher.accepted == []
    assert reported(net.nodes[0]) == []
    net.nodes[0].is_store_held = False
    net.run()
    assert publisher.accepted == [delivery]
    assert reported(net.nodes[0]) == [OrderEnding.DELETED]


def test_a_subscriber_that_came_back_meanwhile_keeps_its_subscription() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1]).drop()
    net.nodes[0].is_store_held = True
    order(net, net.nodes[0])
    back = net.subscriber(net.nodes[1])
    net.nodes[0].is_store_held = False
    net.run()
    assert reported(net.nodes[0]) == [OrderEnding.CHANGED]
    assert net.has_subscription()
    assert back.detached() is None


def test_what_is_not_as_it_was_shown_is_not_ended() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    key = net.subscription_path().partition("/")[2]
    shown = net.nodes[0].core.view.subscriptions[key].epoch
    net.subscriber(net.nodes[0])
    order(net, net.nodes[0], epoch=shown)
    assert reported(net.nodes[0]) == [OrderEnding.CHANGED]
    assert net.nodes[0].all(OrderAnswered)[0].epoch == net.nodes[0].core.view.subscriptions[key].epoch
    assert net.has_subscription()


def test_a_subscription_that_is_gone_is_not_found() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    order(net, net.nodes[0])
    order(net, net.nodes[0], epoch=1, number=2)
    assert reported(net.nodes[0]) == [OrderEnding.DELETED, OrderEnding.NOT_FOUND]


def test_one_that_is_to_be_ended_only_if_away_is_left_alone_while_it_is_attached() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[0])
    order(net, net.nodes[0], only_if_away=True)
    order(net, net.nodes[1], only_if_away=True)
    assert reported(net.nodes[0]) == reported(net.nodes[1]) == [OrderEnding.ATTACHED]
    subscriber.drop()
    order(net, net.nodes[1], only_if_away=True, number=2)  # whether the link is there only its own router knows
    assert reported(net.nodes[1])[1:] == [OrderEnding.ATTACHED]
    order(net, net.nodes[0], only_if_away=True, number=2)
    assert reported(net.nodes[0])[1:] == [OrderEnding.DELETED]


def test_one_whose_router_is_gone_is_away_for_every_router() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1])
    net.kill(net.nodes[1])
    order(net, net.nodes[0], only_if_away=True)
    assert reported(net.nodes[0]) == [OrderEnding.DELETED]


def test_without_etcd_the_operator_is_reported_that_nothing_was_done() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    net.nodes[0].faults.append(StoreFault(StoreFailure.UNAVAILABLE))
    order(net, net.nodes[0])
    net.feed(net.nodes[0], StoreHealth(False))
    order(net, net.nodes[0], number=2)
    assert reported(net.nodes[0]) == [OrderEnding.FAILED, OrderEnding.FAILED]
    assert net.has_subscription()


def test_an_order_of_unknown_fate_is_answered_by_the_watch_or_as_unknown() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    net.nodes[0].faults.append(StoreFault(StoreFailure.UNKNOWN))
    order(net, net.nodes[0])
    assert reported(net.nodes[0]) == []
    net.advance(UNKNOWN_PUT_S + 0.1)
    assert reported(net.nodes[0]) == [OrderEnding.UNKNOWN]


def test_a_client_that_closes_at_the_same_time_gets_one_answer_to_its_close() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    net.nodes[0].is_store_held = True
    order(net, net.nodes[0])
    subscriber.detach(closed=True)
    net.nodes[0].is_store_held = False
    net.run()
    assert reported(net.nodes[0]) == [OrderEnding.DELETED]
    assert not net.has_subscription()
    (answer,) = subscriber.all(effects.DetachLink)
    assert (answer.closed, answer.condition) == (True, "amqp:link:stolen")  # E-8: its own deletion was not the one


def test_more_orders_than_are_remembered_are_refused() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    net.nodes[0].is_store_held = True
    key = net.subscription_path().partition("/")[2]
    epoch = net.nodes[0].core.view.subscriptions[key].epoch
    orders: list[inputs.Input] = [EndSubscription(number, key, epoch) for number in range(ORDERS + 1)]
    net.feed(net.nodes[0], *orders)
    assert reported(net.nodes[0]) == [OrderEnding.FAILED]


def test_an_order_at_a_router_whose_view_never_shows_the_subscription_is_answered_by_its_snapshot() -> None:
    net = Net(2)
    net.nodes[0].is_watch_held = True
    net.subscriber(net.nodes[1])
    key = net.subscription_path().partition("/")[2]
    order(net, net.nodes[0], epoch=net.nodes[1].core.view.subscriptions[key].epoch)
    assert not net.has_subscription()
    assert reported(net.nodes[0]) == []
    net.load_snapshot(net.nodes[0])
    assert reported(net.nodes[0]) == [OrderEnding.DELETED]


def test_the_end_of_an_earlier_life_is_no_answer_to_an_order_against_this_one() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1])
    net.nodes[0].is_watch_held = True
    net.delete_subscription()
    net.subscriber(net.nodes[1])
    key = net.subscription_path().partition("/")[2]
    epoch = net.nodes[1].core.view.subscriptions[key].epoch
    net.subscriber(net.nodes[1], "other")  # the snapshot is newer than what he was shown
    net.nodes[0].faults.append(StoreFault(StoreFailure.UNKNOWN))
    order(net, net.nodes[0], epoch=epoch)
    net.load_snapshot(net.nodes[0])
    assert net.has_subscription()
    assert reported(net.nodes[0]) == []
    net.advance(UNKNOWN_PUT_S + 0.1)
    assert reported(net.nodes[0]) == [OrderEnding.UNKNOWN]


def test_a_snapshot_that_shows_a_newer_epoch_answers_an_order() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1]).drop()
    net.nodes[0].is_store_held = net.nodes[0].is_watch_held = True
    order(net, net.nodes[0])
    net.subscriber(net.nodes[1])
    net.load_snapshot(net.nodes[0])
    assert reported(net.nodes[0]) == [OrderEnding.CHANGED]
