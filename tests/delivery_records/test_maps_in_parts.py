"""Maps whose rest follows behind the attach: one map when all of it is here, and nothing before (rule C-4)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.limits import PROOF_TIMEOUT_S
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink

TAGS = [b"1", b"2", b"3", b"4"]
DONE = DeliveryOutcome.ACCEPTED
SHARE = inputs.Share("together", is_global=True)


def _amassed(net: Net) -> tuple[list[bytes], PublisherLink]:
    """Network tags of four deliveries that a subscriber accepted and nobody settled; the subscriber is away."""
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    for tag in TAGS:
        publisher.send(tag)
    first.accept(*TAGS)
    tags = [first.network_tag(tag) for tag in TAGS]
    first.drop()
    return tags, publisher


def _attach(
    net: Net, here: Iterable[bytes], entries: int, *, share: inputs.Share | None = None, map_bound: int = 0
) -> SubscriberLink:
    """An attach that carries some of `entries` entries; no other part of them is here."""
    link = SubscriberLink(net, net.nodes[0])
    link.attach(
        "s",
        unsettled=dict.fromkeys(here, DONE),
        entries=entries,
        exactly_once=True,
        mode=SubscriptionMode.EXACTLY_ONCE,
        share=share,
        map_bound=map_bound,
    )
    return link


def _rest(link: SubscriberLink, *tags: bytes) -> None:
    link.feed(inputs.MapPart(link.number, dict.fromkeys(tags, DONE)))


def _served(net: Net, link: SubscriberLink) -> None:
    """Alive, confirmed and with credit."""
    if link.all(effects.AskEcho):
        link.echo()
    net.advance(0.05)
    link.flow(1000)


def test_a_map_in_parts_is_answered_as_one_and_new_deliveries_follow() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    link = _attach(net, tags[:2], 4)
    _rest(link, tags[2])
    _rest(link, tags[3])
    reply = link.last(effects.SubscriberReply)
    assert (reply.kept, reply.incomplete) == (tags, False)
    _served(net, link)
    publisher.send(b"5")
    assert link.deliveries == [b"5"]
    publisher.settle(*TAGS)
    assert link.settled == TAGS


def test_before_the_last_part_nothing_is_written_and_the_older_link_goes_on() -> None:
    net = Net()
    older, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    tag = older.network_tag(b"1")
    revision = net.etcd.revision
    link = _attach(net, [], 2)
    _rest(link, tag)
    assert net.etcd.revision == revision
    publisher.send(b"2")
    assert older.deliveries == [b"1", b"2"]
    _rest(link, older.network_tag(b"2"))
    assert older.end().condition == "amqp:link:stolen"
    assert link.last(effects.SubscriberReply).kept == [tag, older.network_tag(b"2")]


@pytest.mark.parametrize("wrong", ["no map", "twice", "of the attach", "too many"])
def test_a_part_that_does_not_belong_is_refused_and_nothing_is_kept_of_it(wrong: str) -> None:
    net = Net()
    tags, _ = _amassed(net)
    held = net.nodes[0].core.budget.held
    link = _attach(net, tags[:1], 3)
    _rest(link, tags[1])
    if wrong == "no map":
        link.feed(inputs.MapPart(link.number, None))
    else:
        _rest(link, *{"twice": tags[1:3], "of the attach": tags[:1], "too many": tags[2:]}[wrong])
    assert (link.end().condition, link.end().closed) == ("amqp:invalid-field", True)
    assert net.nodes[0].core.budget.held == held
    _rest(link, tags[2])  # was on its way
    assert len(link.all(effects.DetachLink)) == 1


def test_a_rest_that_does_not_come_ends_the_link_and_not_the_subscription() -> None:
    net = Net()
    tags, _ = _amassed(net)
    held = net.nodes[0].core.budget.held
    link = _attach(net, tags[:1], 4)
    net.advance(0.9 * PROOF_TIMEOUT_S)
    _rest(link, tags[1])
    net.advance(0.9 * PROOF_TIMEOUT_S)
    assert link.detached() is None
    net.advance(0.2 * PROOF_TIMEOUT_S)
    assert (link.end().condition, link.end().closed) == ("amqp:link:detach-forced", False)
    assert net.has_subscription()
    assert net.nodes[0].core.budget.held == held


def test_a_link_that_goes_in_the_middle_of_its_map_leaves_nothing_behind() -> None:
    net = Net()
    tags, _ = _amassed(net)
    held, revision = net.nodes[0].core.budget.held, net.etcd.revision
    _attach(net, tags[:1], 4).drop()
    assert (net.nodes[0].core.budget.held, net.etcd.revision) == (held, revision)
    net.advance(2 * PROOF_TIMEOUT_S)
    link = _attach(net, tags[:3], 4)
    _rest(link, tags[3])
    assert link.last(effects.SubscriberReply).kept == tags


def test_entries_that_were_settled_meanwhile_are_left_out_whatever_part_they_came_in() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    publisher.settle(b"2", b"3")
    link = _attach(net, tags[:2], 4)
    _rest(link, *tags[2:])
    _served(net, link)
    assert link.last(effects.SubscriberReply).kept == tags
    assert link.settled == [b"2", b"3"]


def test_a_member_of_a_shared_subscription_presents_its_map_in_parts_too() -> None:
    net = Net()
    first = SubscriberLink(net, net.nodes[0])
    first.attach("s", unsettled={}, exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE, share=SHARE)
    _served(net, first)
    publisher = net.publisher(net.nodes[0])
    for tag in TAGS:
        publisher.send(tag)
    first.accept(*TAGS)
    tags = [first.network_tag(tag) for tag in TAGS]
    first.drop()
    link = _attach(net, tags[:2], 4, share=SHARE)
    _rest(link, *tags[2:])
    _served(net, link)
    assert link.last(effects.SubscriberReply).kept == tags
    publisher.settle(*TAGS)
    assert link.settled == TAGS


def test_a_map_full_of_what_publishers_left_behind_that_are_gone_lets_a_new_one_through() -> None:
    """Each of them had a place beyond the bound, and its session is kept."""
    net = Net()
    first = net.subscriber(net.nodes[0], map_bound=2)
    gone = [net.publisher(net.nodes[0], f"gone{number}") for number in range(5)]
    for publisher in gone:
        publisher.send(b"1")
        publisher.drop()
    tags = [delivery.tag for delivery in first.all(effects.Deliver)]
    assert len(tags) == 5
    for tag in tags:
        first.feed(inputs.SubscriberDisposition(first.number, [tag], DONE, False, None))
    first.drop()
    link = _attach(net, tags[:2], 5, map_bound=2)
    _rest(link, *tags[2:4])
    _rest(link, *tags[4:])
    _served(net, link)
    alive = net.publisher(net.nodes[0], "alive")
    for number in range(3):
        alive.send(TAGS[number])
        assert link.deliveries == TAGS[: number + 1]
        link.accept(TAGS[number])
        alive.settle(TAGS[number])
    assert len(alive.accepted) == 3
