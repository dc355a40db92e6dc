"""A message to many subscriptions is handed over in pieces, in order for each of them: counts of work (rule T-10)."""

from __future__ import annotations

from collections import Counter

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.limits import PIECE, Limits
from delivery_records.subscriber.filters import CompiledFilter
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node

MOST = 4
SUBSCRIPTIONS = 10
PLACES = pytest.mark.parametrize("publish_at", [0, 1], ids=["published here", "published elsewhere"])


class Counted(Net):
    """Notes how many deliveries and settlements each turn of a router leads to."""

    def __init__(self, routers: int, **knobs: object) -> None:
        self.deliveries: list[int] = []
        self.settlements: list[int] = []
        super().__init__(routers, limits=Limits(piece=MOST), **knobs)  # type: ignore[arg-type]  # as of Net

    def _carry_out(self, node: Node, done: list[effects.Effect]) -> None:
        self.deliveries.append(sum(isinstance(effect, effects.Deliver) for effect in done))
        self.settlements.append(
            sum(len(effect.tags) for effect in done if isinstance(effect, effects.SettleAtSubscriber))
        )
        super()._carry_out(node, done)


def transfer(publisher: PublisherLink, number: int) -> inputs.PublisherTransfer:
    return inputs.PublisherTransfer(publisher.number, number, b"%d" % number, b"m%d" % number)


def is_behind(net: Net) -> bool:
    return net.nodes[0].core.is_behind


def subscribers(net: Net, count: int = SUBSCRIPTIONS) -> list[SubscriberLink]:
    return [net.subscriber(net.nodes[0], f"s{number}", answers=False) for number in range(count)]


@PLACES
def test_each_turn_hands_a_message_to_so_many_and_all_get_it(publish_at: int) -> None:
    net = Counted(2)
    links = subscribers(net)
    publisher = net.publisher(net.nodes[publish_at])
    net.deliveries.clear()
    publisher.send(b"1")
    assert [each for each in net.deliveries if each] == [4, 4, 2]
    assert [link.deliveries for link in links] == [[b"1"]] * SUBSCRIPTIONS


@PLACES
def test_what_follows_in_the_stream_waits_and_order_holds(publish_at: int) -> None:
    net = Counted(2)
    links = subscribers(net)
    publisher = net.publisher(net.nodes[publish_at])
    net.deliveries.clear()
    net.turn(net.nodes[publish_at], *(transfer(publisher, number) for number in range(1, 6)))
    net.run()
    assert max(net.deliveries) == MOST
    assert [link.deliveries for link in links] == [[b"1", b"2", b"3", b"4", b"5"]] * SUBSCRIPTIONS


def test_the_messages_of_several_publishers_in_one_turn_are_one_piece() -> None:
    net = Counted(1)
    links = subscribers(net)
    publishers = [net.publisher(net.nodes[0], f"p{number}") for number in range(5)]
    net.deliveries.clear()
    net.turn(net.nodes[0], *(transfer(publisher, 1) for publisher in publishers))
    assert [each for each in net.deliveries if each] == [MOST]
    assert is_behind(net)
    net.run()
    assert max(net.deliveries) == MOST
    assert sum(net.deliveries) == 5 * SUBSCRIPTIONS
    assert not is_behind(net)
    assert all(len(link.deliveries) == 5 for link in links)


@PLACES
def test_a_settlement_of_many_deliveries_goes_in_pieces(publish_at: int) -> None:
    net = Counted(2)
    count = 8 * MOST  # as much as a turn may, for each subscription
    links = subscribers(net, 5)
    publisher = net.publisher(net.nodes[publish_at])
    tags = [b"%d" % number for number in range(count)]
    for tag in tags:
        publisher.send(tag)
    for link in links:
        link.accept(*link.deliveries)
    assert len(publisher.accepted) == count
    net.settlements.clear()
    publisher.settle(*tags)
    assert max(net.settlements) == count
    assert sum(net.settlements) == count * len(links)
    assert all(egress.unsettled == 0 for egress in net.nodes[0].core.egresses.values())


def test_what_has_left_in_between_gets_nothing_and_the_others_all() -> None:
    net = Counted(1)
    links = subscribers(net)
    publisher = net.publisher(net.nodes[0])
    gone = links[-1]
    net.turn(net.nodes[0], transfer(publisher, 1))
    net.turn(net.nodes[0], inputs.LinkLost(gone.number, inputs.LossCause.CONNECTION_LOSS))
    net.run()
    assert [link.deliveries for link in links[:-1]] == [[b"1"]] * (SUBSCRIPTIONS - 1)
    assert not [each for each in net.nodes[0].all(effects.Deliver) if each.link == gone.number]


class Costly:
    """Filters that each cost as much as a turn may."""

    def __init__(self, weight: int = MOST) -> None:
        self.weight = weight
        self.tested: Counter[str] = Counter()

    def compile(self, text: str) -> CompiledFilter:
        def test(_opened: object) -> bool:
            self.tested[text] += 1
            return True

        return CompiledFilter(test=test, weight=self.weight)

    def open(self, message: bytes, message_format: int) -> object:
        return message


def test_a_turn_evaluates_one_costly_filter() -> None:
    filters = Costly()
    net = Counted(1, filters=filters)
    for number in range(SUBSCRIPTIONS):
        net.subscriber(net.nodes[0], f"s{number}", filter_text=f"f{number}")
    publisher = net.publisher(net.nodes[0])
    net.deliveries.clear()
    net.turn(net.nodes[0], transfer(publisher, 1))
    assert filters.tested.total() == 1
    net.run()
    assert [each for each in net.deliveries if each] == [1] * SUBSCRIPTIONS


@pytest.mark.parametrize("weight", [1, MOST, 10 * MOST])
def test_equal_filters_are_evaluated_once_in_a_piece_however_costly(weight: int) -> None:
    filters = Costly(weight)
    net = Counted(1, filters=filters)
    for number in range(2 * MOST):
        net.subscriber(net.nodes[0], f"s{number}", filter_text="ab"[number % 2])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    assert filters.tested.total() <= 4, "of two filters, in pieces of four"
    assert sum(net.deliveries) == 2 * MOST


def test_usual_messages_are_handed_over_at_once() -> None:
    net = Net(1)
    links = [net.subscriber(net.nodes[0], f"s{number}") for number in range(20)]
    publisher = net.publisher(net.nodes[0])
    net.turn(net.nodes[0], transfer(publisher, 1))
    assert not is_behind(net)
    assert len(net.nodes[0].all(effects.Deliver)) == len(links) <= PIECE
