"""What members of a shared subscription answer while something for them is on its way (rules SH-2, SH-4, SH-5, L-5)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.parts import Part
from delivery_records.model.tags import link_key, network_tag
from delivery_records.subscriber.member import MemberEgress
from tests.delivery_records.harness import NONCE, Net
from tests.delivery_records.large_parts import LIMITS, MORE, part, parts, take, take_all
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node

SHARE = inputs.Share("work", is_global=True)


def member(
    net: Net, node: Node, name: str, *, unsettled: inputs.UnsettledMap | None = None, limit: int = 10
) -> SubscriberLink:
    return net.subscriber(node, name, share=SHARE, unsettled=unsettled, limit=limit)


def one_frame(net: Net, sender: int, receiver: int) -> None:
    """The oldest frame that is held back arrives."""
    net.feed(net.nodes[receiver], net.frames[(net.nodes[sender].rid, net.nodes[receiver].rid)].popleft())


def test_what_is_handed_back_behind_a_claim_is_not_taken_for_new() -> None:  # SH-5
    net = Net(3)
    one = member(net, net.nodes[0], "m0")
    first = net.publisher(net.nodes[2])
    first.send(b"1")
    assert one.deliveries == [b"1"]
    other = member(net, net.nodes[1], "m1")
    net.kill(net.nodes[2])
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    net.held.add((0, 1))
    one.answer(DeliveryOutcome.RELEASED, b"1")
    publisher.send(b"1")  # the ingress has the CLAIM, and sends the body for it
    assert one.deliveries == [b"1"]
    net.held.clear()
    net.advance(2.0)
    assert [*one.deliveries, *other.deliveries].count(b"1") == 2
    holder = other if other.deliveries else one
    holder.accept(b"1")
    assert len(publisher.accepted) == 1


def test_a_claim_that_answers_a_former_sync_counts_for_nothing() -> None:  # SH-4
    net = Net(2)
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[1], "m1", limit=0)
    publisher = net.publisher(net.nodes[1])
    (ingress,) = net.nodes[1].core.ingresses.values()
    net.held.add((0, 1))
    for _ in range(2):  # the channel starts again twice (T-4)
        ingress.fanout.sync_router(net.nodes[0].rid)
        net.feed(net.nodes[1])
    publisher.send(b"1")
    under_way = net.frames[(net.nodes[0].rid, net.nodes[1].rid)]
    second = under_way.pop()
    net.held.clear()
    net.run()
    other.flow(10)
    under_way.append(second)
    net.run()
    assert [*one.deliveries, *other.deliveries] == [b"1"]


def test_what_was_wanted_again_of_a_former_link_does_not_take_away_what_the_next_one_has() -> None:  # SH-5
    net = Net(2)
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[1], "m1", limit=0)
    publisher = net.publisher(net.nodes[1])
    publisher.send(b"1")
    net.held.add((0, 1))
    one.answer(DeliveryOutcome.RELEASED, b"1")
    one.drop()
    again = member(net, net.nodes[1], "m0", unsettled={})
    assert again.deliveries == [b"1"]
    other.flow(10)
    net.held.clear()
    net.advance(2.0)
    assert other.deliveries == []
    again.accept(b"1")
    assert len(publisher.accepted) == 1


def test_a_second_claim_that_was_handed_back_is_not_passed_on() -> None:  # SH-5
    net = Net(3)
    one, other = member(net, net.nodes[0], "m0"), member(net, net.nodes[1], "m1", limit=0)
    first = net.publisher(net.nodes[2])
    first.send(b"1")
    tag = one.network_tag(b"1")
    one.drop()
    net.delete_subscription("m0")
    other.flow(10)
    assert other.deliveries == [b"1"]
    net.kill(net.nodes[2])
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    publisher.send(b"1")
    back = member(net, net.nodes[0], "m0", unsettled={tag: None})
    back.feed(inputs.SubscriberDisposition(back.number, [tag], DeliveryOutcome.RELEASED, False))
    assert back.deliveries == []
    other.drop()
    net.delete_subscription("m1")
    assert back.deliveries == [b"1"]
    back.accept(b"1")
    assert len(publisher.accepted) == 1


def test_what_was_dropped_for_a_claim_is_sent_from_its_first_part_when_it_is_assigned_again() -> None:  # SH-5, L-2
    net = Net(4, limits=LIMITS)
    zero = member(net, net.nodes[0], "m0")
    two = member(net, net.nodes[1], "m1")
    net.publisher(net.nodes[3])
    (ingress,) = net.nodes[3].core.ingresses.values()
    name = network_tag(NONCE, ingress.session, b"1")
    other = net.publisher(net.nodes[2], "q")  # opens the channels
    other.detach(closed=True)
    zero.drop()
    two.drop()
    net.kill(net.nodes[3])
    member(net, net.nodes[0], "m0", unsettled={name: DeliveryOutcome.UNDELIVERABLE})
    two = member(net, net.nodes[1], "m1", unsettled={name: None}, limit=0)
    net.held |= {(0, 2), (1, 2)}
    publisher = net.publisher(net.nodes[2], unsettled={b"1": None})
    one_frame(net, 0, 2)  # CLAIM of m0; its ACK (undeliverable-here) is under way
    one_frame(net, 1, 2)  # CLAIM of m1: the second one
    part(publisher, b"1", b"f" * 2000, Part.FIRST)
    two.feed(inputs.SubscriberDisposition(two.number, [name], DeliveryOutcome.RELEASED, False))
    two.drop()
    two = member(net, net.nodes[1], "m1", unsettled={})
    net.held.discard((0, 2))
    net.run()  # the ACK: m1 has it now, as far as its former CLAIM says
    net.held.clear()
    net.run()  # a NACK of the former epoch, and the CLAIM of the present one
    part(publisher, b"1", b"m" * 1000, Part.LAST)
    take_all(two)
    net.advance(3600.0)
    assert parts(two)[-1:] == [(b"1", Part.LAST)] or publisher.detached() is not None


def test_a_member_that_moves_each_time_it_fails_reaches_the_limit() -> None:  # E-4a, SH-5
    net = Net(3)
    nodes = [net.nodes[0], net.nodes[2]]
    one = member(net, nodes[0], "m0")
    publisher = net.publisher(net.nodes[1])
    publisher.send(b"1")
    for attempt in range(30):  # max_attempts is 10
        if publisher.outcomes:
            break
        here = nodes[attempt % 2]
        assert one.deliveries == [b"1"]
        net.held.add((net.nodes.index(here), 1))
        one.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
        one.drop()
        one = member(net, nodes[(attempt + 1) % 2], "m0", unsettled={})
        net.held.clear()
        net.advance(65.0 if not one.deliveries else 0.0)
    assert publisher.outcomes


def repeating(net: Net, node: Node) -> PublisherLink:
    """A publisher that has never got a byte of 1 to its router, which stands in its map."""
    net.publisher(node).drop()
    return net.publisher(node, unsettled={b"1": None})


def begin_again(publisher: PublisherLink) -> None:
    """It aborts 1, and sends all of it."""
    part(publisher, b"1", b"", Part.ABORT)
    part(publisher, b"1", b"f" * 2000, Part.FIRST)
    part(publisher, b"1", MORE, Part.LAST)


def test_what_is_released_of_an_aborted_large_one_does_not_count_for_the_next() -> None:  # L-5
    net = Net(3, limits=LIMITS)
    one = member(net, net.nodes[0], "m0")
    publisher = repeating(net, net.nodes[2])
    part(publisher, b"1", b"f" * 3000, Part.FIRST)
    take(one, 1000)
    other = member(net, net.nodes[1], "m1")
    net.held.add((0, 2))
    name = one.all(effects.DeliverPart)[0].tag
    one.feed(inputs.SubscriberDisposition(one.number, [name], DeliveryOutcome.RELEASED, False))
    begin_again(publisher)
    take_all(one)
    net.held.clear()
    net.advance(1.0)
    take_all(other)
    assert [parts(link)[-1:] for link in (one, other)].count([(b"1", Part.LAST)]) == 1


def test_what_went_back_of_an_aborted_large_one_does_not_count_for_the_next() -> None:  # L-5
    net = Net(3, limits=LIMITS)
    one = member(net, net.nodes[0], "m0", limit=1)
    second = net.publisher(net.nodes[0], "q")
    publisher = repeating(net, net.nodes[2])
    net.held.update({(0, 2), (2, 0)})
    second.send(b"a")  # uses the credit
    assert one.deliveries == [b"a"]
    part(publisher, b"1", b"f" * 3000, Part.FIRST)
    net.held.discard((2, 0))
    net.run()  # its RETURN is under way
    assert parts(one) == []
    one.accept(b"a")
    one.flow(11, delivery_count=1)
    other = member(net, net.nodes[1], "m1")
    begin_again(publisher)
    take_all(one)
    net.held.clear()
    net.advance(1.0)
    take_all(other)
    assert [parts(link)[-1:] for link in (one, other)].count([(b"1", Part.LAST)]) == 1


@pytest.mark.parametrize(
    ("sent_before", "limit", "then"), [(10, 20, 20), (0, 15, 15), (5, 15, 15)], ids=["used", "unused", "half"]
)
def test_credit_that_is_given_though_nothing_is_answered_is_used(sent_before: int, limit: int, then: int) -> None:
    net = Net(2)  # SH-2
    one = member(net, net.nodes[0], "m0", limit=10)
    publisher = net.publisher(net.nodes[1])
    for number in range(sent_before):
        publisher.send(b"%d" % number)
    assert len(one.deliveries) == sent_before
    one.flow(limit, delivery_count=sent_before)
    net.advance(1.0)
    for number in range(sent_before, then):
        publisher.send(b"%d" % number)
    net.advance(1.0)
    assert len(one.deliveries) == then


def test_what_was_presented_as_failed_and_is_settled_leaves_nothing_behind() -> None:  # G6
    net = Net(2)
    one = member(net, net.nodes[0], "m0")
    publisher = net.publisher(net.nodes[1])
    publisher.send(b"1")
    tag = one.network_tag(b"1")
    one.drop()
    publisher.settle(b"1")
    again = member(net, net.nodes[0], "m0", unsettled={tag: DeliveryOutcome.MODIFIED_FAILED})
    egress = net.nodes[0].core.egresses[link_key("m0", "link")]
    assert again.deliveries == []
    assert isinstance(egress, MemberEgress)
    assert not egress._failed


def test_a_late_failure_of_what_has_left_the_window_leaves_nothing_behind() -> None:  # G6
    net = Net(3)
    one = member(net, net.nodes[0], "m0")
    publisher = net.publisher(net.nodes[1])
    publisher.send(b"1")
    net.held.add((0, 1))
    one.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
    one.drop()
    publisher.settle(b"1")
    member(net, net.nodes[2], "m0", unsettled={})
    net.held.clear()
    net.run()
    (ingress,) = net.nodes[1].core.ingresses.values()
    (share,) = ingress.fanout.shares.values()
    assert not share._attempts


def test_a_failure_that_is_heard_late_and_presented_counts_once() -> None:  # E-4a, SH-5
    net = Net(3)
    nodes = [net.nodes[0], net.nodes[2]]
    one = member(net, nodes[0], "m0")
    publisher = net.publisher(net.nodes[1])
    publisher.send(b"1")
    failures = 0
    while not publisher.outcomes and failures < 30:
        here, there = nodes[failures % 2], nodes[(failures + 1) % 2]
        tag = one.network_tag(b"1")
        net.held.add((net.nodes.index(here), 1))
        one.answer(DeliveryOutcome.MODIFIED_FAILED, b"1")
        failures += 1
        one.drop()
        net.held.add((net.nodes.index(there), 1))
        one = member(net, there, "m0", unsettled={tag: DeliveryOutcome.MODIFIED_FAILED})
        first, second = (here, there) if failures % 3 else (there, here)  # either may be heard first
        net.held.discard((net.nodes.index(first), 1))
        net.run()
        net.held.discard((net.nodes.index(second), 1))
        net.run()
        net.advance(65.0 if not one.deliveries else 0.0)
    assert failures == 10  # max_attempts


def test_a_claimed_delivery_that_came_again_malformed_is_not_sent_without_a_body() -> None:  # I-1b, SH-4
    bad: list[bytes] = []

    def annotate(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
        if message in bad:
            raise ValueError("cannot be read")
        return message

    net = Net(3, message_format=MessageFormat(annotate))
    one = member(net, net.nodes[0], "m0")
    first = net.publisher(net.nodes[2])
    first.send(b"1")
    tag = one.network_tag(b"1")
    one.drop()
    net.kill(net.nodes[2])
    one = member(net, net.nodes[0], "m0", unsettled={tag: None})
    bad.append(b"1")
    net.publisher(net.nodes[1], "q")  # opens the channels
    net.held.add((0, 1))  # its CLAIM is under way
    publisher = net.publisher(net.nodes[1], unsettled={b"1": None})
    publisher.send(b"1")
    net.held.clear()
    net.run()
    assert not [sent for sent in one.all(effects.Deliver) if not sent.message and not sent.settled]


def test_what_has_come_whole_goes_on_when_a_later_one_ends_with_its_link() -> None:  # L-5
    net = Net(3, limits=LIMITS)
    net.publisher(net.nodes[1])
    (ingress,) = net.nodes[1].core.ingresses.values()
    names = [network_tag(NONCE, ingress.session, tag) for tag in (b"1", b"2")]
    net.kill(net.nodes[1])
    one = member(net, net.nodes[2], "m0", unsettled=dict.fromkeys(names))
    publisher = net.publisher(net.nodes[0], unsettled={b"1": None, b"2": None})
    part(publisher, b"1", b"f" * 3000, Part.FIRST)
    take(one, 2000)
    part(publisher, b"1", b"m" * 5000, Part.LAST)
    part(publisher, b"2", b"f" * 3000, Part.FIRST)
    publisher.drop()
    take_all(one)
    assert parts(one)[-1:] == [(b"1", Part.LAST)]
