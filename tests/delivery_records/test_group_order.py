"""Groups of a shared subscription stay with one member, in order (rule SH-6). The group is what precedes the colon."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.groups import GROUP_BYTES, group_hash
from delivery_records.model.limits import Limits, TopicPolicy
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.parts import Part
from delivery_records.model.tags import link_key, network_tag
from tests.delivery_records.group_links import member, network, of_group, read_group, send
from tests.delivery_records.harness import NONCE, Net
from tests.delivery_records.large_parts import LIMITS, MORE, part, parts, take_all


def test_a_group_goes_to_one_member_and_groups_are_spread_over_members() -> None:
    net = network(3)
    members = [member(net, node, f"m{number}") for number, node in enumerate(net.nodes)]
    publisher = net.publisher(net.nodes[0])
    groups = [b"g%d:" % number for number in range(24)]
    send(publisher, *(group + b"%d" % turn for turn in range(3) for group in groups))
    for group in groups:
        having = [of_group(each, group) for each in members if of_group(each, group)]
        assert having == [[group + b"0", group + b"1", group + b"2"]]
    assert all(each.deliveries for each in members)


def test_publishers_at_different_routers_choose_the_same_member() -> None:
    net = network(3)
    members = [member(net, node, f"m{number}") for number, node in enumerate(net.nodes)]
    first, second = net.publisher(net.nodes[0], "p1"), net.publisher(net.nodes[2], "p2")
    send(first, b"g:1", b"h:1")
    send(second, b"g:2", b"h:2")
    for group in (b"g:", b"h:"):
        assert [len(of_group(each, group)) for each in members if of_group(each, group)] == [2]


def test_a_group_waits_for_its_member_while_others_and_what_has_no_group_go_on() -> None:
    net = network()
    one, other = member(net, net.nodes[0], "m0", limit=1), member(net, net.nodes[0], "m1", limit=0)
    publisher = net.publisher(net.nodes[0])
    send(publisher, b"g:1", b"g:2")
    holder, idle = (one, other) if of_group(one, b"g:") else (other, one)
    if holder is other:
        holder.flow(1)
    idle.flow(10)
    assert of_group(holder, b"g:") == [b"g:1"]
    send(publisher, b"plain")
    assert b"plain" in idle.deliveries
    assert not of_group(idle, b"g:")
    holder.accept(b"g:1")
    holder.flow(2, delivery_count=1)
    assert of_group(holder, b"g:") == [b"g:1", b"g:2"]


def test_a_member_that_joins_gets_groups_only_when_nothing_of_them_is_under_way() -> None:
    net = network()
    one = member(net, net.nodes[0], "m0")
    publisher = net.publisher(net.nodes[0])
    groups = [b"g%d:" % number for number in range(16)]
    send(publisher, *(group + b"1" for group in groups))
    other = member(net, net.nodes[0], "m1")
    send(publisher, *(group + b"2" for group in groups))
    assert other.deliveries == []
    one.accept(*one.deliveries)
    send(publisher, *(group + b"3" for group in groups))
    moved = len(other.deliveries)
    assert 0 < moved < len(groups)
    assert len(one.deliveries) == 3 * len(groups) - moved


def test_what_a_member_had_and_what_waited_for_it_go_to_another_in_order_when_its_key_is_deleted() -> None:
    net = network()
    links = [member(net, net.nodes[0], f"m{number}", limit=2) for number in range(2)]
    publisher = net.publisher(net.nodes[0])
    send(publisher, b"g:1", b"g:2", b"g:3", b"g:4")
    holder, other = links if links[0].deliveries else reversed(links)
    assert (holder.deliveries, other.deliveries) == ([b"g:1", b"g:2"], [])
    holder.drop()
    other.flow(20)
    net.advance(50.0)
    assert other.deliveries == []
    net.advance(20.0)
    assert other.deliveries == [b"g:1", b"g:2", b"g:3", b"g:4"]
    assert [each.redelivered for each in other.all(effects.Deliver)] == [True, True, False, False]


def test_after_a_failover_nothing_of_a_group_is_assigned_before_all_have_answered_who_may_have_some() -> None:
    net = network(2)
    one = member(net, net.nodes[0], "m0")
    first = net.publisher(net.nodes[0])
    groups = [b"g%d:" % number for number in range(16)]
    send(first, *(group + b"1" for group in groups))
    one.accept(*one.deliveries)
    other = member(net, net.nodes[1], "m1")
    send(first, *(group + b"2" for group in groups))
    group = other.deliveries[0].partition(b":")[0] + b":"
    had = other.network_tag(group + b"2")
    other.drop()
    first.drop()
    tags = [each + turn for turn in (b"1", b"2") for each in groups]
    again = net.publisher(net.nodes[0], unsettled=dict.fromkeys(tags))
    send(again, *tags, group + b"3")
    assert not [each for each in (one, other) if group + b"3" in each.deliveries]
    back = member(net, net.nodes[1], "m1", unsettled={had: None})
    assert of_group(back, group) == [group + b"2", group + b"3"]


def test_one_that_was_on_its_way_when_another_of_its_group_was_returned_does_not_overtake_it() -> None:
    net = network(2)
    one = member(net, net.nodes[0], "m0", limit=2)
    first, second = net.publisher(net.nodes[1], "p1"), net.publisher(net.nodes[0], "p2")
    net.held.add((1, 0))
    send(first, b"g:1", b"g:2")
    send(second, b"h:1", b"h:2")  # they use the credit that the other ingress counts on
    net.feed(net.nodes[0], net.frames[(net.nodes[1].rid, net.nodes[0].rid)].popleft())
    one.accept(b"h:1", b"h:2")
    one.flow(22, delivery_count=2)
    net.held.clear()
    net.run()
    assert net.nodes[1].count(Decision.RETURNED_BY_MEMBER) == 2
    assert of_group(one, b"g:") == [b"g:1", b"g:2"]
    one.accept(b"g:1", b"g:2")
    assert len(first.accepted) == 2


def test_what_a_closed_member_had_and_is_not_repeated_yet_goes_to_one_member_only() -> None:
    net = network()
    first = member(net, net.nodes[0], "m0", limit=100)
    publisher = net.publisher(net.nodes[0])
    send(publisher, b"plain", b"g:1", b"g:2")
    had = [first.network_tag(tag) for tag in (b"g:1", b"g:2")]
    first.drop()
    publisher.drop()
    back = member(net, net.nodes[0], "m0", unsettled=dict.fromkeys(had), limit=0)
    again = net.publisher(net.nodes[0], unsettled=dict.fromkeys([b"plain", b"g:1", b"g:2"]))
    again.send(b"plain")  # nobody has credit: it waits in front
    others = [member(net, net.nodes[0], f"m{number}", limit=0) for number in range(1, 4)]
    back.detach(closed=True)  # what it claims is taken back before it is repeated
    send(again, b"g:1", b"g:2", b"g:3")
    for other in others:
        other.flow(100)
    having = [of_group(other, b"g:") for other in others if of_group(other, b"g:")]
    assert having == [[b"g:1", b"g:2", b"g:3"]]


def test_a_body_that_is_repeated_before_its_member_has_answered_waits_for_what_precedes_it() -> None:
    net = network(2)
    one = member(net, net.nodes[1], "m0")
    first = net.publisher(net.nodes[0])
    tags = [b"g:1", b"g:2", b"g:3"]
    send(first, *tags)
    had = [one.network_tag(tag) for tag in tags]
    first.drop()
    again = net.publisher(net.nodes[0], unsettled=dict.fromkeys(tags))  # the member claims all
    one.drop()
    send(again, b"g:1", b"g:2")
    net.held.add((1, 0))  # the next CLAIM is under way
    back = member(net, net.nodes[1], "m0", unsettled=dict.fromkeys(had))
    again.send(b"g:3")
    net.held.clear()
    net.run()
    assert back.deliveries == tags


def test_a_group_is_not_given_away_before_its_publisher_has_repeated_what_somebody_claims() -> None:
    net = network()
    alone = net.subscriber(net.nodes[0], "alone")  # it answers nothing, so the publisher gets no outcome
    gone = member(net, net.nodes[0], "m0", limit=100)
    publisher = net.publisher(net.nodes[0])
    groups = [b"g%d:" % number for number in range(16)]
    send(publisher, *(group + b"1" for group in groups))
    gone.accept(*gone.deliveries)
    stays = member(net, net.nodes[0], "m1", limit=100)
    send(publisher, *(group + b"2" for group in groups))
    gone.detach(closed=True)
    assert len(stays.deliveries) == len(groups)
    others = [member(net, net.nodes[0], f"m{number}", limit=100) for number in range(2, 5)]
    publisher.drop()
    tags = [group + turn for turn in (b"1", b"2") for group in groups]
    send(net.publisher(net.nodes[0], unsettled=dict.fromkeys(tags)), *tags)
    assert [other.deliveries for other in others] == [[], [], []]
    assert len(stays.deliveries) == 2 * len(groups)
    assert alone.deliveries == tags


def best(group: bytes, *names: str) -> str:
    """Of these members, the one that a group without deliveries gets."""
    digest = group_hash(read_group, group + b":", 0)
    assert digest is not None
    return max(names, key=lambda n: blake2b(digest + link_key(n, "link").encode(), digest_size=GROUP_BYTES).digest())


def test_the_group_of_a_large_delivery_is_decided_when_all_have_answered() -> None:
    net = Net(3, limits=LIMITS, message_format=MessageFormat(read_group=read_group))
    group = next(b"g%d" % n for n in range(100) if best(b"g%d" % n, "m0", "m1") == "m1")
    has = member(net, net.nodes[0], "m0", limit=100)  # alone, so it gets the group
    first = net.publisher(net.nodes[2])
    big = group + b":" + b"f" * 3000
    part(first, group + b":1", big, Part.FIRST)
    take_all(has)
    part(first, group + b":1", MORE, Part.LAST)
    take_all(has)
    other = member(net, net.nodes[1], "m1", limit=100)
    net.held.add((0, 1))  # the CLAIM of m0 is late
    net.kill(net.nodes[2])
    publisher = net.publisher(net.nodes[1], unsettled={group + b":1": None})
    part(publisher, group + b":1", big, Part.FIRST)
    part(publisher, group + b":1", MORE, Part.LAST)
    net.held.clear()
    net.run()
    publisher.send(group + b":2")
    assert other.deliveries == []
    assert has.deliveries == [group + b":2"]


def test_what_a_member_releases_of_a_split_group_is_assigned_again() -> None:
    net = Net(1, message_format=MessageFormat(read_group=read_group))
    one = member(net, net.nodes[0], "m0", limit=100)
    publisher = net.publisher(net.nodes[0])
    send(publisher, b"g:1", b"g:2")
    had = [one.network_tag(tag) for tag in (b"g:1", b"g:2")]
    one.drop()
    other = member(net, net.nodes[0], "m1", limit=1)
    net.advance(65.0)  # SH-3
    assert other.deliveries == [b"g:1"]
    former = member(net, net.nodes[0], "m0", unsettled=dict.fromkeys(had))
    publisher.drop()
    again = net.publisher(net.nodes[0], unsettled={b"g:1": None, b"g:2": None})
    send(again, b"g:1", b"g:2")
    other.flow(100)
    other.answer(DeliveryOutcome.RELEASED, b"g:1")
    net.advance(50.0)
    assert [*former.deliveries, *other.deliveries[1:]] != []


def test_no_group_waits_for_a_claimed_delivery_that_comes_again_malformed() -> None:
    bad: list[bytes] = []

    def annotate(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
        if message in bad:
            raise ValueError("cannot be read")
        return message

    net = Net(2, message_format=MessageFormat(annotate, read_group=read_group))
    one = member(net, net.nodes[0], "m0", limit=100)
    publisher = net.publisher(net.nodes[1])
    send(publisher, b"h:1", b"g:2")
    tag = one.network_tag(b"g:2")
    one.drop()
    net.kill(net.nodes[1])
    one = member(net, net.nodes[0], "m0", limit=100, unsettled={tag: None})  # h:1 is not in its map
    bad.append(b"g:2")
    again = net.publisher(net.nodes[0], unsettled={b"h:1": None, b"g:2": None})
    send(again, b"h:1", b"g:2")
    net.advance(40.0)
    assert one.deliveries == [b"h:1"]


def test_a_group_does_not_wait_for_what_nobody_claims() -> None:
    """C-6: there may be no room for all of the map before some of it is done."""
    net = network(2)
    one = member(net, net.nodes[0], "m0")
    first = net.publisher(net.nodes[1])
    send(first, b"g:1")
    net.kill(net.nodes[1])
    publisher = net.publisher(net.nodes[0], unsettled={b"g:1": None, b"g:2": None, b"g:3": None})
    send(publisher, b"g:1")
    one.accept(b"g:1")
    send(publisher, b"g:2")
    assert one.deliveries == [b"g:1", b"g:2"]
    one.accept(b"g:2")
    assert len(publisher.accepted) == 2


def test_no_group_waits_for_what_its_publisher_has_no_room_to_repeat_behind_a_large_one() -> None:  # C-6
    net = Net(2, limits=LIMITS, message_format=MessageFormat(read_group=read_group))
    net.publisher(net.nodes[1])
    (ingress,) = net.nodes[1].core.ingresses.values()
    names = {tag: network_tag(NONCE, ingress.session, tag) for tag in (b"h:3", b"4")}
    net.kill(net.nodes[1])
    # its map is full (C-4): 3 it has begun, with 4 it is done; 1 and 2 were a member's whose key was deleted
    had = {names[b"h:3"]: None, names[b"4"]: DeliveryOutcome.ACCEPTED}
    one = member(net, net.nodes[0], "m0", unsettled=had, map_bound=3)
    publisher = net.publisher(net.nodes[0], unsettled=dict.fromkeys([b"g:1", b"2", b"h:3", b"4"]))
    publisher.send(b"g:1")
    part(publisher, b"2", b"f" * 3000, Part.FIRST)
    for _ in range(5):
        part(publisher, b"2", b"m" * 2000, Part.MIDDLE)
    (ingress,) = net.nodes[0].core.ingresses.values()
    assert ingress.window.body_bytes >= LIMITS.window_bytes  # its session window is closed: 3 cannot come
    net.advance(3600.0)
    assert one.deliveries == [b"g:1"]  # what the publisher waits for, for which the map keeps a place


def test_no_group_waits_behind_a_large_one_that_its_shared_subscription_is_done_with() -> None:  # C-6
    net = Net(2, limits=LIMITS, message_format=MessageFormat(read_group=read_group))
    net.publisher(net.nodes[1])
    (ingress,) = net.nodes[1].core.ingresses.values()
    names = {tag: network_tag(NONCE, ingress.session, tag) for tag in (b"2", b"h:3")}
    alone = net.subscriber(net.nodes[0], "alone", map_bound=1)
    net.kill(net.nodes[1])
    had = {names[b"2"]: DeliveryOutcome.ACCEPTED, names[b"h:3"]: None}
    one = member(net, net.nodes[0], "m0", unsettled=had)
    publisher = net.publisher(net.nodes[0], unsettled=dict.fromkeys([b"g:1", b"2", b"h:3"]))
    publisher.send(b"g:1")
    alone.accept(*alone.deliveries)  # its map is full with 1, so nobody takes 2
    part(publisher, b"2", b"f" * 3000, Part.FIRST)
    for _ in range(5):
        part(publisher, b"2", b"m" * 2000, Part.MIDDLE)
    assert one.deliveries == [b"g:1"]


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_is_held_back_and_then_aborted_is_not_sent_without_a_body(is_lost: bool) -> None:  # L-5
    net = Net(2, limits=LIMITS, message_format=MessageFormat(read_group=read_group))
    net.publisher(net.nodes[1])
    (ingress,) = net.nodes[1].core.ingresses.values()
    names = {tag: network_tag(NONCE, ingress.session, tag) for tag in (b"g:1", b"g:2")}
    net.kill(net.nodes[1])
    one = member(net, net.nodes[0], "m0", unsettled={names[b"g:1"]: None})
    two = member(net, net.nodes[0], "m1", unsettled={names[b"g:2"]: None})
    publisher = net.publisher(net.nodes[0], unsettled=dict.fromkeys([b"g:1", b"g:2"]))
    publisher.send(b"g:1")
    part(publisher, b"g:2", b"g:" + b"f" * 3000, Part.FIRST)
    if is_lost:
        publisher.drop()
    else:
        part(publisher, b"g:2", b"", Part.ABORT)
    one.accept(b"g:1")
    assert two.deliveries == []
    if is_lost:
        publisher = net.publisher(net.nodes[0], unsettled=dict.fromkeys([b"g:1", b"g:2"]))
        publisher.send(b"g:1")
    part(publisher, b"g:2", b"g:" + b"f" * 3000, Part.FIRST)
    part(publisher, b"g:2", MORE, Part.LAST)
    take_all(two)
    assert parts(two)[-1:] == [(b"g:2", Part.LAST)]


def test_a_body_that_is_claimed_does_not_wait_for_the_delay_of_an_earlier_one() -> None:
    net = network(2)
    one = member(net, net.nodes[0], "m0", limit=100)
    first = net.publisher(net.nodes[1])
    send(first, b"g:1", b"g:2")
    net.kill(net.nodes[1])
    again = net.publisher(net.nodes[0], unsettled={b"g:1": None, b"g:2": None})
    names = [one.network_tag(tag) for tag in (b"g:1", b"g:2")]
    one.drop()
    one = member(net, net.nodes[0], "m0", limit=100, unsettled=dict.fromkeys(names))
    again.send(b"g:1")
    one.answer(DeliveryOutcome.MODIFIED_FAILED, b"g:1", delay_ms=50_000)
    again.send(b"g:2")
    assert one.deliveries == [b"g:1", b"g:2"]


def test_a_group_does_not_wait_for_what_went_back_and_another_member_has_done() -> None:
    net = network(3)
    one, two = member(net, net.nodes[0], "m0", limit=1), member(net, net.nodes[1], "m1", limit=1)
    net.subscriber(net.nodes[2], "alone")  # it answers nothing, so the publisher settles nothing
    publisher = net.publisher(net.nodes[2])
    send(publisher, b"g:1", b"g:2")
    first, other, name = (one, two, "m0") if one.deliveries else (two, one, "m1")
    tag = first.network_tag(b"g:1")
    at = net.nodes.index(other.node)
    net.held.add((2, at))
    first.drop()  # it has processed 1, and its answer was lost
    net.delete_subscription(name)  # so 1 goes to the other one
    other.flow(0)  # which takes its credit back meanwhile
    net.held.clear()
    net.run()
    back = member(net, first.node, name, unsettled={tag: DeliveryOutcome.ACCEPTED}, limit=10)
    net.advance(1.0)
    other.flow(10)
    net.advance(1.0)
    assert [*back.deliveries, *other.deliveries] == [b"g:2"]


@pytest.mark.parametrize("is_late", [False, True], ids=["returned and done", "done and returned"])
def test_a_group_does_not_wait_for_what_went_back_and_has_failed_too_often(is_late: bool) -> None:
    limits = Limits(policy=TopicPolicy(max_attempts=1))
    net = Net(3, message_format=MessageFormat(read_group=read_group), limits=limits)
    net.subscriber(net.nodes[2], "slow")
    one = member(net, net.nodes[0], "m0", limit=1)
    publisher = net.publisher(net.nodes[2])
    send(publisher, b"g:1", b"g:2")
    net.held.add((0, 2))
    one.answer(DeliveryOutcome.MODIFIED_FAILED, b"g:1", settled=True)
    one.drop()
    one = member(net, net.nodes[1], "m0", unsettled={}, limit=0)
    net.held.add((2, 1))
    one.flow(1)
    one.flow(0)  # it takes its credit back while 1 is on its way to it
    if is_late:
        net.held.add((1, 2))
    net.held.discard((2, 1))
    net.run()
    net.held.discard((0, 2))
    net.run()  # it failed at its former router: 1 is done, as rejected
    net.held.clear()
    one.flow(10)
    net.advance(1.0)
    assert one.deliveries == [b"g:2"]


def test_undeliverable_here_stays_done_though_members_join_and_the_publisher_moves() -> None:
    net = network()
    one = member(net, net.nodes[0], "m0", limit=100)
    first = net.publisher(net.nodes[0])
    tags = [b"g%d:" % number for number in range(8)]
    send(first, *tags)
    first.drop()
    one.answer(DeliveryOutcome.UNDELIVERABLE, *tags)
    others = [member(net, net.nodes[0], f"m{number}") for number in range(1, 4)]
    again = net.publisher(net.nodes[0], unsettled=dict.fromkeys(tags))
    send(again, *tags)
    assert [other.deliveries for other in others] == [[], [], []]
    assert len(again.outcomes) == len(tags)


def test_two_members_that_claim_one_group_process_it_in_order() -> None:
    net = network()
    one = member(net, net.nodes[0], "m0", limit=100)
    publisher = net.publisher(net.nodes[0])
    send(publisher, b"g:1", b"g:2")
    had = [one.network_tag(tag) for tag in (b"g:1", b"g:2")]
    one.drop()
    other = member(net, net.nodes[0], "m1", limit=1)
    net.advance(65.0)
    assert of_group(other, b"g:") == [b"g:1"]
    former = member(net, net.nodes[0], "m0", unsettled=dict.fromkeys(had))
    publisher.drop()
    again = net.publisher(net.nodes[0], unsettled={b"g:1": None, b"g:2": None})
    send(again, b"g:1", b"g:2", b"g:3")
    assert former.deliveries == []
    other.accept(b"g:1")
    assert former.deliveries == [b"g:2", b"g:3"]


def test_undeliverable_here_is_done_for_a_group_has_no_other_member() -> None:
    net = network()
    links = [member(net, net.nodes[0], f"m{number}") for number in range(2)]
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"g:1")
    holder, other = links if links[0].deliveries else reversed(links)
    holder.answer(DeliveryOutcome.UNDELIVERABLE, b"g:1")
    assert len(publisher.outcomes) == 1
    assert other.deliveries == []


def test_what_is_wanted_again_comes_to_the_same_member() -> None:
    net = network()
    links = [member(net, net.nodes[0], f"m{number}") for number in range(2)]
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"g:1")
    holder, other = links if links[0].deliveries else reversed(links)
    holder.answer(DeliveryOutcome.RELEASED, b"g:1")
    net.advance(1.0)
    assert (holder.deliveries, other.deliveries) == ([b"g:1", b"g:1"], [])


def test_a_pre_settled_message_goes_to_the_member_of_its_group_or_to_nobody() -> None:
    net = network()
    links = [member(net, net.nodes[0], f"m{number}", limit=2) for number in range(2)]
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"g:1")
    holder, other = links if links[0].deliveries else reversed(links)
    publisher.send(b"g:once", settled=True)
    publisher.send(b"g:too many", settled=True)
    assert (holder.deliveries, other.deliveries) == ([b"g:1", b"g:once"], [])


def test_who_asks_for_the_order_of_groups_is_refused_where_the_first_member_did_not() -> None:
    net = network()
    without = inputs.Share("work", is_global=True)
    one = member(net, net.nodes[0], "m0", without)
    late = member(net, net.nodes[0], "m1")
    assert not one.last(effects.SubscriberReply).grouped
    assert late.end().condition == "amqp:precondition-failed"


def test_who_does_not_ask_gets_the_order_that_is_there() -> None:
    net = network()
    member(net, net.nodes[0], "m0")
    late = member(net, net.nodes[0], "m1", inputs.Share("work", is_global=True))
    assert late.last(effects.SubscriberReply).grouped
