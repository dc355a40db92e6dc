"""A link belongs to a user of a virtual host: equal names of two users are two links (A-2c)."""

from __future__ import annotations

from dataclasses import replace

from delivery_records.model.inputs import NOBODY, Owner
from delivery_records.model.tags import link_key
from delivery_records.model.topics import in_vhost
from delivery_records.model.view import Kind, SubscriptionRecord
from tests.delivery_records.harness import Net
from tests.delivery_records.links import TOPIC

ANN, BOB = Owner(user="ann"), Owner(user="bob")


def test_two_users_have_a_subscription_each_under_the_same_names() -> None:
    net = Net(2)
    anns = net.subscriber(net.nodes[0], owner=ANN)
    bobs = net.subscriber(net.nodes[1], owner=BOB)
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    assert anns.deliveries == bobs.deliveries == [b"1"]
    anns.accept(b"1")
    assert publisher.accepted == []
    bobs.accept(b"1")
    assert publisher.accepted == [delivery]
    assert anns.detached() is None


def test_two_users_have_a_publisher_each_under_the_same_names() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[0])
    anns = net.publisher(net.nodes[0], owner=ANN)
    bobs = net.publisher(net.nodes[1], owner=BOB)
    anns.send(b"1")
    bobs.send(b"1")
    assert subscriber.deliveries == [b"1", b"1"]
    assert anns.detached() is None


def test_a_user_who_adopts_keeps_what_was_subscribed_without_a_login() -> None:
    net = Net(2)
    before = net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    before.drop()
    after = net.subscriber(net.nodes[1], owner=replace(ANN, adopts=True))
    assert after.deliveries == [b"1"]
    held = net.etcd.keys[(Kind.SUBSCRIPTION, link_key("s", "link"))].record
    assert isinstance(held, SubscriptionRecord)
    assert held.user == "ann"


def test_what_one_user_has_adopted_neither_another_nor_an_anonymous_client_can_take() -> None:
    net = Net(1)
    anns = net.subscriber(net.nodes[0], owner=replace(ANN, adopts=True))
    for owner in (replace(BOB, adopts=True), NOBODY):
        other = net.subscriber(net.nodes[0], owner=owner, limit=0)
        assert other.end().condition == "amqp:unauthorized-access"
    assert anns.detached() is None


def test_a_router_of_an_older_release_may_write_the_key_and_the_user_gets_it_back() -> None:
    net = Net(1)
    net.subscriber(net.nodes[0], owner=replace(ANN, adopts=True)).drop()
    place = (Kind.SUBSCRIPTION, link_key("s", "link"))
    held = net.etcd.keys[place]
    assert isinstance(held.record, SubscriptionRecord)
    assert net.etcd.compare_and_swap(net.subscription_path(), held.mod_revision, replace(held.record, user=""))
    net.run()
    back = net.subscriber(net.nodes[0], owner=replace(ANN, adopts=True))
    assert back.detached() is None


def test_a_topic_of_one_virtual_host_does_not_reach_the_patterns_of_another() -> None:
    net = Net(1)
    of_default = net.subscriber(net.nodes[0], "a", topic="#")
    of_acme = net.subscriber(net.nodes[0], "b", topic=in_vhost("acme", "#"), owner=Owner("acme"))
    of_other = net.subscriber(net.nodes[0], "c", topic=in_vhost("other", "#"), owner=Owner("other"))
    net.publisher(net.nodes[0], topic=in_vhost("acme", TOPIC), owner=Owner("acme")).send(b"1")
    assert of_acme.deliveries == [b"1"]
    assert of_default.deliveries == of_other.deliveries == []
