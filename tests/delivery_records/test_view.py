"""The view: a fold of changes, and the difference to a snapshot leads to the same view (rules K-2, K-4, K-7)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from chaos.simulator.etcd import SimEtcd
from delivery_records.model.view import (
    SESSION_IS_THIS_PUT,
    Change,
    Kind,
    PublisherRecord,
    RouterRecord,
    SubscriptionRecord,
    View,
    rid_of_key,
    router_key,
)

SUBSCRIPTION = SubscriptionRecord("c", "l", "orders.*", 1, "n", map_bound=0)
PUBLISHER = PublisherRecord("c", "l", "orders.eu", 1, "n", session=SESSION_IS_THIS_PUT)


def _random_write(etcd: SimEtcd, rng: random.Random, number: int) -> None:
    kind = rng.choice(list(Kind))
    key = f"k{rng.randrange(4)}"
    if kind is Kind.ROUTER:
        record = RouterRecord("node.with.dots", rng.randrange(1, 5), leaving=rng.random() < 0.2)
        key = router_key(record)
        if (kind, key) in etcd.keys and rng.random() < 0.5:
            etcd.delete(kind, key)
        else:
            etcd.put(kind, key, record)
    elif (kind, key) in etcd.keys and rng.random() < 0.3:
        etcd.delete(kind, key)
    elif kind is Kind.SUBSCRIPTION:
        topic = rng.choice(["orders.*", "orders.eu", "#"])
        user, bound = rng.choice(["", "ann"]), rng.choice([0, 7, 12])
        etcd.put(kind, key, replace(SUBSCRIPTION, topic=topic, user=user, rid=number, map_bound=bound))
    else:
        held = etcd.keys.get((kind, key))
        session = SESSION_IS_THIS_PUT
        if held is not None and isinstance(held.record, PublisherRecord) and rng.random() < 0.5:
            session = held.record.session if held.record.session > 0 else held.mod_revision
        etcd.put(kind, key, replace(PUBLISHER, topic=rng.choice(["orders.eu", "news"]), session=session))


def _same(one: View, other: View) -> None:
    for view in (one, other):
        assert set(view.subscription_epochs.values()) == set(view.subscriptions)
        assert set(view.publisher_epochs.values()) == set(view.publishers)
        owners = [(each.record.vhost, each.record.user) for each in view.subscriptions.values()]
        owners += [(each.record.vhost, each.record.user) for each in view.publishers.values()]
        assert view.keys_of == Counter(owners)
        assert view.sessions == {p.session: p.key for p in view.publishers.values() if p.session}
    assert one.subscriptions == other.subscriptions
    assert one.publishers == other.publishers
    assert one.routers.keys() == other.routers.keys()
    assert one.publishers_of == other.publishers_of
    for topic in ("orders.eu", "news", "other"):
        keys = [sorted(s.key for s in view.matching(topic)) for view in (one, other)]
        assert keys[0] == keys[1]
        assert one.map_share(topic) == other.map_share(topic)


@pytest.mark.parametrize("seed", range(50))
def test_a_snapshots_difference_leads_to_the_view_that_all_events_lead_to(seed: int) -> None:
    rng = random.Random(seed)
    etcd = SimEtcd()
    folded, jumping = View(), View()
    for number in range(60):
        _random_write(etcd, rng, number)
        folded.apply(etcd.log[-1])
        if rng.random() < 0.2:
            _, entries = etcd.snapshot()
            for change in jumping.difference(entries):
                jumping.apply(change)
            _same(folded, jumping)
            routers_only = [change for change in jumping.difference(entries) if change.kind is not Kind.ROUTER]
            assert routers_only == []


def test_a_key_made_again_is_reported_as_deleted_first() -> None:
    view = View()
    view.apply(Change(Kind.SUBSCRIPTION, "k", SUBSCRIPTION, 3, 5))
    changes = view.difference([Change(Kind.SUBSCRIPTION, "k", SUBSCRIPTION, 8, 8)])
    assert [(change.record is None, change.create_revision) for change in changes] == [(True, 3), (False, 8)]


def test_routers_come_first_in_a_difference() -> None:
    router = RouterRecord("r", 9)
    entries = [
        Change(Kind.SUBSCRIPTION, "k", SUBSCRIPTION, 1, 1),
        Change(Kind.ROUTER, router_key(router), router, 5, 5),
    ]
    assert [change.kind for change in View().difference(entries)] == [Kind.ROUTER, Kind.SUBSCRIPTION]


def test_a_session_that_starts_with_its_put_is_the_puts_revision_and_stays_it() -> None:
    view = View()
    view.apply(Change(Kind.PUBLISHER, "k", PUBLISHER, 4, 4))
    assert view.publishers["k"].session == 4
    assert view.publishers["k"].record.session == 4
    view.apply(Change(Kind.PUBLISHER, "k", view.publishers["k"].record, 4, 9))
    assert view.publishers["k"].session == 4


def test_dead_incarnations_are_remembered() -> None:
    view = View()
    router = RouterRecord("r.eu", 0xAB)
    view.apply(Change(Kind.ROUTER, router_key(router), router, 1, 1))
    view.apply(Change(Kind.ROUTER, router_key(router), None, 1, 2))
    assert not view.routers
    assert 0xAB in view.dead
    assert rid_of_key("r.eu.ab") == 0xAB


def test_a_map_is_shared_by_the_publishers_of_every_topic_its_pattern_matches() -> None:
    view = View()
    view.apply(Change(Kind.SUBSCRIPTION, "wide", replace(SUBSCRIPTION, topic="orders.*", map_bound=12), 1, 1))
    view.apply(Change(Kind.SUBSCRIPTION, "eu", replace(SUBSCRIPTION, topic="orders.eu", map_bound=5), 2, 2))
    assert (view.map_share("orders.eu"), view.map_share("orders.us"), view.map_share("news")) == (5, 12, 0)
    for number, topic in enumerate(["orders.eu", "orders.us", "orders.us", "news"], 3):
        record = replace(PUBLISHER, topic=topic)
        view.apply(Change(Kind.PUBLISHER, f"p{number}", record, number, number))
    assert (view.map_share("orders.eu"), view.map_share("orders.us"), view.map_share("news")) == (4, 4, 0)
    view.apply(Change(Kind.PUBLISHER, "p4", None, 4, 9))
    assert (view.map_share("orders.eu"), view.map_share("orders.us")) == (5, 6)
    view.apply(Change(Kind.SUBSCRIPTION, "wide", None, 1, 10))
    assert (view.map_share("orders.eu"), view.map_share("orders.us")) == (5, 0)


def test_a_map_smaller_than_its_publishers_still_lets_each_send_one() -> None:
    view = View()
    view.apply(Change(Kind.SUBSCRIPTION, "s", replace(SUBSCRIPTION, topic="#", map_bound=2), 1, 1))
    for number in range(2, 8):
        view.apply(Change(Kind.PUBLISHER, f"p{number}", PUBLISHER, number, number))
    assert view.map_share("orders.eu") == 1
