"""How much a publisher may send: deliveries, bytes, and what its subscribers' maps can hold (rules C-1, C-2, C-4)."""

from __future__ import annotations

from delivery_records.model import effects
from delivery_records.model.limits import FIRST_CREDIT, WINDOW_DELIVERIES, Limits
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink

KIB = 1024


def test_the_first_credit_is_the_window_and_notifies_the_session_once() -> None:
    net = Net(limits=Limits(window=8))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    assert publisher.credit == 8
    for number in range(20):
        publisher.send(bytes([number]))
        subscriber.accept(bytes([number]))
        publisher.settle(bytes([number]))
    sessions = [grant.session for grant in publisher.all(effects.GrantPublisherCredit)]
    assert sessions[0] is not None
    assert set(sessions[1:]) == {None}


def test_a_publisher_without_a_map_begins_with_the_credit_that_its_session_window_covers() -> None:
    """C-1, C-6: its messages may all be large, and what it buffers for want of a window is lost when it closes."""
    net = Net()
    subscriber, stock = net.subscriber(net.nodes[0]), net.stock_publisher(net.nodes[0])
    assert stock.credit == FIRST_CREDIT < WINDOW_DELIVERIES
    for number in range(FIRST_CREDIT // 2):
        tag = number.to_bytes(2, "big")
        stock.send(tag)
        subscriber.accept(tag)
        stock.settle(tag)
    assert stock.credit > WINDOW_DELIVERIES // 2
    assert net.publisher(net.nodes[0], "resumes", map_bound=2 * WINDOW_DELIVERIES).credit == WINDOW_DELIVERIES


def test_a_window_that_nobody_accepts_ends_the_credit() -> None:
    net = Net(limits=Limits(window=8))
    net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    for number in range(8):
        publisher.send(bytes([number]))
    assert publisher.credit == 0


def test_a_map_larger_than_the_window_is_refused_and_says_what_to_do() -> None:
    """C-6: a publisher had no credit for more; held until T_pub such maps were memory without a limit."""
    net = Net(limits=Limits(window=2))
    net.publisher(net.nodes[0]).drop()
    full = net.publisher(net.nodes[0], unsettled={bytes([number]): None for number in range(2)})
    assert full.credit == 2
    full.drop()
    again = PublisherLink(net, net.nodes[0])
    again.attach(unsettled={bytes([number]): None for number in range(3)})
    assert again.end().condition == "amqp:resource-limit-exceeded"
    assert "limits.window" in again.end().description


def test_credit_follows_the_mean_size_of_what_is_sent() -> None:
    net = Net(limits=Limits(window=1000, window_bytes=64 * KIB))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    for number in range(200):
        tag = number.to_bytes(2, "big")
        publisher.send(tag, bytes(8 * KIB))
        subscriber.accept(tag)
        publisher.settle(tag)
    window = net.nodes[0].core.ingresses[net.publisher_path().partition("/")[2]].window
    assert window.body_bytes == 0
    assert publisher.credit <= 8 + 2


def test_a_publishers_window_fits_its_own_frame() -> None:
    net = Net(limits=Limits(window=100))
    assert net.publisher(net.nodes[0], map_bound=10).credit == 10


def test_publishers_of_a_topic_share_the_smallest_map_of_its_subscribers() -> None:
    net = Net(limits=Limits(window=100))
    net.subscriber(net.nodes[0], "large", map_bound=90)
    net.subscriber(net.nodes[0], "small", map_bound=20)
    net.subscriber(net.nodes[0], "none", map_bound=0)
    assert net.publisher(net.nodes[0], "p1").credit == 20
    assert net.publisher(net.nodes[0], "p2").credit == 10


def test_publishers_of_all_topics_a_pattern_matches_share_its_map() -> None:
    net = Net(limits=Limits(window=100))
    net.subscriber(net.nodes[0], topic="orders.*", map_bound=20)
    net.publisher(net.nodes[0], "p1", topic="orders.eu")
    assert net.publisher(net.nodes[0], "p2", topic="orders.us").credit == 10
    assert net.publisher(net.nodes[0], "p3", topic="news").credit == 100


def test_two_topics_that_meet_in_full_maps_do_not_stop_each_other() -> None:
    net = Net(2, limits=Limits(window=100))
    one = net.subscriber(net.nodes[0], "one", topic="orders.*", map_bound=2)
    other = net.subscriber(net.nodes[1], "other", topic="orders.*", map_bound=2)
    eu = net.publisher(net.nodes[0], "eu", topic="orders.eu")
    us = net.publisher(net.nodes[1], "us", topic="orders.us")
    us.drop()
    eu.drop()
    eu = net.publisher(net.nodes[0], "eu", topic="orders.eu")
    us = net.publisher(net.nodes[1], "us", topic="orders.us")
    net.held = {(0, 1), (1, 0)}
    for number in range(eu.credit):
        eu.send(b"eu%d" % number)
    for number in range(us.credit):
        us.send(b"us%d" % number)
    net.held = set()
    net.run()
    for subscriber in (one, other, one, other):
        subscriber.accept(*subscriber.deliveries)
        for publisher, name in ((eu, b"eu"), (us, b"us")):
            publisher.settle(*(name + b"%d" % (number - 1) for number in publisher.accepted))
    assert eu.accepted
    assert us.accepted


def test_lowering_the_window_withdraws_nothing_that_was_granted() -> None:
    net = Net(limits=Limits(window=16))
    publisher = net.publisher(net.nodes[0])
    net.subscriber(net.nodes[0], map_bound=4)
    assert publisher.credit == 16
    for number in range(16):
        publisher.send(bytes([number]))
    assert publisher.detached() is None
    assert publisher.credit == 0
