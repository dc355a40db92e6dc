"""What a subscriber is sent, in which order, and what counts against its credit (rules A-6, A-7, C-3, C-4, C-5)."""

from __future__ import annotations

from delivery_records.model import effects, inputs
from delivery_records.model.limits import Limits
from delivery_records.model.outcomes import DeliveryOutcome
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink


def _came_back(net: Net, sent: list[bytes], accepted: list[bytes], limit: int) -> tuple[SubscriberLink, PublisherLink]:
    """A subscriber that got `sent`, accepted some of it while its router was cut off, and attached elsewhere.

    Its publisher is at router 1; the subscriber comes back at router 0 and presents its map.
    """
    first, publisher = net.subscriber(net.nodes[2]), net.publisher(net.nodes[1])
    for tag in sent:
        publisher.send(tag)
    unsettled = {first.network_tag(tag): DeliveryOutcome.ACCEPTED if tag in accepted else None for tag in sent}
    net.kill(net.nodes[2])
    return net.subscriber(net.nodes[0], unsettled=unsettled, limit=limit), publisher


def _kinds(link: SubscriberLink) -> list[tuple[bytes, bool, bool]]:
    return [(d.tag[11:], d.resume, d.settled) for d in link.all(effects.Deliver)]


def test_the_reply_keeps_what_is_unsettled_and_leaves_out_what_is_settled() -> None:
    net = Net(3)
    first, publisher = net.subscriber(net.nodes[2]), net.publisher(net.nodes[1])
    publisher.send(b"1")
    gone = net.publisher(net.nodes[1], "gone")
    gone.send(b"x")
    unsettled = {first.network_tag(b"1"): None, first.network_tag(b"x"): DeliveryOutcome.ACCEPTED}
    gone.detach(closed=True)
    first.drop()
    second = net.subscriber(net.nodes[0], unsettled=unsettled)
    assert second.last(effects.SubscriberReply).kept == [first.network_tag(b"1")]
    assert second.last(effects.SubscriberReply).resumed
    assert b"x" not in second.settled


def test_entries_of_another_cluster_are_kept_until_the_application_decides() -> None:
    net = Net()
    foreign = b"\0else" + bytes(6) + b"1"
    subscriber = net.subscriber(net.nodes[0], unsettled={foreign: None, b"odd": DeliveryOutcome.ACCEPTED})
    assert subscriber.last(effects.SubscriberReply).kept == [foreign, b"odd"]


def test_a_known_entry_is_resumed_once_with_its_message_and_flagged() -> None:
    net = Net(3)
    subscriber, publisher = _came_back(net, [b"1"], [], limit=10)
    assert _kinds(subscriber) == [(b"1", True, False)]
    assert subscriber.all(effects.Deliver)[0].message == b"1"
    subscriber.accept(b"1")
    publisher.settle(b"1")
    assert _kinds(subscriber) == [(b"1", True, False)]
    assert subscriber.settled == [b"1"]


def test_an_accepted_entry_is_resumed_settled_with_the_subscribers_outcome() -> None:
    net = Net(3)
    subscriber, publisher = _came_back(net, [b"1"], [b"1"], limit=10)
    assert _kinds(subscriber) == []
    publisher.settle(b"1")
    (resumed,) = subscriber.all(effects.Deliver)
    assert (resumed.resume, resumed.settled, resumed.outcome, resumed.message) == (
        True,
        True,
        DeliveryOutcome.ACCEPTED,
        b"",
    )
    assert not [effect for effect in subscriber.got if isinstance(effect, effects.SettleAtSubscriber)]


def test_settled_resumes_cost_credit_and_go_ahead_of_held_deliveries() -> None:
    net = Net(3)
    subscriber, publisher = _came_back(net, [b"1", b"2"], [b"1", b"2"], limit=1)
    publisher.send(b"3")  # takes the only credit
    publisher.send(b"4")
    publisher.settle(b"1", b"2")
    assert _kinds(subscriber) == [(b"3", False, False)]
    subscriber.flow(3)
    assert _kinds(subscriber)[1:] == [(b"1", True, True), (b"2", True, True)]
    subscriber.flow(4)
    assert _kinds(subscriber)[3:] == [(b"4", False, False)]


def test_a_known_entry_goes_ahead_of_held_new_deliveries() -> None:
    net = Net(3)
    first = net.subscriber(net.nodes[2])
    lost = net.publisher(net.nodes[1], "lost")
    lost.send(b"old")
    net.kill(net.nodes[1])
    unsettled = {first.network_tag(b"old"): None}
    net.kill(net.nodes[2])
    subscriber = net.subscriber(net.nodes[0], unsettled=unsettled, limit=0)
    net.publisher(net.nodes[0], "new").send(b"new")
    back = net.publisher(net.nodes[0], "lost", unsettled={b"old": None})
    back.send(b"old")
    subscriber.flow(1)
    assert _kinds(subscriber) == [(b"old", True, False)]
    subscriber.flow(2)
    assert _kinds(subscriber)[1:] == [(b"new", False, False)]


def test_a_full_map_is_resumed_although_new_deliveries_wait_for_room_in_it() -> None:
    net = Net(3)
    first = net.subscriber(net.nodes[2], map_bound=1)
    lost, new = net.publisher(net.nodes[1], "lost"), net.publisher(net.nodes[0], "new")
    lost.send(b"old")
    unsettled = {first.network_tag(b"old"): None}
    net.kill(net.nodes[1])
    net.kill(net.nodes[2])
    subscriber = net.subscriber(net.nodes[0], unsettled=unsettled, map_bound=1)
    new.send(b"new1")  # goes: nothing of its publisher is in the map
    new.send(b"new2")
    back = net.publisher(net.nodes[0], "lost", unsettled={b"old": None})
    back.send(b"old")
    assert _kinds(subscriber) == [(b"new1", False, False), (b"old", True, False)]
    subscriber.accept(b"old", b"new1")
    back.settle(b"old")
    assert subscriber.deliveries == [b"new1", b"old"]
    new.settle(b"new1")
    assert subscriber.deliveries == [b"new1", b"old", b"new2"]


def test_a_retry_goes_ahead_of_new_deliveries_that_wait_for_room() -> None:
    net = Net()
    one, other = net.publisher(net.nodes[0], "one"), net.publisher(net.nodes[0], "other")
    subscriber = net.subscriber(net.nodes[0], map_bound=2)
    one.send(b"1")
    other.send(b"2")
    subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    subscriber.accept(b"2")
    other.send(b"3")  # no room for it
    net.advance(1.0)
    assert subscriber.deliveries == [b"1", b"2", b"1"]
    subscriber.accept(b"1")
    one.settle(b"1")
    assert subscriber.deliveries == [b"1", b"2", b"1", b"3"]


def test_accepted_deliveries_do_not_count_against_credit() -> None:
    net = Net(limits=Limits(window=100))
    subscriber, publisher = net.subscriber(net.nodes[0], limit=1), net.publisher(net.nodes[0])
    for number in range(50):
        tag = bytes([number])
        publisher.send(tag)
        subscriber.accept(tag)
        subscriber.flow(number + 2)
    assert len(publisher.accepted) == 50
    assert subscriber.settled == []


def test_held_deliveries_keep_their_order_over_publishers() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], limit=0)
    one, other = net.publisher(net.nodes[0], "one"), net.publisher(net.nodes[0], "other")
    one.send(b"1")
    other.send(b"2")
    one.send(b"3")
    subscriber.flow(2)
    assert subscriber.deliveries == [b"1", b"2"]
    subscriber.flow(3)
    assert subscriber.deliveries == [b"1", b"2", b"3"]


def test_a_drain_is_answered_at_once_when_nothing_is_held() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], limit=0)
    subscriber.flow(10, drain=True)
    assert len(subscriber.all(effects.CompleteDrain)) == 1
    net.publisher(net.nodes[0]).send(b"1")
    assert subscriber.deliveries == []  # the credit was drained away
    subscriber.flow(11, delivery_count=10)
    assert subscriber.deliveries == [b"1"]
    assert len(subscriber.all(effects.CompleteDrain)) == 1


def test_a_drain_is_answered_behind_what_is_held() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0], limit=0), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    subscriber.flow(10, drain=True)
    assert [type(effect).__name__ for effect in subscriber.got[-3:]] == ["Deliver", "Deliver", "CompleteDrain"]


def test_a_drain_is_answered_when_credit_ends_before_what_is_held() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0], limit=0), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    subscriber.flow(1, drain=True)
    assert subscriber.deliveries == [b"1"]
    assert len(subscriber.all(effects.CompleteDrain)) == 1
    subscriber.flow(2, delivery_count=1)
    assert subscriber.deliveries == [b"1", b"2"]


def test_a_drain_is_answered_although_the_map_is_full() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    subscriber = net.subscriber(net.nodes[0], map_bound=1)
    publisher.send(b"1")
    publisher.send(b"2")
    subscriber.flow(10, drain=True)
    assert subscriber.deliveries == [b"1"]
    assert len(subscriber.all(effects.CompleteDrain)) == 1


def test_a_drain_waits_for_the_reply_to_the_attach() -> None:
    net = Net(2)
    net.held = {(1, 0)}
    subscriber = SubscriberLink(net, net.nodes[0])
    subscriber.attach()
    subscriber.flow(5, drain=True)
    assert subscriber.got == []
    net.held = set()
    net.advance(0.5)
    assert [type(effect) for effect in subscriber.got] == [effects.SubscriberReply, effects.CompleteDrain]


def test_settlements_of_one_turn_are_one_disposition() -> None:
    net = Net()
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    for number in range(10):
        publisher.send(bytes([number]))
    before = len(subscriber.got)
    publisher.feed(inputs.PublisherSettle(publisher.number, [bytes([number]) for number in range(10)]))
    (settlement,) = subscriber.got[before:]
    assert isinstance(settlement, effects.SettleAtSubscriber)
    assert len(settlement.tags) == 10


def test_places_in_a_full_map_are_reported_to_be_free_before_they_are_taken() -> None:
    net = Net()
    publisher, subscriber = net.publisher(net.nodes[0]), net.subscriber(net.nodes[0], map_bound=2)
    for tag in (b"1", b"2", b"3", b"4"):
        publisher.send(tag)
    subscriber.accept(b"1", b"2")
    before = len(subscriber.got)
    publisher.settle(b"1", b"2")
    settlement, *deliveries = subscriber.got[before:]
    assert isinstance(settlement, effects.SettleAtSubscriber)
    assert [type(each) for each in deliveries] == [effects.Deliver, effects.Deliver]


def test_a_session_that_ends_is_settled_for_everybody_who_has_something_of_it() -> None:
    net = Net(2)
    near, far = net.subscriber(net.nodes[0], "near"), net.subscriber(net.nodes[1], "far")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    near.accept(b"1")
    publisher.detach(closed=True)
    assert near.settled == far.settled == [b"1"]


def test_a_link_stolen_by_a_newer_attach_gets_nothing_more() -> None:
    net = Net(2)
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    second = net.subscriber(net.nodes[1])
    assert (first.end().condition, first.end().closed) == ("amqp:link:stolen", False)
    publisher.send(b"2")
    assert first.deliveries == [b"1"]
    assert second.deliveries == [b"1", b"2"]


def test_a_deleted_subscription_is_reported_so() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    net.delete_subscription()
    end = subscriber.end()
    assert (end.condition, end.closed, dict(end.info)) == (
        "amqp:resource-deleted",
        True,
        {"x-opt-topic-resume": "expired"},
    )
