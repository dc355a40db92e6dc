"""What is late, for whom, and how long the slow steps took: found when somebody asks."""

from __future__ import annotations

from delivery_records.diagnostics.lateness import DELAYED_S, STUCK_S, Late, late
from delivery_records.diagnostics.waits import Reason
from delivery_records.model.durations import BOUNDS_S, Durations, Histogram
from tests.delivery_records.harness import Net


def _late(net: Net, node: int = 0) -> Late:
    return late(net.nodes[node].core.ingresses.values(), net.now)


def test_deliveries_become_delayed_and_then_stuck_while_a_subscription_owes_them() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    net.advance(DELAYED_S / 2)
    publisher.send(b"3")
    assert not any(_late(net).delayed.values())
    net.advance(DELAYED_S / 2)
    found = _late(net)
    assert found.delayed[Reason.SUBSCRIPTIONS] == 2
    assert (found.oldest_s, found.publishers) == (DELAYED_S, 1)
    net.advance(STUCK_S)
    found = _late(net)
    assert (found.delayed[Reason.SUBSCRIPTIONS], found.stuck[Reason.SUBSCRIPTIONS]) == (3, 3)
    subscriber.accept(b"1", b"2", b"3")
    publisher.settle(b"1", b"2", b"3")
    assert _late(net) == Late()


def test_what_was_reported_and_is_not_settled_waits_for_its_publisher() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    for tag in (b"1", b"2", b"3"):
        publisher.send(tag)
    subscriber.accept(b"1", b"2")
    net.advance(DELAYED_S)
    found = _late(net)
    assert found.delayed[Reason.PUBLISHER_SETTLES] == 2
    assert found.delayed[Reason.SUBSCRIPTIONS] == 1


def test_deliveries_that_were_settled_out_of_order_are_not_counted() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    for tag in (b"1", b"2", b"3"):
        publisher.send(tag)
    publisher.settle(b"2")  # I-4a
    net.advance(DELAYED_S)
    assert _late(net).delayed[Reason.SUBSCRIPTIONS] == 2


def test_a_map_that_is_not_repeated_waits_for_its_publisher() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.drop()
    again = net.publisher(net.nodes[0], unsettled={b"1": None})
    net.advance(DELAYED_S)
    assert _late(net).delayed[Reason.PUBLISHER_REPEATS] == 1
    again.send(b"1")
    net.advance(DELAYED_S)
    assert _late(net).delayed[Reason.SUBSCRIPTIONS] == 1


def test_attaches_the_barrier_and_a_failover_are_measured() -> None:
    net = Net(2)
    net.nodes[1].is_watch_held = True
    net.subscriber(net.nodes[0])
    net.advance(2.0)
    net.nodes[1].is_watch_held = False
    net.advance(10.0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    net.kill(net.nodes[0])
    again = net.publisher(net.nodes[1], unsettled={b"1": None, b"2": None})
    net.advance(0.3)
    again.send(b"1")
    net.advance(0.3)
    again.send(b"2")
    durations = net.nodes[0].core.durations
    assert sum(durations.attach_subscriber.counts) == 1
    assert sum(durations.attach_publisher.counts) == 1
    assert sum(durations.barrier.counts) == 1
    assert 2.0 <= durations.barrier.sum_s <= 12.0
    taken_over = net.nodes[1].core.durations.failover
    assert sum(taken_over.counts) == 1
    assert round(taken_over.sum_s, 3) == 0.6


def test_an_attach_without_unsettled_deliveries_is_no_failover() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    assert not sum(net.nodes[0].core.durations.failover.counts)


def test_a_duration_counts_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram()
    for seconds in (0.0, BOUNDS_S[0], BOUNDS_S[0] + 0.001, BOUNDS_S[-1], BOUNDS_S[-1] + 1):
        histogram.observe(seconds)
    assert histogram.counts == [2, 1, *[0] * (len(BOUNDS_S) - 3), 1, 1]


def test_what_several_lives_of_a_router_measured_adds_up() -> None:
    one, other = Durations(), Durations()
    one.barrier.observe(1.0)
    other.barrier.observe(2.0)
    other.failover.observe(3.0)
    other.attach_publisher.observe(0.1)
    one.add(other)
    assert (sum(one.barrier.counts), one.barrier.sum_s) == (2, 3.0)
    assert (one.failover.sum_s, one.attach_publisher.sum_s, one.attach_subscriber.sum_s) == (3.0, 0.1, 0.0)
