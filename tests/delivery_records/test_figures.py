"""What the shell and operators see of publishers and subscribers: rows of one moment."""

from __future__ import annotations

from delivery_records.diagnostics.waits import Holder, Reason
from delivery_records.model.inputs import LossCause, SessionRoom
from delivery_records.model.tags import network_tag
from tests.delivery_records.harness import Net


def _net(credit: int = 1) -> Net:
    """One subscription with so much credit, and a publisher that has sent three deliveries."""
    net = Net()
    net.subscriber(net.nodes[0], limit=credit)
    publisher = net.publisher(net.nodes[0])
    for tag in (b"1", b"2", b"3"):
        publisher.send(tag)
    return net


def test_a_publisher_is_shown_with_what_it_has_and_may_send() -> None:
    net = _net()
    figures = net.nodes[0].core.figures
    (row,) = figures.publishers()
    assert figures.publisher(row.key) == figures.publisher_on(row.link or 0) == row
    assert (row.unsettled, row.unreceived, row.reported, row.received, row.decided, row.end) == (3, 0, 0, 3, 0, 3)
    assert row.granted == row.unsettled + row.credit
    assert row.since == net.now == figures.arrival(row.key, 2)
    assert figures.window_bytes(row.link or 0) == (row.bytes, False)
    assert figures.stream_bytes(row.link or 0) == 0


def test_a_subscriber_is_shown_with_what_waits_for_it() -> None:
    net = _net()
    figures = net.nodes[0].core.figures
    (row,) = figures.subscribers()
    assert figures.subscriber(row.key) == figures.subscriber_on(row.link) == row
    assert (row.unsettled, row.held, row.credit) == (3, 2, 0)
    assert figures.former(row.key) == 0


def test_who_waits_for_whom_is_shown_with_where_the_delivery_is() -> None:
    net = _net()
    core = net.nodes[0].core
    (publisher,), (subscriber,) = core.figures.publishers(), core.figures.subscribers()
    wait = core.figures.wait(publisher.key)
    assert wait is not None
    assert (wait.reason, wait.number, wait.owing) == (Reason.SUBSCRIPTIONS, 0, 1)
    (owing,), looked = core.figures.owing(publisher.key, wait.number, 8, 100)
    assert (owing.subscription.key, owing.state, looked) == (subscriber.key, Holder.IN_DOUBT, 1)
    held = network_tag(core.nonce, publisher.session, b"2")
    assert core.figures.holder(subscriber.key, held) is Holder.HELD
    assert core.figures.has_entry(subscriber.key, held)
    assert not core.figures.has_entry(subscriber.key, network_tag(core.nonce, publisher.session, b"9"))


def test_of_what_is_not_here_there_is_no_row() -> None:
    figures = Net().nodes[0].core.figures
    rows = (figures.publisher("k"), figures.subscriber("k"), figures.publisher_on(1), figures.subscriber_on(1))
    assert (*rows, figures.wait("k"), figures.arrival("k", 0), figures.holder("k", b"")) == (None,) * 7
    assert figures.owing("k", 0, 8, 100) == ([], 0)
    assert (figures.window_bytes(1), figures.stream_bytes(1), figures.former("k")) == ((0, False), 0, 0)


def test_gauges_count_both_ends_and_the_credit_of_those_that_are_attached() -> None:
    net = _net()
    core = net.nodes[0].core
    (publisher,) = core.figures.publishers()
    found = core.figures.totals(net.now)
    assert (found.publisher_links, found.window_deliveries, found.window_bytes) == (1, 3, publisher.bytes)
    assert (found.publisher_credit, found.publishers_without_credit) == (publisher.credit, 0)
    assert (found.subscriber_links, found.subscribers_without_credit, found.held_deliveries) == (1, 1, 2)
    assert (found.routers, found.subscriptions, found.publishers) == (1, 1, 1)
    net.publisher(net.nodes[0]).drop(LossCause.CONNECTION_LOSS)
    assert core.figures.totals(net.now).publisher_credit == 0, "it is suspended"


def test_the_room_of_a_session_is_of_no_account_to_whom_it_does_not_concern() -> None:
    net = _net()
    (subscriber,) = net.nodes[0].core.figures.subscribers()
    for link in (subscriber.link, 10_000):
        net.feed(net.nodes[0], SessionRoom(link, is_narrow=True))
    assert next(net.nodes[0].core.figures.publishers()).unsettled == 3
