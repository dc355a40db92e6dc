"""Where a new life of a subscription starts when its publisher has moved (I-6a); what a changed topic settles (E-6)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.tags import network_tag
from tests.delivery_records.harness import NONCE, Net
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.test_outcomes import session_of

UNSETTLED: dict[bytes, DeliveryOutcome | None] = {b"1": None, b"2": None}


def renewed(net: Net) -> tuple[PublisherLink, SubscriberLink]:
    """s is done with 1 and 2, which *slow* still owes; then it unsubscribes and subscribes again."""
    net.subscriber(net.nodes[-1], "slow")
    former = net.subscriber(net.nodes[-1], "s")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    former.accept(b"1", b"2")
    former.detach(closed=True)
    assert former.end() == effects.DetachLink(former.number, True)
    return publisher, net.subscriber(net.nodes[-1], "s")


def moved(net: Net, starts: list[tuple[bytes, int]], *sent_after: bytes) -> PublisherLink:
    """The publisher attaches at the last router, and repeats its map."""
    publisher = net.publisher(net.nodes[-1], unsettled=UNSETTLED | dict.fromkeys(sent_after), starts=starts)
    for tag in (*UNSETTLED, *sent_after):
        publisher.send(tag)
    return publisher


def test_a_new_incarnation_is_not_sent_what_a_former_one_had_when_the_publisher_moves() -> None:
    net = Net(2)
    publisher, back = renewed(net)
    reported = publisher.last(effects.NotifyStart)
    assert (reported.tag, reported.created) == (b"2", back.last(effects.Confirm).incarnation)
    publisher = moved(net, [(reported.tag, reported.created)])
    assert back.deliveries == []
    publisher.send(b"3")
    assert back.deliveries == [b"3"]


def test_what_was_sent_after_a_subscription_is_owed_to_it_wherever_the_publisher_goes() -> None:
    net = Net(2)
    publisher, back = renewed(net)
    reported = publisher.last(effects.NotifyStart)
    publisher.send(b"3")
    publisher = moved(net, [(reported.tag, reported.created)], b"3")
    assert back.deliveries == [b"3"]
    assert publisher.accepted == []


def test_a_publisher_is_accepted_when_those_are_done_that_its_next_router_owes() -> None:
    net = Net(2)
    publisher, _ = renewed(net)
    reported = publisher.last(effects.NotifyStart)
    publisher = moved(net, [(reported.tag, reported.created)])
    net.delete_subscription("slow")
    assert len(publisher.accepted) == 2


def test_a_start_that_was_named_is_not_named_again_and_none_is_named_for_an_empty_window() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    net.subscriber(net.nodes[0], "a")
    assert publisher.all(effects.NotifyStart) == []
    publisher.send(b"1")
    net.subscriber(net.nodes[0], "b")
    net.subscriber(net.nodes[0], "c")
    assert [reported.tag for reported in publisher.all(effects.NotifyStart)] == [b"1"]
    publisher.send(b"2")
    net.subscriber(net.nodes[0], "d")
    assert [reported.tag for reported in publisher.all(effects.NotifyStart)] == [b"1", b"2"]


def test_what_nobody_knows_the_start_of_is_owed() -> None:
    net = Net(2)
    _, back = renewed(net)
    moved(net, [])
    assert back.deliveries == [b"1", b"2"], "to leave them out could lose what was sent after the confirmation"


def test_a_subscriber_that_presents_what_a_former_life_was_done_with_is_not_sent_it_again() -> None:
    net = Net(2)
    _, back = renewed(net)
    back.drop()
    mine = {network_tag(NONCE, session_of(net), tag): DeliveryOutcome.ACCEPTED for tag in UNSETTLED}
    back = net.subscriber(net.nodes[-1], "s", unsettled=mine)
    publisher = moved(net, [])
    assert back.deliveries == []
    publisher.send(b"3")
    assert back.deliveries == [b"3"]


def test_a_subscription_made_between_an_attach_and_its_proof_of_life_is_not_owed_the_presented_map() -> None:
    net = Net()
    net.subscriber(net.nodes[0], "slow")
    net.publisher(net.nodes[0]).send(b"1")
    again = PublisherLink(net, net.nodes[0])
    again.attach(unsettled={b"1": None})
    late = net.subscriber(net.nodes[0], "late")
    again.echo()
    again.send(b"1")
    again.send(b"2")
    assert late.deliveries == [b"2"]


@pytest.mark.parametrize("topic", ["b", "b.*"])
def test_entries_of_a_topic_that_a_subscription_left_are_settled_when_it_attaches(topic: str) -> None:
    net = Net(2)
    wide = net.subscriber(net.nodes[0], topic="#")
    net.publisher(net.nodes[1], "p", topic="a").send(b"1")
    other = net.publisher(net.nodes[1], "q", topic=topic.replace("*", "x"))
    other.send(b"2")
    tags = [delivery.tag for delivery in wide.all(effects.Deliver)]
    assert [tag[11:] for tag in tags] == [b"1", b"2"]
    wide.drop()
    back = net.subscriber(net.nodes[0], topic=topic, unsettled=dict.fromkeys(tags))
    assert back.last(effects.SubscriberReply).kept == [tags[1]]
    other.settle(b"2")
    assert back.settled == [b"2"]
    assert net.nodes[0].core.egresses[net.subscription_path().partition("/")[2]].unsettled == 0
