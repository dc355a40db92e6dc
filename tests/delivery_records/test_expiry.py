"""Attachments without a link end after their time, by one compare-and-delete (rules K-5, K-6, A-9)."""

from __future__ import annotations

import pytest

from delivery_records import effects
from delivery_records.inputs import Failure, LossCause
from delivery_records.limits import EXPIRY_RETRY_S, ORPHAN_RANK_STEP_S, SUSPENDED_EXTRA_S, Limits
from delivery_records.outcomes import Decision
from tests.delivery_records.harness import Net, StoreFault

T = 20.0


@pytest.mark.parametrize(
    ("policy", "cause", "extra"),
    [
        ("link-detach", LossCause.DETACH, 0.0),
        ("link-detach", LossCause.SESSION_END, 0.0),
        ("link-detach", LossCause.CONNECTION_LOSS, 0.0),
        ("session-end", LossCause.DETACH, SUSPENDED_EXTRA_S),
        ("session-end", LossCause.SESSION_END, 0.0),
        ("session-end", LossCause.CONNECTION_LOSS, 0.0),
        ("connection-close", LossCause.DETACH, SUSPENDED_EXTRA_S),
        ("connection-close", LossCause.SESSION_END, SUSPENDED_EXTRA_S),
        ("connection-close", LossCause.CONNECTION_LOSS, 0.0),
        ("no-such-policy", LossCause.DETACH, 0.0),
    ],
)
def test_a_subscription_ends_its_time_after_what_its_policy_waits_for(
    policy: str, cause: LossCause, extra: float
) -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], policy=policy, timeout_s=T)
    if cause is LossCause.DETACH:
        subscriber.detach(closed=False)
    else:
        subscriber.drop(cause)
    net.advance(T + extra - 0.1)
    assert net.has_subscription()
    net.advance(0.2)
    assert not net.has_subscription()


def test_never_means_the_cap() -> None:
    net = Net(limits=Limits(subscription_timeout_cap_s=300.0))
    subscriber = net.subscriber(net.nodes[0], policy="never", timeout_s=T)
    assert subscriber.last(effects.SubscriberReply).timeout_s == 300.0
    subscriber.flow(10, delivery_count=1)
    subscriber.drop()
    net.advance(299.0)
    assert net.has_subscription()
    net.advance(2.0)
    assert not net.has_subscription()


def test_a_longer_wish_is_granted_up_to_the_cap() -> None:
    net = Net(limits=Limits(subscription_timeout_cap_s=300.0))
    assert net.subscriber(net.nodes[0], timeout_s=1e9).last(effects.SubscriberReply).timeout_s == 300.0
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
    net.nodes[0].faults.append(StoreFault(Failure.UNAVAILABLE))
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
