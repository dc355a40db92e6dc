"""What a link leaves in the record core is freed at once: the garbage collector would stop all others meanwhile."""

from __future__ import annotations

import gc

import pytest

from delivery_records.model import inputs
from delivery_records.publisher.ingress import Ingress
from delivery_records.subscriber.egress import Egress
from delivery_records.subscriber.entries import SyncState
from tests.delivery_records.harness import Net

LINKS = 10
SHARE = inputs.Share("work", is_global=True)


def alive() -> int:
    """Records of links that anybody has, whether in circles or not."""
    # By type: a weak proxy of another test would have to ask what it stands for.
    return sum(issubclass(type(each), (Egress, Ingress, SyncState)) for each in gc.get_objects())


@pytest.mark.parametrize("share", [None, SHARE], ids=["subscribers", "members"])
@pytest.mark.parametrize("closes", [False, True], ids=["lost", "closed"])
def test_what_a_subscriber_leaves_is_gone_without_the_collector(share: inputs.Share | None, closes: bool) -> None:
    net = Net(2)
    here, there = net.nodes
    publisher = net.publisher(there)
    net.subscriber(here, "stays", share=share, limit=1)
    publisher.send(b"a")
    gc.collect()  # what other tests left would go meanwhile
    before = alive()
    links = [net.subscriber(here, f"s{number}", share=share, limit=2) for number in range(LINKS)]
    for number in range(LINKS):
        publisher.send(b"%d" % number)
    assert alive() > before + LINKS
    numbers = [link.number for link in links]
    links.clear()
    gc.disable()
    try:
        for number in numbers:
            net.feed(
                here,
                inputs.LinkDetach(number, True)
                if closes
                else inputs.LinkLost(number, inputs.LossCause.CONNECTION_LOSS),
            )
        publisher.send(b"z")  # the next message is sent by a plan that knows none of them
        assert alive() == before
    finally:
        gc.enable()
