"""C-6: bodies and maps of all clients of a router share one budget, and no resend is withheld by it."""

from __future__ import annotations

import pytest

from delivery_records.attachments.attempt import Attempt
from delivery_records.model import effects, inputs
from delivery_records.model.inputs import StoreFailure
from delivery_records.model.limits import ENTRY_BYTES, KIB, ROOM_CHECK_S, UNKNOWN_PUT_S, Limits
from delivery_records.model.outcomes import Decision
from tests.delivery_records.harness import Net
from tests.delivery_records.links import TOPIC, Link, PublisherLink, SubscriberLink
from tests.delivery_records.nodes import StoreFault

BODY = bytes(8 * KIB)


def full(net: Net, name: str = "hog") -> PublisherLink:
    """A publisher that fills the router with bodies nobody has accepted."""
    publisher = net.publisher(net.nodes[0], name)
    number = 0
    while publisher.credit:
        publisher.send(b"%d" % number, BODY)
        number += 1
    return publisher


def test_a_full_router_gives_no_credit_for_new_messages_and_gives_it_when_there_is_room() -> None:
    net = Net(limits=Limits(window=16, router_bytes=64 * KIB))
    subscriber = net.subscriber(net.nodes[0])
    hog = full(net)
    late = net.publisher(net.nodes[0], "late")
    assert late.credit == 0
    assert net.nodes[0].core.budget.held < 16 * (8 * KIB + ENTRY_BYTES) + 64 * KIB
    for number in range(16):
        subscriber.accept(b"%d" % number)
        hog.settle(b"%d" % number)
    assert net.nodes[0].all(effects.RoomAgain)
    assert late.credit > 0


def test_a_full_router_withholds_no_resend() -> None:
    """F1: what a map presents counts, too; were its repeats withheld nothing would ever free the room."""
    net = Net(2, limits=Limits(window=16, router_bytes=17 * ENTRY_BYTES))
    tags = [b"%d" % number for number in range(15)]
    net.publisher(net.nodes[1]).drop()
    subscriber = net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0], unsettled=dict.fromkeys(tags))
    assert net.nodes[0].core.budget.body_room == 0
    assert publisher.credit == 15
    ids = [publisher.send(tag, BODY) for tag in tags]
    subscriber.accept(*tags)
    assert publisher.accepted == ids


def test_a_map_that_does_not_fit_is_refused_and_one_of_a_resuming_publisher_has_room_kept_back() -> None:
    net = Net(limits=Limits(window=64, router_bytes=64 * KIB))
    net.publisher(net.nodes[0], "resuming").drop()
    full(net)
    assert net.nodes[0].core.budget.body_room == 0
    net.publisher(net.nodes[0], "other", unsettled={}).drop()
    link = SubscriberLink(net, net.nodes[0])
    link.attach("big", unsettled={b"%d" % number: None for number in range(200)})
    assert link.end().condition == "amqp:resource-limit-exceeded"
    assert "limits.router_bytes" in link.end().description


def test_a_subscriber_with_a_map_is_admitted_where_bodies_have_passed_the_budget() -> None:
    """F36: bodies that were on their way took the part kept back for maps, and their subscriber was refused."""
    net = Net(limits=Limits(window=64, router_bytes=64 * KIB))
    subscriber = net.subscriber(net.nodes[0])
    full(net)
    budget = net.nodes[0].core.budget
    budget.add(64 * KIB)  # what sessions were offered, and has come
    tags = list(subscriber.deliveries)
    subscriber.drop()
    again = net.subscriber(net.nodes[0], unsettled=dict.fromkeys(tags[:4]))
    assert again.confirmed()
    assert again.deliveries == tags
    flood = SubscriberLink(net, net.nodes[0])
    flood.attach("flood", unsettled={b"%d" % number: None for number in range(16)})
    assert flood.end().condition == "amqp:resource-limit-exceeded"


def test_a_full_router_forgets_windows_of_publishers_that_are_disconnected_and_loses_nothing() -> None:
    """They stayed until T_pub; now their publishers present their maps again, as when the router dies."""
    net = Net(limits=Limits(window=16, router_bytes=64 * KIB))
    subscriber = net.subscriber(net.nodes[0])
    gone = full(net, "gone")
    gone.drop()
    late = net.publisher(net.nodes[0], "late")
    assert net.nodes[0].count(Decision.WINDOW_FORGOTTEN) == 1
    assert late.credit > 0
    subscriber.accept(b"0")
    assert net.has_publisher("gone")
    held = [tag[11:] for tag in subscriber.deliveries]
    again = net.publisher(net.nodes[0], "gone", unsettled=dict.fromkeys(subscriber_tags(subscriber)))
    first = again.send(b"0", BODY)
    assert again.accepted == [first]
    assert held.count(b"0") <= 1


def subscriber_tags(subscriber: SubscriberLink) -> list[bytes]:
    """The publisher's tags of what the subscriber was sent, in order."""
    return list(dict.fromkeys(subscriber.deliveries))


def test_what_ends_leaves_nothing_in_the_budget() -> None:
    net = Net(limits=Limits(window=16))
    subscriber = net.subscriber(net.nodes[0], unsettled={})
    publisher = net.publisher(net.nodes[0])
    for number in range(4):
        publisher.send(b"%d" % number, BODY)
    assert net.nodes[0].core.budget.held == 4 * (len(BODY) + ENTRY_BYTES)
    subscriber.accept(b"0", b"1")
    publisher.settle(b"0", b"1")
    subscriber.drop()
    publisher.detach(closed=True)
    net.subscriber(net.nodes[0], unsettled={b"x" * 11: None}).detach(closed=True)
    assert net.nodes[0].core.budget.held == 0


def filled(net: Net) -> list[PublisherLink]:
    """Publishers that together fill the router, in steps of less than a sixteenth of it."""
    core, hogs = net.nodes[0].core, list[PublisherLink]()
    while core.budget.body_room:
        hogs.append(net.publisher(net.nodes[0], f"hog{len(hogs)}"))
        for number in range(7):
            if hogs[-1].credit and core.budget.body_room:
                hogs[-1].send(b"%d" % number, BODY)
    return hogs


def test_windows_of_disconnected_publishers_are_forgotten_until_others_get_credit() -> None:
    """One was forgotten, there was some room, and nobody was looked at before T_pub."""
    net = Net(limits=Limits(window=16, window_bytes=64 * KIB, router_bytes=1024 * KIB))
    net.subscriber(net.nodes[0])
    hogs = filled(net)
    late = net.publisher(net.nodes[0], "late", topic="empty")
    assert late.credit == 0
    for hog in hogs:
        hog.drop()
    assert late.credit > 0
    assert net.nodes[0].count(Decision.WINDOW_FORGOTTEN) < len(hogs)
    assert not net.nodes[0].core.budget.was_full


def test_room_too_little_for_a_look_in_every_turn_is_given_by_a_timer() -> None:
    net = Net(limits=Limits(window=16, window_bytes=64 * KIB, router_bytes=1024 * KIB))
    net.subscriber(net.nodes[0])
    hogs = filled(net)
    late = net.publisher(net.nodes[0], "late", topic="empty")
    hogs[0].settle(*[b"%d" % number for number in range(5)])
    assert net.nodes[0].core.budget.is_short
    assert late.credit == 0
    net.advance(ROOM_CHECK_S)
    assert late.credit > 0


MAP: inputs.UnsettledMap = {b"\0othr" + b"%027d" % number: None for number in range(40)}


def attaching(net: Net, count: int) -> list[SubscriberLink]:
    """Subscribers, each with a map of 20 KiB, in one moment."""
    links = [SubscriberLink(net, net.nodes[0]) for _ in range(count)]
    for number, link in enumerate(links):
        link.attach(f"s{number}", unsettled=MAP)
    return links


def test_maps_of_attaches_under_way_count_against_the_budget() -> None:
    """20 maps that fit alone were all admitted while etcd was asked: fifteen times the limit."""
    net = Net(limits=Limits(router_bytes=64 * KIB))
    budget = net.nodes[0].core.budget
    net.nodes[0].is_store_held = True
    links = attaching(net, 8)
    assert budget.held == 3 * len(MAP) * ENTRY_BYTES
    assert [link.end().condition for link in links[3:]] == ["amqp:resource-limit-exceeded"] * 5
    net.nodes[0].is_store_held = False
    net.run()
    assert budget.held == 3 * len(MAP) * ENTRY_BYTES
    for link in links[:3]:
        link.drop()
    assert budget.held == 0


@pytest.mark.parametrize("end", ["drop", "close", "detach", "unavailable", "conflicts", "other topic"])
def test_an_attach_that_comes_to_nothing_leaves_no_map_in_the_budget(end: str) -> None:
    net = Net()
    node = net.nodes[0]
    net.publisher(node, "p").drop()
    if end == "unavailable":
        node.faults.append(StoreFault(StoreFailure.UNAVAILABLE))
    elif end == "conflicts":
        node.faults += [StoreFault(StoreFailure.CONFLICT)] * 20
    elif end != "other topic":
        node.is_store_held = True
    links: list[Link] = [*attaching(net, 2)]
    publisher = PublisherLink(net, node)
    publisher.attach("p", topic="other" if end == "other topic" else TOPIC, unsettled=MAP)
    links.append(publisher)
    again = SubscriberLink(net, node)  # queued behind the first of the same identity (A-2a)
    again.attach("s0", unsettled=MAP)
    for link in (*links, again):
        if end == "drop":
            link.drop()
        elif end in ("close", "detach"):
            link.detach(closed=end == "close")
    node.is_store_held = False
    net.advance(60.0)
    for link in (*links, again):
        link.drop()
    windows = sum(len(ingress.window) for ingress in node.core.ingresses.values())
    assert node.core.budget.held == ENTRY_BYTES * windows


def test_a_put_of_unknown_fate_is_remembered_without_its_map() -> None:
    """K-2a keeps 10,000 of them."""
    net = Net()
    node = net.nodes[0]
    node.is_watch_held = True
    (link,) = attaching(net, 1)
    nonce = node.all(effects.Propose)[-1].nonce
    attempt = node.core.links[link.number]
    assert isinstance(attempt, Attempt)
    net.feed(node, inputs.StoreFailed(nonce, StoreFailure.UNKNOWN))
    net.advance(UNKNOWN_PUT_S)
    assert link.is_refused_by_store()
    assert node.core.budget.held == 0
    assert attempt.request.unsettled is None
    node.is_watch_held = False
    net.run()
    assert node.core.expiry.is_counting(net.subscription_path("s0"))
    assert node.core.budget.held == 0
