"""Publishers that hang: no proof of life, no resend, no settlement (rules A-4, I-9, I-3)."""

from __future__ import annotations

from delivery_records.model import effects, inputs
from delivery_records.model.limits import PROOF_TIMEOUT_S, RESEND_TIMEOUT_S, SETTLE_TIMEOUT_S
from delivery_records.publisher.ingress import Ingress
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink

PIECE = 1.0


def _present(net: Net, *tags: bytes) -> PublisherLink:
    """Attach with these tags unsettled and prove life."""
    return net.publisher(net.nodes[0], unsettled=dict.fromkeys(tags))


def test_a_publisher_that_does_not_answer_the_echo_is_detached_and_keeps_its_key() -> None:
    net = Net()
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(unsettled={})
    net.advance(PROOF_TIMEOUT_S - 0.1)
    assert publisher.detached() is None
    net.advance(0.2)
    assert (publisher.end().condition, publisher.end().closed) == ("amqp:link:detach-forced", False)
    assert publisher.all(effects.GrantPublisherCredit) == []
    assert net.has_publisher()


def test_neither_another_number_nor_a_plain_flow_is_proof_of_life() -> None:
    net = Net()
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(unsettled={})
    epoch = publisher.last(effects.AskEcho).epoch
    publisher.feed(inputs.ClientFlow(publisher.number))
    publisher.feed(inputs.ClientFlow(publisher.number, echoed_epoch=epoch + 1))
    publisher.feed(inputs.ClientFlow(publisher.number, echoed_epoch=epoch - 1))
    assert publisher.all(effects.GrantPublisherCredit) == []
    publisher.echo()
    assert publisher.credit > 0


def test_an_answered_echo_ends_the_waiting_for_it() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    net.advance(10 * PROOF_TIMEOUT_S)
    assert publisher.detached() is None


def test_a_publisher_that_neither_repeats_nor_goes_on_is_detached() -> None:
    net = Net()
    net.publisher(net.nodes[0]).drop()
    publisher = _present(net, b"1")
    net.advance(RESEND_TIMEOUT_S - 0.1)
    assert publisher.detached() is None
    net.advance(0.2)
    assert (publisher.end().condition, publisher.end().closed) == ("amqp:link:detach-forced", False)
    assert net.has_publisher()


def test_a_publisher_whose_session_has_no_room_is_waited_for() -> None:
    """C-6: it cannot repeat anything while others of its session fill what they share."""
    net = Net()
    net.publisher(net.nodes[0]).drop()
    publisher = _present(net, b"1")
    ingress = net.nodes[0].core.links[publisher.number]
    assert isinstance(ingress, Ingress)
    ingress.resends.on_session_window(True, net.nodes[0].core.now)
    net.advance(3 * RESEND_TIMEOUT_S)
    assert publisher.detached() is None
    ingress.resends.on_session_window(False, net.nodes[0].core.now)
    net.advance(RESEND_TIMEOUT_S - 0.1)
    assert publisher.detached() is None
    net.advance(0.2)
    assert publisher.end().condition == "amqp:link:detach-forced"


def test_the_third_time_without_a_resend_ends_the_session() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    first = net.publisher(net.nodes[0])
    first.send(b"1")
    first.drop()
    for attempt in range(3):
        assert net.has_publisher(), attempt
        _present(net, b"1")
        net.advance(RESEND_TIMEOUT_S + 1.0)
    assert not net.has_publisher()
    assert subscriber.settled == [b"1"]


def test_times_without_a_resend_are_counted_anew_for_a_new_session() -> None:
    net = Net()
    for _ in range(2):
        net.publisher(net.nodes[0]).drop()
        for attempt in range(3):
            assert net.has_publisher(), attempt
            _present(net, b"1")
            net.advance(RESEND_TIMEOUT_S + 1.0)
        assert not net.has_publisher()


def test_times_without_a_resend_count_within_the_publishers_timeout_only() -> None:
    net = Net()
    net.publisher(net.nodes[0]).drop()
    timeout = net.limits.publisher_timeout_s
    for _ in range(6):
        assert net.has_publisher()
        publisher = _present(net, b"1")
        net.advance(RESEND_TIMEOUT_S + 1.0)
        assert publisher.detached() is not None
        net.advance(0.6 * timeout)
    assert net.has_publisher()


def test_a_publisher_that_repeats_slowly_is_not_detached() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    net.publisher(net.nodes[0]).drop()
    tags = [bytes([number]) for number in range(10)]
    publisher = _present(net, *tags)
    for tag in tags:
        net.advance(0.5 * RESEND_TIMEOUT_S)
        publisher.send(tag)
        subscriber.accept(tag)
        publisher.settle(tag)
    assert publisher.detached() is None
    assert len(publisher.accepted) == 10


def test_a_publisher_that_stops_in_the_middle_of_repeating_is_detached() -> None:
    net = Net()
    net.publisher(net.nodes[0]).drop()
    publisher = _present(net, b"1", b"2")
    net.advance(0.5 * RESEND_TIMEOUT_S)
    publisher.send(b"1")
    net.advance(0.9 * RESEND_TIMEOUT_S)
    assert publisher.detached() is None
    net.advance(0.2 * RESEND_TIMEOUT_S)
    assert publisher.detached() is not None


def test_a_publisher_that_settles_nothing_it_was_reported_is_detached() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.advance(SETTLE_TIMEOUT_S - 0.1)
    assert publisher.detached() is None
    net.advance(0.2)
    assert (publisher.end().condition, publisher.end().closed) == ("amqp:link:detach-forced", False)


def test_a_publisher_that_settles_something_now_and_then_is_not_detached() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"0")
    for number in range(1, 10):
        net.advance(0.9 * SETTLE_TIMEOUT_S)
        publisher.send(bytes([number]))
        publisher.settle(bytes([number]))
    assert publisher.detached() is None


def test_the_time_to_settle_starts_with_the_notifying() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.advance(PIECE)
    publisher.settle(b"1")
    net.advance(SETTLE_TIMEOUT_S - 2 * PIECE)
    publisher.send(b"2")
    net.advance(3 * PIECE)
    assert publisher.detached() is None
    publisher.settle(b"2")
    net.advance(10 * SETTLE_TIMEOUT_S)
    assert publisher.detached() is None


def test_a_publisher_whose_subscribers_are_slow_may_wait_for_ever() -> None:
    net = Net()
    net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.advance(1000.0)
    assert publisher.detached() is None
