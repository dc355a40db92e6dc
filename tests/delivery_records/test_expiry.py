"""Attachments without a link end after their time, by one compare-and-delete (rules K-5, K-6, A-9)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects
from delivery_records.model.inputs import EndpointEnded, LinkPlace, LossCause, StoreFailure
from delivery_records.model.limits import EXPIRY_RETRY_S, ORPHAN_RANK_STEP_S, Limits
from delivery_records.model.outcomes import Decision
from tests.delivery_records.harness import Net
from tests.delivery_records.links import Link, PublisherLink
from tests.delivery_records.nodes import StoreFault

T = 20.0
PLACE = LinkPlace(amqp_session=5, connection=6)


def _lose(link: Link, cause: LossCause) -> None:
    if cause is LossCause.DETACH:
        link.detach(closed=False)
    else:
        link.drop(cause)


@pytest.mark.parametrize(
    ("policy", "cause"),
    [
        ("link-detach", LossCause.DETACH),
        ("link-detach", LossCause.SESSION_END),
        ("link-detach", LossCause.CONNECTION_LOSS),
        ("session-end", LossCause.SESSION_END),
        ("session-end", LossCause.CONNECTION_LOSS),
        ("connection-close", LossCause.CONNECTION_LOSS),
        ("no-such-policy", LossCause.DETACH),
    ],
)
def test_a_subscription_ends_its_time_after_the_end_that_its_policy_names(policy: str, cause: LossCause) -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], policy=policy, timeout_s=T, place=PLACE)
    _lose(subscriber, cause)
    net.advance(T - 0.1)
    assert net.has_subscription()
    net.advance(0.2)
    assert not net.has_subscription()


WAITING = [
    ("session-end", LossCause.DETACH, PLACE.amqp_session),
    ("connection-close", LossCause.DETACH, PLACE.connection),
    ("connection-close", LossCause.SESSION_END, PLACE.connection),
]


@pytest.mark.parametrize(("policy", "cause", "endpoint"), WAITING)
def test_the_time_of_a_detached_subscription_starts_with_the_end_of_its_session_or_connection(
    policy: str, cause: LossCause, endpoint: int
) -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], policy=policy, timeout_s=T, place=PLACE)
    _lose(subscriber, cause)
    net.advance(100 * T)
    assert net.has_subscription()
    net.feed(net.nodes[0], EndpointEnded(99))
    net.feed(net.nodes[0], EndpointEnded(endpoint))
    net.advance(T - 0.1)
    assert net.has_subscription()
    net.advance(0.2)
    assert not net.has_subscription()


@pytest.mark.parametrize(("policy", "cause", "endpoint"), WAITING)
def test_the_time_of_a_detached_publisher_starts_with_the_end_of_its_session_or_connection(
    policy: str, cause: LossCause, endpoint: int
) -> None:
    net = Net()
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(exactly_once=False, expiry_policy=policy, place=PLACE)
    _lose(publisher, cause)
    net.advance(1_000.0)
    assert net.has_publisher()
    net.feed(net.nodes[0], EndpointEnded(endpoint))
    net.advance(0.1)
    assert not net.has_publisher()


def test_a_publisher_that_attaches_again_in_its_session_resumes() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0])
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(exactly_once=False, place=PLACE)
    publisher.send(b"1")
    assert subscriber.deliveries == [b"1"]
    publisher.detach(closed=False)
    net.advance(120.0)
    again = PublisherLink(net, net.nodes[0])
    again.attach(unsettled={b"1": None}, exactly_once=False, place=PLACE)
    assert again.last(effects.PublisherReply).resumed
    subscriber.accept(b"1")
    delivery_id = again.send(b"1")
    assert again.accepted == [delivery_id]
    assert subscriber.deliveries == [b"1"]


def test_a_subscription_that_came_back_waits_for_no_session_any_more() -> None:
    net = Net()
    net.subscriber(net.nodes[0], policy="session-end", timeout_s=T, place=PLACE).detach(closed=False)
    other = LinkPlace(8, 9)
    second = net.subscriber(net.nodes[0], policy="session-end", timeout_s=T, place=other)
    net.feed(net.nodes[0], EndpointEnded(PLACE.amqp_session))
    net.advance(2 * T)
    assert second.detached() is None
    second.detach(closed=False)
    net.advance(2 * T)
    assert net.has_subscription()
    net.feed(net.nodes[0], EndpointEnded(other.amqp_session))
    net.advance(T + 0.1)
    assert not net.has_subscription()


def test_other_routers_count_from_the_death_of_the_router_whose_session_was_open() -> None:
    net = Net(2)
    net.subscriber(net.nodes[0], policy="session-end", timeout_s=T, place=PLACE).detach(closed=False)
    net.advance(2 * T)
    net.kill(net.nodes[0])
    net.advance(T - 0.1)
    assert net.has_subscription()
    net.advance(ORPHAN_RANK_STEP_S + 0.2)
    assert not net.has_subscription()


def test_a_session_start_that_shows_after_the_detach_goes_on_waiting() -> None:
    net = Net()
    node = net.nodes[0]
    publisher = PublisherLink(net, node)
    publisher.attach(unsettled={}, place=PLACE, timeout_s=86_400.0)
    node.is_watch_held = True
    publisher.echo()
    publisher.detach(closed=False)
    node.is_watch_held = False
    net.run()
    net.advance(90_000.0)
    assert net.has_publisher()
    net.feed(node, EndpointEnded(PLACE.amqp_session))
    net.advance(86_401.0)
    assert not net.has_publisher()


def test_never_is_granted_as_link_detach_with_the_cap() -> None:
    net = Net(limits=Limits(subscription_timeout_cap_s=300.0, publisher_timeout_cap_s=400.0))
    subscriber = net.subscriber(net.nodes[0], policy="never", timeout_s=T)
    assert subscriber.last(effects.SubscriberReply).expiry_policy == "link-detach"
    granted = subscriber.last(effects.Confirm)
    assert (granted.timeout_s, granted.expiry_policy) == (300.0, "link-detach")
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach("q", expiry_policy="never", place=PLACE)
    reply = publisher.last(effects.PublisherReply)
    assert (reply.timeout_s, reply.expiry_policy) == (400.0, "link-detach")
    publisher.detach(closed=False)
    subscriber.drop()
    net.advance(299.0)
    assert net.has_subscription()
    net.advance(2.0)
    assert not net.has_subscription()


def test_a_longer_wish_is_granted_up_to_the_cap() -> None:
    net = Net(limits=Limits(subscription_timeout_cap_s=300.0))
    assert net.subscriber(net.nodes[0], timeout_s=1e9).last(effects.Confirm).timeout_s == 300.0
    assert net.subscriber(net.nodes[0], "t", timeout_s=None).last(effects.SubscriberReply).timeout_s == 60.0
    assert net.subscriber(net.nodes[0], "u", timeout_s=0.0).last(effects.SubscriberReply).timeout_s == 0.0


def test_a_subscriber_that_comes_back_in_time_keeps_its_subscription() -> None:
    net = Net(2)
    publisher = net.publisher(net.nodes[0])
    for number in range(5):
        subscriber = net.subscriber(net.nodes[number % 2], timeout_s=T)
        subscriber.drop()
        publisher.send(bytes([number]))
        net.advance(T - 1.0)
    assert net.has_subscription()
    last = net.subscriber(net.nodes[0], timeout_s=T)
    assert last.deliveries == [bytes([number]) for number in range(5)]


def test_a_late_proposal_loses_against_an_attach() -> None:
    net = Net()
    net.subscriber(net.nodes[0], timeout_s=T).drop()
    net.nodes[0].is_store_held = True
    net.advance(T + 0.5)
    (deletion,) = net.nodes[0].waiting
    assert isinstance(deletion, effects.Propose)
    net.nodes[0].waiting.clear()
    net.nodes[0].is_store_held = False
    back = net.subscriber(net.nodes[0], timeout_s=T)
    net.nodes[0].waiting.append(deletion)
    net.run()
    assert net.has_subscription()
    assert back.detached() is None


def test_a_proposal_that_could_not_reach_etcd_is_made_again() -> None:
    net = Net()
    net.subscriber(net.nodes[0], timeout_s=T).drop()
    net.nodes[0].faults.append(StoreFault(StoreFailure.UNAVAILABLE))
    net.advance(T + 0.5)
    assert net.has_subscription()
    net.advance(EXPIRY_RETRY_S)
    assert not net.has_subscription()


def test_an_ended_subscription_is_owed_nothing_more() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1], timeout_s=T).drop()
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    net.advance(T - 1.0)
    assert publisher.accepted == []
    net.advance(2.0)
    assert publisher.accepted == [delivery]


def test_a_publisher_ends_its_time_after_its_link() -> None:
    net = Net(limits=Limits(publisher_timeout_s=T))
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.drop()
    net.advance(T - 1.0)
    assert net.has_publisher()
    assert subscriber.settled == []
    net.advance(2.0)
    assert not net.has_publisher()
    assert subscriber.settled == [b"1"]


def test_a_publishers_wish_is_granted_up_to_the_cap() -> None:
    net = Net(limits=Limits(publisher_timeout_s=T, publisher_timeout_cap_s=50.0))
    granted = net.publisher(net.nodes[0], timeout_s=1e9).last(effects.PublisherReply).timeout_s
    assert granted == 50.0


def test_a_publisher_that_asks_for_less_is_kept_for_less() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0], timeout_s=T)
    assert publisher.last(effects.PublisherReply).timeout_s == T
    publisher.send(b"1")
    publisher.drop()
    net.advance(T - 1.0)
    assert net.has_publisher()
    net.advance(2.0)
    assert not net.has_publisher()


def test_a_publisher_that_asks_for_no_time_has_the_default() -> None:
    net = Net()
    assert net.publisher(net.nodes[0]).last(effects.PublisherReply).timeout_s == net.limits.publisher_timeout_s
    assert net.stock_publisher(net.nodes[0], "stock").last(effects.PublisherReply).timeout_s == 0.0


def test_an_attach_without_proof_of_life_leaves_a_session_the_longer_time() -> None:
    net = Net(2)
    first = net.publisher(net.nodes[0], timeout_s=1000.0)
    net.subscriber(net.nodes[0]).drop()
    first.send(b"1")
    first.drop()
    stale = PublisherLink(net, net.nodes[1])
    stale.attach(unsettled={}, exactly_once=True, timeout_s=T)
    assert stale.last(effects.PublisherReply).timeout_s == 1000.0
    stale.drop()
    net.advance(999.0)
    back = net.publisher(net.nodes[0], unsettled={b"1": None}, timeout_s=1000.0)
    assert back.last(effects.PublisherReply).resumed


def test_a_session_that_starts_has_the_time_that_its_publisher_asked_for() -> None:
    net = Net()
    net.publisher(net.nodes[0], timeout_s=1000.0).drop()
    net.publisher(net.nodes[0], timeout_s=T).drop()
    net.advance(T + 1.0)
    assert not net.has_publisher()


def test_a_session_that_goes_on_keeps_the_longer_time() -> None:
    net = Net()
    net.subscriber(net.nodes[0], timeout_s=2000.0).drop()
    first = net.publisher(net.nodes[0], timeout_s=1000.0)
    first.send(b"1")
    first.drop()
    net.publisher(net.nodes[0], unsettled={b"1": None}, timeout_s=T).drop()
    net.advance(999.0)
    assert net.has_publisher()
    net.advance(2.0)
    assert not net.has_publisher()


def _proposers(net: Net) -> list[int]:
    return [index for index, node in enumerate(net.nodes) if node.count(Decision.EXPIRY_PROPOSED)]


def test_the_key_of_a_dead_router_is_proposed_by_one_router_after_the_other() -> None:
    net = Net(4)
    net.subscriber(net.nodes[3], timeout_s=T)
    net.kill(net.nodes[3])
    for node in net.nodes[:3]:
        node.is_store_held = True
    net.advance(T + 0.1)
    assert len(_proposers(net)) == 1
    net.advance(ORPHAN_RANK_STEP_S)
    assert len(_proposers(net)) == 2
    net.advance(ORPHAN_RANK_STEP_S)
    assert len(_proposers(net)) == 3


def test_keys_of_a_dead_router_are_spread_over_the_others() -> None:
    net = Net(4)
    for number in range(30):
        net.subscriber(net.nodes[3], f"s{number}", timeout_s=T)
    net.kill(net.nodes[3])
    net.advance(T + 0.5)
    assert _proposers(net) == [0, 1, 2]
    assert not net.nodes[0].core.view.subscriptions


def test_the_first_in_rank_is_enough() -> None:
    net = Net(4)
    net.subscriber(net.nodes[3], timeout_s=T)
    net.kill(net.nodes[3])
    net.advance(T + 10.0)
    assert not net.has_subscription()
    assert sum(node.count(Decision.EXPIRY_PROPOSED) for node in net.nodes) == 1


def test_a_subscriber_of_a_dead_router_that_comes_back_keeps_its_subscription() -> None:
    net = Net(3)
    net.subscriber(net.nodes[2], timeout_s=T)
    net.kill(net.nodes[2])
    net.advance(T - 1.0)
    back = net.subscriber(net.nodes[0], timeout_s=T)
    net.advance(100.0)
    assert net.has_subscription()
    assert back.detached() is None


def test_after_a_total_outage_time_starts_from_zero() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1], timeout_s=T)
    net.publisher(net.nodes[1], "p")
    for node in list(net.nodes):
        net.kill(node)
    net.advance(1000.0)
    net.start_router()
    net.advance(T - 0.5)
    assert net.has_subscription()
    net.advance(1.0)
    assert not net.has_subscription()
    assert net.has_publisher()


def test_a_put_of_a_client_that_had_gone_is_timed_by_its_router() -> None:
    net = Net()
    net.nodes[0].is_watch_held = True
    subscriber = net.subscriber(net.nodes[0], timeout_s=T, limit=0)
    subscriber.drop()
    net.nodes[0].is_watch_held = False
    net.run()
    assert subscriber.got == []
    net.advance(T + 0.1)
    assert not net.has_subscription()


def test_a_publisher_that_attached_and_went_before_its_put_was_seen_goes_on_waiting_for_its_session() -> None:
    """Its T_pub started, although the AMQP session that its policy names lives."""
    net = Net()
    node = net.nodes[0]
    publisher = PublisherLink(net, node)
    publisher.attach(exactly_once=False, expiry_policy="session-end", place=PLACE)
    publisher.detach(closed=False)
    node.is_watch_held = True
    again = PublisherLink(net, node)
    again.attach(exactly_once=False, expiry_policy="session-end", place=PLACE)
    again.detach(closed=False)
    node.is_watch_held = False
    net.advance(1_000.0)
    assert net.has_publisher()
    net.feed(node, EndpointEnded(PLACE.amqp_session))
    net.advance(0.1)
    assert not net.has_publisher()


@pytest.mark.parametrize("failure", [StoreFailure.UNAVAILABLE, StoreFailure.UNKNOWN])
def test_a_publisher_that_etcd_refused_keeps_its_key_for_as_long_as_its_amqp_session(failure: StoreFailure) -> None:
    """A-1: its connection goes on, so T_pub does not count yet (A-9)."""
    net = Net()
    node = net.nodes[0]
    publisher = PublisherLink(net, node)
    publisher.attach(unsettled={}, exactly_once=True, expiry_policy="session-end", timeout_s=T, place=PLACE)
    node.faults.append(StoreFault(failure))
    publisher.echo()
    net.advance(1_000_000.0)
    assert publisher.is_refused_by_store()
    assert net.has_publisher()
    net.feed(node, EndpointEnded(PLACE.amqp_session))
    net.advance(1_000_000.0)
    assert not net.has_publisher()
