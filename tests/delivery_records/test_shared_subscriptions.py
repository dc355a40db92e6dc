"""Competing consumers: each delivery of a shared subscription is done by one member (rules SH-1 to SH-5)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.messages import Room
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.tags import link_key, shared_key
from delivery_records.model.view import Kind, SubscriptionMode, SubscriptionRecord
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node

SHARE = inputs.Share("work", is_global=True)
KEY = shared_key("", "work")
TAGS = [b"%d" % number for number in range(6)]


def member(net: Net, node: Node, name: str, **more: object) -> SubscriberLink:
    return net.subscriber(node, name, share=SHARE, **more)  # type: ignore[arg-type]  # passed on as it is


def unproven_member(net: Net, node: Node, name: str, limit: int) -> SubscriberLink:
    """Without a map; its first outcome is its first sign of life, so its key is put again then (A-10)."""
    link = SubscriberLink(net, node)
    link.attach(name, timeout_s=90.0, share=SHARE)
    net.advance(0.05)
    link.flow(limit)
    return link


def shared(net: Net) -> SubscriptionRecord | None:
    held = net.etcd.keys.get((Kind.SUBSCRIPTION, KEY))
    if held is None:
        return None
    assert isinstance(held.record, SubscriptionRecord)
    return held.record


def send(publisher: PublisherLink, *tags: bytes) -> None:
    for tag in tags:
        publisher.send(tag)


def sent_rooms(net: Net) -> list[Room]:
    """What egresses have stated of the room of members to other routers."""
    sent = [effect.message for node in net.nodes for effect in node.all(effects.SendToRouters)]
    return [message for message in sent if isinstance(message, Room)]


def test_each_delivery_goes_to_one_member_wherever_it_is_attached() -> None:  # SH-2
    net = Net(3)
    publisher = net.publisher(net.nodes[0])
    members = [member(net, node, f"m{number}") for number, node in enumerate(net.nodes)]
    send(publisher, *TAGS)
    assert sorted(tag for each in members for tag in each.deliveries) == TAGS
    assert [len(each.deliveries) for each in members] == [2, 2, 2]
    for each in members:
        each.accept(*each.deliveries)
    assert len(publisher.accepted) == len(TAGS)
    publisher.settle(*TAGS)
    assert sorted(tag for each in members for tag in each.settled) == TAGS


def test_members_take_turns_where_they_have_equally_much() -> None:  # SH-2
    net = Net()
    members = [member(net, net.nodes[0], f"m{number}") for number in range(3)]
    publisher = net.publisher(net.nodes[0])
    for tag in TAGS:
        publisher.send(tag)
        for each in members:
            each.accept(*each.deliveries)
    assert [len(each.deliveries) for each in members] == [2, 2, 2]


def test_other_subscriptions_of_the_topic_get_everything() -> None:  # SH-2
    net = Net(2)
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[1], "m1")
    alone = net.subscriber(net.nodes[1], "alone")
    publisher = net.publisher(net.nodes[0])
    send(publisher, *TAGS)
    assert alone.deliveries == TAGS
    assert sorted(one.deliveries + other.deliveries) == TAGS
    one.accept(*one.deliveries)
    other.accept(*other.deliveries)
    assert publisher.accepted == []
    alone.accept(*TAGS)
    assert len(publisher.accepted) == len(TAGS)


def test_a_member_without_credit_gets_nothing_and_the_others_get_its_share() -> None:  # SH-2
    net = Net(2)
    one, other = member(net, net.nodes[0], "m0", limit=1), member(net, net.nodes[1], "m1", limit=100)
    publisher = net.publisher(net.nodes[1])
    send(publisher, *TAGS)
    assert (len(one.deliveries), len(other.deliveries)) == (1, 5)
    one.accept(*one.deliveries)
    one.flow(2, delivery_count=1)
    send(publisher, b"more")
    assert one.deliveries[-1] == b"more"


def test_what_several_publishers_send_too_much_comes_back_and_goes_to_another_member() -> None:  # SH-2
    net = Net(3)
    one, other = member(net, net.nodes[0], "m0", limit=2), member(net, net.nodes[1], "m1", limit=2)
    first, second = net.publisher(net.nodes[1], "p1"), net.publisher(net.nodes[2], "p2")
    send(first, b"a", b"b", b"c", b"d")
    send(second, b"e", b"f")
    assert sorted(one.deliveries + other.deliveries) == [b"a", b"b", b"c", b"d"]
    assert sum(node.count(Decision.RETURNED_BY_MEMBER) for node in net.nodes) > 0
    one.accept(*one.deliveries)
    one.flow(4, delivery_count=2)
    assert {b"e", b"f"} == set(one.deliveries[2:])
    one.accept(b"e", b"f")
    other.accept(*other.deliveries)
    assert (len(first.accepted), len(second.accepted)) == (4, 2)


def test_a_member_that_is_away_keeps_what_it_had_until_its_key_is_deleted() -> None:  # SH-3
    net = Net(2)
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[1], "m1")
    publisher = net.publisher(net.nodes[0])
    send(publisher, *TAGS)
    had = list(one.deliveries)
    other.accept(*other.deliveries)
    publisher.settle(b"0")
    one.drop()
    net.advance(20.0)
    send(publisher, b"later")
    assert other.deliveries[-1] == b"later"
    assert not set(had) & set(other.deliveries)
    net.advance(45.0)
    assert not net.has_subscription("m0")
    assert set(had) <= set(other.deliveries)
    again = [delivery for delivery in other.all(effects.Deliver) if delivery.tag[11:] in had]
    assert all(delivery.redelivered for delivery in again)


def test_a_member_that_comes_back_with_its_map_gets_what_it_had_and_nobody_else() -> None:  # SH-3, SH-4
    net = Net(2)
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[1], "m1")
    publisher = net.publisher(net.nodes[0])
    send(publisher, b"1", b"2")
    (had,) = one.deliveries
    tag = one.network_tag(had)
    one.drop()
    back = member(net, net.nodes[1], "m0", unsettled={tag: None})
    assert back.last(effects.SubscriberReply).kept == [tag]
    assert back.deliveries == [had]
    assert back.last(effects.Deliver).resume
    back.accept(had)
    other.accept(*other.deliveries)
    assert len(publisher.accepted) == 2


def test_a_member_without_a_map_loses_what_it_had_with_its_link() -> None:  # SH-3
    net = Net()
    one = net.stock_subscriber(net.nodes[0], "m0", share=SHARE)
    other = member(net, net.nodes[0], "m1", limit=0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    assert one.deliveries == [b"1"]
    other.flow(10)
    one.drop()
    net.advance(0.1)
    assert not net.has_subscription("m0")
    assert other.deliveries == [b"1"]
    assert other.last(effects.Deliver).redelivered


def test_the_publishers_next_router_learns_who_has_what_before_it_assigns_anything_anew() -> None:  # SH-4
    net = Net(3)
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[1], "m1")
    first = net.publisher(net.nodes[2])
    send(first, b"1", b"2")
    (had,), (done,) = one.deliveries, other.deliveries
    other.accept(done)
    tag = one.network_tag(had)
    one.drop()
    net.kill(net.nodes[2])
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None, b"2": None})
    send(publisher, b"1", b"2", b"3")
    assert b"3" in other.deliveries
    assert had not in other.deliveries
    back = member(net, net.nodes[0], "m0", unsettled={tag: None})
    assert back.deliveries == [had]
    back.accept(had)
    other.accept(b"3")
    assert len(publisher.accepted) == 3


def test_nothing_of_a_stale_attach_counts() -> None:  # SH-4
    net = Net(2)
    one = member(net, net.nodes[0], "m0")
    other = member(net, net.nodes[1], "m1")
    publisher = net.publisher(net.nodes[0])
    send(publisher, b"1", b"2")
    (had,) = one.deliveries
    stale = SubscriberLink(net, net.nodes[1])
    stale.attach("m0", unsettled={}, exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE, share=SHARE)
    stale.flow(10)  # it was sent with the attach, and is no answer
    assert one.end().condition == "amqp:link:stolen"
    assert had not in other.deliveries
    net.advance(11.0)
    assert (stale.end().condition, stale.end().closed) == ("amqp:link:detach-forced", False)
    assert had not in other.deliveries


def test_what_was_returned_while_its_member_got_a_new_epoch_is_no_repeat() -> None:  # SH-5, A-10
    net = Net(2)
    one = unproven_member(net, net.nodes[1], "m0", 1)
    publisher = net.publisher(net.nodes[0])
    send(publisher, b"1", b"2")
    net.nodes[0].is_watch_held = True
    net.held.add((0, 1))
    one.accept(b"1")  # so the key is put again, and 2 is assigned to the former epoch
    net.nodes[0].is_watch_held = False
    net.run()
    net.held.clear()
    net.run()
    assert one.deliveries == [b"1"]
    one.flow(2, delivery_count=1)
    assert one.deliveries == [b"1", b"2"]
    # A flagged delivery has a delivery-count of 1 or more where its subscriber keeps no map (c.5).
    assert not one.last(effects.Deliver).redelivered


@pytest.mark.parametrize("outcome", [DeliveryOutcome.RELEASED, DeliveryOutcome.MODIFIED_FAILED])
def test_what_a_member_hands_back_while_it_gets_a_new_epoch_is_no_repeat(outcome: DeliveryOutcome) -> None:  # SH-5
    net = Net(2)
    one = unproven_member(net, net.nodes[1], "m0", 1)
    other = net.stock_subscriber(net.nodes[0], "m1", limit=0, share=SHARE)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.held.add((1, 0))
    one.answer(outcome, b"1")  # so the key is put again, and the NACK is of the former epoch
    net.held.clear()
    other.flow(1)
    net.advance(2.0)
    assert other.deliveries == [b"1"]
    again = other.last(effects.Deliver)
    assert (again.attempt, again.redelivered) == (int(outcome is DeliveryOutcome.MODIFIED_FAILED), False)


def test_what_a_member_was_sent_before_it_lost_its_link_is_flagged_for_the_next_one() -> None:  # SH-5, SH-3
    net = Net(2)
    one = unproven_member(net, net.nodes[1], "m0", 2)
    other = net.stock_subscriber(net.nodes[0], "m1", limit=0, share=SHARE)
    publisher = net.publisher(net.nodes[0])
    send(publisher, b"1", b"2")
    net.held.add((1, 0))
    one.answer(DeliveryOutcome.RELEASED, b"1")
    one.drop()
    net.held.clear()
    other.flow(2)
    net.advance(1.0)
    flags = {each.tag[11:]: each.redelivered for each in other.all(effects.Deliver)}
    assert flags[b"2"]


@pytest.mark.parametrize("outcome", [DeliveryOutcome.RELEASED, DeliveryOutcome.MODIFIED_FAILED])
def test_what_a_member_wants_again_goes_to_another_one_that_has_less(outcome: DeliveryOutcome) -> None:  # SH-5
    net = Net()
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[0], "m1")
    publisher = net.publisher(net.nodes[0])
    send(publisher, *TAGS)
    other.accept(*other.deliveries)
    refused = one.deliveries[0]
    one.answer(outcome, refused)
    net.advance(2.0)
    assert other.deliveries[-1] == refused
    assert other.last(effects.Deliver).attempt == (1 if outcome is DeliveryOutcome.MODIFIED_FAILED else 0)


def test_undeliverable_here_is_never_that_member_again_and_rejected_when_all_have_said_so() -> None:  # SH-5
    net = Net()
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[0], "m1")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    first, second = (one, other) if one.deliveries else (other, one)
    first.answer(DeliveryOutcome.UNDELIVERABLE, b"1")
    assert publisher.outcomes == []
    assert second.deliveries == [b"1"]
    second.answer(DeliveryOutcome.UNDELIVERABLE, b"1")
    assert len(publisher.outcomes) == 1
    assert first.deliveries == [b"1"]


def test_what_all_that_are_left_have_refused_for_good_is_rejected_when_the_last_other_one_ends() -> None:  # SH-5
    net = Net()
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[0], "m1", limit=0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    one.answer(DeliveryOutcome.UNDELIVERABLE, b"1")
    assert publisher.outcomes == []
    other.drop()
    net.delete_subscription("m1")
    assert len(publisher.outcomes) == 1


def test_a_member_that_ended_and_comes_back_may_refuse_once_more_what_it_had_refused_for_good() -> None:  # SH-5
    net = Net()
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[0], "m1", limit=0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    one.answer(DeliveryOutcome.UNDELIVERABLE, b"1")
    for link, name in ((one, "m0"), (other, "m1")):
        link.drop()
        net.delete_subscription(name)
    assert publisher.outcomes == []
    again = member(net, net.nodes[0], "m0")
    assert again.deliveries == [b"1"]
    again.answer(DeliveryOutcome.UNDELIVERABLE, b"1")
    assert len(publisher.outcomes) == 1


def test_the_shared_subscription_outlives_its_members_for_its_time_and_messages_wait_for_the_next_one() -> None:  # SH-1
    net = Net(2)
    one = member(net, net.nodes[0], "m0")
    publisher = net.publisher(net.nodes[1])
    one.detach(closed=True)
    assert not net.has_subscription("m0")
    publisher.send(b"1")
    assert publisher.outcomes == []
    net.advance(30.0)
    assert shared(net) is not None
    late = member(net, net.nodes[1], "m1")
    assert late.deliveries == [b"1"]
    late.detach(closed=True)
    net.advance(70.0)
    assert shared(net) is None
    assert len(publisher.accepted) == 1  # nobody owes it any more


def test_its_end_ends_the_members() -> None:  # SH-1
    net = Net(2)
    links = [member(net, node, f"m{number}") for number, node in enumerate(net.nodes)]
    net.etcd.delete(Kind.SUBSCRIPTION, KEY)
    net.run()
    assert [link.end().condition for link in links] == ["amqp:resource-deleted"] * 2
    assert not net.has_subscription("m0")
    assert not net.has_subscription("m1")


def looked_up(net: Net, name: str, share: inputs.Share | None = SHARE) -> SubscriberLink:
    link = SubscriberLink(net, net.nodes[0])
    link.attach(name, topic=None, share=share)
    net.advance(0.05)
    return link


def test_whoever_looks_it_up_and_closes_ends_it_unless_it_has_members() -> None:  # SH-1, E-8
    net = Net(2)
    one = member(net, net.nodes[1], "m0")
    link = looked_up(net, "ender")
    assert link.last(effects.SubscriberReply).topic == "orders"
    link.detach(closed=True)
    assert link.end().condition == "amqp:resource-locked"
    assert shared(net) is not None
    assert not net.has_subscription("ender")
    one.detach(closed=True)
    link = looked_up(net, "ender")
    link.detach(closed=True)
    assert (link.end().condition, link.end().closed) == ("", True)
    assert shared(net) is None
    assert not net.has_subscription("ender")


def test_a_member_that_comes_while_it_is_ended_keeps_it() -> None:  # SH-1, E-8
    net = Net(2)
    member(net, net.nodes[1], "m0").detach(closed=True)
    link = looked_up(net, "ender")
    net.nodes[0].is_store_held = True
    link.detach(closed=True)
    one = member(net, net.nodes[1], "m1")
    net.nodes[0].is_store_held = False
    net.run()
    assert link.end().condition == "amqp:resource-locked"
    assert one.detached() is None


def test_a_look_up_finds_a_shared_subscription_of_the_container_that_it_does_not_call_shared() -> None:  # SH-1
    net = Net()
    own = inputs.Share("link")
    net.subscriber(net.nodes[0], "box", share=own).detach(closed=True)
    link = looked_up(net, "box", None)
    link.detach(closed=True)
    assert link.end().condition == ""
    assert (Kind.SUBSCRIPTION, shared_key("box", "link")) not in net.etcd.keys
    assert looked_up(net, "other", None).end().condition == "amqp:not-found"


def test_a_second_member_is_reported_of_the_same_life_and_creates_nothing() -> None:  # SH-1
    net = Net(2)
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[1], "m1")
    reported = [link.last(effects.Confirm).incarnation for link in (one, other)]
    assert reported[0] == reported[1] == net.etcd.keys[Kind.SUBSCRIPTION, KEY].create_revision
    assert (one.last(effects.SubscriberReply).resumed, other.last(effects.SubscriberReply).resumed) == (False, True)


def test_a_snapshot_that_shows_a_member_first_keeps_it() -> None:  # SH-1, K-4
    net = Net(2)
    one = member(net, net.nodes[0], "m0")
    member(net, net.nodes[0], "m1")
    net.load_snapshot(net.nodes[1])
    net.load_snapshot(net.start_router())
    assert net.has_subscription("m0")
    assert one.detached() is None
    assert {len(node.core.view.members_of[KEY]) for node in net.nodes} == {2}


def test_another_topic_is_refused_and_says_which_it_has() -> None:  # SH-1
    net = Net()
    member(net, net.nodes[0], "m0")
    link = SubscriberLink(net, net.nodes[0])
    link.attach("m1", topic="bills", unsettled={}, share=SHARE)
    assert link.end().condition == "amqp:precondition-failed"
    assert "orders" in link.end().description


def test_a_link_that_becomes_a_member_ends_the_subscription_it_was() -> None:  # SH-1, A-2
    net = Net()
    net.subscriber(net.nodes[0], "m0")
    member(net, net.nodes[0], "m0")
    held = net.etcd.keys[Kind.SUBSCRIPTION, link_key("m0", "link")].record
    assert isinstance(held, SubscriptionRecord)
    assert held.member_of == KEY
    net.subscriber(net.nodes[0], "m0")
    held = net.etcd.keys[Kind.SUBSCRIPTION, link_key("m0", "link")].record
    assert isinstance(held, SubscriptionRecord)
    assert held.member_of == ""


def test_a_part_of_a_map_is_refused() -> None:  # SH-1
    net = Net(2)
    part = SubscriberLink(net, net.nodes[0])
    part.attach("m0", unsettled={}, incomplete=True, share=SHARE)
    assert part.end().condition == "amqp:resource-limit-exceeded"


def test_what_is_sent_settled_goes_to_one_member() -> None:  # SH-2, I-1c
    net = Net(2)
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[1], "m1")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1", settled=True)
    assert one.deliveries + other.deliveries == [b"1"]


def test_a_member_that_takes_its_deliveries_at_most_once_is_done_when_it_is_sent_one() -> None:  # SH-2, c.3
    net = Net()
    one = member(net, net.nodes[0], "m0", mode=SubscriptionMode.AT_MOST_ONCE)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    assert one.deliveries == [b"1"]
    assert len(publisher.accepted) == 1


@pytest.mark.parametrize("routers", [1, 2])
def test_credit_for_one_more_counts_at_once_where_nothing_is_answered(routers: int) -> None:  # SH-2
    net = Net(routers)
    one = member(net, net.nodes[0], "m0", limit=1)
    publisher = net.publisher(net.nodes[-1])
    send(publisher, *TAGS)
    for count in range(1, len(TAGS)):
        assert one.deliveries == TAGS[:count]
        one.flow(count + 1)
    assert one.deliveries == TAGS
    one.accept(*TAGS)
    assert len(publisher.accepted) == len(TAGS)


def test_credit_for_one_more_is_not_stated_where_an_answer_gave_it_back() -> None:  # SH-2
    net = Net(2)
    one = member(net, net.nodes[0], "m0", limit=1)
    publisher = net.publisher(net.nodes[1])
    for count, tag in enumerate(TAGS, 1):
        send(publisher, tag)
        one.accept(tag)
        before = len(sent_rooms(net))
        one.flow(count + 1)
        assert len(sent_rooms(net)) == before
    assert one.deliveries == TAGS
