"""A publisher without the capability resumes its link as AMQP says (2.6.13, 3.4.6): rules A-3b and A-3c."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.inputs import LossCause
from delivery_records.model.limits import (
    KIB,
    PROOF_TIMEOUT_S,
    RESEND_FAILURES,
    RESEND_TIMEOUT_S,
    SETTLE_TIMEOUT_S,
    Limits,
    TopicPolicy,
)
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.large_parts import answer, send_large, take_all
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node
from tests.delivery_records.test_budget import full

TAGS = (b"1", b"2", b"3")


def _sent(net: Net, *tags: bytes, credit: int = 1000) -> tuple[SubscriberLink, PublisherLink]:
    """A subscriber, and a publisher without the capability that has sent these."""
    subscriber = net.subscriber(net.nodes[-1], limit=credit)
    publisher = net.stock_publisher(net.nodes[0], unsettled={})
    for tag in tags:
        publisher.send(tag)
    return subscriber, publisher


def _attach(net: Net, node: Node, *tags: bytes) -> PublisherLink:
    return net.stock_publisher(node, unsettled=dict.fromkeys(tags))


def _map(publisher: PublisherLink) -> dict[bytes, DeliveryOutcome | None]:
    found = publisher.last(effects.PublisherReply).unsettled
    assert found is not None
    return {tag: None if reported is None else reported.outcome for tag, reported in found.items()}


@pytest.mark.parametrize("is_stolen", [False, True], ids=["detached", "stolen"])
@pytest.mark.parametrize("routers", [1, 2])
def test_what_its_router_holds_is_in_the_map_and_is_resumed_without_a_second_delivery(
    routers: int, is_stolen: bool
) -> None:
    net = Net(routers)
    subscriber, first = _sent(net, *TAGS)
    if not is_stolen:
        first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], *TAGS)
    assert _map(second) == dict.fromkeys(TAGS)
    assert second.last(effects.PublisherReply).resumed
    ids = [second.send(tag, resume=True) for tag in TAGS]
    subscriber.accept(*TAGS)
    assert second.accepted == ids
    second.settle(*TAGS)
    assert subscriber.deliveries == list(TAGS)
    assert subscriber.settled == list(TAGS)
    assert net.nodes[0].count(Decision.TRANSFER_RESUMED) == len(TAGS)


def test_what_is_held_for_a_publisher_that_resumes_has_its_time_anew() -> None:  # A-3b, E-10
    net = Net(2, limits=Limits(policy=TopicPolicy(ttl_s=10.0)))
    subscriber, first = _sent(net, *TAGS, credit=1)
    net.advance(6.0)
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], *TAGS)
    for tag in TAGS:
        second.send(tag, resume=True)
    net.advance(9.0)
    assert sum(node.count(Decision.EXPIRED) for node in net.nodes) == 0
    net.advance(2.0)
    assert sum(node.count(Decision.EXPIRED) for node in net.nodes) == 2, "but for the one that was sent in time"
    assert subscriber.deliveries == [TAGS[0]]


def test_an_outcome_that_is_known_is_in_the_map() -> None:
    net = Net()
    subscriber, first = _sent(net, *TAGS)
    subscriber.accept(b"1")
    assert len(first.accepted) == 1, "reported, and not settled"
    first.drop(LossCause.DETACH)
    subscriber.accept(b"2")
    second = _attach(net, net.nodes[0], *TAGS)
    assert _map(second) == {b"1": DeliveryOutcome.ACCEPTED, b"2": DeliveryOutcome.ACCEPTED, b"3": None}


def test_an_outcome_behind_one_that_is_open_is_not_stated_yet() -> None:
    net = Net()
    subscriber, first = _sent(net, *TAGS)
    first.drop(LossCause.DETACH)
    subscriber.accept(b"2")
    assert _map(_attach(net, net.nodes[0], *TAGS)) == dict.fromkeys(TAGS), "I-3: in order"


def test_what_nobody_had_is_in_the_map_as_released() -> None:
    net = Net()
    first = net.stock_publisher(net.nodes[0], unsettled={})
    first.send(b"1")
    first.drop(LossCause.DETACH)
    assert _map(_attach(net, net.nodes[0], b"1")) == {b"1": DeliveryOutcome.RELEASED}


def test_what_never_came_is_not_in_the_map_and_may_come_under_any_tag() -> None:
    net = Net()
    subscriber, first = _sent(net, b"1")
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], b"1", b"2", b"3")
    assert _map(second) == {b"1": None}
    ids = [second.send(b"1", resume=True), second.send(b"2"), second.send(b"new", b"3")]
    subscriber.accept(b"1", b"2", b"new")
    assert second.accepted == ids
    assert subscriber.deliveries == [b"1", b"2", b"new"]


def test_what_is_not_presented_is_settled() -> None:
    net = Net()
    subscriber, first = _sent(net, *TAGS)
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], b"3")
    second.send(b"3", resume=True)
    assert subscriber.settled == [b"1", b"2"]


@pytest.mark.parametrize("order", [(b"3", b"1", b"2"), (b"2", b"3", b"1")])
def test_neither_the_order_of_the_map_nor_that_of_the_transfers_changes_the_order_of_the_stream(
    order: tuple[bytes, ...],
) -> None:
    """A client that takes what is settled out of an indexed map puts the last entry in its place."""
    net = Net()
    subscriber, first = _sent(net, *TAGS, credit=1)
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], *order)
    ids = {tag: second.send(tag, resume=True) for tag in order}
    subscriber.accept(b"1")
    subscriber.flow(3)
    subscriber.accept(b"2", b"3")
    assert subscriber.deliveries == list(TAGS), "each once and in order, none skipped"
    assert second.accepted == [ids[tag] for tag in TAGS]


def test_a_client_that_sends_again_under_the_same_tags_without_resume_is_understood() -> None:
    net = Net()
    subscriber, first = _sent(net, *TAGS)
    subscriber.accept(b"1")
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], *TAGS)
    ids = [second.send(tag) for tag in TAGS]
    subscriber.accept(b"2", b"3")
    assert sorted(second.accepted) == ids
    second.settle(*TAGS)
    assert subscriber.deliveries == list(TAGS)
    assert subscriber.settled == list(TAGS)


def test_new_deliveries_may_come_between_those_that_are_resumed() -> None:
    net = Net()
    subscriber, first = _sent(net, b"1", b"2")
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], b"1", b"2")
    ids = [second.send(b"2", resume=True), second.send(b"9"), second.send(b"1", resume=True)]
    subscriber.accept(b"1", b"2", b"9")
    assert sorted(second.accepted) == ids
    assert subscriber.deliveries == [b"1", b"2", b"9"]


def test_it_may_come_back_again_and_again() -> None:
    net = Net()
    subscriber, publisher = _sent(net, *TAGS)
    for turn in range(20):
        publisher.drop(LossCause.DETACH)
        publisher = _attach(net, net.nodes[0], *TAGS)
        assert _map(publisher) == dict.fromkeys(TAGS), turn
        if turn % 3:
            publisher.send(b"2", resume=True)
    assert subscriber.deliveries == list(TAGS)
    subscriber.accept(*TAGS)
    publisher.drop(LossCause.DETACH)
    assert _map(_attach(net, net.nodes[0], *TAGS)) == dict.fromkeys(TAGS, DeliveryOutcome.ACCEPTED)


def test_an_outcome_that_was_read_in_the_map_need_not_be_settled() -> None:
    net = Net()
    subscriber, first = _sent(net, b"1", b"2")
    subscriber.accept(b"1")
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], b"1", b"2")
    second.send(b"2", resume=True)
    subscriber.accept(b"2")
    second.settle(b"2")
    assert subscriber.settled == [b"2"]
    net.advance(SETTLE_TIMEOUT_S + 1.0)
    assert sorted(subscriber.settled) == [b"1", b"2"]
    net.advance(10 * SETTLE_TIMEOUT_S)
    assert second.detached() is None


@pytest.mark.parametrize("aborted", [False, True], ids=["settled", "aborted"])
def test_a_resume_that_is_settled_or_aborted_ends_the_delivery(aborted: bool) -> None:
    net = Net()
    subscriber, first = _sent(net, b"1", b"2")
    subscriber.accept(b"1")
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], b"1", b"2")
    for tag in (b"1", b"2"):
        second.send(tag, b"", resume=True, settled=not aborted, aborted=aborted)
    assert subscriber.settled == [b"1", b"2"]
    third = second.send(b"3")
    subscriber.accept(b"2", b"3")
    assert second.accepted == [third]


def test_a_resume_of_what_is_not_in_the_map_is_ignored_and_the_third_detaches_the_link() -> None:
    net = Net()
    subscriber, first = _sent(net, b"1")
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], b"1", b"2")
    second.send(b"1", resume=True)
    for number in range(3):
        assert second.detached() is None, number
        second.send(b"2", resume=True)
    assert (second.end().condition, second.end().closed) == ("amqp:not-allowed", False)
    assert subscriber.deliveries == [b"1"]


def test_a_resumed_delivery_cannot_be_resumed_twice() -> None:
    net = Net()
    _, first = _sent(net, b"1")
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], b"1")
    second.send(b"1", resume=True)
    second.send(b"1")
    assert second.end().condition == "amqp:not-allowed"


def test_nothing_happens_before_it_shows_life_and_what_was_held_is_held_on() -> None:
    net = Net()
    subscriber, first = _sent(net, *TAGS)
    subscriber.accept(b"1")
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], *TAGS)
    net.advance(PROOF_TIMEOUT_S - 0.1)
    assert second.detached() is None
    assert subscriber.settled == []
    net.advance(0.2)
    assert (second.end().condition, second.end().closed) == ("amqp:link:detach-forced", False)
    third = _attach(net, net.nodes[0], *TAGS)
    assert _map(third) == {b"1": DeliveryOutcome.ACCEPTED, b"2": None, b"3": None}


def test_one_that_has_only_outcomes_to_read_may_be_silent() -> None:
    net = Net()
    subscriber, first = _sent(net, b"1")
    subscriber.accept(b"1")
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], b"1")
    net.advance(10 * PROOF_TIMEOUT_S)
    assert second.detached() is None
    new = second.send(b"2")
    subscriber.accept(b"2")
    assert second.accepted == [new]


def test_one_that_does_not_resume_what_it_presented_is_detached_and_the_third_time_its_session_ends() -> None:
    net = Net()
    _, publisher = _sent(net, b"1", b"2")
    for _ in range(RESEND_FAILURES):
        publisher.drop(LossCause.DETACH)
        publisher = _attach(net, net.nodes[0], b"1", b"2")
        publisher.send(b"2", resume=True)
        net.advance(RESEND_TIMEOUT_S + 1.0)
        assert publisher.end().condition == "amqp:link:detach-forced"
    assert _attach(net, net.nodes[0], b"1", b"2").end().condition == "oncewire:session-expired"


def test_another_router_refuses_and_writes_nothing_so_that_the_first_one_still_knows() -> None:
    net = Net(2)
    subscriber, first = _sent(net, *TAGS)
    first.drop(LossCause.DETACH)
    revision = net.etcd.revision
    end = _attach(net, net.nodes[1], *TAGS).end()
    assert (end.condition, end.closed) == ("oncewire:unsettled-unknown", True)
    assert net.etcd.revision == revision
    assert net.nodes[1].count(Decision.PUBLISHER_UNKNOWN) == 1
    second = _attach(net, net.nodes[0], *TAGS)
    assert _map(second) == dict.fromkeys(TAGS)
    assert subscriber.settled == []


def test_a_router_that_took_over_a_dead_ones_publisher_refuses_too() -> None:
    net = Net(2)
    _, first = _sent(net, b"1")
    net.kill(net.nodes[0])
    assert _attach(net, net.nodes[1], b"1").end().condition == "oncewire:unsettled-unknown"
    assert first.detached() is None


def test_a_window_that_was_forgotten_for_room_is_not_known_any_more() -> None:
    net = Net(limits=Limits(window=16, router_bytes=64 * KIB))
    subscriber, first = _sent(net, b"1")
    first.drop(LossCause.DETACH)
    full(net, "other")
    assert net.nodes[0].count(Decision.WINDOW_FORGOTTEN) == 1
    assert _attach(net, net.nodes[0], b"1").end().condition == "oncewire:unsettled-unknown"
    assert subscriber.deliveries[0] == b"1"


def test_a_delivery_whose_body_no_router_keeps_cannot_be_resumed() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    first = net.stock_publisher(net.nodes[0], unsettled={})
    send_large(first, b"1")
    take_all(subscriber)
    first.drop(LossCause.DETACH)
    assert _attach(net, net.nodes[0], b"1").end().condition == "oncewire:unsettled-unknown"
    answer(subscriber, DeliveryOutcome.ACCEPTED, b"1")
    assert _map(_attach(net, net.nodes[0], b"1")) == {b"1": DeliveryOutcome.ACCEPTED}


def test_a_map_that_does_not_fit_the_clients_frame_is_refused() -> None:
    net = Net()
    _, first = _sent(net, *TAGS)
    first.drop(LossCause.DETACH)
    second = PublisherLink(net, net.nodes[0])
    second.attach(unsettled=dict.fromkeys(TAGS), exactly_once=False, map_bound=2)
    assert second.end().condition == "amqp:resource-limit-exceeded"
    assert "max-frame-size" in second.end().description


def test_one_with_the_capability_gets_the_empty_map_at_every_router() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    for node in (net.nodes[0], net.nodes[1]):
        publisher.drop()
        publisher = net.publisher(node, unsettled={b"1": None})
        assert _map(publisher) == {}
        delivery = publisher.send(b"1")
    subscriber.accept(b"1")
    assert publisher.accepted == [delivery]


def test_subscriptions_that_move_come_or_end_meanwhile_find_the_stream_as_it_is() -> None:
    net = Net(2)
    subscriber, first = _sent(net, *TAGS, credit=2)
    first.drop(LossCause.DETACH)
    late = net.subscriber(net.nodes[0], "late")
    subscriber.accept(b"1")
    second = _attach(net, net.nodes[0], *TAGS)
    later = net.subscriber(net.nodes[0], "later")
    ids = [second.send(tag, resume=True) for tag in TAGS[1:]]
    subscriber.flow(5)
    subscriber.accept(b"2", b"3")
    assert second.accepted == ids
    assert subscriber.deliveries == list(TAGS)
    assert late.deliveries == [], "I-6: it came behind all of them"
    assert later.deliveries == []
    new = second.send(b"4")
    for each in (subscriber, late, later):
        each.accept(b"4")
    assert second.accepted[-1] == new


def test_members_of_a_shared_subscription_keep_what_they_were_assigned() -> None:
    net = Net()
    share = inputs.Share("jobs", is_global=True)
    members = [net.subscriber(net.nodes[0], name, share=share, limit=2) for name in ("a", "b")]
    first = net.stock_publisher(net.nodes[0], unsettled={})
    tags = [b"1", b"2", b"3", b"4", b"5"]
    for tag in tags:
        first.send(tag)
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], *tags)
    ids = [second.send(tag, resume=True) for tag in reversed(tags)]
    for member in members:
        member.flow(10)
    for member in members:
        member.accept(*member.deliveries)
    assert sorted(second.accepted) == ids
    assert sorted(tag for member in members for tag in member.deliveries) == tags


def test_a_member_of_no_weaker_mode_gets_it_twice_either() -> None:
    net = Net()
    settled = net.subscriber(net.nodes[0], mode=SubscriptionMode.AT_MOST_ONCE)
    first = net.stock_publisher(net.nodes[0], unsettled={})
    first.send(b"1")
    first.drop(LossCause.DETACH)
    second = _attach(net, net.nodes[0], b"1")
    second.send(b"1", resume=True)
    assert settled.deliveries == [b"1"]
