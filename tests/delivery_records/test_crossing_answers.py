"""What members of a shared subscription answer while a CLAIM, or a new assignment, is on its way (rules SH-4, SH-5)."""

from __future__ import annotations

from delivery_records import inputs
from delivery_records.outcomes import DeliveryOutcome
from tests.delivery_records.harness import Net, Node, SubscriberLink

SHARE = inputs.Share("work", is_global=True)


def member(
    net: Net, node: Node, name: str, *, unsettled: inputs.UnsettledMap | None = None, limit: int = 10
) -> SubscriberLink:
    return net.subscriber(node, name, share=SHARE, unsettled=unsettled, limit=limit)


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
