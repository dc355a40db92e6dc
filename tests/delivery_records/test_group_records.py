"""What is kept of groups leaves with what it was kept for (G6)."""

from __future__ import annotations

import pytest

from delivery_records.model.groups import group_hash
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.parts import Part
from delivery_records.model.tags import link_key
from delivery_records.publisher.grouped_sharing import GroupedShare
from tests.delivery_records.group_links import member, network, read_group, send
from tests.delivery_records.harness import Net
from tests.delivery_records.large_parts import LIMITS, part


def test_records_of_groups_leave_with_their_deliveries() -> None:  # G6
    net = network()
    one = member(net, net.nodes[0], "m0", limit=100)
    publisher = net.publisher(net.nodes[0])
    tags = [b"g%d:" % number for number in range(50)]
    send(publisher, *tags)
    one.accept(*tags)
    publisher.settle(*tags)
    (ingress,) = net.nodes[0].core.ingresses.values()
    (share,) = ingress.fanout.shares.values()
    assert isinstance(share, GroupedShare)
    assert share.groups == 0


def test_an_aborted_delivery_that_comes_again_in_another_group_leaves_its_former_one() -> None:  # G6
    net = Net(1, limits=LIMITS, message_format=MessageFormat(read_group=read_group))
    member(net, net.nodes[0], "m0", limit=100)
    net.publisher(net.nodes[0]).drop()
    publisher = net.publisher(net.nodes[0], unsettled={b"1": None})
    for group in (b"a:", b"b:", b"c:"):
        part(publisher, b"1", group + b"f" * 3000, Part.FIRST)
        part(publisher, b"1", b"", Part.ABORT)
    (ingress,) = net.nodes[0].core.ingresses.values()
    (share,) = ingress.fanout.shares.values()
    assert isinstance(share, GroupedShare)
    assert share.groups == 1


def test_nothing_of_a_publisher_that_has_gone_stays_at_the_egress_of_a_member() -> None:  # G6
    net = network()
    one = member(net, net.nodes[0], "m0", limit=0, map_bound=8)
    last = net.publisher(net.nodes[0], "last")
    for number in range(20):
        publisher = net.publisher(net.nodes[0], f"p{number}")
        send(publisher, b"g:1", b"g:2")
        publisher.detach(closed=True)
    egress = net.nodes[0].core.egresses[link_key("m0", "link")]
    assert len(egress.syncs) == egress.outgoing.reserve == 1
    one.flow(5)
    send(last, *(b"g:%d" % number for number in range(5)))
    assert len(one.deliveries) == 5


def test_what_a_publisher_gives_up_leaves_no_numbers_behind() -> None:  # G6
    net = network()
    member(net, net.nodes[0], "m0", limit=0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"g:stuck")
    for number in range(500):
        tag = b"g:%d" % number
        publisher.send(tag)
        publisher.settle(tag)
    (ingress,) = net.nodes[0].core.ingresses.values()
    (share,) = ingress.fanout.shares.values()
    assert share.lined_up < 100


@pytest.mark.parametrize("size", [1, 30_000])
def test_what_is_kept_of_a_group_has_the_same_size_whatever_its_name_has(size: int) -> None:
    found = group_hash(read_group, b"g" * size + b":1", 0)
    assert found is not None
    assert len(found) == 16
