"""A publisher learns which subscriptions ended while they owed its deliveries (I-3b)."""

from __future__ import annotations

from delivery_records.model import effects
from delivery_records.model.inputs import EndSubscription
from delivery_records.model.limits import OWING_NAMES
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink
from tests.delivery_records.nodes import Node


def end(net: Net, node: Node, *names: str) -> None:
    """An operator ends these subscriptions in one turn."""
    keys = {s.record.container_id: s for s in node.core.view.subscriptions.values()}
    net.feed(node, *(EndSubscription(i, keys[name].key, keys[name].epoch, False) for i, name in enumerate(names, 1)))


def reports(publisher: PublisherLink) -> list[tuple[tuple[str, ...], int, bytes]]:
    return [(tuple(reported.names), reported.count, reported.tag) for reported in publisher.all(effects.NotifyEnded)]


def test_the_report_names_who_ended_and_the_oldest_delivery_owed_before_the_outcome() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0])
    sent = [publisher.send(tag) for tag in (b"1", b"2")]
    end(net, net.nodes[1], "s")
    assert reports(publisher) == [(("s/link",), 1, b"1")]
    assert publisher.accepted == sent
    kinds = [
        type(reported) for reported in publisher.got if isinstance(reported, effects.NotifyEnded | effects.Dispose)
    ]
    assert kinds == [effects.NotifyEnded, effects.Dispose]


def test_what_was_answered_before_the_end_is_not_reported() -> None:
    net = Net()
    first = net.subscriber(net.nodes[0])
    other = net.subscriber(net.nodes[0], "other")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    first.accept(b"1")
    other.accept(b"1", b"2")
    end(net, net.nodes[0], "other")
    assert reports(publisher) == []
    end(net, net.nodes[0], "s")
    assert reports(publisher) == [(("s/link",), 1, b"2")]


def test_many_that_end_in_one_turn_are_one_report_with_few_names() -> None:
    net = Net()
    names = [f"s{number}" for number in range(OWING_NAMES + 2)]
    for name in names:
        net.subscriber(net.nodes[0], name)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    end(net, net.nodes[0], *names)
    reported = reports(publisher)
    assert sum(count for _, count, _ in reported) == len(names)
    assert all(len(listed) == min(count, OWING_NAMES) for listed, count, _ in reported)


def test_a_publisher_without_the_capability_gets_no_report() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    publisher = net.stock_publisher(net.nodes[0])
    publisher.send(b"1")
    end(net, net.nodes[0], "s")
    assert publisher.outcomes
    assert reports(publisher) == []


def test_what_ends_while_the_publisher_is_away_is_not_reported_to_it_later() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.drop()
    end(net, net.nodes[0], "s")
    back = net.publisher(net.nodes[0], unsettled={b"1": None})
    back.send(b"1")
    assert back.accepted
    assert reports(publisher) == reports(back) == []
