"""The attach procedure and what etcd may do to it (rules A-1 to A-5, A-2a, A-2b, K-2, K-2a, A-8)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.inputs import StoreFailure
from delivery_records.model.limits import PUT_RETRIES, READ_ATTACHES, UNKNOWN_PUT_S, Limits
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.view import Kind, PublisherRecord, SubscriptionMode, SubscriptionRecord
from tests.delivery_records.harness import Net
from tests.delivery_records.links import Link, PublisherLink, SubscriberLink
from tests.delivery_records.nodes import StoreFault

KINDS = pytest.mark.parametrize("kind", ["s", "p"])


def _attach(net: Net, kind: str, node: int = 0) -> Link:
    """Send an attach, whatever becomes of it."""
    if kind == "s":
        subscriber = SubscriberLink(net, net.nodes[node])
        subscriber.attach(unsettled={}, exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE)
        return subscriber
    publisher = PublisherLink(net, net.nodes[node])
    publisher.attach(unsettled={})
    return publisher


def _fail(net: Net, *failures: StoreFailure, node: int = 0) -> None:
    """Let the next operations of the router fail like this."""
    net.nodes[node].faults.extend(StoreFault(failure) for failure in failures)


@KINDS
def test_without_a_lease_an_attach_ends_the_link_and_writes_nothing(kind: str) -> None:
    net = Net()
    net.feed(net.nodes[0], inputs.StoreHealth(False))
    revision = net.etcd.revision
    link = _attach(net, kind)
    assert link.is_refused_by_store()
    assert link.end().condition == "amqp:internal-error"
    assert net.etcd.revision == revision
    net.feed(net.nodes[0], inputs.StoreHealth(True))
    assert _attach(net, kind).answered()


@KINDS
def test_an_attach_is_answered_only_when_the_watch_delivers_its_own_put(kind: str) -> None:
    net = Net()
    net.nodes[0].is_watch_held = True
    link = _attach(net, kind)
    net.advance(5.0)
    assert not link.answered()
    net.nodes[0].is_watch_held = False
    net.run()
    assert link.answered()


@KINDS
def test_every_attach_reads_its_key_before_it_writes(kind: str) -> None:
    net = Net()
    net.nodes[0].is_store_held = True
    _attach(net, kind)
    assert [type(operation) for operation in net.nodes[0].waiting] == [effects.Read]


@KINDS
def test_where_many_attach_an_attach_over_what_the_view_shows_is_one_put(kind: str) -> None:
    net = Net(limits=Limits(read_attaches=0))
    net.nodes[0].is_store_held = True
    _attach(net, kind)
    assert [type(operation) for operation in net.nodes[0].waiting] == [effects.Propose]


def test_of_many_attaches_at_once_the_first_ones_read_their_keys() -> None:
    net = Net()
    node = net.nodes[0]
    node.is_store_held = True
    for number in range(READ_ATTACHES + 10):
        SubscriberLink(net, node).attach(f"s{number}")
    assert [type(operation) for operation in node.waiting] == [effects.Read] * READ_ATTACHES + [effects.Propose] * 10
    node.is_store_held = False
    net.run()
    assert node.count(Decision.SUBSCRIBER_ATTACHED) == READ_ATTACHES + 10


def test_attaches_of_unknown_fate_count_among_those_under_way() -> None:
    net = Net()
    node = net.nodes[0]
    for number in range(READ_ATTACHES):
        node.is_store_held = True
        SubscriberLink(net, node).attach(f"s{number}")
        net._operate(node, node.waiting.popleft())  # the read succeeds
        _fail(net, StoreFailure.UNKNOWN)
        node.is_store_held = False
        net.run()
    assert node.count(Decision.ATTACH_UNKNOWN) == READ_ATTACHES
    node.is_store_held = True
    SubscriberLink(net, node).attach("next")
    assert [type(operation) for operation in node.waiting] == [effects.Propose]


@KINDS
def test_where_many_attach_one_whose_view_was_late_reads_its_key_at_once_and_goes_on(kind: str) -> None:
    net = Net(2, limits=Limits(read_attaches=0))
    node = net.nodes[1]
    node.is_watch_held = True
    first = _attach(net, kind)
    node.is_store_held = True
    second = _attach(net, kind, 1)
    operations = []
    while node.waiting:
        operations.append(type(node.waiting[0]))
        net._operate(node, node.waiting.popleft())
        net.run()
    assert operations == [effects.Propose, effects.Read, effects.Propose]
    node.is_watch_held = False
    net.run()
    assert second.answered()
    assert first.end().condition == "amqp:link:stolen"
    assert node.count(Decision.ATTACH_RETRIED) == 0


@KINDS
def test_where_many_attach_a_key_that_keeps_changing_refuses_the_attach(kind: str) -> None:
    net = Net(limits=Limits(read_attaches=0))
    _fail(net, *[StoreFailure.CONFLICT] * (PUT_RETRIES + 2))
    link = _attach(net, kind)
    net.advance(5.0)
    assert (link.end().condition, link.end().closed) == ("amqp:resource-locked", True)


@pytest.mark.parametrize("read_attaches", [0, READ_ATTACHES])
def test_a_late_watch_does_not_make_a_live_session_look_expired(read_attaches: int) -> None:
    net = Net(2, limits=Limits(read_attaches=read_attaches))
    net.nodes[1].is_watch_held = True
    first = net.publisher(net.nodes[0])
    first.send(b"1")
    first.drop()
    again = PublisherLink(net, net.nodes[1])
    again.attach(unsettled={b"1": None})
    assert again.detached() is None
    net.nodes[1].is_watch_held = False
    net.run()
    again.echo()
    assert again.credit > 0


@KINDS
def test_a_lost_compare_is_tried_again_after_doubling_pauses(kind: str) -> None:
    net = Net()
    reads = []
    for _ in range(PUT_RETRIES):
        net.nodes[0].faults.extend([StoreFault(StoreFailure.CONFLICT)])
    link = _attach(net, kind)
    while not link.answered():
        reads.append(net.now)
        deadline = net.nodes[0].core.next_deadline()
        assert deadline is not None
        net.advance(deadline - net.now)
    pauses = [later - earlier for earlier, later in zip(reads, [*reads[1:], net.now], strict=True)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8])


@KINDS
def test_a_key_that_keeps_changing_refuses_the_attach(kind: str) -> None:
    net = Net()
    _fail(net, *[StoreFailure.CONFLICT] * (PUT_RETRIES + 1))
    link = _attach(net, kind)
    net.advance(5.0)
    assert (link.end().condition, link.end().closed) == ("amqp:resource-locked", True)


@KINDS
def test_an_unreachable_etcd_ends_the_link_at_the_read(kind: str) -> None:
    net = Net()
    _fail(net, StoreFailure.UNAVAILABLE)
    link = _attach(net, kind)
    assert link.is_refused_by_store()
    assert _attach(net, kind).answered()


@KINDS
def test_a_read_of_unknown_fate_ends_the_link_at_once(kind: str) -> None:
    net = Net()
    _fail(net, StoreFailure.UNKNOWN)
    assert _attach(net, kind).is_refused_by_store()


def _fail_put(net: Net, kind: str, fault: StoreFault) -> Link:
    """Attach with the put, not the read, failing."""
    node = net.nodes[0]
    node.is_store_held = True
    link = _attach(net, kind)
    net._operate(node, node.waiting.popleft())  # the read succeeds
    node.faults.append(fault)
    node.is_store_held = False
    net.run()
    return link


@KINDS
def test_an_unreachable_etcd_ends_the_link_at_the_put(kind: str) -> None:
    net = Net()
    link = _fail_put(net, kind, StoreFault(StoreFailure.UNAVAILABLE))
    assert link.is_refused_by_store()
    assert _attach(net, kind).answered()


@KINDS
def test_a_put_of_unknown_fate_that_shows_in_the_watch_is_an_attach_like_any_other(kind: str) -> None:
    net = Net()
    link = _fail_put(net, kind, StoreFault(StoreFailure.UNKNOWN, is_applied=True))
    assert link.answered()
    net.advance(2 * UNKNOWN_PUT_S)
    assert not link.is_refused_by_store()


@KINDS
def test_a_put_of_unknown_fate_is_waited_for_and_then_ends_the_link(kind: str) -> None:
    net = Net()
    link = _fail_put(net, kind, StoreFault(StoreFailure.UNKNOWN))
    net.advance(UNKNOWN_PUT_S - 0.1)
    assert not link.is_refused_by_store()
    net.advance(0.2)
    assert link.is_refused_by_store()
    assert _attach(net, kind).answered()


@KINDS
def test_a_put_that_shows_after_its_client_was_sent_away_counts_as_attached_and_lost(kind: str) -> None:
    net = Net()
    node = net.nodes[0]
    node.is_watch_held = True
    link = _fail_put(net, kind, StoreFault(StoreFailure.UNKNOWN, is_applied=True))
    net.advance(UNKNOWN_PUT_S + 0.1)
    assert link.is_refused_by_store()
    node.is_watch_held = False
    net.run()
    assert not link.answered()
    assert net.has_subscription() or net.has_publisher()
    net.advance(60.0 if kind == "s" else net.limits.publisher_timeout_s)
    assert not net.has_subscription()
    assert not net.has_publisher()


@KINDS
def test_a_second_attach_of_one_identity_waits_for_the_first(kind: str) -> None:
    net = Net()
    net.nodes[0].is_watch_held = True
    first, second = _attach(net, kind), _attach(net, kind)
    assert len(net.nodes[0].all(effects.Propose)) == 1
    net.nodes[0].is_watch_held = False
    net.run()
    assert first.answered()
    assert second.answered()
    assert first.end().condition == "amqp:link:stolen"
    assert second.detached() is None


@KINDS
def test_a_waiting_attach_whose_client_has_gone_is_left_out(kind: str) -> None:
    net = Net()
    net.nodes[0].is_watch_held = True
    first, second, third = (_attach(net, kind) for _ in range(3))
    second.drop()
    net.nodes[0].is_watch_held = False
    net.run()
    assert not second.answered()
    assert first.end().condition == "amqp:link:stolen"
    assert third.detached() is None


@KINDS
@pytest.mark.parametrize("held", ["store", "watch"])
def test_an_attach_whose_client_has_gone_lets_the_next_one_go_on(kind: str, held: str) -> None:
    net = Net()
    node = net.nodes[0]
    node.is_store_held, node.is_watch_held = held == "store", held == "watch"
    first = _attach(net, kind)
    first.drop()
    second = _attach(net, kind)
    node.is_store_held = node.is_watch_held = False
    net.run()
    assert first.got == []
    assert second.answered()


@KINDS
def test_two_routers_order_their_attaches_by_the_writes(kind: str) -> None:
    net = Net(2)
    first, second = _attach(net, kind, 0), _attach(net, kind, 1)
    assert first.end().condition == "amqp:link:stolen"
    assert second.detached() is None


@KINDS
@pytest.mark.parametrize("topic", ["", "a" * 256, "*.a/b", ".".join("a" * 17)])
def test_a_topic_that_cannot_be_used_is_refused_before_anything_is_written(kind: str, topic: str) -> None:
    net = Net()
    revision = net.etcd.revision
    link: Link
    if kind == "s":
        link = subscriber = SubscriberLink(net, net.nodes[0])
        subscriber.attach(topic=topic)
    else:
        link = publisher = PublisherLink(net, net.nodes[0])
        publisher.attach(topic=topic)
    assert (link.end().condition, link.end().closed) == ("amqp:invalid-field", True)
    assert net.etcd.revision == revision


def test_a_publisher_cannot_publish_to_a_pattern() -> None:
    net = Net()
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(topic="orders.*")
    assert publisher.end().condition == "amqp:invalid-field"


@KINDS
def test_a_key_with_another_name_in_it_refuses_the_attach(kind: str) -> None:
    net = Net()
    path = net.subscription_path("s") if kind == "s" else net.publisher_path("p")
    key = path.partition("/")[2]
    if kind == "s":
        net.etcd.put(Kind.SUBSCRIPTION, key, SubscriptionRecord("other", "link", "orders", 1, "n", timeout_s=60.0))
    else:
        net.etcd.put(Kind.PUBLISHER, key, PublisherRecord("other", "link", "orders", 1, "n", timeout_s=60.0))
    net.run()
    assert _attach(net, kind).end().condition == "amqp:invalid-field"


# ---------------------------------------------------------------------- topics that change, look-ups


def test_a_subscriber_that_changes_its_topic_ends_the_old_subscription_first() -> None:
    net = Net(2)
    first = net.subscriber(net.nodes[0], topic="old")
    publisher = net.publisher(net.nodes[1], topic="old")
    delivery = publisher.send(b"1")
    incarnation = first.last(effects.SubscriberReply).incarnation
    second = net.subscriber(net.nodes[0], topic="new")
    assert first.end().condition == "amqp:resource-deleted"
    assert publisher.accepted == [delivery]
    assert second.last(effects.SubscriberReply).topic == "new"
    assert second.last(effects.SubscriberReply).incarnation > incarnation
    changes = [(change.record is None) for change in net.etcd.log if change.kind is Kind.SUBSCRIPTION]
    assert changes == [False, True, False]


def test_a_topic_change_that_loses_its_compare_is_tried_again() -> None:
    net = Net()
    net.subscriber(net.nodes[0], topic="old").drop()
    node = net.nodes[0]
    node.is_store_held = True
    second = SubscriberLink(net, node)
    second.attach(topic="new", exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE, unsettled={})
    net._operate(node, node.waiting.popleft())
    node.faults.append(StoreFault(StoreFailure.CONFLICT))
    node.is_store_held = False
    net.advance(1.0)
    assert second.last(effects.SubscriberReply).topic == "new"


def test_a_publisher_that_changes_its_topic_gets_a_new_session() -> None:
    net = Net()
    first = net.publisher(net.nodes[0], topic="old")
    second = net.publisher(net.nodes[0], topic="new")
    one, other = first.last(effects.GrantPublisherCredit).session, second.last(effects.GrantPublisherCredit).session
    assert one is not None
    assert other is not None
    assert other > one


def test_a_publisher_with_unfinished_deliveries_cannot_take_them_to_another_topic() -> None:
    net = Net()
    net.publisher(net.nodes[0], topic="old").drop()
    revision = net.etcd.revision
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(topic="new", unsettled={b"1": None})
    assert publisher.end().condition == "oncewire:session-expired"
    assert net.etcd.revision == revision


def test_a_look_up_finds_the_subscription_with_the_terms_it_was_made_with() -> None:
    net = Net()
    first = net.subscriber(net.nodes[0], topic="orders.#", policy="never", timeout_s=5.0)
    incarnation = first.last(effects.SubscriberReply).incarnation
    first.flow(1, delivery_count=1)
    first.drop()
    second = net.subscriber(net.nodes[0], topic=None, policy="session-end", timeout_s=1.0)
    reply = second.last(effects.SubscriberReply)
    assert (reply.topic, reply.incarnation) == ("orders.#", incarnation)
    assert (reply.expiry_policy, reply.timeout_s) == ("link-detach", net.limits.subscription_timeout_cap_s)
    net.publisher(net.nodes[0], topic="orders.eu").send(b"1")
    assert second.deliveries == [b"1"]


def test_a_look_up_that_finds_nothing_is_refused() -> None:
    net = Net()
    subscriber = SubscriberLink(net, net.nodes[0])
    subscriber.attach(topic=None)
    assert (subscriber.end().condition, subscriber.end().closed) == ("amqp:not-found", True)
    assert not net.has_subscription()


# ---------------------------------------------------------------------- sessions


def test_unfinished_deliveries_without_a_session_are_refused_and_nothing_is_written() -> None:
    net = Net()
    revision = net.etcd.revision
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(unsettled={b"1": None})
    end = publisher.end()
    assert (end.condition, end.closed, dict(end.info)) == (
        "oncewire:session-expired",
        True,
        {"x-opt-topic-resume": "expired"},
    )
    assert net.etcd.revision == revision


def test_a_map_with_outcomes_only_counts_as_empty() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0], unsettled={b"1": DeliveryOutcome.ACCEPTED, b"2": DeliveryOutcome.REJECTED})
    assert publisher.credit > 0
    assert not publisher.last(effects.PublisherReply).resumed


def test_a_session_that_cannot_be_started_ends_the_link() -> None:
    net = Net()
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(unsettled={})
    _fail(net, StoreFailure.UNAVAILABLE)
    publisher.echo()
    assert publisher.is_refused_by_store()
    assert net.publisher(net.nodes[0]).credit > 0


def test_a_session_of_unknown_fate_ends_the_link_and_may_show_later() -> None:
    net = Net()
    node = net.nodes[0]
    publisher = PublisherLink(net, node)
    publisher.attach(unsettled={})
    node.is_watch_held = True
    node.faults.append(StoreFault(StoreFailure.UNKNOWN, is_applied=True))
    publisher.echo()
    net.advance(UNKNOWN_PUT_S - 0.1)
    assert not publisher.is_refused_by_store()
    net.advance(0.2)
    assert publisher.is_refused_by_store()
    node.is_watch_held = False
    net.run()
    assert publisher.all(effects.GrantPublisherCredit) == []
    assert net.publisher(node).credit > 0


def test_a_put_of_unknown_fate_does_not_touch_the_link_that_replaced_its_own() -> None:
    """F31: its end would start T_pub for a publisher that is attached, and take its session away."""
    net = Net()
    node = net.nodes[0]
    first = PublisherLink(net, node)
    first.attach(unsettled={})
    node.faults.append(StoreFault(StoreFailure.UNKNOWN))
    first.echo()
    second = net.publisher(node)
    second.send(b"1")
    net.advance(UNKNOWN_PUT_S + net.limits.publisher_timeout_s + 1.0)
    assert not first.is_refused_by_store()
    assert net.has_publisher()
    assert not second.is_refused_by_store()


def test_a_session_whose_epoch_was_overtaken_is_not_started() -> None:
    net = Net(2)
    publisher = PublisherLink(net, net.nodes[0])
    publisher.attach(unsettled={})
    net.nodes[0].is_watch_held = True
    newer = net.publisher(net.nodes[1])
    publisher.echo()
    assert publisher.is_refused_by_store()
    net.nodes[0].is_watch_held = False
    net.run()
    assert newer.credit > 0


def test_the_decisions_of_the_procedure_are_counted() -> None:
    net = Net()
    _fail(net, StoreFailure.CONFLICT)
    _attach(net, "s")
    net.advance(1.0)
    assert net.nodes[0].count(Decision.ATTACH_RETRIED) == 1
    assert net.nodes[0].count(Decision.SUBSCRIBER_ATTACHED) == 1


def test_the_put_of_a_router_that_has_died_meanwhile_disturbs_nobody() -> None:
    net = Net(3)
    dying = net.nodes[2]
    net.subscriber(net.nodes[1]).drop()
    publisher = net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    dying.is_store_held = True
    SubscriberLink(net, dying).attach("s", topic="orders", unsettled={}, mode=SubscriptionMode.EXACTLY_ONCE)
    read = dying.waiting.popleft()
    net.feed(dying, net.etcd.read(read.nonce, read.key))
    put = dying.waiting.popleft()
    assert isinstance(put, effects.Propose)
    net.kill(dying)
    assert net.etcd.compare_and_swap(put.key, put.expect, put.record)
    net.run()
    assert publisher.accepted == []
    net.subscriber(net.nodes[1]).accept(b"1")
    assert publisher.accepted == [delivery]
